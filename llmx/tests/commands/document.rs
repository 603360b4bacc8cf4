//! `llmx document`, with and without a running exchange.

use serde_json::{Value, json};

use crate::rig::Rig;

const TEXT: &str = "---\nname: Weather by city\ndescription: Answers the temperature of a city on a day.\nmultiround: false\n---\n\nSend a JSON object with `city` and `date` (ISO 8601).\n";
const HASH: &str = "Kc42bNOrSX+s82LLvEs5X6XSK24=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_put_listed_shown_and_written_byte_for_byte() {
    let rig = Rig::start().await;
    let (file, copy) = (rig.path("weather.md"), rig.path("copy.md"));
    std::fs::write(&file, TEXT).unwrap();
    let named = rig.run(&["document", "hash", file.to_str().unwrap()]).await;
    assert_eq!((named.code, named.stdout.trim()), (Some(0), HASH), "{named:?}");
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

    let hex = "29ce366cd3ab497facf362cbbc4b395fa5d22b6e";
    let shown = rig.run(&["document", "show", hex, "--json"]).await;
    let whole: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&whole["document"], &whole["agents"]), (&json!(TEXT), &json!(["bob"])));
    let written = rig.run(&["document", "show", HASH, "--out", copy.to_str().unwrap()]).await;
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{written:?}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), TEXT);
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
