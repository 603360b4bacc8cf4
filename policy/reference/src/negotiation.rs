//! What a lane holds: negotiations of each protocol.

use policy_core::{Deliver, Limits};
use schemas::record::{AdmittedMessage, Message};
use schemas::{AgentId, Payload, Timestamp};

use crate::alternating_offers::opening::NotUnderstood;
use crate::alternating_offers::{Bargain, BargainTimer};
use crate::contract_net::{ContractNet, Timer, opening};
use crate::panel::{Panel, PanelTimer};
use crate::team::{Team, TeamTimer};
use crate::{Moment, Wins};

/// The first rules under which there are bargains.
const BARGAIN_RULES: u32 = 1;
/// The first rules under which there are panels.
const PANEL_RULES: u32 = 1;
/// The first rules under which there are teams.
const TEAM_RULES: u32 = 1;

/// One negotiation, under the protocol its call chose.
#[derive(Debug)]
pub(crate) enum Negotiation {
    ContractNet(Box<ContractNet>),
    Bargain(Box<Bargain>),
    Panel(Box<Panel>),
    Team(Box<Team>),
}

/// A timer of some protocol, in the order in which those that are due together fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AnyTimer {
    Hard,
    Net(Timer),
    Bargain(BargainTimer),
    Panel(PanelTimer),
    Team(TeamTimer),
}

