//! Thousands of English auctions among bidders of the SDK, through the core alone, over NATS and over WebSockets: each takes the same
//! course everywhere, and winner, price and end are those of a model of twenty lines (docs/spec/english-auction.md).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agents::contractor::{Bidding, Contractor, ContractorConfig, Distribution};
use agents::control::ControlClient;
use agents::strategy::{Action, Strategy};
use agents::transport::bus::BusTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Connection, SendReply, Transport, Uplink};
use bus::nats::{self, NatsOptions};
use futures_util::{StreamExt, stream};
use gateway::LimitConfig;
use nats_server::{LocalServer, LocalServerOptions};
use parking_lot::Mutex;
use policy_core::{Deliver, Effect, Event, LaneState, Limits, preset};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::{Delivery, DeliveryEnvelope, EXCHANGE, Notification, Outcome, ProgressReport};
use schemas::english_auction::{AuctionRules, AuctionSpec, PriceDirection, Step};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Cfp};
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Act, AgentId, Code, Digest, Lane, NegotiationId, Payload, Policy, Refusal, Timestamp, WireTime};
use scripted::bargain::in_memory::{admitted, pinned};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

/// Auctions played through the core.
const AUCTIONS: u64 = 2_000;
/// Of them, those played over each transport, unless LLMX_AUCTIONS says how many.
const AUCTIONS_OVER: u64 = 200;
/// Bidders of an auction, at most; behind them stands the initiator.
const INITIATOR: usize = 12;
/// Open at once over a transport.
const OPEN: usize = 200;
/// Longest wait for a delivery; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nobody bids before an auction over a transport ends: longer than a machine pauses.
const QUIET_MS: u64 = 5_000;

struct Bidder {
    limit: i64,
    bidding: Bidding,
    /// How long it takes to bid, in milliseconds; no two take the same.
    delay_ms: i64,
}

struct Plan {
    spec: AuctionSpec,
    bidders: Vec<Bidder>,
}

/// How an auction went: every bid and its bidder, who was awarded at which price, and the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Course {
    bids: Vec<(usize, i64)>,
    award: Option<(usize, i64)>,
    outcome: Option<Outcome>,
}

/// The presets' `medium`, without a bound of the price.
fn policy() -> Policy {
    let mut policy = preset("medium").unwrap();
    policy.id = "boundless@1".to_owned();
    policy.gates.clear();
    policy
}

fn plan(seed: u64) -> Plan {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let direction = if rng.random() { PriceDirection::Ascending } else { PriceDirection::Descending };
    let step =
        if rng.random() { Step::Fixed(rng.random_range(20..90)) } else { Step::Permille(rng.random_range(30..200)) };
    let start =
        if direction == PriceDirection::Ascending { rng.random_range(0..300) } else { rng.random_range(700..1_000) };
    let rules = AuctionRules { direction, start, step, quiet_ms: Some(500), extend: None };
    let reserve = (rng.random_range(0..3) == 0).then(|| rng.random_range(0..1_000));
    let bidders = (0..rng.random_range(2..=INITIATOR)).map(|number| Bidder {
        limit: rng.random_range(0..1_000),
        bidding: if rng.random_range(0..4) == 0 { Bidding::Jump } else { Bidding::Truthful },
        delay_ms: i64::try_from(number).unwrap() * 7 % 12 + 1,
    });
    Plan { bidders: bidders.collect(), spec: AuctionSpec { rules, reserve } }
}

/// The fastest bidder that does not lead bids, until the next price is beyond everybody's limit.
fn model(Plan { spec: AuctionSpec { rules, reserve }, bidders }: &Plan) -> Course {
    let mut bids: Vec<(usize, i64)> = Vec::new();
    while let Some(next) = rules.next_price(bids.last().map(|(_, price)| *price)) {
        let may_bid = |index: &usize| {
            bids.last().is_none_or(|(leader, _)| leader != index) && rules.reaches(bidders[*index].limit, next)
        };
        let Some(fastest) = (0..bidders.len()).filter(may_bid).min_by_key(|index| bidders[*index].delay_ms) else {
            break;
        };
        let price = match bidders[fastest].bidding {
            Bidding::Jump => next.midpoint(bidders[fastest].limit),
            Bidding::Truthful | Bidding::Sniper => next,
        };
        bids.push((fastest, price));
    }
    let (award, outcome) = match bids.last() {
        None => (None, Outcome::NoOffers),
        Some((_, price)) if reserve.is_some_and(|reserve| !rules.reaches(*price, reserve)) => {
            (None, Outcome::ReserveNotMet)
        }
        Some(last) => (Some(*last), Outcome::Completed),
    };
    Course { award, outcome: Some(outcome), bids }
}

