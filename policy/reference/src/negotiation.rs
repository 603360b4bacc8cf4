//! What a lane holds: negotiations of each protocol.

use policy_core::{Deliver, Limits};
use schemas::record::{AdmittedMessage, Message};
use schemas::{AgentId, Payload, Timestamp};

use crate::alternating_offers::{Bargain, BargainTimer};
use crate::contract_net::opening::NotUnderstood;
use crate::contract_net::{ContractNet, Timer, english_auction, opening};
use crate::panel::{Panel, PanelTimer};
use crate::team::{self, Team, TeamTimer};
use crate::{Moment, Wins};

/// The first rules under which there are bargains, panels and teams.
const NEWER_RULES: u32 = 1;

/// Asks the same of a negotiation of whichever protocol.
macro_rules! each {
    ($negotiation:expr, $one:ident => $asked:expr) => {
        match $negotiation {
            Negotiation::ContractNet($one) => $asked,
            Negotiation::Bargain($one) => $asked,
            Negotiation::Panel($one) => $asked,
            Negotiation::Team($one) => $asked,
        }
    };
}

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
    /// Of a contract net while it is an auction.
    Bidding(Timer),
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
        let is_newer = cfp.panel.is_some() || cfp.team.is_some() || cfp.bargain.is_some() || cfp.auction.is_some();
        if is_newer && moment.rules < NEWER_RULES {
            return Err(Some("unsupported_rules".into()));
        }
        if cfp.round.is_some_and(|round| round != 1) {
            return Err(Some("bad_round".into()));
        }
        let opened = if let Some(auction) = &cfp.auction {
            english_auction::open(message, decoded, (cfp, auction), pinned, moment).map(Box::new).map(Self::ContractNet)
        } else if cfp.panel.is_some() {
            Panel::open(message, decoded, cfp, pinned, moment).map(Box::new).map(Self::Panel)
        } else if cfp.team.is_some() {
            team::opening::open(message, decoded, cfp, pinned, above, moment).map(Box::new).map(Self::Team)
        } else if cfp.bargain.is_some() {
            Bargain::open(message, decoded, cfp, pinned, moment).map(Box::new).map(Self::Bargain)
        } else {
            opening::open(message, decoded, cfp, pinned, moment).map(Box::new).map(Self::ContractNet)
        };
        opened.map_err(Some)
    }

    pub(crate) fn has_ended(&self) -> bool {
        each!(self, one => one.outcome.is_some())
    }

    pub(crate) fn ends_by(&self) -> Timestamp {
        each!(self, one => one.ends_by)
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        each!(self, one => one.is_party(agent))
    }

    pub(crate) fn timers(&self) -> Vec<(Timestamp, AnyTimer)> {
        match self {
            _ if self.has_ended() => Vec::new(),
            Self::ContractNet(net) if english_auction::takes_bids(net) => {
                any(net.timers(), Timer::Hard, AnyTimer::Bidding)
            }
            Self::ContractNet(net) => any(net.timers(), Timer::Hard, AnyTimer::Net),
            Self::Bargain(bargain) => any(bargain.timers(), BargainTimer::Hard, AnyTimer::Bargain),
            Self::Panel(panel) => any(panel.timers(), PanelTimer::Hard, AnyTimer::Panel),
            Self::Team(team) => any(team.timers(), TeamTimer::Hard, AnyTimer::Team),
        }
    }

    pub(crate) fn fire(&mut self, timer: AnyTimer, moment: Moment, wins: &mut Wins) {
        match (self, timer) {
            (Self::ContractNet(net), AnyTimer::Hard) => net.fire(Timer::Hard, moment, wins),
            (Self::Bargain(bargain), AnyTimer::Hard) => bargain.fire(BargainTimer::Hard, moment),
            (Self::ContractNet(net), AnyTimer::Net(timer) | AnyTimer::Bidding(timer)) => net.fire(timer, moment, wins),
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
        matches!(self, Self::Team(team) if team.answered_at_once)
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
                bargain.handle_message(from, digest, decoded, message.pinned.as_deref(), moment, limits);
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
        each!(self, one => one.abort(moment));
    }

    pub(crate) fn facts(&mut self) -> &mut Vec<String> {
        each!(self, one => &mut one.facts)
    }
}

/// Timers of one protocol among those of all.
fn any<T: PartialEq>(timers: Vec<(Timestamp, T)>, hard: T, any: fn(T) -> AnyTimer) -> Vec<(Timestamp, AnyTimer)> {
    let any = |timer| if timer == hard { AnyTimer::Hard } else { any(timer) };
    timers.into_iter().map(|(at, timer)| (at, any(timer))).collect()
}
