//! JSONTestSuite (nst/JSONTestSuite, MIT) against the strict parser: `y_` must parse, `n_` must not, `i_` is recorded.
//!
//! The suite is third-party data and not copied here. It is read from the folder that `JSON_TEST_SUITE` names or, without
//! that, from `.tools/JSONTestSuite/test_parsing`; where there is none the test says so and checks nothing.

use std::path::{Path, PathBuf};
use std::{env, fs};

use schemas::Code;
use schemas::validate::{DOCUMENT_BYTES_MAX, parse};

/// Of the cases that RFC 8259 leaves open we accept those whose numbers are doubles and whose texts are Unicode.
const OPEN_CASES_ACCEPTED: [&str; 5] = [
    "i_number_double_huge_neg_exp.json",
    "i_number_real_underflow.json",
    "i_number_too_big_neg_int.json",
    "i_number_too_big_pos_int.json",
    "i_number_very_big_negative_int.json",
];
/// As many as the suite had when this was written; fewer means that it was not found whole.
const CASES_MIN: usize = 318;

#[test]
fn every_case_of_the_suite_gets_the_verdict_it_names() {
    let Some(folder) = suite() else {
        eprintln!("SKIPPED: JSONTestSuite not found; set JSON_TEST_SUITE to its folder test_parsing");
        return;
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() <= DOCUMENT_BYTES_MAX);
        let verdict = parse(&bytes);
        if verdict.is_ok() != must_parse(&name) {
            wrong.push(format!("{name}: {:?}", verdict.map(|_| "accepted")));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen >= CASES_MIN, "only {seen} cases");
}

#[test]
fn a_hundred_thousand_open_arrays_are_refused_before_the_stack_notices() {
    for open in ["[", "{\"a\":"] {
        let refused = parse(open.repeat(10_000).as_bytes()).unwrap_err();
        assert_eq!(refused.code, Code::TooDeep);
    }
    assert_eq!(parse("[".repeat(100_000).as_bytes()).unwrap_err().code, Code::TooLarge);
}

fn must_parse(name: &str) -> bool {
    // Two `y_` cases name a member twice, which RFC 8259 allows and RFC 7493 (I-JSON) does not.
    let is_duplicate = name.starts_with("y_object_duplicated_key");
    (name.starts_with("y_") && !is_duplicate) || OPEN_CASES_ACCEPTED.contains(&name)
}

fn suite() -> Option<PathBuf> {
    let tools = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/JSONTestSuite/test_parsing");
    Some(env::var_os("JSON_TEST_SUITE").map_or_else(tools, PathBuf::from)).filter(|folder| folder.is_dir())
}
