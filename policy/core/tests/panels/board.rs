//! A panel as a script: alice asks `ann`, `bob`, `cyd`, `dan` and more.

use std::sync::Arc;

use policy_core::lane::RULES_VERSION;
use policy_core::{Event, PanelDecision, preset};
use schemas::Act;
use schemas::delivery::{Ask, Finding, Notification, ProgressReport};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, PinnedPanel, Qos};
use serde_json::{Value, json};

use crate::script::{INITIATOR, Script, agent, pinned};

/// Time to answer one ask.
pub(crate) const ANSWER_MS: u64 = 1000;
/// Seats, in the order of their ids.
pub(crate) const SEATS: [&str; 12] =
    ["ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy", "joe", "kim", "lou"];

/// A lane with one panel.
pub(crate) struct Board {
    pub(crate) script: Script,
}

impl Board {
    /// A lane that has its rules, and nothing else.
    pub(crate) fn empty() -> Self {
        let mut script = Script::empty();
        script.engine(0, 0, EngineEvent::Rules { version: RULES_VERSION });
        Self { script }
    }

    /// A panel of so many seats, each asked in the first wave unless `change` says otherwise.
    pub(crate) fn of(seats: usize, change: Value) -> Self {
        let mut board = Self::empty();
        board.call(&SEATS[..seats], change);
        board
    }

    pub(crate) fn call(&mut self, seats: &[&str], change: Value) -> Vec<String> {
        self.call_with(seats, change, json!({}), json!({}), None)
    }

    pub(crate) fn call_with(
        &mut self,
        seats: &[&str],
        change: Value,
        payload: Value,
        envelope: Value,
        roles: Option<PinnedPanel>,
    ) -> Vec<String> {
        let candidates: Vec<(&str, Option<u64>)> = seats.iter().map(|seat| (*seat, None)).collect();
        let (message, pinned) = self.called(&candidates, change, payload, envelope, roles);
        self.fold_call(message, pinned)
    }

    /// A call as a gateway admits it, with what evidence says of each of those addressed.
    pub(crate) fn called(
        &mut self,
        candidates: &[(&str, Option<u64>)],
        change: Value,
        payload: Value,
        envelope: Value,
        roles: Option<PinnedPanel>,
    ) -> (AdmittedMessage, Pinned) {
        let mut rules = json!({"asking": "all", "answer_ms": ANSWER_MS});
        merge(&mut rules, change);
        let mut call = json!({"panel": rules, "task": "Which is prime?"});
        merge(&mut call, payload);
        let message = self.script.message(INITIATOR, Act::Cfp, call, envelope);
        let names: Vec<&str> = candidates.iter().map(|(name, _)| *name).collect();
        let mut pinned = pinned(preset("medium").expect("a preset"), &names);
        for one in &mut pinned.invited {
            one.reputation = candidates.iter().find(|(name, _)| *name == one.agent.as_str()).and_then(|found| found.1);
        }
        pinned.panel = roles.map(Box::new);
        (message, pinned)
    }

    pub(crate) fn fold_call(&mut self, mut message: AdmittedMessage, pinned: Pinned) -> Vec<String> {
        message.pinned = Some(Arc::new(pinned));
        self.script.fold(0, vec![Entry::Message(message)])
    }

    pub(crate) fn say(&mut self, at_ms: u64, who: &str, act: Act, payload: Value) -> Vec<String> {
        self.script.say(at_ms, who, act, payload)
    }

    /// Answers in a round.
    pub(crate) fn answer(&mut self, at_ms: u64, who: &str, round: u32, answer: &str) -> Vec<String> {
        self.say(at_ms, who, Act::Answer, json!({"round": round, "answer": answer}))
    }

    /// Answers in a round, with a rating for each agent named: those it was shown.
    pub(crate) fn rate(
        &mut self,
        at_ms: u64,
        who: &str,
        round: u32,
        answer: &str,
        rated: &[(&str, u32)],
    ) -> Vec<String> {
        let ask = self.ask(who);
        let rating = |answer: &Option<Arc<str>>| {
            let text = answer.as_deref().expect("an opinion");
            let named = rated.iter().find(|(name, _)| text.ends_with(name)).expect("everybody shown is rated");
            named.1
        };
        let ratings: Vec<u32> = ask.peers.iter().flatten().map(|peer| rating(&peer.text)).collect();
        let payload = json!({"round": round, "answer": answer, "text": format!("by {who}"), "ratings": ratings});
        self.say(at_ms, who, Act::Answer, payload)
    }

    /// The last ask of somebody.
    pub(crate) fn ask(&self, who: &str) -> Ask {
        match &*self.script.last(who, Act::Ask).told {
            Notification::Ask(ask) => Ask::clone(ask),
            _ => panic!("no ask"),
        }
    }

    /// How often somebody was asked.
    pub(crate) fn asks(&self, who: &str) -> usize {
        let is_ask = |deliver: &&policy_core::Deliver| deliver.to.as_str() == who && deliver.told.act() == Act::Ask;
        self.script.deliveries.iter().filter(is_ask).count()
    }

    /// Whom the last wave asked, in that order, and in which round.
    pub(crate) fn wave(&self) -> (u32, Vec<String>) {
        let asks = self.script.deliveries.iter().filter_map(|deliver| match &*deliver.told {
            Notification::Ask(ask) => Some((deliver.to.to_string(), ask.round, ask.answer_by)),
            _ => None,
        });
        let asks: Vec<_> = asks.collect();
        let (_, round, answer_by) = asks.last().expect("somebody was asked").clone();
        (round, asks.into_iter().filter(|one| (one.1, one.2) == (round, answer_by)).map(|one| one.0).collect())
    }

    pub(crate) fn finding(&self) -> Finding {
        let told = self.script.deliveries.iter().find_map(|deliver| match &*deliver.told {
            Notification::Inform(ProgressReport::Finding(finding)) => Some(Finding::clone(finding)),
            _ => None,
        });
        told.expect("a finding")
    }

    pub(crate) fn decision(&self) -> Arc<PanelDecision> {
        let decided = self.script.events.iter().find_map(|event| match event {
            Event::Found(decision) => Some(Arc::clone(decision)),
            _ => None,
        });
        decided.expect("a decision")
    }

    /// The agents whose answers somebody was shown last, told from texts as [`Board::rate`] writes them.
    pub(crate) fn shown(&self, who: &str) -> Vec<String> {
        let peers = self.ask(who).peers.into_iter().flatten();
        peers.map(|peer| peer.text.expect("a text").trim_start_matches("by ").to_owned()).collect()
    }
}

/// A ranker or reviewer as gateways pin it.
pub(crate) fn invitation(name: &str) -> Invitation {
    Invitation { agent: agent(name), qos: Qos::AtLeastOnce, durable: false, reputation: None }
}

pub(crate) fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        document[name] = value;
    }
}
