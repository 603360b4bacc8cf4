//! Thousands of English auctions among bidders of the SDK, through the core alone: winner, price and end are those of a model of
//! twenty lines (docs/spec/english-auction.md).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::sync::Arc;

use agents::contractor::{Bidding, Contractor, ContractorConfig, Distribution};
use agents::strategy::{Action, Strategy};
use policy_core::{Deliver, Effect, Event, LaneState, Limits, preset};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::delivery::{Delivery, DeliveryEnvelope, EXCHANGE, Notification, Outcome};
use schemas::english_auction::{AuctionRules, AuctionSpec, PriceDirection, Step};
use schemas::ids::AttrName;
use schemas::payload::Cfp;
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{AgentId, Lane, NegotiationId, Payload, Timestamp, WireTime};
use scripted::bargain::in_memory::{admitted, pinned};

/// Auctions played.
const AUCTIONS: u64 = 2_000;

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

/// How an auction came out: its end, and who was awarded at which price.
type Result = (Outcome, Option<(usize, i64)>);

fn plan(seed: u64) -> Plan {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let direction = if rng.random() { PriceDirection::Ascending } else { PriceDirection::Descending };
    let step =
        if rng.random() { Step::Fixed(rng.random_range(20..90)) } else { Step::Permille(rng.random_range(30..200)) };
    let start =
        if direction == PriceDirection::Ascending { rng.random_range(0..300) } else { rng.random_range(700..1_000) };
    let rules = AuctionRules { direction, start, step, quiet_ms: Some(500), extend: None };
    let reserve = (rng.random_range(0..3) == 0).then(|| rng.random_range(0..1_000));
    let bidders = (0..rng.random_range(2..=12)).map(|number| Bidder {
        limit: rng.random_range(0..1_000),
        bidding: if rng.random_range(0..4) == 0 { Bidding::Jump } else { Bidding::Truthful },
        delay_ms: (number * 7) % 12 + 1,
    });
    Plan { bidders: bidders.collect(), spec: AuctionSpec { rules, reserve } }
}

/// The fastest bidder that does not lead bids, until the next price is beyond everybody's limit.
fn model(Plan { spec: AuctionSpec { rules, reserve }, bidders }: &Plan) -> Result {
    let mut standing: Option<(usize, i64)> = None;
    while let Some(next) = rules.next_price(standing.map(|(_, price)| price)) {
        let may_bid = |index: &usize| {
            standing.is_none_or(|(leader, _)| leader != *index) && rules.reaches(bidders[*index].limit, next)
        };
        let Some(fastest) = (0..bidders.len()).filter(may_bid).min_by_key(|index| bidders[*index].delay_ms) else {
            break;
        };
        let price = match bidders[fastest].bidding {
            Bidding::Jump => next.midpoint(bidders[fastest].limit),
            Bidding::Truthful | Bidding::Sniper => next,
        };
        standing = Some((fastest, price));
    }
    match standing {
        None => (Outcome::NoOffers, None),
        Some((_, price)) if reserve.is_some_and(|reserve| !rules.reaches(price, reserve)) => {
            (Outcome::ReserveNotMet, None)
        }
        Some(_) => (Outcome::Completed, standing),
    }
}

fn agent(index: usize) -> AgentId {
    AgentId::try_new(&format!("bidder-{index:02}")).unwrap()
}

/// One lane, and what its bidders are about to say.
struct Play {
    lane_state: LaneState,
    negotiation: NegotiationId,
    bidders: Vec<Contractor>,
    /// What is to be said, by whom: by the time, and the order of saying.
    due: BTreeMap<(Timestamp, u64), (usize, Payload)>,
    seq: u64,
    said: u64,
    award: Option<(usize, i64)>,
    outcome: Option<Outcome>,
}

impl Play {
    fn new(plan: &Plan) -> Self {
        let bidders = plan.bidders.iter().enumerate().map(|(index, bidder)| {
            let price = (AttrName::try_new("price").unwrap(), Distribution::Constant(bidder.limit));
            let config = ContractorConfig {
                terms: [price].into(),
                reply_delay_ms: Distribution::Constant(bidder.delay_ms),
                bidding: bidder.bidding,
                ..ContractorConfig::default()
            };
            Contractor::try_new(&agent(index), config).unwrap()
        });
        Self {
            lane_state: LaneState::new(Lane(0), Limits::default()),
            negotiation: NegotiationId::try_new("alice~sale").unwrap(),
            bidders: bidders.collect(),
            due: BTreeMap::new(),
            seq: 0,
            said: 0,
            award: None,
            outcome: None,
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
                Effect::Event(Event::Ended { outcome, .. }) => self.outcome = Some(outcome),
                Effect::Event(Event::InvariantViolated { invariant, .. }) => panic!("{invariant:?}"),
                Effect::Event(_) | Effect::Register(_) | Effect::Notice(_) => {}
            }
        }
    }

    fn deliver(&mut self, now: Timestamp, deliver: &Deliver) {
        let Some(index) = (0..self.bidders.len()).find(|index| agent(*index) == deliver.to) else { return };
        if let Notification::Accept(award) = &*deliver.told {
            self.award = Some((index, award.payment.unwrap()));
        }
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
        for action in self.bidders[index].handle(now, &delivery) {
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

    fn run(mut self, spec: &AuctionSpec) -> Result {
        let start = Timestamp::from_ms(1_000_000);
        let invited: Vec<AgentId> = (0..self.bidders.len()).map(agent).collect();
        let mut policy = preset("medium").unwrap();
        policy.gates.clear();
        let cfp = Cfp { reply_within_ms: Some(60_000), auction: Some(Box::new(spec.clone())), ..Cfp::default() };
        let call = self.message(&AgentId::try_new("alice").unwrap(), Payload::Cfp(cfp));
        let call = AdmittedMessage { pinned: Some(Arc::new(pinned(&policy, &invited))), ..call };
        self.fold(start, Entry::Message(call));
        while self.outcome.is_none() {
            let deadline = self.lane_state.poll_deadline().expect("it is open");
            match self.due.first_entry().filter(|entry| entry.key().0 <= deadline) {
                Some(entry) => {
                    let ((at, _), (index, payload)) = entry.remove_entry();
                    let message = self.message(&agent(index), payload);
                    self.fold(at, Entry::Message(message));
                }
                None => self.fold(Timestamp(deadline.0 + 1), Entry::Tick),
            }
        }
        (self.outcome.unwrap(), self.award)
    }
}

#[test]
fn thousands_of_auctions_end_as_a_model_of_twenty_lines_says() {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..AUCTIONS {
        let plan = plan(seed);
        let (outcome, award) = Play::new(&plan).run(&plan.spec);
        assert_eq!((outcome, award), model(&plan), "seed {seed}");
        *ends.entry(outcome.as_str()).or_default() += 1;
    }
    println!("{ends:?}");
    assert!(["completed", "no_offers", "reserve_not_met"].iter().all(|end| ends.contains_key(end)), "{ends:?}");
}
