//! The command line as scripts rely on it (docs/commands.md): exit codes, one JSON document on stdout, help, signals.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");

/// A domain file of the project.
const ECOMMERCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/ecommerce.json");

#[test]
fn a_demo_as_json_prints_one_document_with_the_keys_scripts_rely_on() {
    let output = llmx(&["demo", "--json", "--duration", "2", "--agents", "5", "--rate", "20", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary = one_document(&output);
    for key in ["rounds", "cfps", "offers", "awards", "confirms"] {
        assert!(summary[key].as_u64().unwrap() > 0, "{key} in {summary}");
    }
    for key in ["completion", "award_rate", "elapsed_s"] {
        assert!(summary[key].as_f64().unwrap() > 0.0, "{key} in {summary}");
    }
    assert_eq!((&summary["seed"], &summary["bus"], &summary["agents"]), (&7.into(), &"memory".into(), &5.into()));
    assert_eq!(summary["policy"], "medium@1");
    for latency in ["decision", "round"] {
        let quantiles = ["p50", "p95", "p99", "max"].map(|name| summary["latency_ms"][latency][name].as_f64().unwrap());
        assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{latency}: {quantiles:?}");
    }
    let jain = &summary["jain"];
    assert!(jain["index"].as_f64().unwrap() <= 1.0 && jain["null"].as_f64().unwrap() <= 1.0, "{jain}");
    let violations = &summary["invariant_violations"];
    assert_eq!(violations["total"], 0, "{violations}");
    let by_name = violations["by_name"].as_object().unwrap();
    assert_eq!(by_name.len(), 12, "one for each invariant that rounds can show: {violations}");
    assert!(by_name.values().all(|tally| tally["checked"].as_u64().unwrap() > 0), "{violations}");
    assert_eq!(summary["rejected"], serde_json::json!({}));
}

#[test]
fn the_same_seed_offers_and_calls_the_same() {
    let run = || {
        let args = ["demo", "--json", "--duration", "1", "--agents", "5", "--policy", "high", "--seed", "11"];
        let summary = one_document(&llmx(&args));
        ["cfps", "offers", "rounds", "awards"].map(|key| summary[key].clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_replay_of_an_export_is_equal_and_of_a_tampered_copy_fails_and_names_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("run.jsonl"), folder.path().join("copy.jsonl"));
    let demo = llmx(&["demo", "--json", "--duration", "1", "--agents", "5", "--export", text(&file)]);
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));

    let equal = llmx(&["replay", text(&file)]);
    assert_eq!(equal.status.code(), Some(0), "{}", stderr(&equal));
    assert!(String::from_utf8_lossy(&equal.stdout).contains("every decision is as recorded"));
    let report = one_document(&llmx(&["replay", "--json", text(&file)]));
    assert!(report["decisions"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["decisions"], one_document(&demo)["awards"], "one for each award of the demo");
    assert_eq!(report["first_difference"], Value::Null);

    // Somebody improves an offer after the fact.
    let original = std::fs::read_to_string(&file).unwrap();
    let (before, after) = original.split_once("\"price\":").unwrap();
    std::fs::write(&copy, format!("{before}\"price\":1{after}")).unwrap();
    let differs = llmx(&["replay", "--json", text(&copy)]);
    assert_eq!(differs.status.code(), Some(1));
    let difference = one_document(&differs)["first_difference"].as_str().unwrap().to_owned();
    assert!(difference.starts_with("message ") && difference.contains("its body has digest"), "{difference}");
    assert!(stderr(&differs).contains(&difference));
    // Somebody breaks the file.
    std::fs::write(&copy, &original[..original.len() / 2]).unwrap();
    let broken = llmx(&["replay", text(&copy)]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(stderr(&broken).contains("line "), "{}", stderr(&broken));
}

/// What is altered of an export: the kind of line and what it holds, the text replaced, by what, and how that is named.
type Forgery<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

#[test]
fn findings_of_panels_are_recomputed_and_a_changed_digit_seat_text_or_owner_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let args = ["demo", "--protocol", "panel", "--json", "--duration", "1", "--rate", "20", "--export", text(&file)];
    let demo = one_document(&llmx(&args));
    let panels = demo["tally"]["outcomes"].as_object().unwrap();
    let found: u64 = ["consensus", "plurality"].iter().filter_map(|outcome| panels.get(*outcome)?.as_u64()).sum();
    let report = one_document(&llmx(&["replay", "--json", text(&file)]));
    assert!(found > 5 && report["decisions"] == found, "{found} findings: {report}");
    assert_eq!(report["first_difference"], Value::Null);
    assert_named(
        &file,
        &[
            ("decision", "", "\"relative_ppm\":", "\"relative_ppm\":1", ": panelists[0].relative_ppm"),
            ("decision", "", "\"asked\":[\"", "\"asked\":[\"x", ": rounds[0].asked[0]"),
            ("decision", "", "\"answered\":", "\"answered\":1", ": calls.answered"),
            ("record", "\"act\":\"answer\"", "\"answer\":\"", "\"answer\":\"9", ": its body has digest"),
            ("record", "\"act\":\"answer\"", "{\"message\":{\"from\":\"", "{\"message\":{\"from\":\"x", "decision "),
            ("register", "{\"finding\":", "\"decision\":\"", "\"decision\":\"0", "register key award.alice~"),
        ],
    );
}

#[test]
fn formations_and_ends_of_teams_are_recomputed_and_a_change_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    llmx(&["demo", "--protocol", "team", "--json", "--duration", "2", "--rate", "5", "--export", text(&file)]);
    let report = one_document(&llmx(&["replay", "--json", text(&file)]));
    assert!(report["decisions"].as_u64().unwrap() > 0 && report["first_difference"] == Value::Null, "{report}");
    assert_named(
        &file,
        &[
            ("decision", "", "\"seats\":", "\"seats\":1", ": seats"),
            ("record", "\"act\":\"join\"", "{\"message\":{\"from\":\"", "{\"message\":{\"from\":\"x", "decision "),
            (
                "record",
                "\"act\":\"say\"",
                "{\"message\":{\"from\":\"",
                "{\"message\":{\"from\":\"x",
                "register key closed.",
            ),
            (
                "record",
                "\"act\":\"conclude\"",
                "{\"message\":{\"from\":\"",
                "{\"message\":{\"from\":\"x",
                "register key closed.",
            ),
            ("register", "{\"formed\":", "\"decision\":\"", "\"decision\":\"0", "register key award."),
            ("register", "", "\"outcome\":\"concluded\"", "\"outcome\":\"unconcluded\"", "register key closed."),
        ],
    );
}

/// Every forgery is found by itself, and named.
fn assert_named(file: &Path, forgeries: &[Forgery<'_>]) {
    let copy = file.with_extension("copy");
    let original = std::fs::read_to_string(file).unwrap();
    for (kind, holds, from, to, named) in forgeries {
        let begins = format!("{{\"line\":{{\"{kind}\":");
        let is_it = |line: &&str| line.starts_with(&begins) && line.contains(holds) && line.contains(from);
        let line = original.lines().find(is_it).unwrap_or_else(|| panic!("no {kind} has {holds} {from}"));
        std::fs::write(&copy, original.replacen(line, &line.replacen(from, to, 1), 1)).unwrap();
        let differs = llmx(&["replay", text(&copy)]);
        let told = stderr(&differs);
        assert!(differs.status.code() == Some(1) && told.contains(named), "{kind} {holds} {from} as {to}: {told}");
    }
}

#[test]
fn one_negotiation_can_be_replayed_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    llmx(&["demo", "--json", "--duration", "1", "--agents", "5", "--seed", "3", "--export", text(&file)]);
    let report = one_document(&llmx(&["replay", "--json", "--negotiation", "alice~run-3-0", text(&file)]));
    assert_eq!((&report["decisions"], &report["register_entries"]), (&1.into(), &3.into()), "{report}");
}

#[test]
fn bad_usage_and_configuration_exit_2_and_say_what_is_wrong() {
    for (args, told) in [
        (&[][..], "Usage"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["demo", "--frobnicate"], "unexpected argument"),
        (&["demo", "--agents", "0"], "not in 1..=1000"),
        (&["demo", "--agents", "many"], "invalid digit"),
        (&["demo", "--policy", "generous"], "there is no preset `generous`; there are low, medium, high"),
        (&["demo", "--rate", "0"], "llmx: the rate must be a positive number"),
        (&["demo", "--protocol", "alternating", "--rate", "0"], "llmx: the rate must be a positive number"),
        (&["demo", "--rate=-1"], "the rate must be a positive number"),
        (&["demo", "--duration", "nan"], "--duration"),
        (&["demo", "--duration", "1.5e19"], "--duration: at most 31536000 seconds"),
        (&["traffic", "--duration", "1.5e19"], "--duration: at most 31536000 seconds"),
        (&["healthcheck", "--wait", "1.5e19", "http://127.0.0.1:1"], "--wait: a day at most"),
        (&["demo", "--contractor", "/nonexistent"], "/nonexistent"),
        (&["demo", "--nats-local", "--nats", "nats://127.0.0.1:4222"], "cannot be used with"),
        (&["chaos", "--kill", "all"], "type: llmx-lab chaos --kill all (built by: cargo build --release -p llmx -p"),
        (&["replay"], "give either a file or --nats URL"),
        (&["replay", "/nonexistent"], "/nonexistent"),
        (&["replay", "/etc"], "there is no archive"),
        (&["archive"], "--to"),
        (&["archive", "--to", "x", "--segment-bytes", "0"], "not in 1.."),
        (&["archive", "--to", "x", "--keep-bytes", "1"], "not in 67108864.."),
        (&["audit"], "verify"),
        (&["audit", "verify", "/nonexistent"], "/nonexistent"),
        (&["replay", "--negotiation", "x", "/nonexistent"], "negotiation id"),
        (&["policy", "show", "generous"], "there is no preset"),
        (&["policy", "check", "/nonexistent"], "/nonexistent"),
        (&["policy", "default", "low", "--key", "/nonexistent"], "name the key of the exchange to join (--key FILE"),
        (&["token", "bob", "--key", "/nonexistent"], "for a new exchange `llmx keys` makes one"),
        (&["token", "bob", "--lifetime", "0"], "not in 1..=2592000"),
        (&["token", "bob", "--lifetime", "2592001"], "not in 1..=2592000"),
        (&["call", "fix", "a", "tap"], "the task is one argument; quote it: llmx call \"fix a tap\""),
        (&["schema", "show", "generous"], "there is no schema"),
        (&["schema", "check", "/nonexistent"], "/nonexistent"),
        (&["token"], "AGENT"),
        (&["gateway", "--listen", "nowhere"], "give IP:PORT, such as 127.0.0.1:8080"),
        (&["gateway", "--id", "a b"], "1 to 64 characters of A-Z a-z 0-9 _ -"),
        (&["engine", "--id", "a b"], "1 to 64 characters of A-Z a-z 0-9 _ -"),
        (&["engine", "--nats", "http://127.0.0.1:4222"], "`http://127.0.0.1:4222` is no NATS URL"),
        (&["engine", "--nats", "nats://127.0.0.1:1", "--nats-creds", "/nonexistent"], "/nonexistent"),
        (&["demo", "--trace", "/dev/null/run/trace"], "cannot write /dev/null/run/trace"),
        (&["demo", "--csv", "/dev/null/run/minutes"], "cannot write /dev/null/run/minutes"),
        (&["demo", "--export", "/dev/null/run/log"], "cannot write /dev/null/run/log"),
        (&["demo", "--protocol", "alternating", "--trace", "/dev/null/run/trace"], "cannot write /dev/null/run/trace"),
        (&["traffic", "--trace", "/dev/null/run/trace"], "cannot write /dev/null/run/trace"),
        (&["traffic", "--csv", "/dev/null/run/minutes"], "cannot write /dev/null/run/minutes"),
        (&["traffic", "--gateway", "nonsense"], "give http://HOST:PORT"),
        (&["traffic", "--wait", "0"], "not in 1..=86400"),
        (&["policy", "show", "low", "--gateway", "ftp://nonsense"], "give http://HOST:PORT"),
        (&["healthcheck", "nonsense"], "give http://HOST:PORT"),
        (&["healthcheck", "nats://127.0.0.1:4222"], "give http://HOST:PORT"),
        (&["token", "a b"], "invalid value 'a b'"),
        (&["party", "/nonexistent", "--party", "shop"], "/nonexistent"),
        (&["party", ECOMMERCE, "--party", "nobody"], "there is no party `nobody`; there are customer, shop"),
        (&["party", ECOMMERCE, "--party", "shop", "--call", "customer"], "--call is for its first party, `customer`"),
        (&["party", ECOMMERCE, "--party", "customer", "--call", "a,b"], "--call names 2 agents; 1 are expected"),
        (&["demo", "--keep-prompts", "x"], "--keep-prompts needs --contractor-model or --initiator-model"),
        (&["demo", "--initiator-model", "x", "--policy", "medium"], "under medium@1 the exchange decides"),
        (&["demo", "--initiator-model", "/nonexistent"], "/nonexistent"),
        (&["contractors", "--keep-prompts", "x"], "--model"),
        (&["contractors", "--routines", "/nonexistent"], "cannot read /nonexistent"),
        (&["demo", "--routines", "--protocol", "alternating"], "--routines is for the contract net"),
        (&["demo", "--routines", "--contractor-model", "x"], "cannot be used with"),
    ] {
        let output = llmx(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}: stdout is for results");
    }
}

#[test]
fn a_model_for_the_terms_of_contractors_and_routines_are_not_used_together() {
    let output = llmx(&["contractors", "--routines", "x", "--model", "y"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("named in the file of --routines: `model = FILE`"), "{}", stderr(&output));
}

#[test]
fn what_was_asked_for_and_failed_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("document.json");
    std::fs::write(&document, r#"{"id":"mine@1","max_rounds":0}"#).unwrap();
    let closed_port = "http://127.0.0.1:1/readyz";
    for (args, told) in [
        (&["healthcheck", closed_port][..], "no answer"),
        (&["policy", "check", text(&document)], "max_rounds"),
        (&["schema", "check", text(&document)], "envelope"),
        (&["schema", "check", "--kind", "policy", text(&document)], "max_rounds"),
        (&["demo", "--nats", "nats://127.0.0.1:1"], "cannot be reached"),
    ] {
        let output = llmx(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn offline_commands_stay_offline_whatever_the_environment_says() {
    let run = |args: &[&str]| {
        let mut command = assert_cmd::Command::new(LLMX);
        command.args(args).env("LLMX_GATEWAY", "http://127.0.0.1:1").env("LLMX_TOKEN", "a.b.c");
        command.timeout(Duration::from_secs(120)).output().unwrap()
    };
    for args in [&["policy", "show", "medium"][..], &["policy", "list"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(output.stdout, llmx(args).stdout, "{args:?}");
    }
    for online in [&["policy", "show", "medium", "--gateway", "http://127.0.0.1:1"][..], &["policy", "default", "low"]]
    {
        let output = run(online);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("no gateway answers at http://127.0.0.1:1"), "{}", stderr(&output));
    }
}

#[test]
fn a_schema_verdict_as_json_names_code_and_pointer() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("document.json");
    std::fs::write(&document, r#"{"id":"mine@1","max_rounds":0}"#).unwrap();
    let output = llmx(&["schema", "check", "--json", "--kind", "policy", text(&document)]);
    assert_eq!(output.status.code(), Some(1));
    let verdict = one_document(&output);
    assert_eq!(verdict["valid"], false);
    assert_eq!(
        (&verdict["problem"]["code"], &verdict["problem"]["pointer"]),
        (&"out_of_range".into(), &"/max_rounds".into())
    );
}

#[test]
fn presets_can_be_listed_shown_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.json");
    let listed = llmx(&["policy", "list"]);
    let names: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(["high-strict@1", "patient@1"].iter().all(|name| names.iter().any(|known| known == name)), "{names:?}");
    for id in names {
        let shown = llmx(&["policy", "show", id.split('@').next().unwrap()]);
        std::fs::write(&file, &shown.stdout).unwrap();
        let checked = llmx(&["policy", "check", text(&file)]);
        assert_eq!(checked.status.code(), Some(0), "{id}: {}", stderr(&checked));
    }
}

#[test]
fn a_token_that_most_gateways_refuse_is_made_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("signing-key.pem");
    assert_eq!(llmx(&["keys", "--out", text(folder.path())]).status.code(), Some(0));
    for (lifetime, is_warned) in [("86400", false), ("24h", false), ("86401", true), ("2d", true)] {
        let made = llmx(&["token", "bob", "--key", text(&key), "--lifetime", lifetime]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        assert_eq!(stderr(&made).contains("lives longer than 86400 s"), is_warned, "{}", stderr(&made));
    }
}

#[test]
fn a_key_is_added_to_the_set_that_gateways_read() {
    let folder = tempfile::tempdir().unwrap();
    let keys = |args: &[&str]| llmx(&[&["keys", "--out", text(folder.path()), "--json"], args].concat());
    let nothing = keys(&["--add"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
    assert!(stderr(&nothing).contains("jwks.json") && stderr(&nothing).contains("--add needs"), "{}", stderr(&nothing));
    let [first, second] = [one_document(&keys(&[])), one_document(&keys(&["--add", "--algorithm", "es256"]))];
    let set = std::fs::read_to_string(folder.path().join("jwks.json")).unwrap();
    let set: serde_json::Value = serde_json::from_str(&set).unwrap();
    let kids: Vec<&serde_json::Value> = set["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
    assert_eq!(kids, [&first["kid"], &second["kid"]]);
    assert!(set["keys"][1]["d"].is_null(), "a private half in {set}");
    for made in [first, second] {
        let signed = llmx(&["token", "bob", "--key", made["signing_key"].as_str().unwrap()]);
        assert_eq!(signed.status.code(), Some(0), "{}", stderr(&signed));
    }
}

#[test]
fn help_of_every_command_has_an_example() {
    let commands = [
        "demo",
        "gateway",
        "engine",
        "contractors",
        "agent",
        "call",
        "top",
        "completions",
        "man",
        "listen",
        "traffic",
        "replay",
        "archive",
        "audit",
        "policy",
        "token",
        "keys",
        "schema",
        "party",
        "healthcheck",
        "config",
    ];
    let listed = String::from_utf8(llmx(&["--help"]).stdout).unwrap();
    assert!(listed.contains("Examples:") && listed.contains("Exit codes: 0"), "{listed}");
    for command in commands {
        assert!(listed.contains(&format!("\n  {command} ")), "{command} is not listed");
        let output = llmx(&[command, "--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}");
        let examples = help.split_once("Example").unwrap_or_else(|| panic!("{command}: {help}")).1;
        assert!(examples.contains(&format!("llmx {command}")), "{command}: {help}");
    }
}

#[test]
fn the_earlier_name_of_a_command_still_works() {
    let help = |name: &str| String::from_utf8(llmx(&[name, "--help"]).stdout).unwrap();
    assert_eq!(help("agents"), help("contractors"));
    assert!(help("agents").contains("--count"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_demo_still_settles_prints_its_summary_and_exits_cleanly() {
    for json in [false, true] {
        let mut command = Command::new(LLMX);
        command.args(["demo", "--agents", "5", "--rate", "20", "--duration", "600"]);
        let trace = tempfile::NamedTempFile::new().unwrap();
        command.arg("--trace").arg(trace.path());
        if json {
            command.arg("--json");
        }
        let began = Instant::now();
        let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(demo.stderr.take().unwrap()).lines().map_while(Result::ok);
        let is_shown = json || said.any(|line| line.contains("offers"));
        assert!(is_shown, "a person sees how it goes");
        // The trace grows once calls are made.
        while trace.as_file().metadata().unwrap().len() == 0 {
            assert!(demo.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = demo.wait_with_output().unwrap();
        let said = rest_of(said);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("30 s at most; Ctrl-C again ends at once"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(120), "it does not wait for its duration");
        if json {
            let summary = one_document(&output);
            assert!(summary["rounds"].as_u64().unwrap() > 0, "{summary}");
            assert_eq!(summary["rounds"], summary["cfps"], "what was called has ended");
            assert_eq!((&summary["interrupted"], &summary["cut_off"]), (&true.into(), &false.into()), "{summary}");
        } else {
            let summary = String::from_utf8(output.stdout).unwrap();
            assert!(summary.starts_with("INTERRUPTED: ") && summary.contains("invariants: 0 violations"), "{summary}");
            assert!(!summary.contains("not judged"), "{summary}");
        }
    }
}

/// What else was said.
fn rest_of(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs the program; it must end by itself.
fn llmx(args: &[&str]) -> Output {
    assert_cmd::Command::new(LLMX).args(args).timeout(Duration::from_secs(120)).output().unwrap()
}

/// Standard output, which must be exactly one JSON document.
fn one_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", String::from_utf8_lossy(&output.stdout), stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
