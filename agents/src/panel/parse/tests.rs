use fuzzing::{Mixture, feed};
use proptest::prelude::*;

use super::*;

#[test]
fn ratings_are_read_by_either_mode() {
    type Case<'a> = (&'a str, usize, &'a [u32], Option<&'a [u32]>);
    let cases: [Case<'_>; 14] = [
        ("so I say [[5, 1, 2]].", 3, &[5, 1, 2], Some(&[5, 1, 2])),
        ("[[5, 1]]", 3, &[0, 0, 0], None),
        ("none", 2, &[0, 0], None),
        ("[[0, 7]]", 2, &[0, 5], Some(&[1, 5])),
        ("[[-3, 4]]", 2, &[0, 4], Some(&[1, 4])),
        ("[[4, N/A]]", 2, &[4, 0], None),
        ("[[4, 4.5]]", 2, &[4, 0], None),
        ("[[4], [2]]", 2, &[0, 0], None),
        ("[[ , 3]]", 2, &[0, 3], None),
        ("[[1, 2]] then [[3, 4]]", 2, &[3, 4], Some(&[3, 4])),
        ("[[5,\n3]]", 2, &[0, 0], None),
        ("[[1, 2]]\n[[3, 4", 2, &[1, 2], Some(&[1, 2])),
        ("[[99999999999999999999, +2]]", 2, &[5, 2], Some(&[5, 2])),
        ("[[[1, 2]]", 2, &[0, 2], None),
    ];
    for (text, of, reference, panel) in cases {
        assert_eq!(ratings(ReadingMode::Reference, text, of).as_deref(), Some(reference), "{text}");
        assert_eq!(ratings(ReadingMode::Panel, text, of).as_deref(), panel, "{text}");
    }
}

#[test]
fn an_order_is_the_last_list_of_integers_without_what_falls_out() {
    let cases: [(&str, Option<&[u32]>); 12] = [
        ("[2, 1]", Some(&[2, 1])),
        ("[[2, 1]]", Some(&[2, 1])),
        ("first [1] then [4,\n3]", Some(&[4, 3])),
        ("[3, 3, 1, 2]", Some(&[3, 1])),
        ("[0, -1, 5, 4]", Some(&[4])),
        ("[1, 2] and [a, b]", Some(&[1, 2])),
        ("[1, 2] and [", Some(&[1, 2])),
        ("[0, 9]", None),
        ("[]", None),
        ("1, 2", None),
        ("[1.5, 2]", None),
        ("", None),
    ];
    for (text, places) in cases {
        assert_eq!(order(text, 4, 2).as_deref(), places, "{text}");
    }
}

#[test]
fn an_option_is_the_last_in_parentheses() {
    let kind = AnswerKind::Choice { options: ["A", "B", "1", "11"].map(str::to_owned).to_vec() };
    let cases = [
        ("(A) or (B)?", Some("B"), Some("B")),
        ("it is (b), not C)", Some("B"), Some("B")),
        ("(A) but b) too", Some("A"), Some("A")),
        ("b) because", Some("B"), Some("B")),
        ("(11)", Some("11"), Some("11")),
        ("11)", Some("11"), Some("11")),
        (" a\n", None, Some("A")),
        ("A.", None, None),
        ("( A )", None, None),
        ("é)", None, None),
        (")", None, None),
    ];
    for (text, reference, panel) in cases {
        assert_eq!(answer(ReadingMode::Reference, &kind, text).as_deref(), reference, "{text}");
        assert_eq!(answer(ReadingMode::Panel, &kind, text).as_deref(), panel, "{text}");
    }
}

#[test]
fn a_result_of_mathematics_is_what_is_said_to_be_it_else_boxed_else_the_last_number() {
    let cases = [
        ("3, so the answer is $\\frac{1}{2}$.\nThat is all: 7", Some("\\frac{1}{2}")),
        ("The answer is 4. No, the answer is 5.", Some("5")),
        ("the answer is \\boxed{\\frac{1}{2}}.", Some("\\frac{1}{2}")),
        ("\\boxed{1} or \\boxed{x^{2}} in 3 steps", Some("x^{2}")),
        ("\\boxed{1} or \\boxed{2", Some("2")),
        ("first 3, then -4.5", Some("-4.5")),
        ("nothing", None),
        ("the answer is ", None),
    ];
    for (text, found) in cases {
        assert_eq!(answer(ReadingMode::Panel, &AnswerKind::Math, text).as_deref(), found, "{text}");
    }
}

