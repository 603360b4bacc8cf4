//! Random cases of a protocol, played record by record to a lane state and to the naive reference (`policy/reference`), which shares
//! nothing with it but the names of things: fact by fact both must say the same. What a case is, and who says what, is each
//! protocol's: [`Game`].

#![allow(dead_code, reason = "two test crates play cases, and look at different things")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use policy_core::{Deliver, Effect, LaneState, Limits};
use policy_reference::{Reference, fact};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use schemas::digest::canonical;
use schemas::ids::Capability;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Policy, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const START: Timestamp = Timestamp(1_000_000_000);
/// Rules of before every protocol but the contract net.
const EARLIER_RULES: u32 = 0;
/// How many times as many cases as a property usually gets: mandates, selections and votes have rare edges.
const TIMES: u32 = 4;
/// Cases in which everything there is must have happened at least once.
const COVERAGE_CASES: u32 = 1_500;

/// One move.
#[derive(Debug, Clone)]
pub(crate) struct Move<W, D> {
    /// Whether it shares the record of the one before.
    pub(crate) joins: bool,
    pub(crate) time: Time,
    pub(crate) who: W,
    pub(crate) action: D,
    /// Whether the message is numbered lower than the one before.
    pub(crate) is_stale: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Time {
    Us(u64),
    Ms(u64),
    Deadline,
    PastDeadline,
}

/// When a move is made; with the weights of less than a millisecond, and of behind the deadline.
pub(crate) fn any_time(at_once: u32, past_deadline: u32) -> impl Strategy<Value = Time> {
    prop_oneof![
        at_once => (0_u64..1000).prop_map(Time::Us),
        8 => (1_u64..20).prop_map(Time::Ms),
        1 => Just(Time::Deadline),
        past_deadline => Just(Time::PastDeadline),
    ]
}

impl<W, D> Move<W, D> {
    /// A record of its own, a microsecond later.
    pub(crate) fn at_once(who: W, action: D) -> Self {
        Self { joins: false, time: Time::Us(1), who, action, is_stale: false }
    }
}

/// Who plays, what is said, and what players know of what they were told.
pub(crate) trait Game: Sized {
    type Who: Clone;
    type Action: Clone;

    /// Most ticks until all has ended: of each timer, one for each turn, vote and seat.
    const DRAIN_MAX: usize = 256;

