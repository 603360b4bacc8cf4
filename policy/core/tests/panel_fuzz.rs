//! Random bytes with meaning: rules of panels, answers of every kind, and texts compared by BLEU. Nothing panics, what was drawn
//! twice is read alike, and nothing holds a lane for long.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use fuzzing::Mixture;
use policy_core::panel::key::{agrees, key};
use schemas::panel::{ANSWER_BYTES_MAX, AnswerKind, ElementKind, PanelSpec, check_panel};

/// Inputs of each target where no time is asked for.
const INPUTS: u64 = 1_500;

#[test]
fn no_rules_of_a_panel_are_read_in_two_ways_or_take_long() {
    let valid = [
        r#"{"rounds":3,"answer":{"kind":"choice","options":["A","B","C"]},"select":{"after_round":2,"keep":2,"ranker":{"kind":"agent","agent":"carol","rank_ms":20000}}}"#,
        r#"{"answer":{"kind":"set","of":"number","separator":","},"review":{"by":["ann","bob"],"review_ms":1000},"consensus_from":2,"rounds":8}"#,
        r#"{"answer":{"kind":"bleu","at_least_permille":900},"choose":{"keep":4,"from":{"agents":["ann"]},"min_runs":1,"newcomers":1}}"#,
    ];
    let words = [
        "\"rounds\":",
        "0",
        "9",
        "-1",
        "1e9",
        "null",
        "[",
        "]",
        "{",
        "}",
        "\"answer\":",
        "\"kind\":\"json\"",
        ",",
        "\"\"",
        "18446744073709551616",
    ];
    fuzz("panel-rules", &valid, &words, |text| {
        let read = || {
            serde_json::from_str::<PanelSpec>(text).ok().map(|spec| check_panel(&spec).map_err(|fault| fault.pointer))
        };
        assert_eq!(format!("{:?}", read()), format!("{:?}", read()));
    });
}

#[test]
fn no_number_is_read_in_two_ways_or_takes_long() {
    let valid =
        ["-1,234.50e-3", "22/7", "50%", "+.5e+64", "9999999999999999999999999999999999999999999999999999999999999999"];
    fuzz(
        "panel-number",
        &valid,
        &["0", "9", "/", ".", "e", "-", "+", "%", ",", " ", "00000000"],
        keyed(&[AnswerKind::Number]),
    );
}

#[test]
fn no_mathematics_is_read_in_two_ways_or_takes_long() {
    let valid = ["\\frac{1}{2}", "\\sqrt3 + \\text{ cm}", "x=\\dfrac12", "\\left(0.5, \\right)", "1/2"];
    let words =
        ["\\frac", "\\sqrt", "\\text{ ", "{", "}", "\\", "\\\\", "=", "0.5", "/", "^{\\circ}", "\\!", " ", "\\$"];
    fuzz("panel-math", &valid, &words, keyed(&[AnswerKind::Math]));
}

#[test]
fn no_document_or_set_is_read_in_two_ways_or_takes_long() {
    let valid = ["{\"a\":[1,2,{\"b\":null}],\"c\":\"\\u00e9\"}", "[[[[[[[[1]]]]]]]]", "3, 1,2, 1.0", "so be it"];
    let words =
        ["[", "]", "{", "}", "\"a\":", "\"\\ud800\"", "1.5", "9007199254740993", ",", "\\u0000", "{\"a\":1,\"a\":2}"];
    let kinds = [
        AnswerKind::Json,
        AnswerKind::Set { of: ElementKind::Number, separator: ",".to_owned() },
        AnswerKind::Set { of: ElementKind::Exact, separator: ";;".to_owned() },
        AnswerKind::Exact { ignore_case: true },
        AnswerKind::Choice { options: vec!["A".to_owned(), "(a b)".to_owned()] },
    ];
    fuzz("panel-json", &valid, &words, keyed(&kinds));
}

#[test]
fn no_text_is_cut_in_two_ways_and_no_two_texts_take_long_to_compare() {
    let valid = ["def f(xs):\n    return sum(xs)  # done", "the cat sat on the mat by the door", "a a a a a a b b b b"];
    let words = ["a ", "b ", ".", ",", "&amp;", "<skipped>", "-\n", "1,000.5", "é", "\u{1f600}", "$", "  "];
    let kind = AnswerKind::Bleu { at_least_permille: 850 };
    fuzz("panel-bleu", &valid, &words, |text| {
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (one, other) = (key(&kind, &text[..middle]), key(&kind, &text[middle..]));
        if let (Ok(one), Ok(other), Ok(whole)) = (&one, &other, key(&kind, text)) {
            assert_eq!(agrees(&kind, one, other), agrees(&kind, other, one));
            assert_eq!(agrees(&kind, one, &whole), agrees(&kind, &whole, one));
        }
    });
}

/// Computes the key of a text for each of these kinds.
fn keyed(kinds: &[AnswerKind]) -> impl Fn(&str) + '_ {
    move |text| {
        for kind in kinds {
            assert_eq!(key(kind, text), key(kind, text), "{kind:?}");
        }
    }
}

/// Feeds a target with texts as long as an answer may be.
fn fuzz(name: &'static str, valid: &[&str], words: &[&str], target: impl Fn(&str)) {
    fuzzing::feed(name, INPUTS, Mixture { valid, words, bytes_max: ANSWER_BYTES_MAX }, target);
}
