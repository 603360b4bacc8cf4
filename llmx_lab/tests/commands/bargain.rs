//! `llmx-lab bargain` as scripts rely on it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::program::program;

const DOMAINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains");

#[test]
fn a_bargain_as_json_tells_who_offered_what_what_was_agreed_and_what_was_possible() {
    let report =
        document(&["bargain", &domain("ecommerce"), "--a", "linear", "--b", "linear", "--rounds", "30", "--json"]);
    assert_eq!(
        (&report["domain"], &report["outcomes"], &report["rounds_max"]),
        (&json!("ecommerce"), &json!(492), &json!(30))
    );
    assert_eq!((&report["end"], &report["parties"][0]["strategy"]), (&json!("agreement"), &json!("linear")));
    let offers: u64 = (0..2).map(|party| report["parties"][party]["offers"].as_u64().unwrap()).sum();
    assert_eq!(report["trace"].as_array().unwrap().len() as u64, offers);
    assert_eq!(report["steps"].as_u64().unwrap(), offers + 1, "the last turn accepts");
    for party in 0..2 {
        assert!(report["parties"][party]["advantage"].as_f64().unwrap() >= 0.0, "{report}");
    }
    let agreement = &report["agreement"];
    assert!(agreement["terms"]["price"].is_i64() && agreement["distances"]["pareto"].is_f64(), "{agreement}");
    let pareto = report["solutions"]["pareto"].as_array().unwrap();
    assert!(report["solutions"]["nash"].as_array().unwrap().iter().all(|point| pareto.contains(point)), "{report}");
}

#[test]
fn the_same_seed_plays_the_same_bargains() {
    let args =
        ["bargain", &domain("scheduling"), "--a", "random", "--b", "micro", "--repeat", "50", "--seed", "9", "--json"];
    let figures = document(&args);
    assert_eq!(figures, document(&args));
    assert_eq!(figures["figures"]["bargains"], 50);
    assert_eq!(figures["figures"]["irrational"], 0);
}

#[test]
fn a_plot_is_an_svg_document_for_two_parties_and_for_three() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["car_purchase", "three_party"] {
        let file = folder.path().join(format!("{name}.svg"));
        let output = llmx(&["bargain", &domain(name), "--plot", text(&file)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("Pareto frontier") && svg.trim_end().ends_with("</svg>"));
    }
}

#[test]
fn a_plot_makes_its_folder_and_one_that_cannot_be_written_fails_behind_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("run/pictures/car.svg");
    let output = llmx(&["bargain", &domain("car_purchase"), "--plot", text(&plot)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg"));
    let output = llmx(&["bargain", &domain("car_purchase"), "--plot", "/dev/null/run/car.svg"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write /dev/null/run/car.svg"), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("agreement: "), "{output:?}");
}

#[test]
fn the_check_of_mandates_counts_what_was_tried_and_what_got_through() {
    let check = document(&["bargain", "--check", "--runs", "300", "--json"]);
    let tally = &check["tally"];
    assert_eq!((&tally["runs"], &tally["breaches"], &tally["missed"]), (&json!(300), &json!(0), &json!(0)));
    assert_eq!(tally["tried"], tally["refused"]);
    assert_eq!(tally["deals"], json!([50, 50, 50, 0, 0, 50]));
}

#[test]
fn bad_domains_and_strategies_exit_2_and_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.json");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(domain("ecommerce")).unwrap()).unwrap();
    document["parties"][1]["utility"]["linear"][0]["weight"] = json!(1);
    std::fs::write(&broken, document.to_string()).unwrap();
    let unknown = folder.path().join("unknown.json");
    document["parties"][0]["policy"] = json!("bargain-never");
    document["parties"][1]["utility"]["linear"][0]["weight"] = json!(650);
    std::fs::write(&unknown, document.to_string()).unwrap();
    for (args, said) in [
        (vec!["bargain"], "DOMAIN.json"),
        (vec!["bargain", "nowhere.json"], "nowhere.json"),
        (vec!["bargain", text(&broken)], "/parties/1/utility"),
        (vec!["bargain", text(&unknown)], "bargain-never"),
        (vec!["bargain", &domain("ecommerce"), "--a", "tough"], "there is no strategy `tough`"),
        (vec!["bargain", &domain("ecommerce"), "--c", "linear"], "two parties"),
        (vec!["bargain", &domain("ecommerce"), "--rounds", "0"], "--rounds"),
    ] {
        let output = llmx(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

fn domain(name: &str) -> String {
    format!("{DOMAINS}/{name}.json")
}

fn document(args: &[&str]) -> Value {
    let output = llmx(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn llmx(args: &[&str]) -> Output {
    Command::new(program(args)).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
