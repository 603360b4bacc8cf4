//! What bidders say, and what they know of what they were told.

use std::sync::Arc;

use policy_core::{Deliver, Limits, preset};
use proptest::test_runner::TestCaseError;
use schemas::delivery::{Notification, ProgressReport};
use schemas::english_auction::{AuctionRules, PriceDirection, StandingBid};
use schemas::policy::{Payment, Timers};
use schemas::record::{AdmittedMessage, Entry, Pinned};
use schemas::{Act, AgentId, Policy};
use serde_json::json;

use super::plan::{Action, Case, Move, Who};
use crate::alike::{Game, Played, Table, abort, id, invitation, party, undelivered};

/// To the end, and beyond.
pub(crate) fn play(case: &Case) -> Result<Played, TestCaseError> {
    let game = Auction { case, rules: None, standing: None, leader: None, told: Vec::new() };
    Table::play(game, Limits { messages_per_party_max: 2, ..Limits::default() }, case.is_new, &case.moves)
}

struct Auction<'a> {
    case: &'a Case,
    rules: Option<AuctionRules>,
    standing: Option<StandingBid>,
    leader: Option<AgentId>,
    /// Calls and awards: what may prove undeliverable.
    told: Vec<Deliver>,
}

impl Auction<'_> {
    /// A price so much beyond the next.
    fn price(&self, beyond: i64) -> i64 {
        let Some(rules) = &self.rules else { return beyond };
        let next = rules.next_price(self.standing.as_ref().map(|standing| standing.price)).unwrap_or(0);
        if rules.direction == PriceDirection::Ascending { next + beyond } else { next - beyond }
    }
}

impl Game for Auction<'_> {
    type Who = Who;
    type Action = Action;

    const DRAIN_MAX: usize = 64;

    fn call(table: &Table<Self>) -> AdmittedMessage {
        let case = table.game.case;
        let mut payload = json!({"auction": case.rules, "currency": "EUR"});
        case.reply_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        case.beside.iter().for_each(|(name, rules)| payload[name] = rules.clone());
        let invited = (1..=usize::from(case.invited)).rev().map(|index| invitation(party(index))).collect();
        let timers_ms = Timers { collect: 100, confirm: 20, perform: 30, cancel: 10, hard: 300 };
        let payment = if case.payment_of_second { Payment::SecondPrice } else { Payment::FirstPrice };
        let policy = Policy {
            id: "auction@1".to_owned(),
            standby: case.standby,
            eps_band: case.eps_band,
            require_confirm: case.requires_confirm,
            timers_ms,
            payment,
            ..preset("medium").expect("a preset")
        };
        let pinned = Some(Arc::new(Pinned { invited, ..crate::alike::pinned(policy, Vec::new()) }));
        AdmittedMessage { pinned, ..table.message(&party(0), Act::Cfp, payload, false) }
    }

    fn entry(table: &mut Table<Self>, one: &Move) -> Option<Entry> {
        let game = &table.game;
        let from = match one.who {
            Who::Leader => game.leader.clone().unwrap_or(party(1)),
            Who::Bidder(index) => party(1 + index % usize::from(game.case.invited).max(1)),
            Who::Initiator => party(0),
            Who::Stranger => party(9),
        };
        let (act, payload) = match &one.action {
            Action::Tick => return Some(Entry::Tick),
            Action::Abort => return abort(id()),
            Action::Undelivered(which, may_answer) => {
                let told = game.told.get(which % game.told.len().max(1))?;
                return undelivered(told, *may_answer);
            }
            Action::Repeat(which) => return Some(table.repeat(*which)),
            Action::Conflict(which) => return Some(table.conflict(*which)),
            Action::Bid(beyond) => (Act::Offer, json!({"terms": {"price": game.price(*beyond)}})),
            Action::OddBid(payload) => (Act::Offer, payload.clone()),
            Action::Refuse(round) => (Act::Refuse, round.map_or(json!({}), |round| json!({"round": round}))),
            Action::Withdraw => (Act::Withdraw, json!({})),
            Action::NotUnderstood => (Act::NotUnderstood, json!({})),
            Action::Failure => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
            Action::Cancel => (Act::Cancel, json!({})),
            Action::Accept => (Act::Accept, json!({"offer_id": "o3-0"})),
            Action::Confirm(award_no) => (Act::Confirm, json!({"award_no": award_no})),
            Action::Done => (Act::Inform, json!({"kind": "done"})),
        };
        let message = table.message(&from, act, payload, one.is_stale);
        Some(table.say(message))
    }

    fn remember(&mut self, deliver: &Deliver) {
        match &*deliver.told {
            Notification::Cfp(call) => {
                self.rules = call.auction.as_ref().map(|auction| auction.rules.clone());
                self.told.push(deliver.clone());
            }
            Notification::Accept(_) => self.told.push(deliver.clone()),
            Notification::Inform(ProgressReport::Bid(standing)) => {
                if standing.leads {
                    self.leader = Some(deliver.to.clone());
                }
                self.standing = Some(StandingBid::clone(standing));
            }
            _ => {}
        }
    }

    /// Every other party does.
    fn numbers(agent: &AgentId) -> bool {
        *agent != party(1)
    }
}