impl Negotiation {
    /// What a call opens, a sub-team within what its task leaves `above` it; or what its initiator is told: nothing, when it is no call at all.
    pub(crate) fn open(
        message: &AdmittedMessage,
        decoded: &Message,
        above: Option<(Timestamp, u32)>,
        moment: Moment,
    ) -> Result<Self, Option<NotUnderstood>> {
        let (Payload::Cfp(cfp), Some(pinned)) = (&decoded.payload, &message.pinned) else { return Err(None) };
        if cfp.panel.is_some() {
            if moment.rules < PANEL_RULES {
                return Err(Some("unsupported_rules".into()));
            }
            let panel = Panel::open(message, decoded, cfp, pinned, moment).map_err(Some)?;
            return Ok(Self::Panel(Box::new(panel)));
        }
        if cfp.team.is_some() {
            if moment.rules < TEAM_RULES {
                return Err(Some("unsupported_rules".into()));
            }
            let team = crate::team::opening::open(message, decoded, cfp, pinned, above, moment).map_err(Some)?;
            return Ok(Self::Team(Box::new(team)));
        }
        if cfp.bargain.is_none() {
            let net = opening::open(message, decoded, moment).map_err(|reason| reason.map(NotUnderstood::from))?;
            return Ok(Self::ContractNet(Box::new(net)));
        }
        if moment.rules < BARGAIN_RULES {
            return Err(Some("unsupported_rules".into()));
        }
        let bargain = Bargain::open(message, decoded, cfp, pinned, moment).map_err(Some)?;
        Ok(Self::Bargain(Box::new(bargain)))
    }

    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::ContractNet(net) => net.outcome.is_some(),
            Self::Bargain(bargain) => bargain.outcome.is_some(),
            Self::Panel(panel) => panel.outcome.is_some(),
            Self::Team(team) => team.outcome.is_some(),
        }
    }

    pub(crate) fn ends_by(&self) -> Timestamp {
        match self {
            Self::ContractNet(net) => net.ends_by,
            Self::Bargain(bargain) => bargain.ends_by,
            Self::Panel(panel) => panel.ends_by,
            Self::Team(team) => team.ends_by,
        }
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        match self {
            Self::ContractNet(net) => net.is_party(agent),
            Self::Bargain(bargain) => bargain.is_party(agent),
            Self::Panel(panel) => panel.is_party(agent),
            Self::Team(team) => team.is_party(agent),
        }
    }

    pub(crate) fn timers(&self) -> Vec<(Timestamp, AnyTimer)> {
        match self {
            Self::ContractNet(net) => {
                let any = |timer| if timer == Timer::Hard { AnyTimer::Hard } else { AnyTimer::Net(timer) };
                net.timers().into_iter().map(|(at, timer)| (at, any(timer))).collect()
            }
            Self::Bargain(bargain) => {
                let is_hard = |timer| timer == BargainTimer::Hard;
                let any = |timer| if is_hard(timer) { AnyTimer::Hard } else { AnyTimer::Bargain(timer) };
                bargain.timers().into_iter().map(|(at, timer)| (at, any(timer))).collect()
            }
            Self::Panel(panel) => {
                let is_hard = |timer| timer == PanelTimer::Hard;
                let any = |timer| if is_hard(timer) { AnyTimer::Hard } else { AnyTimer::Panel(timer) };
                panel.timers().into_iter().map(|(at, timer)| (at, any(timer))).collect()
            }
            Self::Team(team) => {
                let any = |timer| if timer == TeamTimer::Hard { AnyTimer::Hard } else { AnyTimer::Team(timer) };
                team.timers().into_iter().map(|(at, timer)| (at, any(timer))).collect()
            }
        }
    }

    pub(crate) fn fire(&mut self, timer: AnyTimer, moment: Moment, wins: &mut Wins) {
        match (self, timer) {
            (Self::ContractNet(net), AnyTimer::Hard) => net.fire(Timer::Hard, moment, wins),
            (Self::Bargain(bargain), AnyTimer::Hard) => bargain.fire(BargainTimer::Hard, moment),
            (Self::ContractNet(net), AnyTimer::Net(timer)) => net.fire(timer, moment, wins),
            (Self::Bargain(bargain), AnyTimer::Bargain(timer)) => bargain.fire(timer, moment),
            (Self::Panel(panel), AnyTimer::Hard) => panel.fire(PanelTimer::Hard, moment),
            (Self::Panel(panel), AnyTimer::Panel(timer)) => panel.fire(timer, moment),
            (Self::Team(team), AnyTimer::Hard) => team.fire(TeamTimer::Hard, moment),
            (Self::Team(team), AnyTimer::Team(timer)) => team.fire(timer, moment),
            (_, _) => unreachable!("a timer is its own negotiation's"),
        }
    }

    /// Whether the last receipt was also its sender's notice, which goes at once.
    pub(crate) fn answered_at_once(&self) -> bool {
        match self {
            Self::Team(team) => team.answered_at_once,
            Self::ContractNet(_) | Self::Bargain(_) | Self::Panel(_) => false,
        }
    }

    /// One message of a party.
    pub(crate) fn hear(
        &mut self,
        message: &AdmittedMessage,
        decoded: Message,
        moment: Moment,
        wins: &mut Wins,
        limits: &Limits,
    ) {
        let (from, digest) = (&message.from, message.digest);
        match self {
            Self::ContractNet(net) => net.hear(from, digest, decoded, moment, wins, limits),
            Self::Bargain(bargain) => {
                bargain.hear(from, digest, decoded, message.pinned.as_deref(), moment, limits);
            }
            Self::Panel(panel) => panel.hear(from, digest, decoded, moment, limits),
            Self::Team(team) => team.hear(message, decoded, moment, limits),
        }
    }

    /// A delivery was given up. A party of a bargain that cannot be reached runs out of time.
    pub(crate) fn delivery_failed(&mut self, deliver: &Deliver, may_answer: bool, moment: Moment, wins: &mut Wins) {
        match self {
            Self::ContractNet(net) => net.delivery_failed(deliver, may_answer, moment, wins),
            Self::Bargain(_) => {}
            Self::Panel(panel) => panel.delivery_failed(deliver, moment),
            Self::Team(team) => team.delivery_failed(deliver, may_answer, moment),
        }
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        match self {
            Self::ContractNet(net) => net.abort(moment),
            Self::Bargain(bargain) => bargain.abort(moment),
            Self::Panel(panel) => panel.abort(moment),
            Self::Team(team) => team.abort(moment),
        }
    }

    pub(crate) fn facts(&mut self) -> &mut Vec<String> {
        match self {
            Self::ContractNet(net) => &mut net.facts,
            Self::Bargain(bargain) => &mut bargain.facts,
            Self::Panel(panel) => &mut panel.facts,
            Self::Team(team) => &mut team.facts,
        }
    }
}
