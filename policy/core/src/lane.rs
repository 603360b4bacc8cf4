//! All negotiations of one lane: the fold's only entry.

mod family;
mod inbound;
mod shared;
mod snapshot;
mod state_hash;
mod table;

use std::collections::VecDeque;
use std::sync::Arc;

use schemas::ids::Position;
use schemas::record::{Entry, Record};
use schemas::{AgentId, Digest, Lane, NegotiationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::acceptance::tie_break::Winners;
use crate::effect::Effect;
use crate::limits::Limits;
use crate::negotiation::ChainLink;
use crate::negotiation::InputContext;
use crate::negotiation::family::FamilyOrders;
use crate::negotiation::protocols::TableEntry;
use crate::negotiation::view::NegotiationView;
use crate::panel::evidence::EvidenceLedger;
use schemas::protocols::{Phase, Protocol};
pub use snapshot::{SNAPSHOT_FORMAT, SnapshotError};

use family::carry_out;
use shared::Names;
use table::{Key, NegotiationTable};

/// The rules version every lane begins under.
pub const RULES_FIRST: u32 = 1;
/// The newest rules version this build knows.
///
/// Rules are what a record leads to: effects, their ids, digests. Once a version is released, a change of any of them is a
/// new version, and both are kept: where they differ, the fold asks for the lane's version, which every input carries as it
/// carries the limits; [`LaneState::digest`] is part of them. A protocol names the version it came with
/// ([`Protocol::rules_since`]). A lane changes over by a logged `rules` record and at that record, in the middle of
/// negotiations too; engines append one when all of them know the version. `golden/` holds logs of every version.
///
/// A record that sets a version beyond this one is folded like any other; [`LaneState::rules`] then tells the shell, which
/// must drop the state and this record's effects.
pub const RULES_VERSION: u32 = 1;
const _: () = assert!(RULES_FIRST <= RULES_VERSION);

/// Every negotiation of one lane.
///
/// Contract: feed records in the order of the log; after each, drain [`LaneState::poll_effect`], then ask
/// [`LaneState::poll_deadline`]. The same records give byte-identical effects.
#[derive(Debug)]
pub struct LaneState {
    table: NegotiationTable,
    context: LaneContext,
}

/// How far a lane has come.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LaneProgress {
    position: u64,
    epoch: u64,
    owner: Option<Arc<str>>,
    now: Timestamp,
    /// Inputs folded so far: messages, timers, engine events.
    inputs: u64,
    /// Running hash of what was decided: dispositions, states, outcomes.
    state_hash: u64,
}

/// What every input passes through, whichever negotiation it concerns.
#[derive(Debug)]
struct LaneContext {
    lane: Lane,
    limits: Limits,
    rules: u32,
    progress: LaneProgress,
    names: Names,
    winners: Winners,
    ledger: EvidenceLedger,
    effects: VecDeque<Effect>,
    causes: Causes,
    /// The inputs of negotiations, where somebody asked for them. No part of the state.
    links: Option<Vec<ChainLink>>,
}

impl LaneState {
    /// The empty state of one lane.
    #[must_use]
    pub fn new(lane: Lane, limits: Limits) -> Self {
        Self {
            table: NegotiationTable::new(limits.clone()),
            context: LaneContext {
                lane,
                rules: RULES_FIRST,
                progress: LaneProgress { state_hash: state_hash::START, ..LaneProgress::default() },
                names: Names::new(limits.names_shared_max),
                winners: Winners::default(),
                ledger: EvidenceLedger::default(),
                effects: VecDeque::new(),
                causes: Causes::default(),
                links: None,
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
        let progress = &mut self.context.progress;
        if seq <= progress.position {
            return;
        }
        progress.position = seq;
        progress.now = progress.now.max(time);
        self.fire_timers(seq);
        self.table.drop_expired(self.context.progress.now);
        for (index, entry) in (0..).zip(&record.entries) {
            self.handle_entry(Position { seq, index }, entry);
        }
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.poll_effect_at().map(|(_, effect)| effect)
    }

    /// The next effect, and where the input stands that caused it: its entry of the record, or a timer's position
    /// ([`LaneState::handle_record`]); absent after an input that panicked.
    pub fn poll_effect_at(&mut self) -> Option<(Option<Position>, Effect)> {
        self.context.pop_effect()
    }

    /// From now on keeps every input of every negotiation until [`LaneState::take_links`]: what an archive needs, and engines do
    /// not. Changes nothing else.
    pub fn keep_links(&mut self) {
        self.context.links.get_or_insert_default();
    }

    /// The inputs since the last call, in the order of the fold; none unless [`LaneState::keep_links`] was called.
    pub fn take_links(&mut self) -> Vec<ChainLink> {
        self.context.links.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// When time alone will change something: once log time has passed this instant, a record (an empty tick will do)
    /// fires the timer.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        self.table.first_deadline()
    }

    /// Log time of the last record folded.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.context.progress.now
    }

    /// Sequence of the last record folded, 0 at the beginning.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.context.progress.position
    }

