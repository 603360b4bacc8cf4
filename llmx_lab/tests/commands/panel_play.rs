//! `llmx-lab panel play` as scripts rely on it (docs/panels.md): asks as those counted them who
//! were asked, results, exit codes.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::program::program;

const PANELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/panels");

#[test]
fn unanimous_panels_of_4_7_and_12_cost_3_5_and_9_asks() {
    for (seats, asks) in [(4, 3), (7, 5), (12, 9)] {
        let played = play(&format!("unanimous_{seats}"), &[]);
        let asked = &played["asks"];
        assert_eq!((asked["answers"].as_u64(), asked["rounds"].as_u64()), (Some(asks), Some(1)), "{played}");
        assert_eq!(asked["by_agent"].as_object().unwrap().len() as u64, asks, "nobody is asked twice: {played}");
        let finding = &played["finding"];
        assert_eq!((&played["outcome"], &played["is_right"]), (&json!("consensus"), &json!(true)));
        assert_eq!(
            (&finding["answer"], &finding["agreed"], &finding["of"]),
            (&json!("42"), &json!(asks), &json!(seats))
        );
        let totals = finding["panelists"].as_array().unwrap().iter().map(|seat| seat["total_e12"].as_u64().unwrap());
        assert!(totals.sum::<u64>().abs_diff(1_000_000_000_000) < seats, "one layer's importance is 1");
    }
}

#[test]
fn panels_that_never_agree_ask_every_seat_until_a_selection_and_then_the_two_it_keeps() {
    let folder = tempfile::tempdir().unwrap();
    // Three are too few for a selection: nobody ranks.
    for (seats, answers, ranks) in [(3, 9, 0), (4, 10, 1), (7, 16, 1), (12, 26, 1)] {
        let name = format!("split_{seats}");
        let mut panel: Value = serde_json::from_str(&std::fs::read_to_string(file(&name)).unwrap()).unwrap();
        panel["panel"]["select"]["ranker"] = json!({"kind": "support"});
        panel["agents"].as_array_mut().unwrap().pop();
        let path = folder.path().join("split.json");
        std::fs::write(&path, panel.to_string()).unwrap();
        let by_support = document(&llmx(&["panel", "play", path.to_str().unwrap(), "--json"]))["played"].clone();
        // The panel as it stands in its file has an agent that ranks.
        for (played, ranks) in [(play(&name, &[]), ranks), (by_support, 0)] {
            let (asked, finding) = (&played["asks"], &played["finding"]);
            let counts = (&asked["answers"], &asked["ranks"], &asked["rounds"]);
            assert_eq!(counts, (&json!(answers), &json!(ranks), &json!(3)), "{played}");
            let by_agent = asked["by_agent"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
            assert_eq!(by_agent.sum::<u64>(), answers + ranks, "as those counted them who were asked: {played}");
            let (calls, all) = (&finding["calls"], answers + ranks);
            assert_eq!((&calls["answers"], &calls["answered"]), (&json!(answers), &json!(all)), "{played}");
            assert_eq!((&played["outcome"], &played["detail"]), (&json!("plurality"), &json!("rounds")), "{played}");
            let kept = if seats > 3 { 2 } else { 3 };
            assert_eq!((&finding["agreed"], &finding["of"]), (&json!(1), &json!(kept)), "{played}");
        }
    }
}

#[test]
fn four_writers_and_three_judges_that_never_agree_cost_seventeen_asks() {
    let played = play("reviewed", &[]);
    let asked = &played["asks"];
    let counts = (&asked["answers"], &asked["ranks"], &asked["reviews"], &asked["rounds"]);
    assert_eq!(counts, (&json!(10), &json!(1), &json!(6), &json!(3)), "{played}");
    let calls = json!({"answers": 10, "ranks": 1, "reviews": 6, "answered": 17});
    assert_eq!((&played["finding"]["calls"], &played["outcome"]), (&calls, &json!("plurality")), "{played}");
    let reviewers = played["finding"]["reviewers"].as_array().unwrap();
    let totals = reviewers.iter().map(|one| one["total_e12"].as_u64().unwrap());
    assert!(totals.sum::<u64>().abs_diff(2_000_000_000_000) < 3, "two reviews of importance 1: {played}");
    let told = text(&llmx(&["panel", "play", &file("reviewed")]).stdout);
    assert!(told.contains("\nreviewer         asked"), "{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("judge-")).count(), 3, "{told}");
}

#[test]
fn many_panels_are_tallied_and_every_result_counts_the_asks_that_its_agents_counted() {
    let repeated = document(&llmx(&["panel", "play", &file("unanimous_7"), "--repeat", "20", "--json"]));
    let tally = &repeated["tally"];
    assert_eq!((&tally["panels"], &tally["asks"], &tally["miscounted"]), (&json!(20), &json!({"5": 20}), &json!(0)));
    assert_eq!((&tally["outcomes"], &tally["right"]), (&json!({"consensus": 20}), &json!(20)));
    let asked: u64 = tally["seats"].as_object().unwrap().values().map(|seat| seat["asked"].as_u64().unwrap()).sum();
    assert_eq!(asked, 100);
}

#[test]
fn a_played_panel_is_told_in_words() {
    let told = text(&llmx(&["panel", "play", &file("unanimous_4")]).stdout);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "unanimous 4: 4 seats, at most 3 rounds, seed 1, memory");
    assert!(lines[1].ends_with("~play-1-0: consensus (answers) after 3 asks in 1 round"), "{told}");
    assert_eq!(lines[3], "result  42, which is right: 3 of 4 agree in round 1; stopped by answers");
    assert_eq!(
        (lines.len(), lines.iter().filter(|line| line.ends_with("yes   0.333333   1.33")).count()),
        (9, 3),
        "{told}"
    );
}

#[test]
fn a_file_that_does_not_fit_is_named_with_its_pointer_and_the_exit_code_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let text_of = std::fs::read_to_string(file("unanimous_4")).unwrap();
    for (found, changed, says) in [
        ("\"kind\": \"number\"", "\"kind\": \"vote\"", "/panel/answer/kind: unknown variant"),
        ("\"count\": 4", "\"count\": 40", "/agents/0/count: 1 to 32"),
        ("\"right\": \"42\"", "\"right\": \"41\"", "/right: none of the options"),
    ] {
        let path = folder.path().join("panel.json");
        std::fs::write(&path, text_of.replace(found, changed)).unwrap();
        let refused = llmx(&["panel", "play", path.to_str().unwrap()]);
        let told = text(&refused.stderr);
        assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(2), ""), "{told}");
        assert!(told.contains(&format!("{}: {says}", path.display())), "{told}");
    }
}

fn play(name: &str, more: &[&str]) -> Value {
    let file = file(name);
    let args = [&["panel", "play", file.as_str(), "--json"], more].concat();
    document(&llmx(&args))["played"].clone()
}

fn file(name: &str) -> String {
    format!("{PANELS}/{name}.json")
}

fn llmx(args: &[&str]) -> Output {
    Command::new(program(args)).args(args).output().unwrap()
}

fn document(output: &Output) -> Value {
    let told = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told:?}");
    serde_json::from_str(&told.0).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