/// A bidder, or behind them all the initiator.
fn agent(index: usize) -> AgentId {
    let name = if index == INITIATOR { "alice".to_owned() } else { format!("bidder-{index:02}") };
    AgentId::try_new(&name).unwrap()
}

/// The bidders of one auction, and what they are about to say.
struct Bidders {
    contractors: Vec<Contractor>,
    /// What is to be said, by whom: by the time, and the order of saying.
    due: BTreeMap<(Timestamp, u64), (usize, Payload)>,
    said: u64,
    course: Course,
}

impl Bidders {
    fn new(plan: &Plan) -> Self {
        let contractors = plan.bidders.iter().enumerate().map(|(index, bidder)| {
            let price = (AttrName::try_new("price").unwrap(), Distribution::Constant(bidder.limit));
            let config = ContractorConfig {
                terms: [price].into(),
                reply_delay_ms: Distribution::Constant(bidder.delay_ms),
                bidding: bidder.bidding,
                ..ContractorConfig::default()
            };
            Contractor::try_new(&agent(index), config).unwrap()
        });
        Self { contractors: contractors.collect(), due: BTreeMap::new(), said: 0, course: Course::default() }
    }

    fn handle(&mut self, index: usize, now: Timestamp, delivery: &Delivery) {
        if let Notification::Accept(award) = &delivery.payload {
            self.course.award = Some((index, award.payment.unwrap()));
            // Over a transport others may not have been told yet that they are beaten.
            self.due.clear();
        }
        for action in self.contractors[index].handle(now, delivery) {
            match action {
                Action::Send(outgoing) => {
                    let at = Timestamp(now.0 + u64::try_from(outgoing.delay.as_micros()).unwrap());
                    self.said += 1;
                    self.due.insert((at, self.said), (index, outgoing.payload));
                }
                Action::Unschedule(_) | Action::Release(_) => self.due.retain(|_, (of, _)| *of != index),
                Action::Defer | Action::Stop => {}
            }
        }
    }

    /// What is said next, if it is said by a time.
    fn next_by(&mut self, deadline: Timestamp) -> Option<(Timestamp, usize, Payload)> {
        let ((at, _), (index, payload)) =
            self.due.first_entry().filter(|entry| entry.key().0 <= deadline)?.remove_entry();
        if let Payload::Offer(offer) = &payload {
            let Some(AttrValue::Int(price)) = offer.terms.get(&AttrName::try_new("price").unwrap()) else {
                panic!("a bid without a price")
            };
            self.course.bids.push((index, *price));
        }
        Some((at, index, payload))
    }
}

/// One lane and its bidders.
struct Play {
    lane_state: LaneState,
    negotiation: NegotiationId,
    bidders: Bidders,
    seq: u64,
    said: u64,
}

impl Play {
    fn new(plan: &Plan) -> Self {
        Self {
            lane_state: LaneState::new(Lane(0), Limits::default()),
            negotiation: NegotiationId::try_new("alice~sale").unwrap(),
            bidders: Bidders::new(plan),
            seq: 0,
            said: 0,
        }
    }

    fn message(&mut self, from: &AgentId, payload: Payload) -> AdmittedMessage {
        self.said += 1;
        admitted(from, &self.negotiation, (&format!("m{}", self.said), None), payload).unwrap()
    }

    fn fold(&mut self, now: Timestamp, entry: Entry) {
        self.seq += 1;
        self.lane_state.handle_record(self.seq, now, &Record::new("test", vec![entry]));
        while let Some(effect) = self.lane_state.poll_effect() {
            match effect {
                Effect::Deliver(deliver) => self.deliver(now, &deliver),
                Effect::Event(Event::Ended { outcome, .. }) => self.bidders.course.outcome = Some(outcome),
                Effect::Event(Event::InvariantViolated { invariant, .. }) => panic!("{invariant:?}"),
                Effect::Event(_) | Effect::Register(_) | Effect::Notice(_) => {}
            }
        }
    }

    fn deliver(&mut self, now: Timestamp, deliver: &Deliver) {
        let Some(index) = (0..self.bidders.contractors.len()).find(|index| agent(*index) == deliver.to) else { return };
        let envelope = DeliveryEnvelope {
            msg_id: deliver.id,
            ts: WireTime(now),
            from: EXCHANGE.to_owned(),
            to: [format!("agent://{}", deliver.to)],
            negotiation: deliver.negotiation.clone(),
            in_reply_to: deliver.in_reply_to.clone(),
            traceparent: None,
        };
        let receipts = deliver.receipts.to_vec();
        let delivery = Delivery { envelope, payload: Notification::clone(&deliver.told), receipts };
        self.bidders.handle(index, now, &delivery);
    }

