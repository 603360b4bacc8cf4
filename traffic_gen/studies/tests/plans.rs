//! Plans that make no sense: each is refused with line, column and remedy, before anything runs.

use std::path::Path;

use studies::plan::{Asked, PlanFaults, read};

const GOOD: &str = r#"name = "mine"
text = "What waiting costs"
seeds = 2
[[grid]]
contractors = [5, 12]
policy = ["low", "high"]
rate = [2.5, 10]
duration = ["2m"]
[grid.contractor]
delay_ms = { exponential = { mean = 40 } }
cost = { uniform = { lo = 50, hi = 150 } }
[[hypothesis]]
text = "Waiting is slower"
test = "decision_p95_ms <= 500"
"#;

fn refused(text: &str) -> PlanFaults {
    read("mine.toml", text, Asked::default()).expect_err(text)
}

#[test]
fn a_plan_is_the_product_of_its_lists() {
    let plan = read("mine.toml", GOOD, Asked::default()).unwrap();
    assert_eq!(plan.cells.len(), 2 * 2 * 2 * 2);
    assert_eq!(plan.cells[0].id, "low-n5-r2.5-s1");
    assert_eq!(plan.cells[15].id, "high-n12-r10-s2");
    let seeds: Vec<u64> = plan.cells.iter().map(|cell| cell.seed).collect();
    assert_eq!(seeds, [[1; 8], [2; 8]].concat(), "whatever changes about the machine meets every group alike");
    assert!(plan.cells.iter().all(|cell| cell.duration_s == 120.0 && cell.labels["delay_ms"] == "exponential 40"));
    let asked = Asked { seed: Some(7), seeds: Some(1), time_scale: Some(4.0) };
    let plan = read("mine.toml", GOOD, asked).unwrap();
    assert!(plan.cells.len() == 8 && plan.cells.iter().all(|cell| cell.seed == 7));
    assert!((plan.length_s() - 8.0 * 30.0).abs() < 1e-9);
}

#[test]
fn a_population_behaves_as_the_grid_says_but_for_what_it_says_itself() {
    let populations = "[[grid.population]]\nname = \"griefer\"\ncount = 1\ncontractor = { ignore_award = 1.0 }\n\
                       [[grid.population]]\nname = \"dear\"\nshare = 0.4\ncontractor = { markup = 0.5 }\n[[hyp";
    let plan = read("mine.toml", &GOOD.replace("[[hyp", populations), Asked::default()).unwrap();
    assert_eq!(plan.cells.len(), 16);
    for cell in &plan.cells {
        let [griefer, dear] = &cell.populations[..] else { panic!("{cell:?}") };
        assert_eq!((griefer.count, dear.count), (1, if cell.contractors == 5 { 2 } else { 5 }));
        assert_eq!((cell.contractor.ignore_award, griefer.contractor.ignore_award), (0.0, 1.0));
        assert_eq!((cell.markup, griefer.markup, dear.markup), (0.0, 0.0, 0.5));
        assert_eq!(griefer.contractor.reply_delay_ms, cell.contractor.reply_delay_ms);
        let expected = format!("1 griefer (ignore_award 1); {} dear (markup 0.5)", dear.count);
        assert_eq!(cell.labels["populations"], expected);
    }
    let (alike, text) = (read("mine.toml", GOOD, Asked::default()).unwrap(), serde_json::to_string);
    assert!(!text(&alike.cells[0]).unwrap().contains("population"), "plans without populations are as they were");
}

