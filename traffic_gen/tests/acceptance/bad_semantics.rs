//! Cases 67 to 86: what is well-formed and still wrong, over gateway, log and engine.
//!
//! Each row gives the code a gateway refuses with, or the disposition the fold answers with. Not here:
//!
//! | case | why |
//! |---|---|
//! | 71, as bargaining | a contract net has no counter-offers; that an initiator offers is out of turn |
//! | 73, accepts of both sides | only alternating offers let both sides accept; here: two accepts of the initiator |
//! | 79 | `identity`, the tie |
//! | 83, one owner with two identities | the exchange knows agents, not their owners |
//! | 84 | `policies` |

use std::time::Duration;

use policy_engine::OutboxConfig;
use schemas::Policy;
use schemas::delivery::{Disposition, Notification, OffersReport, Outcome, ProgressReport};
use schemas::policy::Decider;
use schemas::record::EngineEvent;
use serde_json::{Value, json};
use traffic_gen::arrivals::PoissonArrivals;
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::live::CallScenario;

use crate::party::{Party, offer};
use crate::rig::{Rig, policy, until};

const COURIERS: &[&str] = &["agent://bob", "agent://carol"];

/// A row: the case's number and name, what is said, and the code or disposition it must get.
type Row = (&'static str, Value, &'static str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offers_that_must_not_count_are_answered_and_change_nothing() {
    let rig = Rig::with_policies(vec![lenient("lenient@1")]).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "lenient", "currency": "EUR" })).await;
    let terms = |terms: Value| json!({ "act": "offer", "terms": terms, "currency": "EUR" });
    let with = |name: &str, value: Value| {
        let mut offer = terms(json!({ "price": 50 }));
        offer[name] = value;
        offer
    };
    let rows: Vec<Row> = vec![
        ("70 a first bid", terms(json!({ "price": 50 })), "ok"),
        ("70 a second bid replaces the first", terms(json!({ "price": 60 })), "ok"),
        ("77 a price above the mandate", terms(json!({ "price": 1001 })), "policy_reject"),
        ("78 a negative price", terms(json!({ "price": -1 })), "policy_reject"),
        ("78 an overflow", terms(json!({ "price": 9_223_372_036_854_775_807_i64 })), "out_of_range"),
        ("78 a fraction", terms(json!({ "price": 0.5 })), "wrong_type"),
        ("78 a quantity in words", terms(json!({ "price": "fifty" })), "wrong_type"),
        ("78 no price at all", terms(json!({ "delivery_ms": 5 })), "policy_reject"),
        ("44 another currency", with("currency", json!("USD")), "policy_reject"),
        ("85 valid until yesterday", with("valid_until", json!("2020-01-01T00:00:00Z")), "policy_reject"),
        ("81 a round beyond the last", with("round", json!(2)), "out_of_turn"),
        ("82 a round far ahead", with("round", json!(1_000_000)), "out_of_turn"),
        ("82 a round before the first", with("round", json!(0)), "out_of_range"),
        ("74 an award of one's own", json!({ "act": "accept", "offer_id": "o1-0" }), "out_of_turn"),
        ("74 a commitment without an award", json!({ "act": "confirm", "award_no": 1 }), "out_of_turn"),
        ("74 a report without an award", json!({ "act": "inform", "kind": "done" }), "out_of_turn"),
        ("74 a call in another's negotiation", json!({ "act": "cfp" }), "bad_format"),
        ("74 a rejection", json!({ "act": "reject" }), "not_allowed"),
        ("74 an end", json!({ "act": "closed" }), "not_allowed"),
        ("74 a disposition", json!({ "act": "ack" }), "not_allowed"),
        ("78 nothing for nothing", terms(json!({ "price": 0 })), "ok"),
    ];
    judge(&mut bob, &negotiation, rows).await;
    let rows: Vec<Row> = vec![
        ("71, 83 the initiator offers", terms(json!({ "price": 1 })), "out_of_turn"),
        (
            "72 the initiator accepts where the policy decides",
            json!({ "act": "accept", "offer_id": "o1-0" }),
            "out_of_turn",
        ),
        ("74 the initiator confirms", json!({ "act": "confirm", "award_no": 1 }), "out_of_turn"),
        ("74 the initiator withdraws", json!({ "act": "withdraw" }), "out_of_turn"),
    ];
    judge(&mut alice, &negotiation, rows).await;

    carol.say(&negotiation, terms(json!({ "price": 70 }))).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!((awarded.contractor.as_str(), awarded.offers), ("bob", 2));
    assert_eq!(serde_json::to_value(&awarded.terms).unwrap(), json!({ "price": 0 }), "the last that counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bids_where_there_is_nothing_to_bid_for_are_answered_without_telling_more() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let mut mallory = rig.join("mallory").await;
    let high = json!({ "policy": "high" });
    let open = alice.call("open", COURIERS, &high).await;
    let cancelled = alice.call("cancelled", COURIERS, &high).await;
    alice.say(&cancelled, json!({ "act": "cancel" })).await;
    let expired = alice.call("expired", COURIERS, &json!({ "policy": "high", "reply_within_ms": 1 })).await;
    let completed = alice.call("completed", &["agent://bob"], &high).await;
    bob.offer(&completed, 50).await;
    bob.perform(&completed).await;
    let outcomes = [(&cancelled, Outcome::Cancelled), (&expired, Outcome::NoOffers), (&completed, Outcome::Completed)];
    for (negotiation, outcome) in outcomes {
        assert_eq!(alice.closed(negotiation).await.outcome, outcome);
    }
    for (case, negotiation, disposition) in [
        ("67 after the deadline", &expired, Disposition::Late),
        ("68 cancelled", &cancelled, Disposition::Late),
        ("68 completed", &completed, Disposition::Late),
        ("68 unknown", &"alice~nothing".to_owned(), Disposition::Unauthorized),
        ("68 of nobody", &"nobody~nothing".to_owned(), Disposition::Unauthorized),
    ] {
        assert_eq!(bob.offer(negotiation, 10).await.disposition, disposition, "{case}");
    }
    // Who takes no part cannot tell what exists.
    for negotiation in [&open, &completed, &"alice~nothing".to_owned()] {
        let receipt = mallory.offer(negotiation, 10).await;
        assert_eq!((receipt.disposition, receipt.offer_id), (Disposition::Unauthorized, None), "69 not invited");
    }
    let receipt = bob.say(&completed, json!({ "act": "confirm", "award_no": 7 })).await;
    assert_eq!(receipt.disposition, Disposition::Closed, "74 an award that never was, after the end");

    bob.offer(&open, 60).await;
    carol.offer(&open, 70).await;
    assert_eq!(alice.awarded(&open).await.contractor.as_str(), "bob", "the open negotiation went on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_exactly_at_the_deadline_is_on_time_and_one_microsecond_later_is_late() {
    for (late_us, disposition) in [(0, Disposition::Ok), (1, Disposition::Late)] {
        let (rig, time) = Rig::with_log_time(Vec::new()).await;
        let (mut alice, mut bob) = (rig.join("alice").await, rig.join("bob").await);
        rig.register("carol", &crate::rig::open_registration()).await;
        let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high", "reply_within_ms": 1000 })).await;
        let mut deadline = time.now().plus_ms(1000);
        deadline.0 += late_us;
        time.move_to(deadline);
        assert_eq!(bob.offer(&negotiation, 50).await.disposition, disposition, "67 {late_us} µs after the deadline");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_cannot_be_followed_open_nothing() {
    let rig = Rig::start().await;
    let mut alice = rig.join("alice").await;
    let bob = rig.join("bob").await;
    let many: Vec<String> = (0..1025).map(|number| format!("agent://agent-{number}")).collect();
    type Change = Box<dyn Fn(&mut Value)>;
    let set = |pointer: &'static str, value: Value| -> Change {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        Box::new(move |document| document.pointer_mut(parent).unwrap()[name] = value.clone())
    };
    let rows: Vec<(&str, Change, &str)> = vec![
        ("80 1025 recipients", set("/envelope/to", json!(many)), "out_of_range"),
        ("82 it begins with round 2", set("/payload/round", json!(2)), "malformed"),
        ("83 to oneself", set("/envelope/to", json!(["agent://alice"])), "no_recipient"),
        ("85 the deadline has passed", set("/payload/reply_by", json!("2020-01-01T00:00:00Z")), "malformed"),
        ("85 the deadline is years ahead", set("/payload/reply_by", json!("2099-01-01T00:00:00Z")), "malformed"),
        ("85 no time to reply", set("/payload/reply_within_ms", json!(0)), "out_of_range"),
        ("85 no time to live", set("/envelope/scope", json!({ "consent": "opt-in", "ttl": 0 })), "out_of_range"),
        ("a policy that does not exist", set("/payload/policy", json!("generous")), "unknown_policy"),
        ("consent by another mode", set("/envelope/scope", json!({ "consent": "opt-out" })), "not_allowed"),
    ];
    for (number, (case, change, expected)) in rows.into_iter().enumerate() {
        let mut document = alice.call_document(&format!("job-{number}"), &["agent://bob"], &json!({}));
        if case.contains("deadline") {
            document["payload"].as_object_mut().unwrap().remove("reply_within_ms");
        }
        change(&mut document);
        assert_eq!(answer(&mut alice, &document).await, expected, "{case}");
    }
    assert!(bob.heard.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_senders_clock_decides_nothing() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    for (party, ts, price) in [(&mut bob, "1999-01-01T00:00:00Z", 60), (&mut carol, "2099-12-31T23:59:59Z", 50)] {
        let mut document = party.document(&negotiation, offer(price));
        document["envelope"]["ts"] = json!(ts);
        assert_eq!(answer(party, &document).await, "ok", "85 {ts}");
    }
    assert_eq!(alice.awarded(&negotiation).await.contractor.as_str(), "carol");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_initiator_accepts_only_offers_that_stand_and_only_one() {
    let (rig, time) = Rig::with_log_time(vec![decided("chosen@1")]).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let cfp = json!({ "policy": "chosen" });
    let other = alice.call("other", COURIERS, &cfp).await;
    let elsewhere = bob.offer(&other, 10).await.offer_id.unwrap();
    let negotiation = alice.call("job", COURIERS, &cfp).await;
    let superseded = bob.offer(&negotiation, 40).await.offer_id.unwrap();
    let standing = bob.offer(&negotiation, 50).await.offer_id.unwrap();
    let fleeting = json!({ "act": "offer", "terms": { "price": 30 }, "valid_for_ms": 2_000 });
    let expiring = carol.say(&negotiation, fleeting).await.offer_id.unwrap();
    let revealed: OffersReport = alice
        .told(&negotiation, "INFORM{offers}", |told| {
            if let Notification::Inform(ProgressReport::Offers(offers)) = told { Some(offers.clone()) } else { None }
        })
        .await;
    assert_eq!(revealed.offers.len(), 2, "what was superseded is not shown");
    time.move_to(time.now().plus_ms(3_000));
    let accept = |offer_id: schemas::OfferId| json!({ "act": "accept", "offer_id": offer_id });
    let rows: Vec<Row> = vec![
        ("72 a superseded offer", accept(superseded), "out_of_turn"),
        ("72 an expired offer", accept(expiring), "out_of_turn"),
        ("72 an offer in another negotiation", accept(elsewhere), "out_of_turn"),
        ("72 an offer that never was", json!({ "act": "accept", "offer_id": "o999999-0" }), "out_of_turn"),
        ("72 an offer that stands", accept(standing), "ok"),
        ("73 a second accept", accept(standing), "out_of_turn"),
    ];
    judge(&mut alice, &negotiation, rows).await;
    let award = bob.accept(&negotiation).await;
    assert_eq!(award.offer_id, standing);
    assert_eq!(bob.count(schemas::Act::Accept), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_withdraws_is_not_awarded_and_who_is_bound_cannot_withdraw() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let mut dave = rig.join("dave").await;
    let to = ["agent://bob", "agent://carol", "agent://dave"];
    let negotiation = alice.call("job", &to, &json!({ "policy": "high" })).await;
    let withdraw = json!({ "act": "withdraw" });
    bob.offer(&negotiation, 10).await;
    assert_eq!(bob.say(&negotiation, withdraw.clone()).await.disposition, Disposition::Ok);
    carol.offer(&negotiation, 20).await;
    dave.offer(&negotiation, 30).await;
    let award = carol.accept(&negotiation).await;
    assert_eq!((award.award_no.0, bob.count(schemas::Act::Accept)), (1, 0), "75 the cheapest had withdrawn");
    // 76 awarded, not bound: it counts as a refusal, and the next in rank is awarded.
    assert_eq!(carol.say(&negotiation, withdraw.clone()).await.disposition, Disposition::Ok);
    let award = dave.accept(&negotiation).await;
    assert_eq!(award.award_no.0, 2);
    assert_eq!(dave.confirm(&negotiation, award.award_no).await.disposition, Disposition::Committed);
    // 76 bound: only a failure ends it.
    let document = dave.document(&negotiation, withdraw);
    assert_eq!(answer(&mut dave, &document).await, "out_of_turn");
    let msg_id = document["envelope"]["msg_id"].as_str().unwrap();
    assert_eq!(dave.misunderstood(msg_id).await, "use_failure_decommit");
    dave.say(&negotiation, json!({ "act": "inform", "kind": "done" })).await;
    assert_eq!(alice.closed(&negotiation).await.outcome, Outcome::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_bidders_are_served_and_the_best_of_them_wins() {
    let rig = Rig::start().await;
    let usual = CallScenario::default();
    let first = PoissonArrivals::try_new(usual.rate, usual.seed).unwrap().next().unwrap();
    let scenario = CallScenario {
        contractors: 1000,
        policy: Some("high".to_owned()),
        // Just long enough for one call.
        duration: first + Duration::from_micros(1),
        reply_within_ms: 60_000,
        ..usual
    };
    let (counts, verdict) = rig.run(&scenario).await;
    assert_eq!((counts.cfps, counts.offers, counts.awards), (1, 1000, 1), "{:?}", counts.rejected);
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_negotiation_whose_initiator_disappears_is_carried_to_its_end() {
    let outbox = OutboxConfig { retry_base_ms: 20, attempts_max: 3, ..OutboxConfig::default() };
    let policies = vec![policy("silent@1", |policy| (policy.decider, policy.decide_ms) = (Decider::Initiator, 200))];
    let rig = Rig::start_with(ExchangeOptions { outbox, policies, ..ExchangeOptions::default() }).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "silent" })).await;
    drop(alice);
    bob.offer(&negotiation, 60).await;
    carol.offer(&negotiation, 50).await;
    // Silence at `decide_by` falls back to the score.
    carol.perform(&negotiation).await;
    assert_eq!(carol.closed(&negotiation).await.outcome, Outcome::Completed);
    until("what could not be delivered to alice is logged", async || {
        let events = rig.engine_events().await;
        let is_hers =
            |event: &&EngineEvent| matches!(event, EngineEvent::DeliveryFailed { to, .. } if to.as_str() == "alice");
        // INFORM{offers}, INFORM{awarded}, INFORM{committed}, INFORM{done}, CLOSED.
        (events.iter().filter(is_hers).count() == 5).then_some(())
    })
    .await;
}

/// Says each row's words and compares.
async fn judge(party: &mut Party, negotiation: &str, rows: Vec<Row>) {
    for (case, payload, expected) in rows {
        let document = party.document(negotiation, payload);
        assert_eq!(answer(party, &document).await, expected, "{case}");
    }
}

/// The code a document is refused with, or the disposition it gets.
async fn answer(party: &mut Party, document: &Value) -> String {
    let (status, body) = party.post(document).await;
    if status != 202 {
        return body["code"].as_str().unwrap().to_owned();
    }
    let msg_id = document["envelope"]["msg_id"].as_str().unwrap();
    party.receipt(msg_id).await.disposition.as_str().to_owned()
}

/// Prices up to a thousand, and nobody is struck out.
fn lenient(id: &str) -> Policy {
    policy(id, |policy| {
        policy.gates[0].max = Some(1000);
        policy.max_strikes = 100;
    })
}

fn decided(id: &str) -> Policy {
    policy(id, |policy| (policy.decider, policy.decide_ms) = (Decider::Initiator, 10_000))
}
