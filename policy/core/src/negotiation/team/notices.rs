//! What members are told of their team, and see of it (docs/spec/team.md#tm-54).

use std::sync::Arc;

use schemas::delivery::{Closing, Disposition, Notification};
use schemas::team::{Conclusion, Floor, Spoken, TeamState, TeamTask};
use schemas::{AgentId, RegisterKey, WireTime};
use serde::{Deserialize, Serialize};

use super::roster::MemberStanding;
use super::{POLICY_WORD, Team, TeamEnd};
use crate::effect::Deliver;
use crate::negotiation::InputContext;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::protocols::ProtocolView;
use crate::negotiation::tombstone::PastParty;
use crate::negotiation::view::{NegotiationView, Role, messages};
use schemas::protocols::Phase;

/// Says that a view shows; the oldest go first.
const RECAP_MAX: usize = 5;

/// What a step changed, beside the floor.
#[derive(Debug, Default)]
pub(super) struct TeamChange {
    /// Whose message it was: told by its receipt.
    pub(super) by: Option<usize>,
    pub(super) said: Option<Spoken>,
    pub(super) tasks: Vec<TeamTask>,
    pub(super) members: bool,
    pub(super) muted: bool,
    /// The entry of the register that the notice waits for, where it is not that of the formation.
    pub(super) after: Option<RegisterKey>,
}

/// Something said, as views show it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SaidBefore {
    step: u32,
    /// Index of the member.
    by: usize,
    text: Box<str>,
}

impl Team {
    /// Counts a step, and tells it to every member but the one whose message caused it (docs/spec/team.md#tm-54).
    pub(super) fn tell(&mut self, change: &TeamChange, context: &mut InputContext<'_>) {
        self.step = self.step.saturating_add(1);
        let told = Arc::new(Notification::Floor(Box::new(self.floor_notice(change))));
        for index in self.roster.seated().filter(|index| change.by != Some(*index)) {
            let delivery = self.header.delivery(context, self.roster.agent(index), Arc::clone(&told));
            let after = change.after.clone().or_else(|| Some(self.formed_key()));
            context.deliver(Deliver { after, ..delivery });
        }
    }

    /// How the team stands.
    fn floor_notice(&self, change: &TeamChange) -> Floor {
        let state = match (self.phase, &self.ballot) {
            (Phase::Awaiting, _) => TeamState::Awaiting,
            (Phase::Paused, _) => TeamState::Paused,
            (Phase::Concluding, _) => TeamState::Concluding,
            (Phase::Voting, _) => TeamState::Voting,
            (_, _) => TeamState::Discussing,
        };
        let has_floor = matches!(state, TeamState::Discussing | TeamState::Concluding);
        let ballot = self.ballot.as_ref().filter(|_| state == TeamState::Voting);
        let act_by = if has_floor { Some(self.act_by) } else { ballot.map(|ballot| ballot.vote_by) };
        Floor {
            step: self.step,
            turn: self.turn,
            turns_left: self.turns_left(),
            state,
            speaker: has_floor.then(|| self.roster.agent(self.holder).clone()),
            act_by: act_by.map(|at| WireTime(at.min(self.header.ends_by))),
            ends_by: WireTime(self.header.ends_by),
            by: change.by.map(|index| self.roster.agent(index).clone()),
            said: change.said.clone(),
            tasks: change.tasks.clone(),
            waits: self.waits(),
            members: if change.members { self.roster.names() } else { Vec::new() },
            muted: if change.muted { self.roster.muted() } else { Vec::new() },
            conclusion: ballot.map(|ballot| ballot.conclusion.proposed(&self.roster)),
        }
    }

    fn turns_left(&self) -> u32 {
        if self.has_wrapped { 0 } else { (self.rules.turns + 1).saturating_sub(self.turn) }
    }

    /// Keeps what was said for views.
    pub(super) fn note_said(&mut self, by: usize, text: Box<str>) {
        if self.recap.len() == RECAP_MAX {
            self.recap.pop_front();
        }
        self.recap.push_back(SaidBefore { step: self.step.saturating_add(1), by, text });
    }
}