    /// Epoch of the last accepted claim, 0 before any.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.context.progress.epoch
    }

    /// Rules version of the lane.
    #[must_use]
    pub fn rules(&self) -> u32 {
        self.context.rules
    }

    /// Whether the last accepted claim is this engine's.
    #[must_use]
    pub fn is_owner(&self, engine: &str) -> bool {
        self.context.progress.owner.as_deref() == Some(engine)
    }

    /// Negotiations that have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.table.open_count()
    }

    /// Whether a negotiation has begun and not ended.
    #[must_use]
    pub fn is_open(&self, negotiation: &NegotiationId) -> bool {
        matches!(self.table.entry(Key::of(negotiation)), Some(TableEntry::Open(..)))
    }

    /// Protocol and phase of each negotiation that has not ended, in no particular order.
    pub fn open_phases(&self) -> impl Iterator<Item = (Protocol, Phase)> + '_ {
        self.table.open_phases()
    }

    /// Ended negotiations that are still recognised.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.table.tombstone_count()
    }

    /// Digest of the state, to compare replicas at the same position: everything held, by its hash chains, and the running
    /// hash of everything decided and told. Costs the same whatever is held.
    ///
    /// Last wins and pinned policies are in it through the decisions they lead to; before they lead to one,
    /// [`LaneState::state_digest_full`] tells them apart.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let LaneContext { lane, rules, progress, .. } = &self.context;
        Digest::of_parts(&[
            &[lane.0],
            &progress.position.to_be_bytes(),
            &progress.now.0.to_be_bytes(),
            &progress.epoch.to_be_bytes(),
            &rules.to_be_bytes(),
            &progress.inputs.to_be_bytes(),
            &self.table.chains().to_be_bytes(),
            &progress.state_hash.to_be_bytes(),
        ])
    }

    /// What the panels of this lane have shown about agents (docs/spec/panel.md#evidence).
    #[must_use]
    pub fn evidence(&self) -> &EvidenceLedger {
        &self.context.ledger
    }

    /// What `viewer` may see of a negotiation; absent for unknown senders and unknown negotiations alike.
    #[must_use]
    pub fn view(&self, negotiation: &NegotiationId, viewer: &AgentId) -> Option<NegotiationView> {
        if self.table.has_left_above(negotiation, viewer) {
            return None;
        }
        match self.table.entry(Key::of(negotiation))? {
            TableEntry::Open(open) => open.view(viewer, self.now()),
            TableEntry::Ended(tombstone) => NegotiationView::of_ended(tombstone, viewer),
        }
    }

    /// What a negotiation is, or was, conducted by; absent for unknown ones.
    #[must_use]
    pub fn protocol(&self, negotiation: &NegotiationId) -> Option<Protocol> {
        match self.table.entry(Key::of(negotiation))? {
            TableEntry::Open(open) => Some(open.protocol()),
            TableEntry::Ended(tombstone) => Some(tombstone.end.protocol()),
        }
    }

    /// The W3C trace context the call of an open negotiation carried.
    #[must_use]
    pub fn traceparent(&self, negotiation: &NegotiationId) -> Option<&str> {
        match self.table.entry(Key::of(negotiation))? {
            TableEntry::Open(open) => open.header().traceparent.as_deref(),
            TableEntry::Ended(_) => None,
        }
    }

    fn fire_timers(&mut self, seq: u64) {
        let mut index = u32::MAX;
        while let Some((deadline, kind, key)) = self.table.pop_due(self.context.progress.now) {
            self.with_entry(key, Position { seq, index }, deadline, |entry, context| {
                if let TableEntry::Open(open) = entry {
                    open.fire(kind, context);
                }
            });
            index = index.saturating_sub(1);
        }
    }

    /// Runs one input against what stands under a key, and then what that leads to in its family, at the same position. `now`
    /// is the instant it is evaluated at.
    fn with_entry<R>(
        &mut self,
        key: Key,
        position: Position,
        now: Timestamp,
        input: impl FnOnce(&mut TableEntry, &mut InputContext<'_>) -> R,
    ) -> Option<R> {
        let table = &mut self.table;
        self.context.with_context(position, now, |context, _| {
            let result = table.with_entry(key, |entry| input(entry, context));
            carry_out(table, context);
            result
        })
    }

    fn handle_entry(&mut self, position: Position, entry: &Entry) {
        match entry {
            Entry::Message(message) => self.handle_message(position, message),
            Entry::Tick => {}
            Entry::Engine { epoch, event } => self.handle_engine_event(position, *epoch, event),
        }
    }
}

