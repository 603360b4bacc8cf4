//! The agents of a run: scripts drawn from the seed, from the diligent to the hopeless. They know the wire contract and
//! nothing else; what they do and see goes into their journals, and only that is judged.

mod bargainer;
mod contractor;
mod english_auction;
mod initiator;
mod mandate;
mod member;
mod panelist;
mod stream;
mod submission;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::{PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, select};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::bargain::Join;
use schemas::delivery::{Call, Closing, Delivery, Misunderstanding, Notification, Outcome};
use schemas::payload::{Failure, FailurePhase, Reasoned};
use schemas::presence::RENEWAL;
use schemas::{Act, Address, AgentId, DeliveryId, Digest, DocumentHash, MsgId, NegotiationId, Payload, subject};
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::bargainer::SimulatedParty;
use self::member::SimulatedMember;
use self::member::nesting::{Ends, work_alone};
use self::panelist::PanelMemory;
use self::submission::Sender;
use super::faults::{AgentFault, AgentFaults};
use super::points::Point;
use super::scenario::topic;
use super::trace::{JournalEntry, Noted};
use super::world::{ProcessRole, World};
use super::{Absence, AgentPlan, Scenario};

/// How a text of a mandate begins that says whose it is.
pub(super) const MARK: &str = "sealed-of-";

/// Reservation values are no smaller, so that no count, price or duration of a run looks like one.
pub(super) const MARKED_MIN: u32 = 10_001;

/// The ways to make no offer.
const NO_OFFER: [fn(Reasoned) -> Payload; 3] =
    [Payload::Refuse, Payload::NotUnderstood, |_| failure(FailurePhase::Offer)];

/// Gap before an agent that could not connect tries again, in milliseconds.
const CONNECT_GAP_MS: u64 = 150;

/// How long an agent that was killed is gone, in milliseconds.
const BACK_AFTER_MS: Range<u64> = 100..4000;

/// Hellos of a connected agent in each lease.
const HELLOS_PER_LEASE: u32 = 3;

/// Share of connections made as a stream at a gateway, per mille; the others use the bus.
const BY_STREAM: u32 = 500;
/// Share of connections on the bus that name a gateway all the same, which holds no stream of the agent, per mille.
const NAMES_GATEWAY: u32 = 100;
/// The gateway they name: the first of a run, whether it is there still or not.
const NAMED_GATEWAY: &[u8] = br#"{"gateway":"gateway-0-1"}"#;
/// Share of acknowledgements that go through a gateway, per mille.
const ACKS_AT_GATEWAY: u32 = 500;

/// Share of connections on which notices are read as well, per mille.
const READS_NOTICES: u32 = 250;

/// All agents of a run.
pub(super) struct Agents {
    pending: Pending,
    journals: BTreeMap<AgentId, ReceivedJournal>,
}

impl Agents {
    /// Starts the agents of a scenario.
    pub(super) fn start(world: &Arc<World>, scenario: &Scenario) -> Self {
        let mut agents = Self { pending: Pending::default(), journals: BTreeMap::new() };
        for (index, plan) in scenario.agents.iter().enumerate() {
            let victim = &scenario.agents[(index + 1) % scenario.agents.len()];
            let journal = ReceivedJournal::default();
            let context = AgentContext {
                id: plan.id.clone(),
                faults: plan.faults.clone(),
                rng: ChaCha8Rng::seed_from_u64(plan.seed),
                jobs: BTreeMap::new(),
                jobs_made: 0,
                pinned: BTreeMap::new(),
                pending: agents.pending.clone(),
                pub_sub: world.connect(plan.id.to_string(), ProcessRole::Agent).1.pub_sub,
                world: Arc::clone(world),
                journal: journal.clone(),
            };
            tokio::spawn(SimulatedAgent::new(context, plan, &victim.id).drive());
            agents.journals.insert(plan.id.clone(), journal);
        }
        agents
    }

    /// How many things agents still have to do.
    pub(super) fn pending(&self) -> usize {
        self.pending.0.load(Ordering::Relaxed)
    }

    /// What each agent has noted so far.
    pub(super) fn journals(&self) -> BTreeMap<AgentId, Vec<JournalEntry>> {
        self.journals.iter().map(|(agent, journal)| (agent.clone(), journal.0.lock().clone())).collect()
    }
}

/// How much agents still have to do: jobs that wait, messages under way.
#[derive(Clone, Default)]
struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "what ends has begun");
    }
}

