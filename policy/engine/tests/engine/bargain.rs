//! A bargain through an engine: calls, turns, the agreement in the register before anybody is told, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use policy_core::preset;
use policy_engine::{Engine, EngineMetrics};
use prometheus::Registry;
use schemas::bargain::{BargainSpec, IssueWorth, Join, Mandate, Utility, Worth};
use schemas::delivery::{Notification, Standing};
use schemas::ids::AttrName;
use schemas::payload::{Accept, Cfp, Payload};
use schemas::record::{AdmittedMessage, Entry, Pinned, Qos};
use schemas::{Act, AwardNo, Lot, RegisterKey};

use crate::exchange::{Probe, append, call, config, message, negotiation, offer, open_bus, sample};

#[tokio::test(start_paused = true)]
async fn a_bargain_is_told_by_turns_registered_before_its_end_and_counted_under_its_protocol() {
    let bus = open_bus();
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let _engine = Engine::start(bus.clone(), config("engine-1"), metrics, None).await.unwrap();
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    let open = |state: &str| sample(&registry, "exchange_negotiations_open", state);

    append(&bus, vec![bargain("deal")]).await;
    bob.until(Act::Cfp).await;
    assert_eq!((open("joining"), open("bargaining")), (1.0, 0.0));
    append(&bus, vec![message("bob", "deal", "m2", Payload::Join(Join::default()))]).await;
    alice.until(Act::Turn).await;
    assert_eq!((open("joining"), open("bargaining")), (0.0, 1.0));

    append(&bus, vec![message("alice", "deal", "m3", offer(7))]).await;
    let standing = standing(bob.until(Act::Turn).await.payload);
    let accept = Accept { offer_id: standing.offer_id, terms_digest: Some(standing.terms_digest) };
    append(&bus, vec![message("bob", "deal", "m4", Payload::Accept(accept))]).await;
    let Notification::Closed(closing) = alice.until(Act::Closed).await.payload else { panic!("asked for CLOSED") };
    assert_eq!(closing.agreement.unwrap().terms_digest, standing.terms_digest);
    let key = RegisterKey::Award(negotiation("deal"), Lot(0), AwardNo(1));
    assert!(bus.register.value(key).await.unwrap().is_some(), "registered before anybody was told");

    bob.drain(Duration::from_secs(1)).await;
    assert_eq!((open("joining"), open("bargaining")), (0.0, 0.0));
    let counted = |name: &str, label: &str| sample(&registry, name, label);
    assert_eq!(counted("exchange_negotiations_started_total", "alternating_offers"), 1.0);
    assert_eq!(counted("exchange_negotiations_started_total", "contract_net"), 0.0);
    assert_eq!(counted("exchange_negotiations_closed_total", "agreement"), 1.0);
}

/// Alice calls bob to a bargain over a price from 0 to 10.
pub(crate) fn bargain(own: &str) -> Entry {
    let rules: BargainSpec =
        serde_json::from_str(r#"{"issues": [{"name": "price", "min": 0, "max": 10}], "rounds": 3}"#).unwrap();
    let cfp = Cfp { reply_within_ms: Some(10_000), bargain: Some(Box::new(rules)), ..Cfp::default() };
    let pinned = match call(own, preset("medium").unwrap(), &["bob"], Qos::AtLeastOnce) {
        Entry::Message(AdmittedMessage { pinned, .. }) => pinned,
        Entry::Tick | Entry::Engine { .. } => None,
    };
    match message("alice", own, "m1", Payload::Cfp(cfp)) {
        Entry::Message(admitted) => Entry::Message(AdmittedMessage { pinned, ..admitted }),
        other @ (Entry::Tick | Entry::Engine { .. }) => other,
    }
}

/// A party joins under a mandate by which a policy accepts whatever is worth the reservation value to it.
pub(crate) fn join_and_accept_anything(from: &str, own: &str, msg_id: &str, reservation: u32) -> Entry {
    let at = |at_min, at_max| Worth::Linear { at_min, at_max };
    let worth = IssueWorth { issue: AttrName::try_new("price").unwrap(), weight: 1_000, worth: at(0, 1_000_000) };
    let mandate = Mandate {
        policy: Some("bargain-low".to_owned()),
        utility: Some(Utility::Linear(vec![worth])),
        reservation,
        ..Mandate::default()
    };
    let policy = preset("bargain-low").unwrap();
    let policy_digest = policy.digest().unwrap();
    let pinned = Pinned {
        policy: Arc::new(policy),
        policy_digest,
        invited: Vec::new(),
        left_out: 0,
        task_policy: None,
        panel: None,
    };
    match message(from, own, msg_id, Payload::Join(Join { mandate: Some(Box::new(mandate)), ..Join::default() })) {
        Entry::Message(admitted) => Entry::Message(AdmittedMessage { pinned: Some(Arc::new(pinned)), ..admitted }),
        other @ (Entry::Tick | Entry::Engine { .. }) => other,
    }
}

fn standing(told: Notification) -> Standing {
    let Notification::Turn(turn) = told else { panic!("asked for TURN") };
    turn.standing.unwrap()
}