/// The positions of the inputs that caused the effects still queued, each with how many are left of them.
#[derive(Debug, Default)]
struct Causes(VecDeque<(Position, usize)>);

impl LaneContext {
    /// Runs one input and notes what it decided. `now` is the instant it is evaluated at.
    fn with_context<R>(
        &mut self,
        position: Position,
        now: Timestamp,
        input: impl FnOnce(&mut InputContext<'_>, &mut Names) -> R,
    ) -> R {
        self.progress.inputs += 1;
        let first_effect = self.effects.len();
        let mut context = InputContext {
            lane: self.lane,
            limits: &self.limits,
            rules: self.rules,
            position,
            protocol: Protocol::default(),
            input: self.progress.inputs,
            now,
            clock: self.progress.now,
            winners: &mut self.winners,
            ledger: &mut self.ledger,
            out: &mut self.effects,
            ordinal: 0,
            links: self.links.as_mut(),
            orders: FamilyOrders::default(),
        };
        let result = input(&mut context, &mut self.names);
        self.progress.state_hash = state_hash::extend(self.progress.state_hash, self.effects.range(first_effect..));
        self.note_cause(position, first_effect);
        result
    }

    /// The effects from `first_effect` on were caused by the input at `position`.
    fn note_cause(&mut self, position: Position, first_effect: usize) {
        let caused = self.effects.len() - first_effect;
        if caused > 0 {
            self.causes.0.push_back((position, caused));
        }
    }

    fn pop_effect(&mut self) -> Option<(Option<Position>, Effect)> {
        let causes = &mut self.causes.0;
        let Some(effect) = self.effects.pop_front() else {
            // An input that panicked has left effects without saying so: what follows is not to be blamed on others.
            causes.clear();
            return None;
        };
        let cause = causes.front_mut().map(|(position, left)| {
            *left -= 1;
            *position
        });
        if causes.front().is_some_and(|(_, left)| *left == 0) {
            causes.pop_front();
        }
        Some((cause, effect))
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::{EngineEvent, Entry, Record};
    use schemas::{Lane, Timestamp};

    use super::*;
    use crate::Limits;

    #[test]
    fn an_effect_names_the_entry_that_caused_it() {
        let claim = |epoch| Entry::Engine { epoch, event: EngineEvent::Claim { engine: format!("engine-{epoch}") } };
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.handle_record(
            7,
            Timestamp(1),
            &Record::new("test", vec![Entry::Tick, claim(2), claim(1), claim(3)]),
        );
        let mut causes = Vec::new();
        while let Some((cause, _)) = lane_state.poll_effect_at() {
            causes.push(cause);
        }
        let at = |index| Some(Position { seq: 7, index });
        assert_eq!(causes, [at(1), at(3)], "the outdated claim leads to nothing");
        assert!(lane_state.poll_effect().is_none());
    }
}
