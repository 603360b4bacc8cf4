//! Who is invited to a team, who joined, and who holds a seat (docs/spec/team.md#tm-18).

use schemas::ids::{Capability, Position};
use schemas::payload::Terms;
use schemas::team::MEMBERS_MAX;
use schemas::{AgentId, OfferId};
use serde::{Deserialize, Serialize};

use crate::negotiation::{Party, place_of};

/// The initiator, then the invited in the order of their ids: seats are in that order too.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Roster(Vec<Member>);

/// Where an agent stands to the team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberStanding {
    /// Called, no answer yet.
    Invited,
    /// Its call could not be delivered: nobody waits for it, and a JOIN that still comes is taken.
    Undelivered,
    /// Joined; seats are not given yet.
    Joined,
    /// Will not join.
    Declined,
    /// A member.
    Seated,
    /// The team formed without it.
    Unseated,
    /// Was a member, and left.
    Left,
}

/// One agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) party: Party,
    pub(super) standing: MemberStanding,
    pub(super) offer: Option<JoinOffer>,
    pub(super) capabilities: Vec<Capability>,
    strikes: u32,
    is_muted: bool,
    /// Whether anything was folded of it since it was called: it is there.
    is_heard: bool,
}

/// What a JOIN offered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JoinOffer {
    pub(super) position: Position,
    pub(super) score: u32,
    #[serde(with = "schemas::text::json")]
    pub(super) terms: Terms,
}

impl Member {
    pub(super) fn is_active(&self) -> bool {
        self.standing == MemberStanding::Seated && !self.is_muted
    }

    /// Whether a call that could not be delivered means that nobody is there (docs/spec/team.md#tm-14).
    pub(super) fn is_unheard(&self) -> bool {
        self.standing == MemberStanding::Invited && !self.is_heard
    }

    pub(super) fn hear(&mut self) {
        self.is_heard = true;
    }

    pub(super) fn is_seated(&self) -> bool {
        self.standing == MemberStanding::Seated
    }

    /// The id of its JOIN, under which it is ranked.
    pub(super) fn offer_id(&self) -> Option<OfferId> {
        self.offer.as_ref().map(|offer| OfferId(offer.position))
    }
}

impl Roster {
    /// The initiator and the invited; the initiator has joined by calling.
    pub(super) fn new(agents: impl Iterator<Item = AgentId>, initiators: Vec<Capability>) -> Self {
        let member = |agent| Member {
            party: Party::new(agent),
            standing: MemberStanding::Invited,
            offer: None,
            capabilities: Vec::new(),
            strikes: 0,
            is_muted: false,
            is_heard: false,
        };
        let mut members: Vec<Member> = agents.map(member).collect();
        if let Some(initiator) = members.first_mut() {
            (initiator.standing, initiator.capabilities) = (MemberStanding::Joined, initiators);
        }
        Self(members)
    }

    pub(super) fn member(&self, index: usize) -> &Member {
        &self.0[index]
    }

    pub(super) fn member_mut(&mut self, index: usize) -> &mut Member {
        &mut self.0[index]
    }

    pub(super) fn agent(&self, index: usize) -> &AgentId {
        &self.0[index].party.agent
    }

    pub(super) fn parties(&self) -> impl Iterator<Item = &Party> {
        self.0.iter().map(|member| &member.party)
    }

    pub(super) fn parties_mut(&mut self) -> impl Iterator<Item = &mut Party> {
        self.0.iter_mut().map(|member| &mut member.party)
    }

    /// How many are invited.
    pub(super) fn invited(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// The index of an agent.
    pub(super) fn index_of(&self, agent: &AgentId) -> Option<usize> {
        place_of(&self.0, agent, |member| &member.party)
    }

    /// The index of a member that may hold the floor.
    pub(super) fn active(&self, agent: &AgentId) -> Option<usize> {
        self.index_of(agent).filter(|index| self.0[*index].is_active())
    }

    /// Those that stand as asked, in the order of their seats.
    pub(super) fn standing(&self, standing: MemberStanding) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(move |index| self.0[*index].standing == standing)
    }

    /// The members.
    pub(super) fn seated(&self) -> impl Iterator<Item = usize> {
        self.standing(MemberStanding::Seated)
    }

    /// Those that are still heard of: members, and while the team forms those that have not declined.
    pub(super) fn concerned(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(|index| match self.0[*index].standing {
            MemberStanding::Invited | MemberStanding::Undelivered | MemberStanding::Joined | MemberStanding::Seated => {
                true
            }
            MemberStanding::Declined | MemberStanding::Unseated | MemberStanding::Left => false,
        })
    }

    pub(super) fn has_all_answered(&self) -> bool {
        self.standing(MemberStanding::Invited).next().is_none()
    }

    /// Gives the seats: the initiator and these; the others that joined are returned, those that did not have declined.
    pub(super) fn seat(&mut self, chosen: &[usize]) -> Vec<usize> {
        let mut outscored = Vec::new();
        for (index, member) in self.0.iter_mut().enumerate() {
            let is_chosen = index == 0 || chosen.contains(&index);
            member.standing = match member.standing {
                MemberStanding::Joined if is_chosen => MemberStanding::Seated,
                MemberStanding::Joined => {
                    outscored.push(index);
                    MemberStanding::Unseated
                }
                MemberStanding::Invited | MemberStanding::Undelivered => MemberStanding::Declined,
                other @ (MemberStanding::Declined
                | MemberStanding::Seated
                | MemberStanding::Unseated
                | MemberStanding::Left) => other,
            };
        }
        outscored
    }

    /// The lead: the first seat whose member may still speak.
    pub(super) fn lead(&self) -> Option<usize> {
        self.0.iter().position(Member::is_active)
    }

    /// The next seat behind one whose member may still speak; itself, where there is no other.
    pub(super) fn next_after(&self, index: usize) -> Option<usize> {
        let all = self.0.len();
        (1..=all).map(|offset| (index + offset) % all).find(|next| self.0[*next].is_active())
    }

    /// Whoever is due the floor, or the lead in its place.
    pub(super) fn due(&self, index: usize) -> Option<usize> {
        if self.0.get(index).is_some_and(Member::is_active) { Some(index) } else { self.lead() }
    }

    /// A strike; whether it mutes the member.
    pub(super) fn strike(&mut self, index: usize, strikes_max: u32) -> bool {
        let member = &mut self.0[index];
        member.strikes = member.strikes.saturating_add(1);
        let is_new = !member.is_muted && member.strikes >= strikes_max;
        member.is_muted |= is_new;
        is_new
    }

    /// The names of the members, in the order of their seats.
    pub(super) fn names(&self) -> Vec<AgentId> {
        self.seated().map(|index| self.agent(index).clone()).collect()
    }

    /// The names of the members that get the floor no more.
    pub(super) fn muted(&self) -> Vec<AgentId> {
        self.seated().filter(|index| self.0[*index].is_muted).map(|index| self.agent(index).clone()).collect()
    }

    /// What the fold relies on, and a snapshot might not keep.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Some((initiator, invited)) = self.0.split_first() else { return Err("a team has no initiator") };
        if !invited.is_sorted_by(|one, next| one.party.agent < next.party.agent)
            || invited.iter().any(|member| member.party.agent == initiator.party.agent)
        {
            return Err("the invited of a team are not in their order");
        }
        if self.seated().count() > usize::try_from(MEMBERS_MAX).unwrap_or(usize::MAX) {
            return Err("a team has more members than seats");
        }
        self.0.iter().try_for_each(|member| member.party.check())
    }
}