#[test]
fn a_number_is_the_last_one_in_the_text() {
    let cases = [
        ("between 1 and 2.", Some("2")),
        ("-1,234.5e-6% of it", Some("-1,234.5e-6%")),
        ("3/4, I think", Some("3/4")),
        ("from 5-3", Some("3")),
        ("x = -7", Some("-7")),
        ("5e is no exponent", Some("5")),
        ("version 1.2.3", Some("3")),
        ("none", None),
    ];
    for (text, found) in cases {
        assert_eq!(answer(ReadingMode::Panel, &AnswerKind::Number, text).as_deref(), found, "{text}");
    }
}

#[test]
fn a_number_keeps_its_sign_and_its_parts_however_a_model_writes_it() {
    let cases = [
        ("\u{2212}5", Some("-5")),
        ("x = \u{2013}5.5%", Some("-5.5%")),
        ("pages 3\u{2013}5", Some("5")),
        ("it is minus 5", Some("-5")),
        ("Negative $3$", Some("-3")),
        ("7 minus 5", Some("5")),
        ("$\\frac{1}{2}$", Some("1/2")),
        ("\u{2212}\\dfrac12", Some("-1/2")),
        ("\\frac{\u{2212}3}{4}", Some("-3/4")),
        ("1 234", Some("1234")),
        ("\u{2212}1\u{202f}234\u{202f}567.5", Some("-1234567.5")),
        ("1{,}234\\%", Some("1,234%")),
        ("0.123 456", Some("456")),
        ("in 2023 100", Some("100")),
        ("$-3$ (see step 2)", Some("-3")),
        ("7 (or 8).", Some("7")),
        ("in 2 steps (5)", Some("5")),
        ("the answer is 5, not 7", Some("5")),
        ("The answer is **5**. Step 7 is wrong", Some("5")),
        ("the answer is 3 + 4 = 7", Some("7")),
        ("\\boxed{5} after 3 steps", Some("5")),
        ("<think>7?</think>It is 5", Some("5")),
        ("5? no, 6 </think> 7", Some("7")),
        ("<think>it is 5", None),
        // Not clear: the value is another one.
        ("1 1/2", None),
        ("2\\frac{1}{2}", None),
        ("\\frac{\\pi}{2}", None),
        ("10^5", None),
        ("\\sqrt{2}", None),
    ];
    for (text, found) in cases {
        assert_eq!(answer(ReadingMode::Panel, &AnswerKind::Number, text).as_deref(), found, "{text}");
    }
    let set = AnswerKind::Set { of: ElementKind::Number, separator: ",".to_owned() };
    assert_eq!(answer(ReadingMode::Panel, &set, "\u{2212}5, 3").as_deref(), Some("-5, 3"));
}

#[test]
fn a_result_of_mathematics_keeps_its_sign_and_no_remark() {
    let cases = [
        ("\u{2212}5", Some("-5")),
        ("the answer is \u{2212}x", Some("-x")),
        ("the answer is minus 5.", Some("-5")),
        ("$-3$ (see step 2)", Some("-3")),
        ("The answer is $-3$ (see step 2).", Some("-3")),
        ("The answer is $x$ or $y$.", Some("x$ or $y")),
        ("the answer is 3 (mod 7).", Some("3 (mod 7)")),
        ("1 234", Some("1234")),
        ("\\boxed{1}</think>\\boxed{2}", Some("2")),
    ];
    for (text, found) in cases {
        assert_eq!(answer(ReadingMode::Panel, &AnswerKind::Math, text).as_deref(), found, "{text}");
    }
}

#[test]
fn an_option_that_was_only_considered_is_not_the_answer() {
    let kind = AnswerKind::Choice { options: ["A", "B", "-5", "5"].map(str::to_owned).to_vec() };
    let cases = [
        ("maybe (A)\n</think>\nThe answer is B.", Some("B")),
        ("<think>maybe (A)</think>\nThe answer is B.", Some("B")),
        ("<think>maybe (A)", None),
        ("maybe (A), but the answer is **B**", Some("B")),
        ("The answer is (B), since (A) is even", Some("B")),
        ("the answer is (b) because A is even", Some("B")),
        ("The answer is $\\boxed{B}$.", Some("B")),
        ("The answer is as follows:\n(B)", Some("B")),
        ("maybe (A), but the answer is none of them", None),
        ("The answer is a prime: (B)", Some("B")),
        ("(\u{2212}5)", Some("-5")),
        ("The answer is \u{2212}5.", Some("-5")),
        // Not clear.
        ("(A)? The answer is A or B", None),
        ("(A)? The answer is 5.5", None),
    ];
    for (text, found) in cases {
        assert_eq!(answer(ReadingMode::Panel, &kind, text).as_deref(), found, "{text}");
    }
    let signed = AnswerKind::Choice { options: vec!["\u{2212}1".to_owned(), "1".to_owned()] };
    assert_eq!(answer(ReadingMode::Panel, &signed, "(-1)").as_deref(), Some("\u{2212}1"));
}

