//! Front matter, ours and others'.

use agora::{FrontMatter, Origin};
use proptest::prelude::*;
use schemas::Code;

use crate::refused;

fn of(yaml: &str, origin: Origin) -> Result<FrontMatter, schemas::Refusal> {
    FrontMatter::of_text(&format!("---\n{yaml}\n---\nbody --- with a further mark"), origin)
}

fn own(name: &str, description: &str, multiround: bool) -> FrontMatter {
    FrontMatter { name: name.to_owned(), description: description.to_owned(), multiround, references: Vec::new() }
}

#[test]
fn a_foreign_document_is_completed_as_the_python_package_completes_it() {
    let defaults = own("Unnamed protocol", "No description provided", false);
    for yaml in ["other: 1", "name:\ndescription: ~\nmultiround: null", "{}"] {
        assert_eq!(of(yaml, Origin::Foreign).unwrap(), defaults, "{yaml}");
    }
    assert_eq!(of("name: n", Origin::Foreign).unwrap(), own("n", "No description provided", false));
}

#[test]
fn a_document_of_ours_says_everything_of_itself() {
    let whole = "name: n\ndescription: d\nmultiround: true";
    assert_eq!(of(whole, Origin::Own).unwrap(), own("n", "d", true));
    for (missing, rest) in [
        ("name", "description: d\nmultiround: true"),
        ("description", "name: n\nmultiround: true"),
        ("multiround", "name: n\ndescription: d"),
        ("name", "name: ~\ndescription: d\nmultiround: true"),
    ] {
        let refusal = of(rest, Origin::Own).unwrap_err();
        assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::MissingField, Some("/document")), "{rest}");
        assert!(refusal.detail.contains(missing), "{}", refusal.detail);
        assert!(of(rest, Origin::Foreign).is_ok(), "{rest}");
    }
}

#[test]
fn the_front_matter_is_what_stands_between_the_first_two_marks_wherever_they_stand() {
    let text = "Preamble. --- name: n\ndescription: 'd: e'\nmultiround: yes --- body\n---\nname: other\n---";
    assert_eq!(FrontMatter::of_text(text, Origin::Own).unwrap(), own("n", "d: e", true));
}

#[test]
fn the_booleans_of_yaml_1_1_are_read() {
    for (word, multiround) in
        [("true", true), ("Yes", true), ("ON", true), ("false", false), ("No", false), ("off", false)]
    {
        let yaml = format!("name: n\ndescription: d\nmultiround: {word}");
        assert_eq!(of(&yaml, Origin::Own).unwrap().multiround, multiround, "{word}");
    }
}

#[test]
fn a_front_matter_that_cannot_be_relied_on_is_refused_with_its_code() {
    let long = |member: &str, chars: usize| format!("{member}: {}", "x".repeat(chars));
    let deep = format!("name: {}{}", "[".repeat(9), "]".repeat(9));
    let many = format!("other: [{}]", "1,".repeat(600));
    for (yaml, code) in [
        ("", Code::MissingField),
        ("# nothing", Code::MissingField),
        ("a text", Code::WrongType),
        ("- name", Code::WrongType),
        ("name: [n]", Code::WrongType),
        ("description: {d: e}", Code::WrongType),
        ("multiround: perhaps", Code::WrongType),
        ("multiround: 'true'", Code::WrongType),
        ("multiround: 1", Code::WrongType),
        ("? [n]\n: m", Code::WrongType),
        ("name: ''", Code::OutOfRange),
        (&long("name", 257), Code::OutOfRange),
        (&long("description", 2049), Code::OutOfRange),
        (&long("other", 8 * 1024), Code::TooLarge),
        (&many, Code::OutOfRange),
        (&deep, Code::TooDeep),
        ("name: n\nname: m", Code::DuplicateKey),
        ("name: &a n\ndescription: *a", Code::NotAllowed),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", Code::NotAllowed),
        ("name: \"unclosed", Code::BadFormat),
        ("name: n: m", Code::BadFormat),
        ("references: {hash: h}", Code::WrongType),
        ("references: [h]", Code::WrongType),
        ("references: [{hash: h}]", Code::BadFormat),
        ("references: [{sources: []}]", Code::MissingField),
        ("references: [{hash: Kc42bNOrSX+s82LLvEs5X6XSK24=, sources: 'x'}]", Code::WrongType),
        ("references: [{hash: Kc42bNOrSX+s82LLvEs5X6XSK24=, sources: ['file:///etc/passwd']}]", Code::NotAllowed),
        ("references: [{hash: Kc42bNOrSX+s82LLvEs5X6XSK24=, source: 'https://a.example'}]", Code::UnknownField),
    ] {
        assert_eq!(refused(of(yaml, Origin::Foreign)), (code, "/document".to_owned()), "{yaml}");
    }
    for text in ["", "no marks", "--- only one", "----"] {
        assert_eq!(refused(FrontMatter::of_text(text, Origin::Foreign)).0, Code::MissingField, "{text}");
    }
}

#[test]
fn a_document_names_those_it_rests_on() {
    let yaml = "name: n\nreferences:\n  - hash: 29ce366cd3ab497facf362cbbc4b395fa5d22b6e\n    sources:\n      - \
                https://a.example/weather.txt\n      - data:text/plain;charset=utf-8,x\n  - {hash: \
                Kc42bNOrSX-s82LLvEs5X6XSK24}";
    let references = of(yaml, Origin::Foreign).unwrap().references;
    let written = serde_json::to_value(&references).unwrap();
    let hash = crate::WEATHER_HASH;
    let expected = serde_json::json!([
        {"hash": hash, "sources": ["https://a.example/weather.txt", "data:text/plain;charset=utf-8,x"]},
        {"hash": hash},
    ]);
    assert_eq!(written, expected);
}

proptest! {
    #[test]
    fn no_text_ends_the_process(text in "(---|[ -~]|\n|[\\[\\]{}&*!|>'\"%@`#:?-]|\\PC){0,200}") {
        let _ = FrontMatter::of_text(&text, Origin::Foreign);
        let _ = FrontMatter::of_text(&format!("---\n{text}\n---"), Origin::Own);
    }
}