/// How a team stands, or ended.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TeamView {
    /// The members in the order of their seats; while it forms, who has joined.
    pub members: Vec<AgentId>,
    /// Members that get the floor no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub muted: Vec<AgentId>,
    /// The floor, as members were told it last; once it has formed, and before it ends.
    pub floor: Option<Floor>,
    /// Its tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TeamTask>,
    /// What was said last, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recap: Vec<SaidView>,
    /// What it concluded.
    pub conclusion: Option<Conclusion>,
    /// Once it has ended: why there is no conclusion.
    pub detail: Option<String>,
}

/// Something a member of a team said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SaidView {
    /// The step.
    pub step: u32,
    /// The member.
    pub by: AgentId,
    /// The words.
    pub text: String,
}

/// The view of an open team; absent when the viewer was not invited. Only members see how it stands.
pub(super) fn view_of(team: &Team, viewer: &AgentId) -> Option<NegotiationView> {
    let index = team.roster.index_of(viewer)?;
    let is_member = team.roster.member(index).is_seated();
    let is_forming = team.phase == Phase::Forming;
    if !is_forming && !is_member {
        return None;
    }
    let joined =
        || team.roster.standing(MemberStanding::Joined).map(|index| team.roster.agent(index).clone()).collect();
    let shown = (is_member || (is_forming && index == 0)).then(|| {
        ProtocolView::Team(Box::new(TeamView {
            members: if is_forming { joined() } else { team.roster.names() },
            muted: team.roster.muted(),
            floor: is_member.then(|| team.floor_notice(&TeamChange::default())),
            tasks: team.tasks.shown(team.recap.iter().map(|said| said.text.len()).sum()),
            recap: team.recap.iter().map(|said| said.shown(team)).collect(),
            conclusion: None,
            detail: None,
        }))
    });
    let role = if index == 0 { Role::Initiator } else { Role::Member };
    let messages = messages(team.party(index), |disposition| disposition == Disposition::Ok);
    Some(NegotiationView {
        reply_by: is_forming.then_some(WireTime(team.join_by)),
        policy: Some(if team.is_ranked { team.policy.policy.id.clone() } else { POLICY_WORD.to_owned() }),
        invited: (index == 0).then(|| u32::try_from(team.roster.invited()).unwrap_or(u32::MAX)),
        protocol: shown,
        ..NegotiationView::plain(&team.header.id, role, (team.phase, 1), team.header.ends_by, messages)
    })
}

impl SaidBefore {
    /// Index of whoever said it.
    pub(super) fn by(&self) -> &usize {
        &self.by
    }

    fn shown(&self, team: &Team) -> SaidView {
        SaidView { step: self.step, by: team.roster.agent(self.by).clone(), text: self.text.to_string() }
    }
}

impl TeamEnd {
    /// Whether a party may see how it ended: of a team that has formed its members, of another everybody invited.
    pub(crate) fn concerns(&self, party: u16) -> bool {
        self.members.is_empty() || self.is_member(party)
    }

    /// Whether a party was a member at the end: nobody else is told what was concluded.
    fn is_member(&self, party: u16) -> bool {
        self.members.binary_search(&party).is_ok()
    }

    pub(crate) fn complete(&self, party: Option<u16>, closing: Closing) -> Closing {
        if !party.is_some_and(|party| self.is_member(party)) {
            return closing;
        }
        Closing { conclusion: self.conclusion.clone(), tasks: self.tasks.clone(), ..closing }
    }

    /// Absent for whoever had no seat.
    pub(crate) fn view(&self, parties: &[PastParty], party: u16) -> Option<TeamView> {
        self.is_member(party).then(|| TeamView {
            members: self
                .members
                .iter()
                .filter_map(|index| parties.get(usize::from(*index)))
                .map(|party| party.agent.clone())
                .collect(),
            muted: Vec::new(),
            floor: None,
            tasks: self.tasks.clone(),
            recap: Vec::new(),
            conclusion: self.conclusion.as_deref().cloned(),
            detail: self.detail.as_deref().map(str::to_owned),
        })
    }
}