    /// The call that opens the negotiation.
    fn call(table: &Table<Self>) -> AdmittedMessage;
    /// What a move comes to; nothing where there is nobody to make it.
    fn entry(table: &mut Table<Self>, one: &Move<Self::Who, Self::Action>) -> Option<Entry>;
    /// Something is delivered.
    fn remember(&mut self, deliver: &Deliver);
    /// Whether an agent numbers its messages.
    fn numbers(agent: &AgentId) -> bool;
    /// How often a move is made.
    fn times(_: &Move<Self::Who, Self::Action>) -> usize {
        1
    }
    fn capabilities(_: &AgentId) -> Vec<Capability> {
        Vec::new()
    }
}

/// Both sides of a case that is played.
pub(crate) struct Table<G> {
    pub(crate) game: G,
    pub(crate) now: Timestamp,
    pub(crate) said: Vec<AdmittedMessage>,
    lane_state: LaneState,
    reference: Reference,
    pending: Vec<Entry>,
    played: Played,
}

/// A case that was played.
#[derive(Default)]
pub(crate) struct Played {
    /// Every word of every fact.
    pub(crate) words: BTreeSet<String>,
    pub(crate) steps: Vec<Step>,
    pub(crate) limits: Limits,
}

/// One record, and what followed.
pub(crate) struct Step {
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    pub(crate) record: Record,
    pub(crate) effects: Vec<Effect>,
}

impl<G: Game> Table<G> {
    /// To the end, and beyond; on a lane whose rules know the protocol, or on an earlier one.
    pub(crate) fn play(
        game: G,
        limits: Limits,
        is_new: bool,
        moves: &[Move<G::Who, G::Action>],
    ) -> Result<Played, TestCaseError> {
        let limits = Limits { tombstone_grace_ms: 500, ..limits };
        let mut table = Self {
            game,
            now: START,
            said: Vec::new(),
            lane_state: LaneState::new(Lane(0), limits.clone()),
            reference: Reference::new(&limits),
            pending: vec![Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } }],
            played: Played { limits, ..Played::default() },
        };
        if !is_new {
            table.pending.push(Entry::Engine { epoch: 1, event: EngineEvent::Rules { version: EARLIER_RULES } });
        }
        table.append()?;
        let call = G::call(&table);
        let call = table.say(call);
        table.pending.push(call);
        moves.iter().try_for_each(|one| table.make(one))?;
        table.append()?;
        for _ in 0..G::DRAIN_MAX {
            let Some(deadline) = table.lane_state.poll_deadline() else { break };
            table.now = Timestamp(deadline.0 + 1);
            table.pending.push(Entry::Tick);
            table.append()?;
        }
        assert_eq!(table.lane_state.open_count(), 0, "still open");
        // Everything is closed by then.
        for one in moves.iter().rev().take(4) {
            table.make(&Move { time: Time::Us(1), ..one.clone() })?;
        }
        table.append()?;
        Ok(table.played)
    }

    fn make(&mut self, one: &Move<G::Who, G::Action>) -> Result<(), TestCaseError> {
        if !one.joins {
            self.append()?;
            let deadline = self.lane_state.poll_deadline().unwrap_or(self.now).max(self.now);
            self.now = match one.time {
                Time::Us(us) => Timestamp(self.now.0 + us),
                Time::Ms(ms) => self.now.plus_ms(ms),
                Time::Deadline => deadline,
                Time::PastDeadline => Timestamp(deadline.0 + 1),
            };
        }
        for _ in 0..G::times(one) {
            let entry = G::entry(self, one);
            self.pending.extend(entry);
        }
        Ok(())
    }

    /// Folds what is pending on both sides.
    fn append(&mut self) -> Result<(), TestCaseError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let record = Record::new("test", std::mem::take(&mut self.pending));
        let seq = self.lane_state.position() + 1;
        self.lane_state.handle_record(seq, self.now, &record);
        let effects: Vec<Effect> = std::iter::from_fn(|| self.lane_state.poll_effect()).collect();
        let expected = self.reference.fold(seq, self.now, &record);
        self.reference.note(&effects);
        let found = fact::facts(&effects);
        self.played.words.extend(found.iter().flat_map(|fact| fact.split(' ')).map(str::to_owned));
        if found != expected {
            let missing: Vec<_> = expected.iter().filter(|fact| !found.contains(fact)).collect();
            let surplus: Vec<_> = found.iter().filter(|fact| !expected.contains(fact)).collect();
            let why = format!("record {seq} at {:?}: {record:?}\nmissing {missing:#?}\nsurplus {surplus:#?}", self.now);
            return Err(TestCaseError::fail(why));
        }
        self.compare_states(seq)?;
        for effect in &effects {
            if let Effect::Deliver(deliver) = effect {
                self.game.remember(deliver);
            }
        }
        self.played.steps.push(Step { seq, time: self.now, record, effects });
        Ok(())
    }

    /// How many negotiations there are, when time alone changes something, and the evidence.
    fn compare_states(&mut self, seq: u64) -> Result<(), TestCaseError> {
        let state = (self.lane_state.open_count(), self.lane_state.tombstone_count(), self.lane_state.poll_deadline());
        let (open, ended) = self.reference.counts();
        let wanted = (open, ended, self.reference.deadline());
        if state != wanted {
            return Err(TestCaseError::fail(format!("record {seq}: {state:?}, should be {wanted:?}")));
        }
        let (shown, expected): (Vec<_>, _) =
            (self.lane_state.evidence().entries().collect(), self.reference.evidence());
        if shown != expected {
            return Err(TestCaseError::fail(format!("record {seq}: shown {shown:#?}, should be {expected:#?}")));
        }
        if !shown.is_empty() {
            self.played.words.insert("evidence".to_owned());
        }
        Ok(())
    }

    /// A message is said, and may be said again.
    pub(crate) fn say(&mut self, message: AdmittedMessage) -> Entry {
        self.said.push(message.clone());
        Entry::Message(message)
    }

    /// An earlier message again.
    pub(crate) fn repeat(&self, which: usize) -> Entry {
        Entry::Message(self.said[which % self.said.len()].clone())
    }

    /// An earlier message's id again, for another body.
    pub(crate) fn conflict(&self, which: usize) -> Entry {
        let earlier = &self.said[which % self.said.len()];
        let mut document: Value = serde_json::from_str(earlier.body.get()).expect("JSON");
        document["payload"]["reason"] = json!("another");
        Entry::Message(AdmittedMessage {
            pinned: earlier.pinned.clone(),
            negotiation: earlier.negotiation.clone(),
            ..admitted::<G>(&earlier.from, earlier.act, &document)
        })
    }

    /// A message about the negotiation that was called first.
    pub(crate) fn message(&self, from: &AgentId, act: Act, mut payload: Value, is_stale: bool) -> AdmittedMessage {
        payload["act"] = json!(act);
        let number = self.said.len() + 1;
        let mut envelope = json!({"msg_id": format!("m{number}"), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": id()});
        if G::numbers(from) {
            envelope["seq"] = json!(if is_stale { 1 } else { number });
        }
        admitted::<G>(from, act, &json!({"envelope": envelope, "payload": payload}))
    }
}

fn admitted<G: Game>(from: &AgentId, act: Act, document: &Value) -> AdmittedMessage {
    let body = canonical(document).expect("integers and texts");
    AdmittedMessage {
        from: from.clone(),
        negotiation: id(),
        act,
        digest: Digest::of_bytes(&body),
        body: RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON").into(),
        pinned: None,
        receipts_all: asks(from),
        capabilities: G::capabilities(from),
    }
}

/// Whether an agent's registration asks for every receipt at once.
pub(crate) fn asks(agent: &AgentId) -> bool {
    ["p1", "p2"].contains(&agent.as_str())
}

/// What the engine that owns the lane appends.
pub(crate) fn engine(event: EngineEvent) -> Option<Entry> {
    Some(Entry::Engine { epoch: 1, event })
}

/// A delivery is given up.
pub(crate) fn undelivered(deliver: &Deliver, may_answer: bool) -> Option<Entry> {
    let Deliver { id, negotiation, to, .. } = deliver.clone();
    engine(EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 3, may_answer })
}