/// An agent's journal.
#[derive(Clone, Default)]
struct ReceivedJournal(Arc<Mutex<Vec<JournalEntry>>>);

impl ReceivedJournal {
    fn note(&self, world: &World, kind: Noted) {
        let at = world.now();
        self.0.lock().push(JournalEntry { at, kind });
    }
}

/// Something to be said.
#[derive(Debug, Clone)]
struct Draft {
    negotiation: NegotiationId,
    payload: Payload,
    /// For a call: whom it goes to.
    to: Vec<Address>,
    /// For a call: whether it asks for those who are absent, too.
    invites_absent: bool,
    /// The id of an earlier message, to be used again for another body.
    reuses: Option<MsgId>,
}

impl Draft {
    fn new(negotiation: &NegotiationId, payload: Payload) -> Self {
        Self { negotiation: negotiation.clone(), payload, to: Vec::new(), invites_absent: false, reuses: None }
    }
}

/// Something an agent will do.
enum Job {
    Connect,
    Disconnect,
    Say(Box<Draft>),
    Acknowledge(Vec<DeliveryId>),
    /// It is killed, and started again without anything it knew.
    Crash,
}

/// What every role of an agent acts with: who it is, what it draws from, what it will do, and how it reaches the bus.
struct AgentContext {
    id: AgentId,
    faults: AgentFaults,
    rng: ChaCha8Rng,
    jobs: BTreeMap<(Instant, u64), Job>,
    jobs_made: u64,
    /// The document that the last award of each negotiation pins, where it pins one.
    pinned: BTreeMap<NegotiationId, DocumentHash>,
    pending: Pending,
    world: Arc<World>,
    pub_sub: Arc<dyn PubSub>,
    journal: ReceivedJournal,
}

impl AgentContext {
    fn plan(&mut self, after_ms: u64, job: Job) {
        self.jobs_made += 1;
        self.pending.begin();
        self.jobs.insert((Instant::now() + Duration::from_millis(after_ms), self.jobs_made), job);
    }

    fn say(&mut self, after_ms: u64, draft: Draft) {
        self.plan(after_ms, Job::Say(Box::new(draft)));
    }

    /// Says something in the negotiation of a delivery.
    fn reply(&mut self, after_ms: u64, delivery: &Delivery, payload: Payload) {
        if matches!(payload, Payload::Withdraw(_)) {
            self.reached(Point::Withdrawn);
        }
        self.say(after_ms, Draft::new(&delivery.envelope.negotiation, payload));
    }

    /// Whether something of this rate, in per mille, happens now.
    fn happens(&mut self, per_mille: u32) -> bool {
        self.rng.random_range(0..1000) < per_mille
    }

    /// Whether the agent commits a fault at this occasion.
    fn errs(&mut self, fault: AgentFault) -> bool {
        let per_mille = self.faults.rate(fault);
        self.happens(per_mille)
    }

    /// How long the invited have to join, in milliseconds, and when one of them does that is not late.
    fn joining(&mut self, delivery: &Delivery, call: &Call) -> (u64, u64) {
        let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        (window_ms, self.draw(0..window_ms.min(200)))
    }

    /// Joins, most of the time.
    fn join(&mut self, delivery: &Delivery, (window_ms, soon): (u64, u64), join: impl FnOnce(&mut Self) -> Join) {
        if self.errs(AgentFault::Ignore) {
            return;
        }
        let is_late = self.errs(AgentFault::OfferLate);
        let after_ms = if is_late { window_ms + self.draw(0..300) } else { soon };
        let payload = if self.errs(AgentFault::Decline) {
            self.decline(&[Payload::Refuse, Payload::NotUnderstood, Payload::End])
        } else {
            Payload::Join(join(self))
        };
        self.reply(after_ms, delivery, payload);
    }

    /// One of the ways to decline.
    fn decline(&mut self, ways: &[fn(Reasoned) -> Payload]) -> Payload {
        ways[self.index(ways.len())](Reasoned::default())
    }

    fn draw(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.random_range(range)
    }

    fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.draw(0..below.max(1) as u64)).unwrap_or_default()
    }

    fn reached(&self, point: Point) {
        self.world.reached(point);
    }

    /// Counts the points of which it is so.
    fn reached_if<const N: usize>(&self, points: [(Point, bool); N]) {
        points.into_iter().filter(|(_, is_so)| *is_so).for_each(|(point, _)| self.reached(point));
    }

    fn note(&self, kind: Noted) {
        self.journal.note(&self.world, kind);
    }
}

