//! `llmx contractors --routines`, and calls that name the documents its routines follow.

use serde_json::json;

use crate::rig::{PATIENCE, Rig, signal};

const ROUTINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/routines.toml");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/parcel-price.md");
const OTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/weather.md");
const HASH: &str = "y60GVOgACsxTFyA8IxYUiAhdAfg=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routines_are_listed_called_by_their_document_and_name_themselves_in_the_report() {
    let rig = Rig::start().await;
    let contractors = rig.spawn(&["contractors", "--count", "2", "--routines", ROUTINES]);
    for agent in ["contractor-0", "contractor-1"] {
        let listing = async {
            loop {
                let listed = rig.run(&["document", "list", "--agent", agent, "--json"]).await.document();
                if let Some(document) = listed["documents"].get(0) {
                    break document["hash"].clone();
                }
            }
        };
        assert_eq!(tokio::time::timeout(PATIENCE, listing).await.unwrap(), json!(HASH), "{agent}");
    }

    let call = ["call", "1500", "--document", OTHER, "--document", HASH, "--to", "contractor-0"];
    let told = rig.run(&[&call[..], &["--require-document"]].concat()).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.contains(&format!("\ndocument   {HASH}\n")), "{told:?}");
    assert!(told.stdout.contains("\ndone       contractor-0, routine native: 600\n"), "{told:?}");
    let award = &rig.run(&[&call[..], &["--json"]].concat()).await.document()["awards"][0];
    assert_eq!(award["document"], HASH, "{award}");
    assert_eq!(award["routine"], json!({ "kind": "native", "hash": HASH }), "{award}");

    let call = ["call", "1500", "--document", OTHER, "--to", "contractor-0"];
    let told = rig.run(&call).await;
    assert!(told.stdout.contains("\ndocument   none: the offer names none of the call's"), "{told:?}");
    let gated = rig.run(&[&call[..], &["--require-document"]].concat()).await;
    assert!(gated.code == Some(1) && gated.stderr.contains("no_offers"), "{gated:?}");

    let target = format!("{}/agora/contractor-0", rig.exchange.url());
    let token = rig.token("alice");
    let ask = async |document: &str| {
        rig.run(&["agora", "call", target.as_str(), "--token", token.as_str(), "--document", document, "1500"]).await
    };
    let answered = ask(DOCUMENT).await;
    assert_eq!((answered.code, answered.stdout.as_str()), (Some(0), "600\n"), "{answered:?}");
    let rejected = ask(OTHER).await;
    assert_eq!((rejected.code, rejected.stdout.as_str()), (Some(1), ""), "{rejected:?}");
    let remedy =
        "rejected: Protocol rejected; it follows no such document, or not for this request: ask without --document";
    assert!(rejected.stderr.contains(remedy), "{rejected:?}");

    signal(&contractors, "-INT");
    let ended = tokio::time::timeout(PATIENCE, contractors.wait_with_output()).await.unwrap().unwrap();
    let stdout = String::from_utf8(ended.stdout).unwrap();
    assert!(stdout.contains("contractors: documents put into the exchange: 1 of 1\n"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_the_exchange_refuses_is_warned_of_and_its_routine_works() {
    let rig = Rig::start().await;
    let (file, document) = (rig.path("routines.toml"), rig.path("bare.md"));
    std::fs::write(&document, "---\nname: Bare\n---\nA weight in grams.\n").unwrap();
    std::fs::write(&file, "[[routine]]\ndocument = \"bare.md\"\nnative = \"parcel-price\"\n").unwrap();
    let contractors = rig.spawn(&["contractors", "--count", "1", "--routines", file.to_str().unwrap()]);
    let call = ["call", "1500", "--absent", "--wait", "5", "--document", document.to_str().unwrap(), "--json"];
    let calling = async {
        loop {
            let called = rig.run(&call).await;
            if called.code == Some(0) {
                break called.document()["awards"][0]["result"].clone();
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, calling).await.unwrap(), "600");
    signal(&contractors, "-INT");
    let ended = tokio::time::timeout(PATIENCE, contractors.wait_with_output()).await.unwrap().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("`llmx document put FILE --as AGENT`") && stderr.contains("missing_field"), "{stderr}");
}
