//! Panels of scripted agents that are called: their messages are folded as an engine folds them, the ledger keeps what they show,
//! and a call that chooses its seats pins what the ledger says, as a gateway does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use policy_core::lane::RULES_VERSION;
use policy_core::panel::decision::PanelDecision;
use policy_core::panel::reputation::{PRIOR_RUNS, ReputationBasis, reputation};
use policy_core::{Effect, Event, LaneState, Limits, preset};
use schemas::delivery::{Ask, Notification, ProgressReport, ShownAnswer};
use schemas::digest::canonical;
use schemas::evidence::EvidenceCounts;
use schemas::panel::{ChooseSpec, PanelSpec};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, PinnedPanel, Qos, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::crowd::{Crowd, WRONG, name};
use super::play::SeatView;

/// Between two records, in microseconds.
const STEP_US: u64 = 1_000;
/// Where the log begins.
const START: Timestamp = Timestamp(1_000_000_000);

/// The answers, the right one first.
pub const OPTIONS: [&str; WRONG as usize + 1] = ["A", "B", "C", "D"];

/// The rules of panels of scripted agents: as [`Crowd::play`] plays them with [`StubRanker::Support`](super::play::StubRanker).
#[must_use]
pub fn rules(choose: Option<ChooseSpec>) -> PanelSpec {
    let rules = json!({"domain": "trial", "answer": {"kind": "choice", "options": OPTIONS},
        "select": {"after_round": 2, "keep": 2}});
    PanelSpec { choose, ..serde_json::from_value(rules).expect("they are rules") }
}

/// What a scripted agent answers to an ask. It is not told whose the answers are that it is shown.
#[must_use]
pub fn answered(crowd: &Crowd, panel: u64, agent: &AgentId, ask: &Ask) -> Value {
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
    let mut payload = json!({"round": ask.round, "answer": option});
    if ask.rate.is_some() {
        payload["ratings"] = json!(said.ratings);
    }
    payload
}

/// A lane on which panels are called one after another.
#[derive(Debug)]
pub struct FoldedPanels {
    lane_state: LaneState,
    seq: u64,
    now: Timestamp,
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
        let policy = preset("medium").expect("it is one of the presets");
        let policy_digest = policy.digest().expect("a policy is integers and texts");
        let policy = Arc::new(policy);
        let pinned = Pinned { policy, policy_digest, invited: Vec::new(), left_out: 0, task_policy: None, panel: None };
        let lane_state = LaneState::new(Lane(0), Limits::default());
        let mut panels = Self { lane_state, seq: 0, now: START, pinned, panels: 0 };
        for event in
            [EngineEvent::Claim { engine: "engine-1".to_owned() }, EngineEvent::Rules { version: RULES_VERSION }]
        {
            panels.fold(Entry::Engine { epoch: 1, event });
        }
        panels
    }
}

impl FoldedPanels {
    /// Calls these agents to a panel of these rules, gives every ask to `says`, which answers with a payload or not at all, and
    /// plays the panel to its end.
    pub fn call(
        &mut self,
        initiator: &AgentId,
        rules: &PanelSpec,
        invited: &[AgentId],
        says: impl FnMut(&AgentId, &Ask) -> Option<Value>,
    ) -> FoldedPanel {
        self.ask(initiator, (rules, "Which?"), invited, says)
    }

    /// The same for a question of one's own.
    pub fn ask(
        &mut self,
        initiator: &AgentId,
        (rules, task): (&PanelSpec, &str),
        invited: &[AgentId],
        mut says: impl FnMut(&AgentId, &Ask) -> Option<Value>,
    ) -> FoldedPanel {
        self.panels += 1;
        let id =
            NegotiationId::try_new(&format!("{initiator}~panel-{}", self.panels)).expect("a name and a run are an id");
        let mut call = self.admitted(&id, initiator, Act::Cfp, json!({"panel": rules, "task": task}));
        let invited = invited.iter().map(|agent| self.invitation(initiator, rules, agent)).collect();
        call.pinned =
            Some(Arc::new(Pinned { invited, panel: Some(Box::new(PinnedPanel::default())), ..self.pinned.clone() }));
        let mut effects: VecDeque<Effect> = self.fold(Entry::Message(call)).into();
        let mut panel = FoldedPanel { decision: None, answer: None };
        loop {
            let Some(effect) = effects.pop_front() else {
                // Nobody says anything more before a deadline.
                let Some(deadline) = self.lane_state.poll_deadline().filter(|_| self.lane_state.open_count() > 0)
                else {
                    break;
                };
                self.now = self.now.max(Timestamp(deadline.0.saturating_add(1)));
                effects.extend(self.fold(Entry::Tick));
                continue;
            };
            match effect {
                Effect::Event(Event::Found(decision)) => panel.decision = Some(decision),
                Effect::Deliver(deliver) => {
                    if let Notification::Ask(ask) = &*deliver.told
                        && let Some(payload) = says(&deliver.to, ask)
                    {
                        let said = self.admitted(&id, &deliver.to, Act::Answer, payload);
                        effects.extend(self.fold(Entry::Message(said)));
                    } else if let Notification::Inform(ProgressReport::Finding(found)) = &*deliver.told {
                        panel.answer = Some(Arc::clone(&found.answer));
                    }
                }
                Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => {}
            }
        }
        panel
    }

    /// As gateways pin it (docs/spec/panel.md#pn-42).
    fn invitation(&self, initiator: &AgentId, rules: &PanelSpec, agent: &AgentId) -> Invitation {
        let domain = rules.domain_of(&[]);
        let mut shown: BTreeMap<&AgentId, EvidenceCounts> = BTreeMap::new();
        for (subject, counts) in self.lane_state.evidence().entries() {
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

    fn admitted(&self, id: &NegotiationId, from: &AgentId, act: Act, mut payload: Value) -> AdmittedMessage {
        payload["act"] = json!(act);
        let envelope = json!({"msg_id": format!("m{}", self.seq), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": id});
        let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("integers and texts");
        let digest = Digest::of_bytes(&body);
        let body = RawValue::from_string(String::from_utf8(body).expect("JSON is text")).expect("it is JSON");
        AdmittedMessage {
            from: from.clone(),
            negotiation: id.clone(),
            act,
            digest,
            body: body.into(),
            pinned: None,
            receipts_all: false,
            capabilities: Vec::new(),
        }
    }

    fn fold(&mut self, entry: Entry) -> Vec<Effect> {
        self.seq += 1;
        self.now = Timestamp(self.now.0 + STEP_US);
        self.lane_state.handle_record(self.seq, self.now, &Record::new("experiment", vec![entry]));
        std::iter::from_fn(|| self.lane_state.poll_effect()).collect()
    }
}