    fn run(mut self, spec: &AuctionSpec) -> Course {
        let start = Timestamp::from_ms(1_000_000);
        let invited: Vec<AgentId> = (0..self.bidders.contractors.len()).map(agent).collect();
        let cfp = Cfp { reply_within_ms: Some(60_000), auction: Some(Box::new(spec.clone())), ..Cfp::default() };
        let call = self.message(&agent(INITIATOR), Payload::Cfp(cfp));
        let call = AdmittedMessage { pinned: Some(Arc::new(pinned(&policy(), &invited))), ..call };
        self.fold(start, Entry::Message(call));
        while self.bidders.course.outcome.is_none() {
            let deadline = self.lane_state.poll_deadline().expect("it is open");
            match self.bidders.next_by(deadline) {
                Some((at, index, payload)) => {
                    let message = self.message(&agent(index), payload);
                    self.fold(at, Entry::Message(message));
                }
                None => self.fold(Timestamp(deadline.0 + 1), Entry::Tick),
            }
        }
        self.bidders.course
    }
}

/// Where what is told in a negotiation goes, with whom it is told.
type Told = BTreeMap<NegotiationId, mpsc::UnboundedSender<(usize, Delivery)>>;

/// Connections of the initiator and of all bidders, and what is told in each negotiation.
struct Agents {
    /// The bidders', and behind them the initiator's.
    links: Vec<Arc<dyn Uplink>>,
    told: Arc<Mutex<Told>>,
}

impl Agents {
    async fn connect(exchange: &Exchange, transport: &dyn Transport) -> Self {
        let control = ControlClient::try_new(exchange.url()).unwrap();
        let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
        let registration = Registration { consent, ..Registration::default() };
        let (mut links, told) = (Vec::new(), Arc::default());
        for index in 0..=INITIATOR {
            let identity = exchange.identity(&agent(index)).unwrap();
            control.register(&identity.agent, &identity.token.current(), &registration).await.unwrap();
            let connection = transport.connect(&identity).await.unwrap();
            links.push(Arc::clone(&connection.link));
            tokio::spawn(hear(index, connection, Arc::clone(&told)));
        }
        Self { links, told }
    }

    /// Says something, and waits until it is in the log.
    async fn say(&self, index: usize, envelope: Value, payload: &Payload) {
        let mut document = json!({"envelope": envelope, "payload": payload});
        document["envelope"]["from"] = json!(format!("agent://{}", agent(index)));
        document["envelope"]["ts"] = json!("2026-11-30T09:00:00.000Z");
        loop {
            match self.links[index].send(document.to_string().into()).await {
                SendReply::Accepted(_) => return,
                // A machine that is slow, or an engine that is not heard yet.
                SendReply::Refused(Refusal { code: Code::Overloaded, retry_after_ms, .. }) => {
                    tokio::time::sleep(Duration::from_millis(retry_after_ms.unwrap_or(100))).await;
                }
                answer @ (SendReply::Refused(_) | SendReply::Unknown(_)) => panic!("{document}: {answer:?}"),
            }
        }
    }

