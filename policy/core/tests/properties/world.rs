//! Runs a case against a real lane state: resolves its moves by what agents have been told so far, appends the records, and
//! at last lets time run out.

use policy_core::lane::RULES_VERSION;
use policy_core::{Effect, Event, LaneState, Limits};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
use schemas::{Lane, NegotiationId, Policy, Timestamp};

use crate::case::{Case, Move, TimeStep};
use crate::memory::{Memory, Situation};

/// Log time at the begin of every case.
pub(crate) const START: Timestamp = Timestamp(1_000_000_000);
/// The lane of every case.
pub(crate) const LANE: Lane = Lane(3);
/// Most draining ticks: each fires a timer, and a negotiation has at most a few for each of its rounds and awards.
const DRAIN_MAX: u32 = 2_000;

/// A log, without its effects.
pub(crate) type Log = Vec<(u64, Timestamp, Record)>;

/// One record and what followed.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) seq: u64,
    /// As it stands in the log; it may lie behind the record before.
    pub(crate) time: Timestamp,
    pub(crate) record: Record,
    pub(crate) effects: Vec<Effect>,
    pub(crate) deadline_before: Option<Timestamp>,
    pub(crate) deadline_after: Option<Timestamp>,
    pub(crate) now: Timestamp,
    pub(crate) open: usize,
    pub(crate) tombstones: usize,
}

/// A case that has run.
pub(crate) struct Run {
    pub(crate) limits: Limits,
    pub(crate) steps: Vec<Step>,
    pub(crate) lane_state: LaneState,
}

impl Run {
    /// Runs a case to the end of every negotiation, and its epilogue after that.
    pub(crate) fn of(case: &Case) -> Self {
        let limits = limits(case);
        let mut world = World {
            memory: Memory::new(case, &limits),
            lane_state: LaneState::new(LANE, limits.clone()),
            steps: Vec::new(),
            pending: Vec::new(),
            time: START,
        };
        let event = EngineEvent::Rules { version: RULES_VERSION };
        world.append_record(Record::new("test", vec![Entry::Engine { epoch: 0, event }]));
        for (index, one) in case.moves.iter().enumerate() {
            world.call(case, index);
            world.make(one);
        }
        world.call_rest(case);
        world.drain(case);
        for one in &case.epilogue {
            world.make(one);
        }
        world.append();
        world.drain(case);
        Self { limits, steps: world.steps, lane_state: world.lane_state }
    }

    /// The same log, but only some of its messages ask for a receipt; folded anew.
    pub(crate) fn asking(self, asks: impl Fn(&AdmittedMessage) -> bool) -> Self {
        let mut lane_state = LaneState::new(LANE, self.limits.clone());
        let mut steps = self.steps;
        for step in &mut steps {
            for entry in &mut step.record.entries {
                if let Entry::Message(message) = entry {
                    message.receipts_all = asks(message);
                }
            }
            lane_state.handle_record(step.seq, step.time, &step.record);
            step.effects = std::iter::from_fn(|| lane_state.poll_effect()).collect();
        }
        Self { limits: self.limits, steps, lane_state }
    }

    pub(crate) fn log(&self) -> Log {
        self.steps.iter().map(|step| (step.seq, step.time, step.record.clone())).collect()
    }

    /// The policy a negotiation runs under.
    pub(crate) fn policy_of(&self, negotiation: &NegotiationId) -> Option<&Policy> {
        self.steps.iter().flat_map(|step| &step.record.entries).find_map(|entry| match entry {
            Entry::Message(message) if message.negotiation == *negotiation => {
                message.pinned.as_ref().map(|pinned| &*pinned.policy)
            }
            Entry::Message(_) | Entry::Tick | Entry::Engine { .. } => None,
        })
    }

    pub(crate) fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.steps.iter().flat_map(|step| &step.effects)
    }
}

/// Folds a log afresh; the effects of each record.
pub(crate) fn fold(limits: &Limits, log: &Log) -> Vec<Vec<Effect>> {
    let mut lane_state = LaneState::new(LANE, limits.clone());
    let mut fold_one = |(seq, time, record): &(u64, Timestamp, Record)| {
        lane_state.handle_record(*seq, *time, record);
        std::iter::from_fn(|| lane_state.poll_effect()).collect()
    };
    log.iter().map(&mut fold_one).collect()
}

/// Where the wanted messages of a log stand: record and entry.
pub(crate) fn messages_of(log: &Log, wanted: impl Fn(&AdmittedMessage) -> bool) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (record, (_, _, content)) in log.iter().enumerate() {
        for (index, entry) in content.entries.iter().enumerate() {
            if matches!(entry, Entry::Message(message) if wanted(message)) {
                places.push((record, index));
            }
        }
    }
    places
}

