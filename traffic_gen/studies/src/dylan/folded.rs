//! Panels of scripted agents that are called: their messages are folded as an engine folds them, the ledger keeps what they show,
//! and a call that chooses its seats pins what the ledger says, as a gateway does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use policy_core::lane::RULES_VERSION;
use policy_core::panel::decision::PanelDecision;
use policy_core::panel::reputation::{PRIOR_RUNS, ReputationBasis, reputation};
use policy_core::preset;
use schemas::delivery::{Ask, Notification, ProgressReport, ShownAnswer};
use schemas::evidence::EvidenceCounts;
use schemas::panel::{ChooseSpec, PanelAnswer, PanelSpec};
use schemas::payload::Cfp;
use schemas::record::{EngineEvent, Entry, Invitation, Pinned, PinnedPanel, Qos, Record};
use schemas::{AgentId, NegotiationId, Payload};
use scripted::bargain::in_memory::{InMemoryExchange, pinned};
use serde::Serialize;
use serde_json::json;

use super::crowd::{Crowd, WRONG, name};
use super::play::SeatView;

/// What panels of scripted agents are asked.
pub const QUESTION: &str = "Which?";
/// The answers, the right one first.
pub const OPTIONS: [&str; WRONG as usize + 1] = ["A", "B", "C", "D"];

/// The rules of panels of one domain that choose among options: as [`Crowd::play`] plays them with
/// [`StubRanker::Support`](super::play::StubRanker).
pub fn rules(domain: &str, options: impl Serialize, choose: Option<ChooseSpec>) -> PanelSpec {
    let rules = json!({"domain": domain, "answer": {"kind": "choice", "options": options},
        "select": {"after_round": 2, "keep": 2}});
    PanelSpec { choose, ..serde_json::from_value(rules).expect("they are rules") }
}

/// What a scripted agent answers to an ask. It is not told whose the answers are that it is shown.
pub fn answered(crowd: &Crowd, panel: u64, agent: &AgentId, ask: &Ask) -> PanelAnswer {
    let number = (0..crowd.agents.len()).find(|number| name(*number) == *agent).unwrap_or(usize::MAX);
    let answer = |shown: &ShownAnswer| {
        let text = shown.answer.as_deref();
        let option = OPTIONS.into_iter().position(|option| text == Some(option));
        option.and_then(|option| u32::try_from(option).ok()).unwrap_or(WRONG)
    };
    let peers: Vec<(usize, u32)> = ask.peers.iter().flatten().map(|shown| (usize::MAX, answer(shown))).collect();
    let own = ask.own.as_ref().map(answer);
    let round = usize::try_from(ask.round).unwrap_or(usize::MAX);
    let said = crowd.says(panel, number, &[], &SeatView { round, place: 0, own, peers: &peers });
    let option = usize::try_from(said.answer).ok().and_then(|option| OPTIONS.get(option));
    PanelAnswer {
        round: ask.round,
        answer: Some(option.map(|option| (*option).to_owned())),
        ratings: said.ratings.filter(|_| ask.rate.is_some()),
        ..PanelAnswer::default()
    }
}

/// A lane on which panels are called one after another.
#[derive(Debug)]
pub struct FoldedPanels {
    exchange: InMemoryExchange,
    /// Without invitations.
    pinned: Pinned,
    panels: u64,
}

/// What a panel that was called came to.
#[derive(Debug, Clone)]
pub struct FoldedPanel {
    /// Its decision record; none without a result.
    pub decision: Option<Arc<PanelDecision>>,
    /// The text of its result.
    pub answer: Option<Arc<str>>,
}

impl Default for FoldedPanels {
    fn default() -> Self {
        let mut exchange = InMemoryExchange::default();
        let rules = Entry::Engine { epoch: 1, event: EngineEvent::Rules { version: RULES_VERSION } };
        exchange.fold_record(&Record::new("experiment", vec![rules]));
        let policy = preset("medium").expect("it is one of the presets");
        Self { exchange, pinned: pinned(&policy, &[]), panels: 0 }
    }
}

impl FoldedPanels {
    /// Calls these agents to a panel of these rules, gives every ask to `says`, which answers it or not at all, and plays the
    /// panel to its end.
    pub fn ask(
        &mut self,
        initiator: &AgentId,
        (rules, task): (&PanelSpec, &str),
        invited: &[AgentId],
        mut says: impl FnMut(&AgentId, &Ask) -> Option<PanelAnswer>,
    ) -> FoldedPanel {
        self.panels += 1;
        let id =
            NegotiationId::try_new(&format!("{initiator}~panel-{}", self.panels)).expect("a name and a run are an id");
        let invited = invited.iter().map(|agent| self.invitation(initiator, rules, agent)).collect();
        let pinned = Pinned { invited, panel: Some(Box::new(PinnedPanel::default())), ..self.pinned.clone() };
        let cfp = Cfp { task: Some(task.to_owned()), panel: Some(Box::new(rules.clone())), ..Cfp::default() };
        let called = self.exchange.say(initiator, &id, Payload::Cfp(cfp), Some(pinned));
        let mut heard = VecDeque::from(called.expect("integers and texts"));
        let mut answer = None;
        loop {
            let Some(delivery) = heard.pop_front() else {
                // Nobody says anything more before a deadline.
                let is_open = self.exchange.lane_state().open_count() > 0;
                let Some(more) = is_open.then(|| self.exchange.wait()).flatten() else { break };
                heard.extend(more);
                continue;
            };
            if let Notification::Ask(ask) = &*delivery.told
                && let Some(said) = says(&delivery.to, ask)
            {
                let said = self.exchange.say(&delivery.to, &id, Payload::Answer(Box::new(said)), None);
                heard.extend(said.expect("integers and texts"));
            } else if let Notification::Inform(ProgressReport::Finding(found)) = &*delivery.told {
                answer = Some(Arc::clone(&found.answer));
            }
        }
        FoldedPanel { decision: self.exchange.take_found(), answer }
    }

    /// As gateways pin it (docs/spec/panel.md#pn-42).
    fn invitation(&self, initiator: &AgentId, rules: &PanelSpec, agent: &AgentId) -> Invitation {
        let domain = rules.domain_of(&[]);
        let mut shown: BTreeMap<&AgentId, EvidenceCounts> = BTreeMap::new();
        for (subject, counts) in self.exchange.lane_state().evidence().entries() {
            if subject.domain == domain && subject.agent == *agent {
                shown.entry(&subject.initiator).or_default().add(counts);
            }
        }
        let known = rules.choose.as_ref().and_then(|rule| {
            let basis =
                ReputationBasis { from: &rule.from, own: initiator, min_runs: rule.min_runs, prior_runs: PRIOR_RUNS };
            reputation(shown.into_iter(), basis)
        });
        Invitation { agent: agent.clone(), qos: Qos::AtLeastOnce, durable: false, reputation: known }
    }
}
