//! The agents of a run: scripts drawn from the seed, from the diligent to the hopeless. They know the wire contract and
//! nothing else; what they do and see goes into their journals, and only that is judged.

mod bargainer;
mod contractor;
mod initiator;
mod mandate;
mod post;
mod temper;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::{PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, select};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemas::delivery::{Delivery, Notification};
use schemas::presence::RENEWAL;
use schemas::{AgentId, DeliveryId, Digest, NegotiationId, TopicName, subject};
use serde_json::value::RawValue;
use tokio::time::Instant;

pub(super) use initiator::{BargainPlan, CallPlan};
pub(super) use mandate::{MARK, MARKED_MIN};
pub(super) use temper::AgentFaults;

use self::contractor::Deal;
use self::post::Draft;
use super::points::Point;
use super::scenario::Absence;
use super::trace::{JournalEntry, Noted};
use super::world::World;

/// Gap before an agent that could not connect tries again.
const CONNECT_GAP: Duration = Duration::from_millis(150);

/// Hellos of a connected agent in each lease.
const HELLOS_PER_LEASE: u32 = 3;

/// Connections on which notices are read as well, in per mille.
const READS_NOTICES: u32 = 250;

/// What all agents of a run share.
#[derive(Clone)]
pub(super) struct Agents {
    pub(super) world: Arc<World>,
    /// What agents still have to do: jobs that wait, messages under way.
    pub(super) busy: Arc<AtomicUsize>,
}

/// An agent's journal.
#[derive(Clone, Default)]
pub(super) struct ReceivedJournal(Arc<Mutex<Vec<JournalEntry>>>);

impl ReceivedJournal {
    fn note(&self, world: &World, kind: Noted) {
        let at = world.state().now();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(JournalEntry { at, kind });
    }

    /// Everything noted so far.
    pub(super) fn entries(&self) -> Vec<JournalEntry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who an agent is.
pub(super) struct Profile {
    pub(super) id: AgentId,
    pub(super) token: String,
    pub(super) temper: AgentFaults,
    pub(super) rng: ChaCha8Rng,
    /// The calls it makes; empty for a contractor.
    pub(super) calls: Vec<CallPlan>,
    /// The bargains it calls to.
    pub(super) bargains: Vec<BargainPlan>,
    /// When it is away.
    pub(super) absences: Vec<Absence>,
    /// How long it counts as present after it was heard.
    pub(super) lease: Duration,
    /// Somebody else, whom it may try to be.
    pub(super) victim: AgentId,
    /// The topic whose notices it may read.
    pub(super) topic: TopicName,
}

/// A running agent: owns everything of its own, shares the journal.
pub(super) struct SimulatedAgent {
    me: Profile,
    company: Agents,
    pub_sub: Arc<dyn PubSub>,
    journal: ReceivedJournal,
    /// Its last sequence number: one counter for everything it says.
    seq: u64,
    seen: BTreeSet<DeliveryId>,
    jobs: BTreeMap<(Instant, u64), Job>,
    jobs_made: u64,
    deals: BTreeMap<NegotiationId, Deal>,
    inbox: Option<BoxStream<'static, Received>>,
    /// When it says again that it is there; never while it is away.
    renew_at: Option<Instant>,
    /// The inbox's subject.
    subject: String,
}

/// Something an agent will do.
enum Job {
    Connect,
    Disconnect,
    Say(Box<Draft>),
    Acknowledge(Vec<DeliveryId>),
}

impl SimulatedAgent {
    pub(super) fn new(me: Profile, company: Agents, pub_sub: Arc<dyn PubSub>, journal: ReceivedJournal) -> Self {
        let mut agent = Self {
            subject: subject::inbox(&me.id),
            me,
            company,
            pub_sub,
            journal,
            seq: 0,
            seen: BTreeSet::new(),
            jobs: BTreeMap::new(),
            jobs_made: 0,
            deals: BTreeMap::new(),
            inbox: None,
            renew_at: None,
        };
        agent.plan(Duration::ZERO, Job::Connect);
        agent.plan_calls();
        agent.plan_bargains();
        for Absence { from_ms, until_ms } in std::mem::take(&mut agent.me.absences) {
            agent.plan(Duration::from_millis(from_ms), Job::Disconnect);
            agent.plan(Duration::from_millis(until_ms), Job::Connect);
        }
        agent
    }

    /// Runs until the run ends.
    pub(super) async fn drive(mut self) {
        loop {
            let at = self.jobs.first_key_value().map(|((at, _), _)| *at);
            let renew_at = self.renew_at;
            let Self { inbox, .. } = &mut self;
            let message = async {
                match inbox {
                    Some(inbox) => inbox.next().await,
                    None => pending().await,
                }
            };
            let due = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            };
            let renewal = async {
                match renew_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(message) = message => self.receive(message),
                () = due => self.act().await,
                () = renewal => self.say_hello(RENEWAL).await,
            }
        }
    }

    /// Plans a job.
    fn plan(&mut self, after: Duration, job: Job) {
        self.jobs_made += 1;
        self.company.busy.fetch_add(1, Ordering::Relaxed);
        self.jobs.insert((Instant::now() + after, self.jobs_made), job);
    }

    fn say(&mut self, after_ms: u64, draft: Draft) {
        self.plan(Duration::from_millis(after_ms), Job::Say(Box::new(draft)));
    }

    /// Whether something of this rate, in per mille, happens now.
    fn happens(&mut self, per_mille: u32) -> bool {
        self.me.rng.random_range(0..1000) < per_mille
    }

    fn draw(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.me.rng.random_range(range)
    }

    fn reached(&self, point: Point) {
        self.company.world.state().reached(point);
    }