/// A running agent.
struct SimulatedAgent {
    context: AgentContext,
    sender: Sender,
    /// How long it counts as present after it was heard.
    lease: Duration,
    seen: BTreeSet<DeliveryId>,
    /// Of the negotiations whose end it has seen.
    ends: Ends,
    /// What it knows as a party of bargains.
    parties: BTreeMap<NegotiationId, SimulatedParty>,
    /// What it knows as a member of teams.
    members: BTreeMap<NegotiationId, SimulatedMember>,
    /// What it knows of panels that asked it.
    panels: PanelMemory,
    inbox: Option<BoxStream<'static, Received>>,
    /// When it says again that it is there; never while it is away.
    renew_at: Option<Instant>,
    /// The inbox's subject.
    subject: String,
}

impl SimulatedAgent {
    fn new(mut context: AgentContext, plan: &AgentPlan, victim: &AgentId) -> Self {
        context.plan(0, Job::Connect);
        let (parties, members) = initiator::plan_calls(&mut context, &plan.calls);
        for Absence { from_ms, until_ms } in &plan.absences {
            context.plan(*from_ms, Job::Disconnect);
            context.plan(*until_ms, Job::Connect);
        }
        Self {
            sender: Sender::new(&context.id, victim),
            lease: Duration::from_millis(plan.registration.lease_ms.into()),
            seen: BTreeSet::new(),
            ends: Ends::default(),
            parties,
            members,
            panels: PanelMemory::default(),
            inbox: None,
            renew_at: None,
            subject: subject::inbox(&context.id),
            context,
        }
    }

