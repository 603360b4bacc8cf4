//! Requests in the dialects of Agora.

use agora::{DocumentHash, DocumentSource, Selection};
use schemas::Code;
use serde_json::{Value, json};

use crate::{WEATHER_HASH, refused};

fn read(request: &Value) -> Result<Selection, schemas::Refusal> {
    Selection::try_new(request.get("protocolHash"), request.get("protocolSources"))
}

#[test]
fn every_dialect_of_no_document_is_read_and_one_is_written() {
    for (request, expected) in [
        // The paper.
        (json!({"protocolHash": null, "protocolSources": []}), Selection::Language),
        // The website of 2024.
        (json!({"protocolHash": null, "protocolSources": null}), Selection::Language),
        // The paper's demo.
        (json!({"protocolHash": null, "protocolSources": [null]}), Selection::Language),
        // The working standard of 2025.
        (json!({"protocolHash": null}), Selection::Language),
        (json!({}), Selection::Language),
        // The Python package.
        (json!({"protocolHash": "negotiation", "protocolSources": null}), Selection::Negotiation),
        (json!({"protocolHash": "negotiation", "protocolSources": []}), Selection::Negotiation),
        (json!({"protocolHash": "negotiation"}), Selection::Negotiation),
    ] {
        assert_eq!(read(&request).unwrap(), expected, "{request}");
    }
    assert_eq!(Selection::Language.members(), (Value::Null, json!([])));
    assert_eq!(Selection::Negotiation.members(), (json!("negotiation"), Value::Null));
}

#[test]
fn a_document_is_named_in_any_spelling_with_or_without_sources() {
    let hash = DocumentHash::try_new(WEATHER_HASH).unwrap();
    let url = "https://a.example/weather.txt";
    let sources = vec![DocumentSource::Url(url.to_owned()), DocumentSource::of_text("x")];
    let listed = json!([url, "data:text/plain;charset=utf-8,x"]);
    for spelling in [WEATHER_HASH, "Kc42bNOrSX-s82LLvEs5X6XSK24", "29ce366cd3ab497facf362cbbc4b395fa5d22b6e"] {
        let whole = read(&json!({"protocolHash": spelling, "protocolSources": listed})).unwrap();
        assert_eq!(whole, Selection::Document { hash, sources: sources.clone() });
        assert_eq!(whole.members(), (json!(WEATHER_HASH), listed.clone()));
        let bare = Selection::Document { hash, sources: Vec::new() };
        assert_eq!(read(&json!({"protocolHash": spelling})).unwrap(), bare);
        assert_eq!(read(&json!({"protocolHash": spelling, "protocolSources": []})).unwrap(), bare);
    }
}

#[test]
fn a_request_that_contradicts_itself_is_refused_where_it_does() {
    let source = "data:text/plain;charset=utf-8,x";
    let many = vec![source; 10_000];
    for (request, code, pointer) in [
        (json!({"protocolHash": 3}), Code::WrongType, "/protocolHash"),
        (json!({"protocolHash": [WEATHER_HASH]}), Code::WrongType, "/protocolHash"),
        (json!({"protocolHash": ""}), Code::BadFormat, "/protocolHash"),
        (json!({"protocolHash": "Negotiation"}), Code::BadFormat, "/protocolHash"),
        (json!({"protocolHash": null, "protocolSources": [source]}), Code::NotAllowed, "/protocolSources"),
        (json!({"protocolHash": null, "protocolSources": [null, null]}), Code::NotAllowed, "/protocolSources"),
        (json!({"protocolHash": "negotiation", "protocolSources": [source]}), Code::NotAllowed, "/protocolSources"),
        (json!({"protocolHash": WEATHER_HASH, "protocolSources": null}), Code::WrongType, "/protocolSources"),
        (json!({"protocolHash": WEATHER_HASH, "protocolSources": source}), Code::WrongType, "/protocolSources"),
        (json!({"protocolHash": WEATHER_HASH, "protocolSources": many}), Code::OutOfRange, "/protocolSources"),
        (json!({"protocolHash": WEATHER_HASH, "protocolSources": [null]}), Code::WrongType, "/protocolSources/0"),
        (
            json!({"protocolHash": WEATHER_HASH, "protocolSources": [source, "ftp://a"]}),
            Code::NotAllowed,
            "/protocolSources/1",
        ),
    ] {
        assert_eq!(refused(read(&request)), (code, pointer.to_owned()), "{code} {pointer}");
    }
}
