//! All negotiations of one lane: the fold's only entry.

mod engine_records;
mod names;
mod policies;
mod receive;
mod shelf;

use std::collections::VecDeque;
use std::sync::Arc;

use schemas::ids::Position;
use schemas::record::{Entry, Record};
use schemas::{AgentId, Digest, Lane, NegotiationId, Timestamp};

use crate::contract_net::state::TimerKind;
use crate::effect::{Effect, Event};
use crate::limits::Limits;
use crate::negotiation::Negotiation;
use crate::step::{Step, Winners};
use crate::view::View;
use names::Names;
use shelf::{Key, Shelf, Slot};

/// The rules version this build folds with, until a logged `rules` record says otherwise.
pub const RULES_VERSION: u32 = 1;

/// Every negotiation of one lane.
///
/// Contract: feed records in the order of the log; after each, drain [`Book::poll_effect`], then ask
/// [`Book::poll_deadline`]. The same records give byte-identical effects.
#[derive(Debug)]
pub struct Book {
    position: u64,
    epoch: u64,
    owner: Option<Arc<str>>,
    rules: u32,
    shelf: Shelf,
    flow: Flow,
}

/// What every input passes through, whichever negotiation it concerns.
#[derive(Debug)]
struct Flow {
    lane: Lane,
    limits: Limits,
    now: Timestamp,
    /// Inputs folded so far: messages, timers, engine events.
    inputs: u64,
    names: Names,
    winners: Winners,
    effects: VecDeque<Effect>,
    /// Running hash of what was decided: dispositions, states, outcomes.
    trail: u64,
}

impl Book {
    /// An empty book of one lane.
    #[must_use]
    pub fn new(lane: Lane, limits: Limits) -> Self {
        Self {
            position: 0,
            epoch: 0,
            owner: None,
            rules: RULES_VERSION,
            shelf: Shelf::new(limits.clone()),
            flow: Flow {
                lane,
                now: Timestamp(0),
                inputs: 0,
                names: Names::new(limits.names_shared_max),
                winners: Winners::default(),
                effects: VecDeque::new(),
                trail: 0xcbf2_9ce4_8422_2325,
                limits,
            },
        }
    }

    /// Folds one record: first the timers with a deadline before `time`, in the order (deadline, kind, negotiation), then
    /// the entries. `time` is clamped so that it never goes back; a record whose `seq` was folded already is ignored.
    ///
    /// A timer is evaluated at its deadline, but what it arms counts from `time`. Its position is
    /// (`seq`, `u32::MAX - k`) for the k-th timer the record fires, counted from 0.
    pub fn handle_record(&mut self, seq: u64, time: Timestamp, record: &Record) {
        if seq <= self.position {
            return;
        }
        self.position = seq;
        self.flow.now = self.flow.now.max(time);
        self.fire_timers(seq);
        self.shelf.bury_forgotten(self.flow.now);
        for (index, entry) in (0..).zip(&record.entries) {
            self.handle_entry(Position { seq, index }, entry);
        }
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.flow.effects.pop_front()
    }