    /// Plays an auction: the next bidder speaks when all have been told of the bid before.
    async fn play(&self, id: &str, plan: &Plan) -> Course {
        let negotiation = NegotiationId::form(&agent(INITIATOR), id).unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        self.told.lock().insert(negotiation.clone(), tell);
        let mut spec = plan.spec.clone();
        spec.rules.quiet_ms = Some(QUIET_MS);
        let cfp = Cfp {
            policy: Some("boundless".to_owned()),
            reply_within_ms: Some(60_000),
            auction: Some(Box::new(spec)),
            ..Cfp::default()
        };
        let to: Vec<String> = (0..plan.bidders.len()).map(|index| format!("agent://{}", agent(index))).collect();
        self.say(INITIATOR, json!({"msg_id": id, "negotiation": id, "to": to}), &Payload::Cfp(cfp)).await;
        let mut bidders = Bidders::new(plan);
        // It moves with what is said alone, as the bidders wait, whatever the machine does meanwhile.
        let mut now = Timestamp(0);
        let mut staying: BTreeSet<usize> = (0..plan.bidders.len()).collect();
        let mut untold = staying.clone();
        while bidders.course.outcome.is_none() {
            let heard = tokio::time::timeout(PATIENCE, told.recv()).await;
            let (index, delivery) =
                heard.unwrap_or_else(|_| panic!("{id}: silence behind {:?}", bidders.course)).unwrap();
            if index == INITIATOR {
                if let Notification::Closed(closing) = &delivery.payload {
                    bidders.course.outcome = Some(closing.outcome);
                }
                continue;
            }
            let bids = bidders.course.bids.len();
            if matches!(&delivery.payload, Notification::Cfp(_)) && bids == 0 {
                untold.remove(&index);
                now = now.max(delivery.envelope.ts.0);
            }
            if let Notification::Inform(ProgressReport::Bid(bid)) = &delivery.payload
                && bid.bid_no as usize == bids
            {
                untold.remove(&index);
            }
            bidders.handle(index, now, &delivery);
            while untold.is_empty() || bidders.course.award.is_some() {
                let Some((at, index, payload)) = bidders.next_by(Timestamp(u64::MAX)) else { break };
                now = at;
                bidders.said += 1;
                let msg_id = format!("m{}", bidders.said);
                self.say(index, json!({"msg_id": msg_id, "negotiation": negotiation}), &payload).await;
                if payload.act() == Act::Refuse {
                    staying.remove(&index);
                } else if payload.act() == Act::Offer {
                    untold.clone_from(&staying);
                }
            }
        }
        self.told.lock().remove(&negotiation);
        bidders.course
    }
}

/// Passes on what an agent is told, once.
async fn hear(index: usize, connection: Connection, told: Arc<Mutex<Told>>) {
    let Connection { link, mut inbox } = connection;
    let mut seen = BTreeSet::new();
    while let Some(message) = inbox.next().await {
        let ids = message.deliveries.iter().map(|delivery| delivery.envelope.msg_id).collect();
        for delivery in message.deliveries {
            if seen.insert(delivery.envelope.msg_id)
                && let Some(tell) = told.lock().get(&delivery.envelope.negotiation)
            {
                drop(tell.send((index, delivery)));
            }
        }
        drop(link.ack(ids).await);
    }
}

fn in_memory(seeds: u64) -> Vec<Course> {
    (0..seeds).map(plan).map(|plan| Play::new(&plan).run(&plan.spec)).collect()
}

#[test]
fn thousands_of_auctions_end_as_a_model_of_twenty_lines_says() {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for (seed, course) in (0..).zip(in_memory(AUCTIONS)) {
        assert_eq!(course, model(&plan(seed)), "seed {seed}");
        *ends.entry(course.outcome.unwrap().as_str()).or_default() += 1;
    }
    println!("{ends:?}");
    assert!(["completed", "no_offers", "reserve_not_met"].iter().all(|end| ends.contains_key(end)), "{ends:?}");
}

/// `LLMX_AUCTIONS=2000 cargo test -p scripted --test english_auction -- --nocapture` plays as many as through the core.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auctions_take_the_same_course_through_the_core_over_nats_and_over_websockets() {
    let auctions = std::env::var("LLMX_AUCTIONS").map_or(AUCTIONS_OVER, |number| number.parse().unwrap());
    let digest = |courses: &[Course]| Digest::of_bytes(format!("{courses:?}").as_bytes());
    let wanted = in_memory(auctions);
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let open = async || nats::open(NatsOptions::new(server.url())).await.unwrap();
    let limits = LimitConfig { requests_per_s: 1_000_000, burst: 1_000_000, ..LimitConfig::default() };
    let options = ExchangeOptions { policies: vec![policy()], limits, ..ExchangeOptions::default() };
    let exchange = Exchange::start(open().await, options).await.unwrap();
    let ways: [(&str, Arc<dyn Transport>); 2] = [
        ("nats", Arc::new(BusTransport::new(&open().await))),
        ("websocket", Arc::new(WebSocketTransport::new(exchange.url()))),
    ];
    for (way, transport) in ways {
        let agents = &Agents::connect(&exchange, &*transport).await;
        let play = |seed| async move { agents.play(&format!("{way}-{seed}"), &plan(seed)).await };
        let courses: Vec<Course> = stream::iter(0..auctions).map(play).buffered(OPEN).collect().await;
        for (seed, (course, wanted)) in courses.iter().zip(&wanted).enumerate() {
            assert_eq!(course, wanted, "seed {seed} over {way}");
        }
        println!("{auctions} auctions over {way}: {}, in memory: {}", digest(&courses), digest(&wanted));
        assert_eq!(digest(&courses), digest(&wanted));
    }
    exchange.shutdown().await;
}