#[test]
fn ratings_and_orders_that_were_only_considered_do_not_count() {
    assert_eq!(ratings(ReadingMode::Panel, "[[1]] </think> none", 1), None);
    assert_eq!(order("<think>[2, 1]", 2, 2), None);
    assert_eq!(order("[2, 1]</think>[1]", 2, 2), Some(vec![1]));
}

#[test]
fn other_kinds_take_the_text_and_an_empty_one_is_none() {
    let kind = AnswerKind::Exact { ignore_case: false };
    assert_eq!(answer(ReadingMode::Panel, &kind, " two words\n").as_deref(), Some("two words"));
    assert_eq!(answer(ReadingMode::Panel, &kind, " \n"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn what_is_read_is_within_what_was_asked_for(
        text in "([\\[\\]]{1,2}|[0-9 ,.+-]{1,5}|boxed\\{|the answer is |\n|\\}|[a-zé(){}%/]{1,3}){0,20}",
        of in 0..5_usize,
        keep in 0..3_usize,
    ) {
        let reference = ratings(ReadingMode::Reference, &text, of);
        prop_assert!(reference.is_some_and(|ratings| ratings.len() == of && ratings.iter().all(|rating| *rating <= 5)));
        if let Some(read) = ratings(ReadingMode::Panel, &text, of) {
            prop_assert!(read.len() == of && read.iter().all(|rating| (1..=5).contains(rating)), "{:?}", read);
        }
        if let Some(read) = order(&text, of, keep) {
            prop_assert!(!read.is_empty() && read.len() <= keep && read.iter().all(|place| (1..=of).contains(&(*place as usize))));
        }
        for kind in [AnswerKind::Math, AnswerKind::Number, AnswerKind::Choice { options: vec!["a".to_owned(), "é".to_owned()] }] {
            if let Some(read) = answer(ReadingMode::Panel, &kind, &text) {
                prop_assert!(!read.trim().is_empty());
            }
        }
    }
}

/// Bytes of a model's text: twice what an answer may hold.
const TEXT_MAX: usize = 16_384;
/// Texts for each way of reading where no time is asked for.
const TEXTS: u64 = 100;

#[test]
fn no_text_takes_long_to_read_whatever_it_is_made_of() {
    let mixture = Mixture {
        valid: &[
            "[[5, 1, 2]]",
            "I rank them [3, 1, 2].",
            "so the answer is \\boxed{\\frac{1}{2}}.",
            "it is (B), not (A)",
        ],
        words: &[
            "[",
            "]",
            "[[",
            "]]",
            "</think>",
            "minus ",
            "\u{2212}",
            "\\frac",
            "{",
            "$",
            "(",
            " 234",
            "1,",
            "5",
            "-",
            " ",
            "\n",
            "(A)",
            "A)",
            "boxed{",
            "}",
            "the answer is ",
            "1/2",
            ".",
            "é",
        ],
        bytes_max: TEXT_MAX,
    };
    let options = (0..64).map(|number| format!("A{number}")).chain(["A".to_owned()]).collect();
    let choice = AnswerKind::Choice { options };
    let modes = [ReadingMode::Panel, ReadingMode::Reference];
    feed("parse-ratings", TEXTS, mixture, |text| {
        let found = modes.map(|mode| ratings(mode, text, 31));
        assert!(found.iter().flatten().all(|ratings| ratings.len() == 31));
    });
    feed("parse-rank", TEXTS, mixture, |text| {
        assert!(order(text, 31, 16).is_none_or(|order| (1..=16).contains(&order.len())));
    });
    for (name, kind) in
        [("parse-math", AnswerKind::Math), ("parse-number", AnswerKind::Number), ("parse-choice", choice)]
    {
        feed(name, TEXTS, mixture, |text| {
            let found = modes.map(|mode| answer(mode, &kind, text));
            assert!(
                found.iter().flatten().all(|answer| !answer.trim().is_empty() && answer.len() <= text.len()),
                "{text}"
            );
        });
    }
}
