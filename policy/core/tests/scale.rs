//! What a snapshot of a busy lane costs: `cargo test -p policy_core --release --test scale -- --ignored --nocapture`.
//! Figures, not verdicts: a quarter of the 100 000 open negotiations an exchange must recover, as one of four lanes has.

#![allow(clippy::disallowed_methods, reason = "a measurement reads its own processor time and memory")]

use std::sync::Arc;
use std::time::Duration;

use policy_core::{LaneState, Limits, preset};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const NEGOTIATIONS: u64 = 25_000;
const OFFERS: u64 = 12;
/// Contractors there are; each negotiation invites some of them.
const CONTRACTORS: u64 = 64;
/// Times each thing is measured; the mean counts.
const TRIES: u32 = 5;
/// The lane.
const LANE: Lane = Lane(0);
/// Log time of the first call.
const START_US: u64 = 1_790_000_000_000_000;
/// Bytes of a page of memory.
const PAGE_LEN: usize = 4096;

#[test]
#[ignore = "measures; meaningful in a release build only"]
fn a_busy_lane_is_written_and_restored_in_a_fraction_of_the_time_it_took() {
    let before = resident();
    let started = processor_time();
    let lane_state = busy();
    let (folded, held) = (processor_time() - started, resident() - before);
    let bytes = lane_state.snapshot();
    let before = resident();
    let mut restored = restore(&bytes);
    let held_again = resident() - before;
    let written = cost(|| drop(lane_state.snapshot()));
    let read = cost(|| drop(restore(&bytes)));
    let per_negotiation = bytes.len() as u64 / NEGOTIATIONS;
    println!("{NEGOTIATIONS} open negotiations with {OFFERS} offers each");
    println!("folded in {folded:?}, {} MiB resident", held >> 20);
    println!("written in {written:?}, {} MiB, {per_negotiation} bytes per negotiation", bytes.len() >> 20);
    println!("restored in {read:?}, {} MiB resident", held_again >> 20);
    assert_eq!(restored.digest(), lane_state.digest());
    assert_eq!(restored.snapshot(), bytes);
    assert!(per_negotiation <= 3 * 1024 + 300 * OFFERS, "{per_negotiation} bytes per negotiation");
    let tick = Record::new("test", vec![Entry::Tick]);
    restored.handle_record(restored.position() + 1, Timestamp(START_US).plus_ms(10_000_000), &tick);
    while restored.poll_effect().is_some() {}
    assert_eq!(restored.open_count(), 0, "every timer was armed again");
}

fn restore(bytes: &[u8]) -> LaneState {
    LaneState::restore(bytes, LANE, Limits::default()).expect("a snapshot")
}

/// The processor time it takes: other processes do not count.
fn cost(mut run: impl FnMut()) -> Duration {
    let before = processor_time();
    for _ in 0..TRIES {
        run();
    }
    (processor_time() - before) / TRIES
}

/// Everybody has been called and has answered but one, who keeps it open.
fn busy() -> LaneState {
    let mut lane_state = LaneState::new(LANE, Limits::default());
    let policy = Arc::new(preset("high").expect("a preset"));
    let policy_digest = policy.digest().expect("canonical");
    for number in 0..NEGOTIATIONS {
        let negotiation =
            NegotiationId::try_new(&format!("initiator-{:02}~round-{number:08}", number % 100)).expect("an id");
        let initiator = AgentId::try_new(negotiation.initiator()).expect("a name");
        let mut invited: Vec<AgentId> = (0..=OFFERS).map(|nth| contractor(number * 7 + nth * 3)).collect();
        invited.sort();
        invited.dedup();
        let mut call = message(&initiator, &negotiation, Act::Cfp, json!({"act": "cfp", "task": "carry 12 boxes"}), 0);
        let invitation = |agent: &AgentId| Invitation {
            agent: agent.clone(),
            qos: Qos::AtLeastOnce,
            durable: false,
            reputation: None,
        };
        let invitations = invited.iter().map(invitation).collect();
        let pinned = Pinned {
            policy: Arc::clone(&policy),
            policy_digest,
            invited: invitations,
            left_out: 0,
            task_policy: None,
            panel: None,
        };
        call.pinned = Some(Arc::new(pinned));
        let offers = invited.iter().skip(1).zip(1..).map(|(agent, nth)| {
            let terms = json!({"price": 100_000_000 + nth * 7_919, "delivery_ms": 20_000 + nth});
            Entry::Message(message(agent, &negotiation, Act::Offer, json!({"act": "offer", "terms": terms}), nth))
        });
        let entries = std::iter::once(Entry::Message(call)).chain(offers).collect();
        let time = Timestamp(START_US + number);
        lane_state.handle_record(number + 1, time, &Record::new("gateway-1", entries));
        while lane_state.poll_effect().is_some() {}
    }
    assert_eq!(lane_state.open_count() as u64, NEGOTIATIONS);
    lane_state
}

fn contractor(number: u64) -> AgentId {
    AgentId::try_new(&format!("contractor-{:03}", number % CONTRACTORS)).expect("a name")
}

/// With a message id as long as a UUID, and a number in its sender's order.
fn message(from: &AgentId, negotiation: &NegotiationId, act: Act, payload: Value, nth: u64) -> AdmittedMessage {
    let hash = Digest::of_parts(&[negotiation.as_str().as_bytes(), &nth.to_be_bytes()]).to_string();
    let envelope = json!({
        "msg_id": format!("0193f4c2-7b1d-7000-{}-{}", &hash[..4], &hash[4..16]),
        "ts": "2026-01-01T00:00:00Z", "from": format!("agent://{from}"), "seq": 1_790_000_000_000 + nth,
    });
    let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("canonical");
    AdmittedMessage {
        from: from.clone(),
        negotiation: negotiation.clone(),
        act,
        digest: Digest::of_bytes(&body),
        body: Arc::from(RawValue::from_string(String::from_utf8(body).expect("text")).expect("JSON")),
        pinned: None,
        receipts_all: false,
        capabilities: Vec::new(),
    }
}

/// Processor time this process has used. The kernel counts it in hundredths of a second.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let ticks = stat.split(' ').skip(13).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Bytes of memory this process has in use.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * PAGE_LEN
}
