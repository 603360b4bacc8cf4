//! The core alone: cost per message with few and with many open negotiations, and what they keep in memory.

use std::sync::Arc;
use std::time::Instant;

use policy_core::{Effect, LaneState, Limits, preset};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use schemas::payload::{AttrValue, Cfp, Offer, Payload};
use schemas::record::{AdmittedMessage, Entry, Pinned, Record};
use schemas::{AgentId, Lane, NegotiationId, Timestamp};

use super::rounds::{BenchError, stuck};
use super::usage::resident_bytes;
use scripted::bargain::in_memory::{admitted, pinned};
use traffic_gen::live::{contractor_name, initiator_name};

/// Contractors invited to each negotiation.
const CONTRACTORS: u32 = 12;
/// Offers timed at each size.
const OFFERS_TIMED: usize = 50_000;
/// Microseconds between two records.
const STEP_US: u64 = 10;

/// What the core costs with `open` negotiations.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Microseconds to fold one offer, effects drained.
    pub us_per_message: f64,
    /// Bytes per open negotiation with twelve invited.
    pub bytes_per_negotiation: f64,
    /// Bytes per offer on top.
    pub bytes_per_offer: f64,
}

/// Opens `open` negotiations and folds offers into them, in random order.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up.
pub fn measure(open: usize) -> Result<Cost, BenchError> {
    let mut bench = FoldBench::new()?;
    let before = resident_bytes("self");
    for number in 0..open {
        let record = bench.call(number)?;
        bench.fold(&record, drop);
    }
    let opened = resident_bytes("self");
    if bench.lane_state.open_count() != open {
        return Err(stuck(format!("{} of {open} negotiations are open", bench.lane_state.open_count())));
    }
    // Every contractor of as many negotiations as are needed, in random order: the caches get no help.
    let mut order: Vec<(usize, u32)> =
        (0..open).flat_map(|number| (0..CONTRACTORS - 1).map(move |contractor| (number, contractor))).collect();
    order.shuffle(&mut ChaCha12Rng::seed_from_u64(1));
    order.truncate(OFFERS_TIMED);
    let records: Vec<Record> =
        order.iter().map(|&(number, contractor)| bench.offer(number, contractor)).collect::<Result<_, _>>()?;
    let before_offers = resident_bytes("self");
    let started = Instant::now();
    for record in &records {
        bench.fold(record, drop);
    }
    let elapsed_us = started.elapsed().as_secs_f64() * 1e6;
    let after = resident_bytes("self");
    Ok(Cost {
        us_per_message: elapsed_us / records.len() as f64,
        bytes_per_negotiation: opened.saturating_sub(before) as f64 / open as f64,
        bytes_per_offer: after.saturating_sub(before_offers) as f64 / records.len() as f64,
    })
}

/// One lane, fed with what is logged; by itself with calls to twelve contractors and their offers.
pub struct FoldBench {
    lane_state: LaneState,
    seq: u64,
    pinned: Arc<Pinned>,
}

impl FoldBench {
    /// A lane that is empty.
    ///
    /// # Errors
    /// [`BenchError::Stuck`].
    pub fn new() -> Result<Self, BenchError> {
        let mut policy = preset("high").ok_or_else(|| stuck("high is no preset"))?;
        policy.timers_ms.hard = schemas::policy::TIMER_MS_MAX;
        let invited: Vec<AgentId> = (0..CONTRACTORS).map(contractor_name).collect();
        Ok(Self::pinning(pinned(&policy, &invited)))
    }

    /// One whose calls are pinned to this.
    pub fn pinning(pinned: Pinned) -> Self {
        Self { lane_state: LaneState::new(Lane(0), Limits::default()), seq: 0, pinned: Arc::new(pinned) }
    }

    /// Folds a record; `on_effect` gets what it leads to.
    pub fn fold(&mut self, record: &Record, mut on_effect: impl FnMut(Effect)) {
        self.seq += 1;
        self.lane_state.handle_record(self.seq, Timestamp(self.seq * STEP_US), record);
        while let Some(effect) = self.lane_state.poll_effect() {
            on_effect(effect);
        }
    }

    /// Negotiations that have not ended.
    pub fn open_count(&self) -> usize {
        self.lane_state.open_count()
    }

    /// The ids of the first negotiations.
    ///
    /// # Errors
    /// [`BenchError::Stuck`].
    pub fn negotiations(&self, count: usize) -> Result<Vec<NegotiationId>, BenchError> {
        (0..count).map(negotiation_id).collect()
    }

    /// The record of a call that opens a negotiation.
    ///
    /// # Errors
    /// [`BenchError::Stuck`].
    pub fn call(&self, number: usize) -> Result<Record, BenchError> {
        let cfp = Cfp {
            task: Some("deliver one parcel".to_owned()),
            reply_within_ms: Some(schemas::policy::TIMER_MS_MAX / 2),
            ..Cfp::default()
        };
        self.record(number, &initiator_name(), ("call", Some(1)), Payload::Cfp(cfp))
    }

    /// The record of a contractor's offer in it.
    ///
    /// # Errors
    /// [`BenchError::Stuck`].
    pub fn offer(&self, number: usize, contractor: u32) -> Result<Record, BenchError> {
        let attr = |name: &str| schemas::ids::AttrName::try_new(name).expect("a constant that is a name");
        let price = 50_000_000 + i64::from(contractor) * 1_000_003;
        let terms =
            [(attr("price"), AttrValue::Int(price)), (attr("delivery_ms"), AttrValue::Int(1500))].into_iter().collect();
        let offer = Offer { terms, ..Offer::default() };
        self.record(number, &contractor_name(contractor), ("offer", Some(1)), Payload::Offer(offer))
    }

    /// The record of a message of the n-th negotiation, which has an id and perhaps a sequence number.
    ///
    /// # Errors
    /// [`BenchError::Stuck`].
    pub fn record(
        &self,
        number: usize,
        from: &AgentId,
        id: (&str, Option<u64>),
        payload: Payload,
    ) -> Result<Record, BenchError> {
        let pinned = matches!(payload, Payload::Cfp(_)).then(|| Arc::clone(&self.pinned));
        let message = admitted(from, &negotiation_id(number)?, id, payload).map_err(stuck)?;
        as_read(AdmittedMessage { pinned, ..message })
    }
}

/// The record of a message as a reader of the log gets it: written and read back.
///
/// # Errors
/// [`BenchError::Stuck`] when it cannot be.
pub fn as_read(message: AdmittedMessage) -> Result<Record, BenchError> {
    let written = Record::new("bench", vec![Entry::Message(message)]).encode().map_err(stuck)?;
    Record::decode(&written).map_err(stuck)
}

fn negotiation_id(number: usize) -> Result<NegotiationId, BenchError> {
    NegotiationId::form(&initiator_name(), &format!("bench-{number}")).map_err(stuck)
}