/// A negotiation is aborted.
pub(crate) fn abort(negotiation: NegotiationId) -> Option<Entry> {
    engine(EngineEvent::Abort { negotiation, code: "internal".to_owned() })
}

/// What a gateway pins.
pub(crate) fn pinned(policy: Policy, invited: Vec<Invitation>) -> Pinned {
    let policy_digest = policy.digest().expect("integers and texts");
    Pinned { policy_digest, policy: Arc::new(policy), invited, left_out: 0, task_policy: None, panel: None }
}

/// An invitation as most are.
pub(crate) fn invitation(agent: AgentId) -> Invitation {
    Invitation { agent, qos: Qos::AtLeastOnce, durable: false, reputation: None }
}

/// The parties by their order.
pub(crate) fn party(index: usize) -> AgentId {
    agent(&format!("p{index}"))
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}

/// The negotiation that is called first.
pub(crate) fn id() -> NegotiationId {
    NegotiationId::try_new("p0~job").expect("an id")
}

/// Plays random cases, from a seed unless the environment names another.
pub(crate) fn explore<C: fmt::Debug>(
    cases: impl Strategy<Value = C>,
    seed: u64,
    play: impl Fn(&C) -> Result<Played, TestCaseError>,
) {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    config.cases = config.cases.saturating_mul(TIMES);
    if let RngSeed::Random = config.rng_seed {
        config.rng_seed = RngSeed::Fixed(seed);
    }
    let seed = config.rng_seed;
    let explored = TestRunner::new(config).run(&cases, |case| play(&case).map(|_| ()));
    if let Err(failure) = explored {
        panic!("seed {seed}: {failure}");
    }
}

/// Fails where a word is in no fact of many cases.
pub(crate) fn assert_covered<C: fmt::Debug>(
    cases: impl Strategy<Value = C>,
    seed: u64,
    play: impl Fn(&C) -> Result<Played, TestCaseError>,
    wanted: &[&str],
) {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let mut words = BTreeSet::new();
    for _ in 0..COVERAGE_CASES {
        let case = cases.new_tree(&mut runner).expect("a case").current();
        words.extend(play(&case).expect("alike").words);
    }
    let missing: Vec<&&str> = wanted.iter().filter(|wanted| !words.contains(**wanted)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
