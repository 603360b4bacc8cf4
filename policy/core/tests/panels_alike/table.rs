//! What members of a panel say, and what they know of what they were asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy_core::{Deliver, Limits, preset};
use proptest::test_runner::TestCaseError;
use schemas::delivery::{Ask, Notification, Rated};
use schemas::record::{AdmittedMessage, Entry, Invitation, Pinned, PinnedPanel, Qos};
use schemas::{Act, AgentId};
use serde_json::{Value, json};

use super::plan::{Action, AnswerPlan, Case, Move, REVIEWERS, RatingsPlan, SEATS_MAX, Who};
use crate::alike::{Game, Played, Table, abort, agent, id, invitation, party, pinned, undelivered};

/// To the end, and beyond.
pub(crate) fn play(case: &Case) -> Result<Played, TestCaseError> {
    let limits = Limits { messages_per_party_max: 12, ..Limits::default() };
    let game = Questioning { case, asked: BTreeMap::new(), asks: Vec::new() };
    Table::play(game, limits, case.is_new, &case.moves)
}

struct Questioning<'a> {
    case: &'a Case,
    /// What each was asked last, and has not answered.
    asked: BTreeMap<AgentId, Ask>,
    asks: Vec<Deliver>,
}

impl Game for Questioning<'_> {
    type Who = Who;
    type Action = Action;

    fn call(table: &Table<Self>) -> AdmittedMessage {
        let case = table.game.case;
        let mut payload = json!({"task": "How many?", "panel": case.rules});
        case.reply_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        // One seat is told everything once only.
        let qos = |seat: usize| if seat == 3 { Qos::BestEffort } else { Qos::AtLeastOnce };
        let reputation = |seat: usize| case.reputations.get(seat - 1).copied().flatten();
        let seat = |seat| Invitation { qos: qos(seat), reputation: reputation(seat), ..invitation(party(seat)) };
        let invited = (1..=case.seats).rev().map(seat).collect();
        let reviewers = REVIEWERS.iter().filter(|_| case.is_pinned);
        let reviewers = reviewers.map(|name| invitation(agent(name))).collect();
        let ranker = case.is_pinned.then(|| invitation(agent("q")));
        let panel = Some(Box::new(PinnedPanel { ranker, reviewers }));
        let pinned = Pinned { panel, ..pinned(preset("medium").expect("a preset"), invited) };
        AdmittedMessage { pinned: Some(Arc::new(pinned)), ..table.message(&party(0), Act::Cfp, payload, false) }
    }

    fn entry(table: &mut Table<Self>, one: &Move) -> Option<Entry> {
        let game = &table.game;
        let seat = |index: usize| party(index % game.case.seats.max(1) + 1);
        let from = match one.who {
            Who::Asked(index) => {
                game.asked.keys().nth(index % game.asked.len().max(1)).cloned().unwrap_or_else(|| seat(index))
            }
            Who::Seat(index) => seat(index),
            Who::Reviewer(index) => agent(REVIEWERS[index % REVIEWERS.len()]),
            Who::Ranker => agent("q"),
            Who::Initiator => party(0),
            Who::Stranger => agent("stranger"),
        };
        let (act, payload) = match &one.action {
            Action::Tick => return Some(Entry::Tick),
            Action::Abort => return abort(id()),
            Action::Undelivered(back) => {
                let which = game.asks.len().checked_sub(1 + back % game.asks.len().max(1))?;
                return undelivered(game.asks.get(which)?, true);
            }
            Action::Repeat(which) => return Some(table.repeat(*which)),
            Action::Conflict(which) => return Some(table.conflict(*which)),
            Action::Answer(plan) if matches!(one.who, Who::Asked(_)) && game.is_to_review(&from) => {
                (Act::Answer, game.review(&from, None, plan))
            }
            Action::Answer(plan) => (Act::Answer, game.answer(&from, plan)),
            Action::Review(texts, plan) => (Act::Answer, game.review(&from, *texts, plan)),
            Action::Order(order) => {
                let round = game.asked.get(&from).map_or(1, |ask| ask.round);
                (Act::Answer, json!({"round": round, "order": order}))
            }
            Action::Refuse => (Act::Refuse, json!({})),
            Action::NotUnderstood => (Act::NotUnderstood, json!({})),
            Action::Cancel(round) => (Act::Cancel, round.map_or(json!({}), |round| json!({"round": round}))),
            Action::Offer => (Act::Offer, json!({"terms": {"price": 3}})),
        };
        if matches!(one.action, Action::Answer(_) | Action::Review(..)) {
            table.game.asked.remove(&from);
        }
        let message = table.message(&from, act, payload, one.is_stale);
        Some(table.say(message))
    }

    fn remember(&mut self, deliver: &Deliver) {
        if let Notification::Ask(ask) = &*deliver.told {
            self.asked.insert(deliver.to.clone(), (**ask).clone());
            self.asks.push(deliver.clone());
        }
    }

    /// Every second seat does.
    fn numbers(agent: &AgentId) -> bool {
        agent.as_str().ends_with(['2', '4', '6', '8'])
    }
}

impl Questioning<'_> {
    fn answer(&self, from: &AgentId, plan: &AnswerPlan) -> Value {
        let ask = self.asked.get(from);
        let round = ask.map_or(1, |ask| ask.round);
        let mut payload = json!({"round": round.saturating_add_signed(plan.shift).max(1), "answer": plan.answer});
        plan.text.into_iter().for_each(|text| payload["text"] = json!(text));
        add_rest(&mut payload, ask, plan);
        payload
    }

    fn is_to_review(&self, agent: &AgentId) -> bool {
        self.asked.get(agent).is_some_and(|ask| ask.review)
    }

    fn review(&self, from: &AgentId, texts: Option<usize>, plan: &AnswerPlan) -> Value {
        let ask = self.asked.get(from);
        let shown = ask.and_then(|ask| ask.peers.as_ref()).map_or(0, Vec::len);
        let round = ask.map_or(1, |ask| ask.round).saturating_add_signed(plan.shift).max(1);
        let text = |number: usize| plan.text.map(|text| format!("{text} {number}"));
        let texts: Vec<Option<String>> = (0..texts.unwrap_or(shown)).map(text).collect();
        let mut payload = json!({"round": round, "reviews": texts});
        add_rest(&mut payload, ask, plan);
        payload
    }
}

/// Cost and ratings: fitting ones are as many as are to be rated.
fn add_rest(payload: &mut Value, ask: Option<&Ask>, plan: &AnswerPlan) {
    plan.usage.into_iter().for_each(|calls| payload["usage"] = json!({"calls": calls}));
    let peers = ask.and_then(|ask| ask.peers.as_deref()).unwrap_or_default();
    let rated = match ask.and_then(|ask| ask.rate) {
        Some(Rated::Peers) => peers.len(),
        Some(Rated::Reviewers) => {
            let shown = ask.and_then(|ask| ask.own.as_ref()).into_iter().chain(peers);
            shown.map(|one| one.reviews.len()).max().unwrap_or(0)
        }
        None => 0,
    };
    match &plan.ratings {
        RatingsPlan::Fitting(ratings) if rated > 0 => payload["ratings"] = json!(ratings[..rated.min(SEATS_MAX)]),
        RatingsPlan::Any(ratings) => payload["ratings"] = json!(ratings),
        RatingsPlan::None | RatingsPlan::Fitting(_) => {}
    }
}
