//! `llmx document`, with and without a running exchange.

use agora::DocumentSource;
use serde_json::{Value, json};

use crate::rig::Rig;

const TEXT: &str = include_str!("../../../examples/weather.md");
const HASH: &str = "28qsS//fo/+NgoyVrSQmBEwrRuc=";
const PAGE: &str = include_str!("../../../docs/agora.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_put_listed_shown_and_written_byte_for_byte() {
    let rig = Rig::start().await;
    let (file, copy) = (rig.path("weather.md"), rig.path("copy.md"));
    std::fs::write(&file, TEXT).unwrap();
    let named = rig.run(&["document", "hash", file.to_str().unwrap()]).await;
    assert_eq!((named.code, named.stdout.trim()), (Some(0), HASH), "{named:?}");
    let named = rig.run(&["document", "hash", file.to_str().unwrap(), "--json"]).await.document();
    let source = DocumentSource::try_new(named["source"].as_str().unwrap());
    assert_eq!((&named["hash"], source), (&json!(HASH), Ok(DocumentSource::of_text(TEXT))), "{named}");
    let address = "https://documents.example/weather.md";
    let put = rig.run(&["document", "put", file.to_str().unwrap(), "--as", "bob", "--source", address, "--json"]).await;
    assert_eq!(put.code, Some(0), "{put:?}");
    let described: Value = serde_json::from_str(&put.stdout).unwrap();
    assert_eq!((&described["hash"], &described["multiround"]), (&json!(HASH), &json!(false)));

    let listed = rig.run(&["document", "list", "--agent", "bob", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&listed.stdout).unwrap(), json!({ "documents": [described] }));
    let listed = rig.run(&["document", "list"]).await;
    assert!(listed.stdout.contains(HASH) && listed.stdout.contains("Weather by city"), "{listed:?}");
    let nobodys = rig.run(&["document", "list", "--agent", "carol", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&nobodys.stdout).unwrap(), json!({ "documents": [] }));

    let hex = "dbcaac4bffdfa3ff8d828c95ad2426044c2b46e7";
    let shown = rig.run(&["document", "show", hex, "--json"]).await;
    let whole: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&whole["document"], &whole["agents"]), (&json!(TEXT), &json!(["bob"])));
    let written = rig.run(&["document", "show", HASH, "--out", copy.to_str().unwrap()]).await;
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{written:?}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), TEXT);
}

#[test]
fn the_page_shows_the_example_under_its_hash() {
    let texts = [format!("```markdown\n{TEXT}```"), format!("That of the example is `{HASH}`")];
    for text in texts {
        assert!(PAGE.contains(&text), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_document_or_not_held_is_said_with_its_code() {
    let rig = Rig::start().await;
    let file = rig.path("bare.md");
    std::fs::write(&file, "---\nname: n\n---\nNo description.").unwrap();
    let put = rig.run(&["document", "put", file.to_str().unwrap(), "--as", "bob"]).await;
    assert_eq!(put.code, Some(1), "{put:?}");
    assert!(put.stderr.contains("missing_field") && put.stderr.contains("`description`"), "{put:?}");
    let named = rig.run(&["document", "hash", file.to_str().unwrap()]).await;
    assert_eq!(named.code, Some(0), "a document of others may leave it out: {named:?}");
    let shown = rig.run(&["document", "show", HASH]).await;
    assert!(shown.code == Some(1) && shown.stderr.contains("not_found"), "{shown:?}");
    let malformed = rig.run(&["document", "show", "nonsense"]).await;
    assert!(malformed.code == Some(2) && malformed.stderr.contains("SHA-1"), "{malformed:?}");
}
