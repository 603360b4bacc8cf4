//! A client of Agora and an agent of the exchange: requests become calls, reports become answers.

use std::time::Duration;

use agora::client::AgoraClient;
use agora::transaction::{TransactionReply, TransactionRequest, TransactionStatus};
use agora::{DocumentSource, Origin, ProtocolDocument, Selection};
use schemas::delivery::{Call, Delivery, Disposition, Notification, Outcome};
use schemas::payload::AttrValue;
use serde_json::{Value, json};

use crate::party::{Party, offer};
use crate::rig::{PATIENCE, Rig};

const TEXT: &str =
    "---\nname: Weather\ndescription: The temperature of a city.\nmultiround: false\n---\nSend `city`.\n";

fn client(rig: &Rig, agent: &str) -> AgoraClient {
    let token = rig.identity("alice").token.current();
    AgoraClient::try_new(&format!("{}/agora/{agent}", rig.exchange.url()), Some(token), PATIENCE).unwrap()
}

fn asked(selection: Selection, body: &str, multiround: bool) -> TransactionRequest {
    TransactionRequest { selection, body: body.to_owned(), multiround }
}

/// The call of this task, and its negotiation.
async fn called(bob: &mut Party, task: &str) -> (String, Call) {
    bob.hear(&format!("the call to {task}"), |delivery| {
        let Notification::Cfp(call) = &delivery.payload else { return None };
        let is_it = call.task.as_deref() == Some(task);
        is_it.then(|| (delivery.envelope.negotiation.to_string(), call.clone()))
    })
    .await
}

/// Offers, confirms and reports.
async fn works(bob: &mut Party, task: &str, documents: Value, result: &str) -> (String, Call) {
    let (negotiation, call) = called(bob, task).await;
    let mut payload = offer(0);
    payload["documents"] = documents;
    assert_eq!(bob.say(&negotiation, payload).await.disposition, Disposition::Ok);
    let award = bob.accept(&negotiation).await;
    assert_eq!(bob.confirm(&negotiation, award.award_no).await.disposition, Disposition::Committed);
    bob.say(&negotiation, json!({ "act": "inform", "kind": "result", "result": result })).await;
    (negotiation, call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_agora_is_answered_by_an_agent_of_the_exchange() {
    let rig = Rig::start().await;
    let mut bob = rig.join("bob").await;
    let client = client(&rig, "bob");

    let question = asked(Selection::Language, "How warm?", false);
    let (reply, (negotiation, call)) =
        tokio::join!(client.begin(&question), works(&mut bob, "How warm?", json!([]), "25 degrees"));
    assert_eq!(reply.unwrap(), TransactionReply::success("25 degrees".to_owned()));
    assert_eq!((call.policy.as_str(), call.documents), ("agora@1", None));
    assert_eq!(bob.closed(&negotiation).await.outcome, Outcome::Completed);

    let document = ProtocolDocument::try_new(TEXT, Origin::Own).unwrap();
    let sources = vec![DocumentSource::of_text(TEXT)];
    let under = asked(Selection::Document { hash: document.hash(), sources }, "{}", false);
    let (reply, (_, call)) =
        tokio::join!(client.begin(&under), works(&mut bob, "{}", json!([document.hash()]), "{\"t\": 25}"));
    assert_eq!(reply.unwrap().body, "{\"t\": 25}");
    let documents = call.documents.unwrap();
    assert_eq!((documents.hashes, documents.require), (vec![document.hash()], true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_reaches_its_agent_message_by_message_and_a_refusal_comes_at_once() {
    let rig = Rig::start().await;
    let mut bob = rig.join("bob").await;
    let client = client(&rig, "bob");
    let opening = asked(Selection::Negotiation, "Shall we agree?", true);
    let (reply, (_, call)) =
        tokio::join!(client.begin(&opening), works(&mut bob, "Shall we agree?", json!([]), "On what?"));
    let reply = reply.unwrap();
    let id = reply.conversation.unwrap().id;
    let told =
        |call: &Call, name: &str| call.constraints.iter().find(|(key, _)| key.as_str() == name).map(|it| it.1.clone());
    assert_eq!(told(&call, "agora_conversation"), Some(AttrValue::Text(id.clone())));
    assert_eq!(
        (told(&call, "agora_message"), told(&call, "agora_negotiation")),
        (Some(AttrValue::Int(1)), Some(AttrValue::Int(1)))
    );
    let (reply, (_, call)) =
        tokio::join!(client.follow(&id, "On JSON."), works(&mut bob, "On JSON.", json!([]), "Agreed."));
    assert_eq!(reply.unwrap().body, "Agreed.");
    assert_eq!(told(&call, "agora_message"), Some(AttrValue::Int(2)));

    let refuses = async {
        let (negotiation, _) = called(&mut bob, "And now?").await;
        bob.say(&negotiation, json!({ "act": "refuse", "reason": "busy" })).await;
    };
    let (reply, ()) = tokio::join!(client.follow(&id, "And now?"), refuses);
    let rejected = TransactionReply::unanswered(TransactionStatus::Rejected, "Request rejected");
    assert_eq!(reply.unwrap(), rejected, "before its time was up");
    assert_eq!(client.end(&id).await.unwrap().status, TransactionStatus::Success);
    assert_eq!(client.follow(&id, "Still there?").await.unwrap().message.as_deref(), Some("Conversation not found."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_ends_the_call_for_its_agent_too() {
    let rig = Rig::start().await;
    let mut bob = rig.join("bob").await;
    let client = client(&rig, "bob");
    let asking = tokio::spawn(async move { client.begin(&asked(Selection::Language, "How warm?", false)).await });
    let (negotiation, _) = called(&mut bob, "How warm?").await;
    asking.abort();
    assert_eq!(bob.closed(&negotiation).await.outcome, Outcome::Cancelled);
    let streams_end = async {
        while rig.exchange.gateway().streams().agents_len() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, streams_end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_leaves_nothing_for_its_callers_to_acknowledge() {
    let rig = Rig::start().await;
    let mut bob = rig.join("bob").await;
    let (gateway, url) = rig.second_gateway().await;
    let client =
        AgoraClient::try_new(&format!("{url}/agora/bob"), Some(rig.identity("alice").token.current()), PATIENCE);
    let client = client.unwrap();
    let asking = tokio::spawn(async move { client.begin(&asked(Selection::Language, "How warm?", false)).await });
    let (negotiation, _) = called(&mut bob, "How warm?").await;
    gateway.shutdown().await;
    assert!(asking.await.unwrap().is_err(), "503");
    assert_eq!(bob.closed(&negotiation).await.outcome, Outcome::Cancelled);
    // A stream that opens is sent whatever its agent has not acknowledged, and then what comes later.
    let mut alice = rig.join("alice").await;
    let mut stream = rig.exchange.gateway().streams().open(&alice.identity.agent).await.unwrap();
    let later = alice.document(&negotiation, json!({ "act": "cancel", "reason": "late" }));
    let later = alice.send(&later).await;
    let first = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    let first: Delivery = serde_json::from_slice(&first).unwrap();
    let receipts: Vec<_> = first.receipts_told().map(|receipt| receipt.ack_of.to_string()).collect();
    assert_eq!(receipts, [later], "{first:?}");
}