    async fn act(&mut self) {
        let Some((_, job)) = self.jobs.pop_first() else { return };
        match job {
            Job::Connect => self.connect().await,
            Job::Disconnect => (self.inbox, self.renew_at) = (None, None),
            Job::Say(draft) => self.send(*draft),
            Job::Acknowledge(ids) => self.acknowledge(&ids).await,
        }
        self.company.busy.fetch_sub(1, Ordering::Relaxed);
    }

    async fn connect(&mut self) {
        let subscribed = self.pub_sub.subscribe(self.subject.clone(), None).await;
        let Ok(inbox) = subscribed else { return self.plan(CONNECT_GAP, Job::Connect) };
        self.inbox = Some(inbox);
        if self.happens(READS_NOTICES)
            && let Ok(notices) = self.pub_sub.subscribe(subject::topic(&self.me.topic), None).await
        {
            self.inbox = self.inbox.take().map(|inbox| select(inbox, notices).boxed());
        }
        self.say_hello(b"").await;
        self.journal.note(&self.company.world, Noted::Connected);
    }

    async fn say_hello(&mut self, body: &'static [u8]) {
        let greeted = self.pub_sub.publish(subject::hello(&self.me.id), Bytes::from_static(body)).await;
        debug_assert!(greeted.is_ok(), "publishing only hands over");
        self.renew_at = Some(Instant::now() + self.me.lease / HELLOS_PER_LEASE);
    }

    /// Reads an inbox message, decides what to acknowledge when, and answers what is new.
    fn receive(&mut self, message: Received) {
        let Received { subject, payload, .. } = message;
        if subject != self.subject {
            return self.journal.note(&self.company.world, Noted::Notice { subject, payload });
        }
        let Ok(texts) = serde_json::from_slice::<Vec<&RawValue>>(&payload) else { return self.puzzle(payload) };
        let mut arrived = Vec::new();
        for text in texts {
            let Ok(delivery) = serde_json::from_str::<Delivery>(text.get()) else {
                self.puzzle(Bytes::copy_from_slice(text.get().as_bytes()));
                continue;
            };
            let id = delivery.envelope.msg_id;
            let is_repeat = !self.seen.insert(id);
            if is_repeat {
                self.reached(Point::DeliveryRepeated);
            }
            let (delivery, digest) = (Arc::new(delivery), Digest::of_bytes(text.get().as_bytes()));
            let noted = Noted::Received { id, digest, is_repeat, delivery: Arc::clone(&delivery) };
            self.journal.note(&self.company.world, noted);
            arrived.push(id);
            if !is_repeat {
                self.answer(&delivery);
            }
        }
        self.plan_acknowledgements(arrived);
        if self.happens(self.me.temper.reconnect) {
            let (gone, back) = (self.draw(0..200), self.draw(200..2000));
            self.plan(Duration::from_millis(gone), Job::Disconnect);
            self.plan(Duration::from_millis(back), Job::Connect);
        }
    }

    fn puzzle(&self, bytes: Bytes) {
        self.journal.note(&self.company.world, Noted::Unreadable { bytes });
    }

    fn answer(&mut self, delivery: &Delivery) {
        match &delivery.payload {
            Notification::Cfp(call) => match &call.bargain {
                Some(bargain) => self.answer_bargain(delivery, call, bargain),
                None => self.answer_call(delivery, call),
            },
            Notification::Accept(award) if self.is_bargaining(delivery) => self.answer_agreed(delivery, award),
            Notification::Accept(award) => self.answer_accept(delivery, award),
            Notification::Turn(turn) => self.answer_turn(delivery, turn),
            Notification::NotUnderstood(misunderstanding) => self.answer_misread(delivery, misunderstanding),
            Notification::Cancel(cancellation) => self.answer_cancel(delivery, cancellation),
            Notification::Ack(receipt) => self.answer_receipt(delivery, receipt),
            Notification::Inform(news) => self.answer_news(delivery, news),
            Notification::Closed(closing) => self.answer_closed(delivery, closing),
            Notification::Reject(_) | Notification::Failure(_) => self.stray(delivery),
        }
    }

    /// Acknowledges each arrival alone or all of them together, soon or late, once or twice, or not at all.
    fn plan_acknowledgements(&mut self, arrived: Vec<DeliveryId>) {
        let kept: Vec<DeliveryId> = arrived.into_iter().filter(|_| !self.happens(self.me.temper.ack_skip)).collect();
        let is_together = self.happens(500);
        let groups: Vec<Vec<DeliveryId>> =
            if is_together { vec![kept] } else { kept.into_iter().map(|id| vec![id]).collect() };
        for ids in groups.into_iter().filter(|ids| !ids.is_empty()) {
            let after = if self.happens(self.me.temper.ack_late) { self.draw(300..3000) } else { self.draw(0..20) };
            if self.happens(self.me.temper.ack_twice) {
                let again = after + self.draw(0..500);
                self.plan(Duration::from_millis(again), Job::Acknowledge(ids.clone()));
            }
            self.plan(Duration::from_millis(after), Job::Acknowledge(ids));
        }
    }

    async fn acknowledge(&mut self, ids: &[DeliveryId]) {
        let Some((first, others)) = ids.split_first() else { return };
        let body = if others.is_empty() { Vec::new() } else { serde_json::to_vec(others).unwrap_or_default() };
        let published = self.pub_sub.publish(subject::ack(&self.me.id, *first), Bytes::from(body)).await;
        debug_assert!(published.is_ok(), "publishing only hands over");
        self.journal.note(&self.company.world, Noted::Acknowledged { ids: ids.to_vec() });
    }
}
