//! Protocol documents over HTTP, and which of them an agent supports.

use agora::table::{StoredDocument, document_key};
use agora::{DocumentSource, Origin, ProtocolDocument};
use bus::Bucket;
use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use gateway::keys::{KeyAlgorithm, SigningKey};
use serde_json::{Value, json};

use crate::admission::loop_until;
use crate::rig::{Rig, code};

fn text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}.\nmultiround: false\n---\nSend JSON.\n")
}

async fn put(rig: &Rig, agent: &str, body: &Value) -> (u16, Value) {
    // Nothing is put before the gateway has read the documents.
    loop_until(|| async {
        let (status, answer) = rig.call("PUT", "/v1/documents", Some(&rig.token(agent)), Some(body)).await;
        (status != 503).then_some((status, answer))
    })
    .await
}

async fn get(rig: &Rig, path: &str) -> (u16, Value) {
    rig.call("GET", path, Some(&rig.token("eve")), None).await
}

#[tokio::test]
async fn a_document_is_put_by_an_agent_and_read_by_any_spelling_of_its_hash_at_every_gateway() {
    let (bus, key) = (memory::open(MemoryOptions::default()), SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let one = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let two = Rig::on(bus, key, |_| {}).await;
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let (hash, key) = (document.hash().to_string(), document.hash().key());
    let summary = json!({
        "hash": hash, "sha256": document.sha256(), "name": "weather", "description": "About weather.",
        "multiround": false, "bytes": document.text().len(),
    });
    let body = json!({ "document": document.text() });
    assert_eq!(put(&one, "bob", &body).await, (201, summary.clone()));
    assert_eq!(put(&one, "bob", &body).await, (200, summary.clone()), "again");
    assert_eq!(put(&two, "carol", &body).await, (200, summary.clone()), "by another, elsewhere");

    let mut whole = summary.clone();
    whole["document"] = document.text().into();
    whole["agents"] = json!(["bob", "carol"]);
    whole["supporters"] = 2.into();
    let digits: String = base64_bytes(&hash).iter().map(|byte| format!("{byte:02x}")).collect();
    let escaped = hash.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
    for spelling in [key, digits, escaped] {
        let path = format!("/v1/documents/{spelling}");
        for rig in [&one, &two] {
            loop_until(|| async { (get(rig, &path).await == (200, whole.clone())).then_some(()) }).await;
        }
    }
    let (_, list) = get(&two, "/v1/documents?agent=carol").await;
    assert_eq!(list, json!({ "documents": [summary], "next": null }));
    assert_eq!(one.metric("exchange_protocol_documents", &[]), 1.0);
    assert_eq!(one.metric("exchange_protocol_document_puts_total", &[("result", "new")]), 1.0);
    assert_eq!(one.metric("exchange_protocol_document_puts_total", &[("result", "known")]), 1.0);
    assert_eq!(one.metric("exchange_kv_operations_total", &[("bucket", "documents"), ("op", "create")]), 2.0);
}

fn base64_bytes(hash: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(hash).unwrap()
}

#[tokio::test]
async fn who_may_not_be_found_is_named_in_no_group_and_beside_no_document() {
    let rig = Rig::start().await;
    let to_bob = json!({ "default": "deny", "rules": [{ "effect": "allow", "counterpart": "bob" }] });
    rig.register_as("mole", &json!({ "visibility": "hidden", "consent": to_bob })).await;
    rig.register_as("shy", &json!({ "visibility": "consented", "consent": to_bob })).await;
    rig.register("open").await;
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    for name in ["mole", "open", "shy"] {
        put(&rig, name, &json!({ "document": document.text() })).await;
    }
    let members = ["mole", "open", "shy", "unregistered"];
    let group = json!({ "id": "crew", "members": members, "qos": "at_least_once" });
    assert_eq!(rig.call("PUT", "/v1/groups/crew", Some(&rig.admin_token()), Some(&group)).await.0, 201);
    let of_document = format!("/v1/documents/{}", document.hash().key());
    let read = async |token: &str, path: &str| rig.call("GET", path, Some(token), None).await;
    for (name, shown) in [("eve", &["open"] as &[_]), ("bob", &["open", "shy"]), ("mole", &["mole", "open"])] {
        let token = rig.token(name);
        loop_until(|| async {
            let (_, whole) = read(&token, &of_document).await;
            (whole["agents"] == json!(shown) && whole["supporters"] == shown.len()).then_some(())
        })
        .await;
        let (_, group) = read(&token, "/v1/groups/crew").await;
        assert_eq!(group["members"], json!([shown, &["unregistered"]].concat()), "{name}");
    }
    assert_eq!(read(&rig.admin_token(), "/v1/groups/crew").await.1["members"], json!(members));
    // What it supports is told to whoever may call it.
    for (name, status, documents) in [("eve", 404, 0), ("bob", 200, 1), ("mole", 200, 1)] {
        let token = rig.token(name);
        for form in [".wellknown", "wellknown"] {
            assert_eq!(read(&token, &format!("/agora/mole/{form}")).await.0, status, "{name}");
        }
        let (_, list) = read(&token, "/v1/documents?agent=mole").await;
        assert_eq!(list["documents"].as_array().unwrap().len(), documents, "{name}");
    }
}

#[tokio::test]
async fn what_an_agent_supports_stands_in_both_well_known_forms() {
    let rig = Rig::start().await;
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let inline = DocumentSource::of_text(document.text()).to_string();
    let url = "https://documents.example/weather.txt";
    let body = json!({ "document": document.text(), "sources": [url, inline] });
    assert_eq!(put(&rig, "bob", &body).await.0, 201);
    let protocols = json!({ document.hash().to_string(): [url, inline] });
    assert_eq!(get(&rig, "/agora/bob/.wellknown").await, (200, protocols.clone()));
    let of_the_demo = json!({ "status": "success", "protocols": protocols });
    assert_eq!(get(&rig, "/agora/bob/wellknown").await, (200, of_the_demo));

    let path = format!("/v1/documents/{}", document.hash().key());
    assert_eq!(rig.call("DELETE", &path, Some(&rig.token("bob")), None).await, (204, Value::Null));
    let (status, body) = get(&rig, "/agora/bob/.wellknown").await;
    assert_eq!((status, code(&body)), (404, "not_found"), "bob is not registered");
    rig.register("bob").await;
    assert_eq!(get(&rig, "/agora/bob/.wellknown").await, (200, json!({})));
    let (_, kept) = get(&rig, &path).await;
    assert_eq!((&kept["supporters"], kept["document"].as_str()), (&json!(0), Some(document.text())));
}

#[tokio::test]
async fn documents_are_listed_a_page_at_a_time() {
    let rig = Rig::start().await;
    for number in 0..5 {
        assert_eq!(put(&rig, "bob", &json!({ "document": text(&format!("n{number}")) })).await.0, 201);
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/documents?limit=2".to_owned());
    loop {
        let (status, page) = get(&rig, &path).await;
        assert_eq!(status, 200, "{page}");
        let hashes = page["documents"].as_array().unwrap().iter().map(|one| one["hash"].as_str().unwrap().to_owned());
        seen.extend(hashes);
        let Some(next) = page["next"].as_str() else { break };
        let after = next.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
        path = format!("/v1/documents?limit=2&after={after}");
    }
    assert_eq!(seen.len(), 5);
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

#[tokio::test]
async fn what_is_no_document_is_refused_where_the_fault_is() {
    let rig = Rig::start().await;
    put(&rig, "bob", &json!({ "document": text("weather") })).await;
    let good = text("other");
    let many = vec!["https://a.example"; 9];
    let long = format!("{good}{}", "x".repeat(32 * 1024));
    for (body, status, refused, pointer) in [
        (json!({}), 422, "missing_field", "/document"),
        (json!([]), 422, "wrong_type", ""),
        (json!({ "document": 3 }), 422, "wrong_type", "/document"),
        (json!({ "document": "no front matter" }), 422, "missing_field", "/document"),
        (json!({ "document": "---\nname: n\nmultiround: false\n---" }), 422, "missing_field", "/document"),
        (json!({ "document": long }), 413, "too_large", "/document"),
        (json!({ "document": good, "agent": "carol" }), 422, "unknown_field", ""),
        (json!({ "document": good, "sources": "https://a.example" }), 422, "wrong_type", "/sources"),
        (json!({ "document": good, "sources": [3] }), 422, "wrong_type", "/sources/0"),
        (json!({ "document": good, "sources": many }), 422, "out_of_range", "/sources"),
        (
            json!({ "document": good, "sources": ["https://a.example", "file:///etc/passwd"] }),
            422,
            "not_allowed",
            "/sources/1",
        ),
        (json!({ "document": good, "sources": ["data:text/plain,x"] }), 422, "bad_format", "/sources/0"),
    ] {
        let (found, answer) = put(&rig, "bob", &body).await;
        assert_eq!((found, code(&answer), answer["pointer"].as_str()), (status, refused, Some(pointer)), "{answer}");
    }
    for (method, path, status, refused) in [
        ("GET", "/v1/documents/nonsense", 422, "bad_format"),
        ("DELETE", "/v1/documents/nonsense", 422, "bad_format"),
        ("GET", "/v1/documents/2jmj7l5rSw0yVb_vlWAYkK_YBwk", 404, "not_found"),
        ("GET", "/v1/documents?limit=101", 422, "out_of_range"),
        ("GET", "/v1/documents?after=nonsense", 422, "bad_format"),
        ("GET", "/agora/nobody/.wellknown", 404, "not_found"),
        ("GET", "/agora/nobody/wellknown", 404, "not_found"),
    ] {
        let (found, answer) = rig.call(method, path, Some(&rig.token("bob")), None).await;
        assert_eq!((found, code(&answer)), (status, refused), "{method} {path}: {answer}");
        let (found, answer) = rig.call(method, path, None, None).await;
        assert_eq!((found, code(&answer)), (401, "unauthenticated"), "{method} {path} without a token");
    }
    let (found, answer) = rig.call("PUT", "/v1/documents", None, Some(&json!({ "document": good }))).await;
    assert_eq!((found, code(&answer)), (401, "unauthenticated"));
    let (_, list) = get(&rig, "/v1/documents").await;
    assert_eq!(list["documents"].as_array().unwrap().len(), 1, "nothing of it is held");
}

#[tokio::test]
async fn a_hash_that_stands_for_another_text_raises_an_alarm() {
    let bus = memory::open(MemoryOptions::default());
    let [document, forged] =
        ["weather", "forged"].map(|name| ProtocolDocument::try_new(&text(name), Origin::Own).unwrap());
    let stored = StoredDocument { document: forged.text().to_owned(), sha256: forged.sha256() };
    let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
    bus.key_value.put(Bucket::Documents, document_key(document.hash()), value).await.unwrap();
    let rig = Rig::on(bus, SigningKey::generate(KeyAlgorithm::EdDsa).unwrap(), |_| {}).await;
    let (status, answer) = put(&rig, "bob", &json!({ "document": document.text() })).await;
    assert_eq!((status, code(&answer), answer["pointer"].as_str()), (409, "conflict", Some("/document")));
    assert_eq!(rig.metric("exchange_protocol_document_collisions_total", &[]), 2.0, "found, and put");
    assert_eq!(rig.metric("exchange_protocol_documents", &[]), 0.0);
}