/// What in [`GOOD`] is replaced, by what, where the fault is, and words of fault and remedy.
const BAD: [(&str, &str, (usize, usize), &str); 55] = [
    ("name = \"mine\"", "name = \"my plan\"", (1, 8), "is no name; use 1 to 64 letters"),
    ("name = \"mine\"", "name = \"\"", (1, 8), "is no name; use 1 to 64 letters"),
    ("name = \"mine\"\n", "", (1, 1), "missing field `name`; add it"),
    ("\"What waiting costs\"", "\" \"", (2, 8), "the text is empty; say what"),
    ("text = \"What waiting costs\"", "text = What", (2, 8), "write TOML"),
    ("seeds = 2", "seeds = 0", (3, 9), "0 seeds; give 1 to 10000"),
    ("seeds = 2", "seeds = 20000", (3, 9), "20000 seeds; give 1 to 10000"),
    ("seeds = 2", "seeds = -1", (3, 9), "invalid value"),
    ("seeds = 2", "seeds = \"two\"", (3, 9), "invalid type"),
    ("seeds = 2", "sedes = 2", (3, 1), "did you mean `seeds`?"),
    ("seeds = 2", "seeds = 2\nseeds = 3", (4, 1), "duplicate key"),
    ("seeds = 2", "time_scale = 0.0", (3, 14), "time_scale is 0; give a number above 0"),
    ("seeds = 2", "time_scale = -60", (3, 14), "time_scale is -60; give a number above 0"),
    ("[5, 12]", "[]", (5, 15), "contractors is an empty list: nothing would run; give one value"),
    ("[5, 12]", "[5, 0]", (5, 19), "contractors `0` cannot be; give 1 to 10000"),
    ("[5, 12]", "[5, 10001]", (5, 19), "contractors `10001` cannot be; give 1 to 10000"),
    ("[5, 12]", "5", (5, 15), "invalid type"),
    ("[5, 12]", "[5, 12, 5]", (4, 1), "is there already"),
    ("\"low\", \"high\"", "\"low\", \"hihg\"", (6, 18), "did you mean `high`?"),
    ("\"low\", \"high\"", "\"first-0\"", (6, 11), "give first-1 to first-1000"),
    ("\"low\", \"high\"", "\"bargain-low\"", (6, 11), "policy `bargain-low` cannot be"),
    ("[2.5, 10]", "[-2.5]", (7, 9), "rate `-2.5` cannot be; give calls per second"),
    ("[2.5, 10]", "[0]", (7, 9), "rate `0` cannot be; give calls per second"),
    ("[2.5, 10]", "[nan]", (7, 9), "rate `NaN` cannot be; give calls per second"),
    ("[\"2m\"]", "[\"31d\"]", (8, 13), "duration `31d` cannot be; give a length"),
    ("[\"2m\"]", "[\"800h\"]", (8, 13), "duration `800h` cannot be; give a length"),
    ("[\"2m\"]", "[\"0s\"]", (8, 13), "duration `0s` cannot be; give a length"),
    ("[\"2m\"]", "[\"soon\"]", (8, 13), "duration `soon` cannot be; give a length"),
    ("[\"2m\"]", "[\"2m\"]\nload = [\"burts:3\"]", (9, 9), "there is no such kind; give poisson"),
    ("[\"2m\"]", "[\"2m\"]\nload = [\"replay:/nowhere/rounds.jsonl\"]", (9, 9), "name a file that is there"),
    ("[\"2m\"]", "[\"2m\"]\nprotocol = [\"auction\"]", (9, 13), "give contract-net or alternating"),
    ("[\"2m\"]", "[\"2m\"]\nstrategies = [\"all\"]", (9, 14), "strategies are for bargains; take them out, or add"),
    (
        "[\"2m\"]",
        "[\"2m\"]\nprotocol = [\"contract-net\", \"alternating\"]",
        (9, 12),
        "give each a [[grid]] of its own",
    ),
    ("[\"2m\"]", "[\"2m\"]\nwarm_up = 1001", (9, 11), "warm_up is 1001; give calls, 0 to 1000"),
    ("{ mean = 40 }", "{ mean = -40 }", (10, 12), "delay_ms `exponential -40` cannot be; give amounts"),
    ("lo = 50, hi = 150", "lo = 150, hi = 50", (11, 8), "cost `uniform 150 50` cannot be; give amounts"),
    ("delay_ms =", "silent = 1.5\ndelay_ms =", (10, 10), "silent is 1.5; give a chance, 0 to 1"),
    ("delay_ms =", "duplicate = 2\ndelay_ms =", (10, 13), "duplicate is 2; give a chance, 0 to 1"),
    ("delay_ms =", "malformed = -1\ndelay_ms =", (10, 13), "malformed is -1; give a chance, 0 to 1"),
    ("delay_ms =", "rate_factor = 1e9\ndelay_ms =", (10, 15), "give how many times the rate of others, 0 to 10000"),
    ("[\"2m\"]", "[\"2m\"]\nrequests_per_s = 0", (9, 18), "requests_per_s is 0; give requests per second"),
    ("[[hyp", "[[grid.population]]\nname = \"my odd\"\ncount = 1\n[[hyp", (13, 8), "is no name; use 1 to 64 letters"),
    ("[[hyp", "[[grid.population]]\ncount = 1\n[[hyp", (12, 1), "missing field `name`; add it"),
    (
        "[[hyp",
        "[[grid.population]]\nname = \"rest\"\ncount = 1\n[[hyp",
        (13, 8),
        "there is a population `rest` already",
    ),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\n[[hyp", (12, 1), "neither count nor share; give one of the two"),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\ncount = 1\nshare = 0.1\n[[hyp", (12, 1), "both count and share"),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\ncount = 0\n[[hyp", (14, 9), "count is 0; give contractors"),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\nshare = 1.5\n[[hyp", (14, 9), "share is 1.5; give a share"),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\nshare = 0.01\n[[hyp", (12, 1), "odd would be 0 of 5 contractors"),
    ("[[hyp", "[[grid.population]]\nname = \"odd\"\ncount = 6\n[[hyp", (12, 1), "odd would be 6 of 5 contractors"),
    (
        "[[hyp",
        "[[grid.population]]\nname = \"odd\"\ncount = 1\ncontractor = { silnet = 1.0 }\n[[hyp",
        (15, 16),
        "did you mean `silent`?",
    ),
    (
        "[[hyp",
        "[[grid.population]]\nname = \"odd\"\ncount = 1\nmodel = \"/nowhere.toml\"\n[[hyp",
        (15, 9),
        "model /nowhere.toml: ",
    ),
    (
        "[[hyp",
        "[[grid.population]]\nname = \"odd\"\ncount = 1\nmodel = \"Cargo.toml\"\n[[hyp",
        (15, 9),
        "model Cargo.toml: ",
    ),
    (
        "[[hyp",
        "[[grid.population]]\nname = \"odd\"\ncount = 1\ncontractor = { silent = 0.5 }\nmodel = \"m\"\n[[hyp",
        (15, 25),
        "odd asks a model, and has a script; give one of the two",
    ),
    ("decision_p95_ms", "decision_p59_ms", (14, 8), "did you mean decision_p95_ms?"),
];

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_line_column_and_remedy() {
    for (good, bad, (line, column), words) in BAD {
        assert!(GOOD.contains(good), "{good}");
        let faults = refused(&GOOD.replacen(good, bad, 1));
        let fault = &faults.faults[0];
        assert_eq!((fault.line, fault.column), (line, column), "{bad}: {faults}");
        let told = faults.to_string();
        assert!(told.starts_with(&format!("mine.toml:{line}:{column}: ")) && told.contains(words), "{bad}: {told}");
        assert!(!fault.remedy.is_empty(), "{bad}");
    }
}

/// An endpoint on loopback, without a key.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/model.toml");

const BARGAINS: &str = r#"name = "mine"
text = "Who agrees"
[[grid]]
protocol = ["alternating"]
contractors = [4]
policy = ["bargain-low", "bargain-high"]
rate = [5]
duration = ["2s"]
strategies = ["boulware", "linear+micro"]
"#;

#[test]
fn a_grid_of_bargains_is_the_product_of_policies_and_strategies() {
    let plan = read("mine.toml", BARGAINS, Asked::default()).unwrap();
    let ids: Vec<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    let expected = ["low-n4-boulware", "high-n4-boulware", "low-n4-linear-micro", "high-n4-linear-micro"];
    assert_eq!(ids, expected.map(|name| format!("bargain-{name}-s1")));
    let last = plan.cells.last().unwrap();
    assert_eq!(
        (last.protocol(), &last.strategies[..]),
        ("alternating", &["linear".to_owned(), "micro".to_owned()][..])
    );
    assert_eq!(last.labels["strategies"], "linear+micro");
    for (good, bad, (line, column), words) in [
        ("[4]", "[2]", (5, 16), "contractors `2` cannot be; give 3 to"),
        ("\"bargain-low\"", "\"low\"", (6, 11), "policy `low` cannot be; give bargain-low, bargain-medium"),
        ("\"boulware\"", "\"boldware\"", (9, 15), "there is no strategy `boldware`"),
        ("[5]", "[5]\nload = [\"uniform\"]", (8, 8), "load is for contract-net; take it out"),
        ("[5]", "[5]\ncontractor = { silent = 0.1 }", (8, 25), "contractor is for contract-net; take it out"),
        (
            "[[grid]]",
            "[[hypothesis]]\ntext = \"All offer\"\ntest = \"completion >= 0.9\"\n[[grid]]",
            (5, 8),
            "is of contract-net, and every grid bargains; take the hypothesis out",
        ),
    ] {
        let faults = refused(&BARGAINS.replacen(good, bad, 1));
        assert_eq!((faults.faults[0].line, faults.faults[0].column), (line, column), "{bad}: {faults}");
        assert!(faults.to_string().contains(words), "{bad}: {faults}");
    }
}

#[test]
fn a_grid_of_bargains_may_name_its_domains() {
    let folder = tempfile::tempdir().unwrap();
    let three_parties = include_str!("../../../domains/three_party.json");
    let text = three_parties.replacen("\"name\": \"", "\"name\": \"own-", 1);
    assert_ne!(text, three_parties);
    let [own, twin] = ["own.json", "twin.json"].map(|name| folder.path().join(name).to_string_lossy().into_owned());
    std::fs::write(&own, &text).unwrap();
    std::fs::write(&twin, three_parties).unwrap();
    let named = |files: &str| BARGAINS.replacen("[5]", &format!("[5]\ndomains = {files}"), 1);
    let plan = read("mine.toml", &named(&format!("['{own}']")), Asked::default()).unwrap();
    for cell in &plan.cells {
        assert_eq!(cell.domains.iter().map(|domain| domain.file.as_path()).collect::<Vec<_>>(), [Path::new(&own)]);
        assert_eq!(cell.domains[0].document, schemas::Digest::of_bytes(text.as_bytes()));
        assert!(cell.labels["domains"].starts_with("own-"), "{:?}", cell.labels);
    }
    for (files, words) in [
        ("[]".to_owned(), "domains is an empty list: nothing would run".to_owned()),
        (
            "['none.json']".to_owned(),
            "domains `none.json` cannot be; give the file of a domain: No such file".to_owned(),
        ),
        (format!("['{}']", folder.path().join("bad.json").display()), "expected".to_owned()),
        (format!("['{}']", folder.path().display()), "it is no file".to_owned()),
        (format!("['{own}', '{twin}']"), "have the same name or the same issues; give each domain once".to_owned()),
    ] {
        std::fs::write(folder.path().join("bad.json"), "no domain").unwrap();
        let faults = refused(&named(&files));
        assert!(faults.faults[0].line == 8 && faults.to_string().contains(&words), "{files}: {faults}");
    }
    let of_calls = GOOD.replacen("[5, 12]", &format!("[5, 12]\ndomains = ['{own}']"), 1);
    assert!(refused(&of_calls).to_string().contains("domains are for bargains; take them out, or add protocol"));
}

#[test]
fn a_grid_that_asks_a_model_has_time_for_it_unless_it_says_otherwise() {
    let asking = format!("[[grid.population]]\nname = \"asking\"\nshare = 1.0\nmodel = '{MODEL}'\n[[hyp");
    let hurried = GOOD.replacen("policy = [\"low\", \"high\"]\nrate = [2.5, 10]\n", "", 1);
    let told = refused(&hurried).to_string();
    assert!(told.contains("missing field `policy`; add it") && told.contains("missing field `rate`; add it"), "{told}");
    let usual = read("mine.toml", &hurried.replace("[[hyp", &asking), Asked::default()).unwrap();
    for cell in &usual.cells {
        assert_eq!((cell.policy.name(), cell.rate, cell.reply_within_ms), ("patient", 0.1, 60_000));
        assert_eq!(cell.labels["reply_within_ms"], "60000", "it is like no cell with less time");
    }
    let said = read("mine.toml", &GOOD.replace("[[hyp", &asking), Asked::default()).unwrap();
    assert_eq!((said.cells[0].policy.name(), said.cells[0].rate), ("low", 2.5));
}

#[test]
fn every_fault_of_a_plan_is_told_in_the_order_of_the_file() {
    let bad = GOOD.replace("[5, 12]", "[0]").replace("\"high\"", "\"hgih\"").replace("[\"2m\"]", "[]");
    let lines: Vec<_> = refused(&bad).faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [5, 6, 8]);
}

#[test]
fn a_plan_without_a_grid_or_with_too_many_cells_is_refused() {
    let empty = "name = \"mine\"\ntext = \"nothing\"\ngrid = []\n";
    assert!(refused(empty).to_string().contains("there is no grid; add [[grid]]"));
    let many = GOOD.replace("seeds = 2", "seeds = 10000").replace("[5, 12]", "[1, 2, 3]");
    assert!(refused(&many).to_string().contains("more than 10000 cells"));
    let twice =
        format!("{GOOD}{}", GOOD.split_once("[[grid]]").unwrap().1.split_once("[[hypothesis]]").unwrap().0.to_owned());
    assert!(read("mine.toml", &twice, Asked::default()).is_err());
}