/// Whether an effect closes or ends a negotiation.
pub(crate) fn closes(effect: &Effect, of: &NegotiationId) -> bool {
    match effect {
        Effect::Event(Event::Closed { negotiation, .. } | Event::Ended { negotiation, .. }) => negotiation == of,
        Effect::Event(_) | Effect::Deliver(_) | Effect::Register(_) | Effect::Notice(_) => false,
    }
}

fn limits(case: &Case) -> Limits {
    Limits {
        messages_per_party_max: case.messages_per_party_max,
        tombstone_grace_ms: case.tombstone_grace_ms,
        ..Limits::default()
    }
}

struct World<'a> {
    memory: Memory<'a>,
    lane_state: LaneState,
    steps: Vec<Step>,
    /// Entries of the record that is being filled.
    pending: Vec<Entry>,
    time: Timestamp,
}

impl World<'_> {
    /// Calls the negotiations whose turn has come.
    fn call(&mut self, case: &Case, index: usize) {
        for (number, plan) in case.plans.iter().enumerate() {
            if plan.called_before == index {
                self.call_one(number);
            }
        }
    }

    fn call_rest(&mut self, case: &Case) {
        self.append();
        for (number, plan) in case.plans.iter().enumerate() {
            if plan.called_before >= case.moves.len() {
                self.call_one(number);
            }
        }
    }

    fn call_one(&mut self, number: usize) {
        self.append();
        let entry = self.memory.call(number, self.situation());
        self.pending.extend(entry);
        self.append();
    }

    fn make(&mut self, one: &Move) {
        if !one.joins || self.pending.is_empty() {
            self.append();
            self.time = self.after(one.time);
        }
        let entry = self.memory.resolve(one, self.situation());
        self.pending.extend(entry);
    }

    fn situation(&self) -> Situation {
        Situation {
            now: self.time.max(self.lane_state.now()),
            deadline: self.lane_state.poll_deadline(),
            epoch: self.lane_state.epoch(),
        }
    }

    fn after(&self, step: TimeStep) -> Timestamp {
        let Timestamp(now) = self.lane_state.now().max(START);
        match step {
            TimeStep::Same => Timestamp(now),
            TimeStep::Us(us) => Timestamp(now + us),
            TimeStep::Ms(ms) => Timestamp(now).plus_ms(ms),
            TimeStep::BackMs(ms) => Timestamp(now - ms * 1000),
            TimeStep::Deadline => self.next_instant().unwrap_or(Timestamp(now)),
            TimeStep::PastDeadline => Timestamp(self.next_instant().map_or(now, |instant| instant.0 + 1)),
        }
    }

    /// The next deadline; when nothing is open, the last instant at which an ended negotiation is recognised.
    fn next_instant(&self) -> Option<Timestamp> {
        self.lane_state.poll_deadline().or_else(|| self.memory.next_forgotten(self.lane_state.now()))
    }

    /// Appends the pending entries as one record.
    fn append(&mut self) {
        if !self.pending.is_empty() {
            let entries = std::mem::take(&mut self.pending);
            self.append_record(Record::new("test", entries));
        }
    }

    fn append_record(&mut self, record: Record) {
        let seq = self.lane_state.position() + 1;
        let deadline_before = self.lane_state.poll_deadline();
        self.lane_state.handle_record(seq, self.time, &record);
        let effects: Vec<Effect> = std::iter::from_fn(|| self.lane_state.poll_effect()).collect();
        self.memory.remember(&effects);
        self.steps.push(Step {
            seq,
            time: self.time,
            record,
            effects,
            deadline_before,
            deadline_after: self.lane_state.poll_deadline(),
            now: self.lane_state.now(),
            open: self.lane_state.open_count(),
            tombstones: self.lane_state.tombstone_count(),
        });
    }

    /// Ticks until no timer is left.
    fn drain(&mut self, case: &Case) {
        self.append();
        for _ in 0..DRAIN_MAX {
            let Some(deadline) = self.lane_state.poll_deadline() else { return };
            if case.has_early_ticks {
                self.time = deadline;
                self.append_record(Record::new("test", vec![Entry::Tick]));
            }
            self.time = Timestamp(deadline.0 + case.lag_us);
            self.append_record(Record::new("test", Vec::new()));
        }
        panic!("still open after {DRAIN_MAX} ticks, each beyond the deadline before it");
    }
}
