//! Requests and replies of every dialect.

use agora::transaction::{ConversationTicket, TransactionReply, TransactionRequest, TransactionStatus, body_of};
use agora::{DocumentHash, DocumentSource, Selection};
use schemas::{Code, Refusal};
use serde_json::{Value, json};

use crate::refused;

const HASH: &str = "Kc42bNOrSX+s82LLvEs5X6XSK24=";

#[test]
fn a_request_of_every_dialect_is_read_and_the_packages_is_written() {
    let hash = DocumentHash::try_new(HASH).unwrap();
    let source = DocumentSource::of_text("x");
    let document = Selection::Document { hash, sources: vec![source.clone()] };
    let package = json!({ "protocolHash": HASH, "protocolSources": [source], "body": "b" });
    for (request, selection, multiround, written) in [
        (
            json!({ "protocolHash": null, "protocolSources": [], "body": "b", "multiround": true }),
            Selection::Language,
            true,
            json!({ "protocolHash": null, "protocolSources": [], "body": "b", "multiround": true }),
        ),
        (
            json!({ "protocolHash": null, "protocolSources": [null], "body": "b", "queryId": "7" }),
            Selection::Language,
            false,
            json!({ "protocolHash": null, "protocolSources": [], "body": "b" }),
        ),
        (
            json!({ "protocolHash": "negotiation", "protocolSources": null, "body": "b", "multiround": true }),
            Selection::Negotiation,
            true,
            json!({ "protocolHash": "negotiation", "protocolSources": null, "body": "b", "multiround": true }),
        ),
        (package.clone(), document, false, package),
    ] {
        let read = TransactionRequest::try_new(&request).unwrap();
        assert_eq!(read, TransactionRequest { selection, body: "b".to_owned(), multiround });
        assert_eq!(read.to_json(), written);
        assert_eq!(TransactionRequest::is_multiround(&request), multiround);
    }
}

#[test]
fn a_request_that_is_none_is_refused_where_the_fault_is() {
    for (request, code, pointer) in [
        (json!([]), Code::WrongType, ""),
        (json!({}), Code::MissingField, "/body"),
        (json!({ "body": null }), Code::WrongType, "/body"),
        (json!({ "body": { "city": "Oxford" } }), Code::WrongType, "/body"),
        (json!({ "body": "b", "multiround": "yes" }), Code::WrongType, "/multiround"),
        (json!({ "body": "b", "protocolHash": "nonsense" }), Code::BadFormat, "/protocolHash"),
        (json!({ "body": "b", "protocolHash": null, "protocolSources": ["x"] }), Code::NotAllowed, "/protocolSources"),
        (json!({ "body": "b", "protocolHash": HASH, "protocolSources": null }), Code::WrongType, "/protocolSources"),
    ] {
        assert_eq!(refused(TransactionRequest::try_new(&request)), (code, pointer.to_owned()), "{request}");
    }
    assert_eq!(body_of(&json!({ "body": "b", "multiround": 3 })).unwrap(), "b", "all else is ignored");
    assert!(!TransactionRequest::is_multiround(&json!({ "multiround": "true" })));
}

#[test]
fn a_reply_is_read_as_it_is_written() {
    let ticket = ConversationTicket { id: "agora-1".to_owned(), expires_s: Some(1_795_204_800) };
    let success = TransactionReply { conversation: Some(ticket), ..TransactionReply::success("25".to_owned()) };
    let expected = json!({
        "status": "success", "body": "25", "conversationId": "agora-1", "conversationExpires": 1_795_204_800,
    });
    assert_eq!(success.to_json(), expected);
    assert_eq!(TransactionReply::try_new(&expected).unwrap(), success);
    let rejected = TransactionReply::unanswered(TransactionStatus::Rejected, "Protocol rejected");
    let expected = json!({ "status": "rejected", "body": "", "message": "Protocol rejected" });
    assert_eq!(rejected.to_json(), expected);
    assert_eq!(TransactionReply::try_new(&expected).unwrap(), rejected);
    let refusal = Refusal::new(Code::WrongType, "the body is no text").at("/body").expecting("a text");
    let expected = json!({
        "status": "error", "body": "", "message": "the body is no text; expected: a text", "code": "wrong_type",
        "pointer": "/body",
    });
    assert_eq!(TransactionReply::refused(&refusal).to_json(), expected);
    assert_eq!(TransactionReply::try_new(&expected).unwrap(), TransactionReply::refused(&refusal));
}

#[test]
fn replies_of_other_responders_are_read() {
    let read = |reply: Value| TransactionReply::try_new(&reply).unwrap();
    let of = |status, body: &str, message: Option<&str>| TransactionReply {
        status,
        body: body.to_owned(),
        message: message.map(str::to_owned),
        fault: None,
        conversation: None,
    };
    let error = read(json!({ "status": "error", "message": "Conversation not found." }));
    let coded = read(json!({ "status": "error", "message": "Conversation not found.", "code": 7 }));
    assert_eq!(coded, error, "a code that is none of ours");
    assert_eq!(error, of(TransactionStatus::Error, "", Some("Conversation not found.")), "the package has no body");
    assert_eq!(read(json!({ "status": "rejected" })), of(TransactionStatus::Rejected, "", None), "the paper");
    assert_eq!(read(json!({ "status": "failure", "body": "x" })), of(TransactionStatus::Failure, "x", None));
    assert_eq!(read(json!({ "status": "success", "body": { "t": 25 } })).body, r#"{"t":25}"#);
    let timed = json!({ "status": "success", "conversationId": "a", "conversationExpires": 1_795_204_800.25 });
    assert_eq!(read(timed).conversation.unwrap().expires_s, Some(1_795_204_800));
}

#[test]
fn a_reply_that_is_none_is_refused_where_the_fault_is() {
    for (reply, code, pointer) in [
        (json!("success"), Code::BadFormat, "/status"),
        (json!({ "body": "x" }), Code::BadFormat, "/status"),
        (json!({ "status": "ok" }), Code::BadFormat, "/status"),
        (json!({ "status": "success", "conversationId": 7 }), Code::BadFormat, "/conversationId"),
        (json!({ "status": "success", "conversationId": "../x" }), Code::BadFormat, "/conversationId"),
        (json!({ "status": "success", "conversationId": ".." }), Code::BadFormat, "/conversationId"),
        (json!({ "status": "success", "conversationId": "x".repeat(129) }), Code::BadFormat, "/conversationId"),
        (
            json!({ "status": "success", "conversationId": "a", "conversationExpires": "soon" }),
            Code::WrongType,
            "/conversationExpires",
        ),
    ] {
        assert_eq!(refused(TransactionReply::try_new(&reply)), (code, pointer.to_owned()), "{reply}");
    }
}