    /// Runs until the run ends.
    async fn drive(mut self) {
        loop {
            let at = self.context.jobs.first_key_value().map(|((at, _), _)| *at);
            let renew_at = self.renew_at;
            let inbox = &mut self.inbox;
            let message = async {
                match inbox {
                    Some(inbox) => inbox.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                message = message => match message {
                    Some(message) => self.receive(message),
                    None => self.lose_stream(),
                },
                () = sleep_until(at) => self.act().await,
                () = sleep_until(renew_at) => self.say_hello(RENEWAL).await,
            }
        }
    }

    async fn act(&mut self) {
        let Some((_, job)) = self.context.jobs.pop_first() else { return };
        match job {
            Job::Connect => self.connect().await,
            Job::Disconnect => (self.inbox, self.renew_at) = (None, None),
            Job::Say(draft) => {
                let (party, member) =
                    (self.parties.get_mut(&draft.negotiation), self.members.get_mut(&draft.negotiation));
                let note = |msg_id: &MsgId, payload: &Payload| {
                    if let Some(party) = party {
                        party.note_said(msg_id, payload);
                    }
                    if let Some(member) = member {
                        member.note_said(msg_id, payload);
                    }
                };
                self.sender.send(&mut self.context, note, *draft);
            }
            Job::Acknowledge(ids) => self.acknowledge(&ids).await,
            Job::Crash => self.crash(),
        }
        self.context.pending.end();
    }

    /// Forgets what it wanted to say and acknowledge, and what it knew of its negotiations.
    fn crash(&mut self) {
        let context = &mut self.context;
        let before = context.jobs.len();
        context.jobs.retain(|_, job| matches!(job, Job::Connect | Job::Disconnect));
        (context.jobs.len()..before).for_each(|_| context.pending.end());
        self.parties.clear();
        self.members.clear();
        (self.inbox, self.renew_at) = (None, None);
        let after_ms = self.context.draw(BACK_AFTER_MS);
        self.context.plan(after_ms, Job::Connect);
    }

    /// The gateway of the stream is gone.
    fn lose_stream(&mut self) {
        (self.inbox, self.renew_at) = (None, None);
        self.context.plan(CONNECT_GAP_MS, Job::Connect);
    }

    async fn connect(&mut self) {
        if self.context.happens(BY_STREAM) && self.open_stream().await {
            return;
        }
        let subscribed = self.context.pub_sub.subscribe(self.subject.clone(), None).await;
        let Ok(inbox) = subscribed else {
            return self.context.plan(CONNECT_GAP_MS, Job::Connect);
        };
        self.inbox = Some(inbox);
        if self.context.happens(READS_NOTICES)
            && let Ok(notices) = self.context.pub_sub.subscribe(subject::topic(&topic()), None).await
        {
            self.inbox = self.inbox.take().map(|inbox| select(inbox, notices).boxed());
        }
        let hello = if self.context.happens(NAMES_GATEWAY) { NAMED_GATEWAY } else { b"" };
        self.say_hello(hello).await;
        self.context.note(Noted::Connected);
    }

    async fn say_hello(&mut self, body: &'static [u8]) {
        let hello = subject::hello(&self.context.id);
        let greeted = self.context.pub_sub.publish(hello, Bytes::from_static(body)).await;
        debug_assert!(greeted.is_ok(), "publishing only hands over");
        self.renew_at = Some(Instant::now() + self.lease / HELLOS_PER_LEASE);
    }

    /// Reads an inbox message, decides what to acknowledge when, and answers what is new.
    fn receive(&mut self, message: Received) {
        let Received { subject, payload, .. } = message;
        if subject != self.subject {
            return self.context.note(Noted::Notice { subject, payload });
        }
        let Ok(texts) = serde_json::from_slice::<Vec<&RawValue>>(&payload) else {
            return self.context.note(Noted::Unreadable { bytes: payload });
        };
        let mut arrived = Vec::new();
        for text in texts {
            let Ok(delivery) = Delivery::decode(text.get().as_bytes()) else {
                self.context.note(Noted::Unreadable { bytes: Bytes::copy_from_slice(text.get().as_bytes()) });
                continue;
            };
            let id = delivery.envelope.msg_id;
            let is_repeat = !self.seen.insert(id);
            if is_repeat {
                self.context.reached(Point::DeliveryRepeated);
            }
            let (delivery, digest) = (Arc::new(delivery), Digest::of_bytes(text.get().as_bytes()));
            self.context.note(Noted::Received { id, digest, is_repeat, delivery: Arc::clone(&delivery) });
            arrived.push(id);
            if !is_repeat {
                self.answer(&delivery);
            }
        }
        self.plan_acknowledgements(arrived);
        let context = &mut self.context;
        if context.errs(AgentFault::Reconnect) {
            let (gone, back) = (context.draw(0..200), context.draw(200..2000));
            context.plan(gone, Job::Disconnect);
            context.plan(back, Job::Connect);
        }
    }

    /// Answers as a party where it is one, as contractor or initiator elsewhere.
    fn answer(&mut self, delivery: &Delivery) {
        let (context, negotiation) = (&mut self.context, &delivery.envelope.negotiation);
        let party = self.parties.get_mut(negotiation);
        if let Some(party) = &party {
            delivery.receipts.iter().for_each(|receipt| party.note_receipt(context, delivery, receipt));
        }
        if let Some(member) = self.members.get_mut(negotiation) {
            delivery.receipts.iter().for_each(|receipt| member.note_receipt(context, delivery, receipt));
        }
        if !delivery.receipts.is_empty() {
            context.reached(Point::ReceiptAlong);
        }
        match &delivery.payload {
            Notification::Cfp(call) => match (&call.bargain, &call.team, &call.auction) {
                (Some(bargain), ..) => {
                    let party = SimulatedParty::join(context, delivery, call, &bargain.rules);
                    self.parties.insert(negotiation.clone(), party);
                }
                (None, Some(_), _) => {
                    let member = SimulatedMember::join(context, delivery, call);
                    self.members.insert(negotiation.clone(), member);
                }
                (None, None, Some(auction)) => english_auction::answer_call(context, delivery, call, auction),
                (None, None, None) => contractor::answer_call(context, delivery, call),
            },
            Notification::Accept(award) => match party {
                Some(_) => bargainer::answer_agreed(context, delivery, award),
                None => contractor::answer_accept(context, delivery, award),
            },
            Notification::Turn(turn) => {
                if let Some(party) = party {
                    party.answer_turn(context, delivery, turn);
                }
            }
            Notification::NotUnderstood(misunderstanding) => self.answer_not_understood(delivery, misunderstanding),
            Notification::Cancel(cancellation) => contractor::answer_cancel(context, delivery, cancellation),
            Notification::Ack(receipt) => {
                if let Some(party) = party {
                    party.note_receipt(context, delivery, receipt);
                }
                if let Some(member) = self.members.get_mut(negotiation) {
                    member.note_receipt(context, delivery, receipt);
                }
                self.panels.note_receipt(context, delivery, receipt);
                panelist::note_seats(context, receipt);
                contractor::answer_receipt(context, delivery, receipt, &mut self.members);
            }
            Notification::Inform(report) => {
                if let Some(team) = negotiation.parent().filter(|team| self.ends.has(team)) {
                    member::note_late_report(context, report, &team);
                }
                initiator::answer_progress(context, delivery, report);
            }
            Notification::Closed(closing) => self.note_closed(delivery, closing),
            Notification::Floor(floor) => {
                // Who was killed goes on with what it is told.
                let member = self.members.entry(negotiation.clone()).or_default();
                member.answer_floor(context, delivery, floor);
            }
            Notification::Reject(rejection) if rejection.code.as_deref() == Some("documents") => {
                context.reached(Point::DocumentMissing);
            }
            Notification::Reject(rejection) => {
                member::note_rejected(self.members.get(negotiation), context, rejection.reason);
                contractor::answer_rejection(context, delivery, rejection.reason);
                contractor::say_unasked(context, delivery);
            }
            Notification::Failure(_) => contractor::say_unasked(context, delivery),
            Notification::Ask(ask) => self.panels.answer(context, delivery, ask),
        }
    }

    fn answer_not_understood(&mut self, delivery: &Delivery, misunderstanding: &Misunderstanding) {
        let (context, negotiation) = (&mut self.context, &delivery.envelope.negotiation);
        if misunderstanding.reason == "document" {
            context.reached(Point::DocumentForeign);
        }
        let party = self.parties.get(negotiation);
        bargainer::answer_not_understood(party, context, delivery, misunderstanding);
        if let Some(member) = self.members.get_mut(negotiation) {
            member.answer_not_understood(context, delivery);
        }
        // A call, that is.
        if misunderstanding.expected == [Act::Cfp] {
            work_alone(context, negotiation, &self.members);
        }
    }

    fn note_closed(&mut self, delivery: &Delivery, closing: &Closing) {
        let (context, negotiation) = (&mut self.context, &delivery.envelope.negotiation);
        if self.ends.note(context, delivery, closing) {
            contractor::note_closed(context, closing);
            panelist::note_closed(context, closing);
            member::note_closed(self.members.get(negotiation), context, closing);
            if closing.outcome != Outcome::Concluded && closing.detail.as_deref() != Some("orphaned") {
                work_alone(context, negotiation, &self.members);
            }
            if let Some(party) = self.parties.get(negotiation) {
                party.note_closed(context, closing);
            }
        }
        contractor::say_unasked(context, delivery);
    }

    /// Acknowledges each arrival alone or all of them together, soon or late, once or twice, or not at all.
    fn plan_acknowledgements(&mut self, arrived: Vec<DeliveryId>) {
        let context = &mut self.context;
        let kept: Vec<DeliveryId> = arrived.into_iter().filter(|_| !context.errs(AgentFault::AckSkip)).collect();
        let is_together = context.happens(500);
        let groups: Vec<Vec<DeliveryId>> =
            if is_together { vec![kept] } else { kept.into_iter().map(|id| vec![id]).collect() };
        for ids in groups.into_iter().filter(|ids| !ids.is_empty()) {
            let after = if context.errs(AgentFault::AckLate) { context.draw(300..3000) } else { context.draw(0..20) };
            if context.errs(AgentFault::AckTwice) {
                let again = after + context.draw(0..500);
                context.plan(again, Job::Acknowledge(ids.clone()));
            }
            context.plan(after, Job::Acknowledge(ids));
        }
    }

    /// Acknowledges at a gateway, as over a stream, or on the bus itself.
    async fn acknowledge(&mut self, ids: &[DeliveryId]) {
        let Some((first, others)) = ids.split_first() else { return };
        self.context.note(Noted::Acknowledged { ids: ids.to_vec() });
        if self.context.happens(ACKS_AT_GATEWAY) && self.context.world.acknowledge(&self.context.id, ids) {
            return;
        }
        let body = if others.is_empty() { Vec::new() } else { serde_json::to_vec(others).unwrap_or_default() };
        let subject = subject::ack(&self.context.id, *first);
        let published = self.context.pub_sub.publish(subject, Bytes::from(body)).await;
        debug_assert!(published.is_ok(), "publishing only hands over");
    }
}

fn failure(phase: FailurePhase) -> Payload {
    Payload::Failure(Failure { phase, code: "broken".to_owned(), retryable: false, penalty: None })
}

/// Never, where there is no instant.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}