    /// When time alone will change something: once log time has passed this instant, a record (an empty tick will do)
    /// fires the timer.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        self.shelf.first_deadline()
    }

    /// Log time of the last record folded.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.flow.now
    }

    /// Sequence of the last record folded, 0 at the beginning.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Epoch of the last accepted claim, 0 before any.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Rules version of the lane.
    #[must_use]
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// Whether the last accepted claim is this engine's.
    #[must_use]
    pub fn is_owner(&self, engine: &str) -> bool {
        self.owner.as_deref() == Some(engine)
    }

    /// Negotiations that have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.shelf.open_count()
    }

    /// Ended negotiations that are still recognised.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.shelf.tombstone_count()
    }

    /// Digest of the state, to compare replicas at the same position: everything held, by its hash chain, and the running
    /// hash of everything decided.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_parts(&[
            &[self.flow.lane.0],
            &self.position.to_be_bytes(),
            &self.flow.now.0.to_be_bytes(),
            &self.epoch.to_be_bytes(),
            &self.rules.to_be_bytes(),
            &self.flow.inputs.to_be_bytes(),
            &self.shelf.chains().to_be_bytes(),
            &self.flow.trail.to_be_bytes(),
        ])
    }

    /// What `viewer` may see of a negotiation; absent for strangers and unknown negotiations alike.
    #[must_use]
    pub fn view(&self, negotiation: &NegotiationId, viewer: &AgentId) -> Option<View> {
        match self.shelf.slot(Key::of(negotiation))? {
            Slot::Open(negotiation, _) => negotiation.view(viewer),
            Slot::Ended(tombstone) => tombstone.view(viewer),
        }
    }

    fn fire_timers(&mut self, seq: u64) {
        let mut index = u32::MAX;
        while let Some((deadline, kind, key)) = self.shelf.pop_due(self.flow.now) {
            self.shelf.with_slot(key, |slot| {
                if let Slot::Open(negotiation, _) = slot {
                    self.flow.with_step(Position { seq, index }, deadline, |step, _| {
                        negotiation.link(&kind.tag(), step);
                        fire(negotiation, kind, step);
                    });
                }
            });
            index = index.saturating_sub(1);
        }
    }

    fn handle_entry(&mut self, position: Position, entry: &Entry) {
        match entry {
            Entry::Message(message) => self.handle_message(position, message),
            Entry::Tick => {}
            Entry::Engine { epoch, event } => self.handle_engine_event(position, *epoch, event),
        }
    }
}

impl Flow {
    /// Runs one input and notes what it decided. `now` is the instant it is evaluated at.
    fn with_step<R>(
        &mut self,
        position: Position,
        now: Timestamp,
        input: impl FnOnce(&mut Step<'_>, &mut Names) -> R,
    ) -> R {
        self.inputs += 1;
        let first_effect = self.effects.len();
        let mut step = Step {
            lane: self.lane,
            limits: &self.limits,
            position,
            input: self.inputs,
            now,
            clock: self.now,
            winners: &mut self.winners,
            out: &mut self.effects,
            ordinal: 0,
        };
        let result = input(&mut step, &mut self.names);
        self.trail = trail(self.trail, self.effects.range(first_effect..));
        result
    }
}

fn fire(negotiation: &mut Negotiation, kind: TimerKind, step: &mut Step<'_>) {
    let lot = |lot: u32| usize::try_from(lot).unwrap_or(usize::MAX);
    match kind {
        TimerKind::Hard => negotiation.handle_hard_deadline(step),
        TimerKind::Collect => negotiation.handle_collect(step),
        TimerKind::Window => negotiation.handle_window(step),
        TimerKind::Crossing => negotiation.handle_crossing(step),
        TimerKind::Decide => negotiation.handle_decide(step),
        TimerKind::Confirm(number) => negotiation.handle_confirm_timeout(lot(number), step),
        TimerKind::Perform(number) => negotiation.handle_perform_timeout(lot(number), step),
        TimerKind::Cancel => negotiation.handle_cancel_timeout(step),
    }
}

/// FNV-1a over what the effects of one input decided.
fn trail<'a>(seed: u64, effects: impl Iterator<Item = &'a Effect>) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    effects.fold(seed, |hash, effect| match effect {
        Effect::Deliver(deliver) => mix(mix(hash, 1), deliver.told.act() as u8),
        Effect::Register(_) => mix(hash, 2),
        Effect::Notice(_) => mix(hash, 3),
        Effect::Event(Event::Disposed { disposition, .. }) => mix(mix(hash, 4), *disposition as u8),
        Effect::Event(Event::Transition { to, .. }) => mix(mix(hash, 5), *to as u8),
        Effect::Event(Event::Ended { outcome, .. }) => mix(mix(hash, 6), *outcome as u8),
        Effect::Event(_) => mix(hash, 7),
    })
}
