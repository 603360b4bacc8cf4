//! Lost acknowledgements: the same message again, at growing gaps, acted upon once; and what is logged in the end.

use std::sync::Arc;
use std::time::Duration;

use agents::observer::Observer;
use agents::transport::bus::BusTransport;
use agents::transport::faulty::{Faults, FaultyTransport};
use agents::{Agent, AgentHandle, AgentOptions, Contractor, ContractorConfig};
use policy_engine::OutboxConfig;
use schemas::control::Registration;
use schemas::record::{EngineEvent, Entry};
use schemas::{Act, DeliveryId};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::ExchangeOptions;

use crate::journal::Journal;
use crate::rig::{Rig, agent, open_registration, until};

/// Gap before the first repeat. The others double it, so a delay of a hundred milliseconds on a busy machine still leaves
/// them growing.
const RETRY_BASE: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k_dropped_acks_give_k_repeats_of_the_same_message_at_growing_gaps_and_one_action() {
    const DROPPED: u32 = 3;
    let rig = rig(8).await;
    let journal = Journal::start();
    let bob = deaf_contractor(&rig, &journal, DROPPED).await;
    let mut alice = rig.join("alice").await;
    let negotiation = alice.call("job", &["agent://bob"], &json!({ "policy": "high" })).await;
    alice.closed(&negotiation).await;

    let (_, times) = until("the call was repeated as often as its acknowledgement was dropped", async || {
        let heard = calls(&journal);
        (heard.1.len() > DROPPED as usize).then_some(heard)
    })
    .await;
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (doublings, gap) in (0..).zip(&gaps) {
        // A repeat is never early; the first of two may have been heard late.
        assert!(*gap + RETRY_BASE / 2 >= RETRY_BASE * (1 << doublings), "{gaps:?}");
    }
    assert!(gaps.is_sorted_by(|shorter, longer| shorter < longer), "{gaps:?}");

    // The next repeat would come after the next doubling; the acknowledgement that came through ends them.
    tokio::time::sleep(RETRY_BASE * (1 << DROPPED) * 3 / 2).await;
    assert_eq!(calls(&journal).1.len(), DROPPED as usize + 1);
    let acts: Vec<Act> = messages_of(&rig, "bob").await;
    assert_eq!(acts, [Act::Offer, Act::Confirm, Act::Inform], "it acted once on everything it heard four times");
    assert!(!rig.engine_events().await.iter().any(|event| matches!(event, EngineEvent::DeliveryFailed { .. })));
    bob.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_last_attempt_the_failure_is_logged_and_nothing_is_sent_any_more() {
    const ATTEMPTS: u32 = 3;
    let rig = rig(ATTEMPTS).await;
    let journal = Journal::start();
    let bob = deaf_contractor(&rig, &journal, u32::MAX).await;
    let mut alice = rig.join("alice").await;
    let negotiation = alice.call("job", &["agent://bob"], &json!({ "policy": "high" })).await;
    alice.closed(&negotiation).await;
    let failed = until("the failure of the call is logged", async || {
        let (call, _) = calls(&journal);
        rig.engine_events()
            .await
            .into_iter()
            .find(|event| matches!(event, EngineEvent::DeliveryFailed { id, .. } if *id == call))
    })
    .await;
    let EngineEvent::DeliveryFailed { negotiation: of, to, attempts, .. } = failed else { unreachable!() };
    assert_eq!((of.as_str(), to.as_str(), attempts), (negotiation.as_str(), "bob", ATTEMPTS));
    assert_eq!(calls(&journal).1.len(), ATTEMPTS as usize);
    // bob had answered: the failure of the transport does not undo what it said.
    assert_eq!(messages_of(&rig, "bob").await, [Act::Offer, Act::Confirm, Act::Inform]);
    bob.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contractor_that_cannot_be_reached_counts_as_failed_and_collection_closes_without_it() {
    let rig = rig(3).await;
    let (mut alice, mut bob) = (rig.join("alice").await, rig.join("bob").await);
    rig.register("gone", &open_registration()).await;
    let called = Instant::now();
    let cfp = json!({ "policy": "high", "reply_within_ms": 60_000 });
    let negotiation = alice.call("job", &["agent://bob", "agent://gone"], &cfp).await;
    bob.offer(&negotiation, 50).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!((awarded.contractor.as_str(), awarded.complete), ("bob", true));
    // Under `high` only a failed delivery can have closed collection before the deadline, a minute away.
    assert!(called.elapsed() < Duration::from_secs(30));
}

async fn rig(attempts_max: u32) -> Rig {
    let retry_base_ms = u64::try_from(RETRY_BASE.as_millis()).unwrap();
    let outbox = OutboxConfig { retry_base_ms, attempts_max, ..OutboxConfig::default() };
    Rig::start_with(ExchangeOptions { outbox, ..ExchangeOptions::default() }).await
}

/// A contractor of which the first so many acknowledgements of each delivery are lost.
async fn deaf_contractor(rig: &Rig, journal: &Arc<Journal>, drop_acks: u32) -> AgentHandle<Contractor> {
    // Durable: after three attempts a call would no longer wait for it.
    rig.register("bob", &Registration { durable: true, ..open_registration() }).await;
    let faults = Faults { drop_acks, ..Faults::default() };
    let transport = FaultyTransport::new(BusTransport::new(&rig.exchange.bus), faults);
    let strategy = Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap();
    let observer = Some(Arc::clone(journal) as Arc<dyn Observer>);
    let options = AgentOptions { observer, ..AgentOptions::default() };
    let handle =
        Agent::new(transport, rig.identity("bob"), strategy).with_options(options).spawn(CancellationToken::new());
    handle.connected().await.unwrap();
    handle
}

/// The call, and when it was heard.
fn calls(journal: &Journal) -> (DeliveryId, Vec<Instant>) {
    let heard = journal.heard();
    let calls = heard.iter().filter(|heard| heard.delivery.payload.act() == Act::Cfp);
    let (ids, times): (Vec<_>, Vec<_>) = calls.map(|heard| (heard.delivery.envelope.msg_id, heard.at)).unzip();
    assert!(ids.iter().all(|id| *id == ids[0]), "a repeat has the id of the first");
    (ids[0], times)
}

/// What an agent has said, in the order of the log.
async fn messages_of(rig: &Rig, name: &str) -> Vec<Act> {
    let entries = rig.logged().await;
    entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Message(message) if message.from.as_str() == name => Some(message.act),
            Entry::Message(_) | Entry::Tick | Entry::Engine { .. } => None,
        })
        .collect()
}
