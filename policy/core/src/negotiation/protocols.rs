//! The protocols, one arm each: the only file of the fold that names them all. Whatever differs is in the protocol's folder.

use std::sync::Arc;

use schemas::delivery::{Closing, Disposition};
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Timestamp};
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::negotiation::alternating_offers::{Bargain, BargainEnd};
use crate::negotiation::contract_net::english_auction::{self, Auction};
use crate::negotiation::contract_net::{ContractNet, task};
use crate::negotiation::disposition::{Incoming, ProtocolRules};
use crate::negotiation::family::{FamilyOrder, SubTeamGrant, TaskOpening};
use crate::negotiation::panel::{self, Panel, PanelEnd};
use crate::negotiation::team::opening::open_team;
use crate::negotiation::team::{Team, TeamEnd};
use crate::negotiation::tombstone::{PastAward, PastParty, Tombstone};
use crate::negotiation::view::{NegotiationView, Role};
use crate::negotiation::{Header, InputContext, Opening, Refusal};
use crate::policy::PinnedPolicy;
use schemas::protocols::{Phase, Protocol};

pub use crate::negotiation::alternating_offers::BargainView;
pub use crate::negotiation::contract_net::english_auction::{AuctionView, check_policy as check_auction_policy};
pub use crate::negotiation::panel::PanelView;
pub use crate::negotiation::team::TeamView;

/// A timer: when, and what for.
pub(crate) type Timer = (Timestamp, TimerKind);

/// What a timer is for. Timers that are due together fire in this order: the hard bound comes first, because a
/// negotiation that has no time left must not award.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerKind {
    protocol: Option<Protocol>,
    /// Names it in the hash chain; never used again.
    number: u8,
    pub(crate) lot: u32,
}

impl TimerKind {
    /// `T_hard`.
    pub(crate) const HARD: Self = Self { protocol: None, number: 0, lot: 0 };

    pub(crate) const fn of(protocol: Protocol, number: u8) -> Self {
        Self { protocol: Some(protocol), number, lot: 0 }
    }

    pub(crate) const fn of_lot(self, lot: u32) -> Self {
        Self { lot, ..self }
    }

    fn tag(self) -> [u8; 5] {
        let [a, b, c, d] = self.lot.to_be_bytes();
        [self.number, a, b, c, d]
    }
}

/// What is left of an ended negotiation that others of its protocol have, and those of another have not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ProtocolEnd {
    ContractNet(Box<[PastAward]>),
    Bargain(BargainEnd),
    Panel(PanelEnd),
    Team(TeamEnd),
    Auction(Box<[PastAward]>),
}

impl ProtocolEnd {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::ContractNet(_) => Protocol::ContractNet,
            Self::Bargain(_) => Protocol::AlternatingOffers,
            Self::Panel(_) => Protocol::Panel,
            Self::Team(_) => Protocol::Team,
            Self::Auction(_) => Protocol::EnglishAuction,
        }
    }

    pub(crate) fn awards(&self) -> &[PastAward] {
        if let Self::ContractNet(awards) | Self::Auction(awards) = self { awards } else { &[] }
    }

    /// Whether offers were collected, so that one that comes now is late. What any other protocol came to binds by itself.
    pub(crate) fn takes_late_offers(&self) -> bool {
        matches!(self, Self::ContractNet(_) | Self::Auction(_))
    }

    /// Whether a party may see how it ended.
    pub(crate) fn concerns(&self, party: u16) -> bool {
        if let Self::Team(end) = self { end.concerns(party) } else { true }
    }

    /// Index of whoever led it to its end.
    pub(crate) fn lead(&self) -> Option<u16> {
        if let Self::Team(end) = self { end.lead } else { None }
    }

    /// What a party was, other than the initiator.
    pub(crate) fn role(&self, party: u16) -> Role {
        match self {
            Self::ContractNet(_) | Self::Auction(_) => Role::Contractor,
            Self::Bargain(_) => Role::Party,
            Self::Panel(end) => end.role(party),
            Self::Team(_) => Role::Member,
        }
    }

    /// What CLOSED says beside the outcome; nothing where late askers are told no detail.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            Self::ContractNet(_) | Self::Auction(_) => None,
            Self::Bargain(end) => end.detail.as_deref(),
            Self::Panel(end) => end.detail.as_deref(),
            Self::Team(end) => end.detail.as_deref(),
        }
    }

    /// CLOSED as a party was told it before.
    pub(crate) fn complete(&self, party: Option<u16>, closing: Closing) -> Closing {
        match self {
            Self::ContractNet(_) | Self::Auction(_) | Self::Panel(_) => closing,
            Self::Bargain(end) => Closing { agreement: end.agreement.clone(), ..closing },
            Self::Team(end) => end.complete(party, closing),
        }
    }

    /// What a party may see of it.
    pub(crate) fn view(&self, parties: &[PastParty], party: u16) -> Option<ProtocolView> {
        match self {
            Self::ContractNet(_) | Self::Auction(_) => None,
            Self::Bargain(end) => Some(ProtocolView::Bargain(Box::new(end.view(parties)))),
            Self::Panel(end) => Some(ProtocolView::Panel(Box::new(end.view()))),
            Self::Team(end) => end.view(parties, party).map(|view| ProtocolView::Team(Box::new(view))),
        }
    }
}

/// What a participant sees of its protocol; of a contract net nothing more than what all negotiations show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolView {
    /// How a bargain stands; the same for all its parties.
    Bargain(Box<BargainView>),
    /// How a panel stands, or ended.
    Panel(Box<PanelView>),
    /// How a team stands; the same for all its members, and nothing for others.
    Team(Box<TeamView>),
    /// How an auction stands, while it is open.
    Auction(Box<AuctionView>),
}

/// What a snapshot stores of a negotiation: by reference while it is written, owned when it was read. Timers follow from it, and
/// are not stored; policies are named by their digests.
#[derive(Serialize, Deserialize)]
pub(crate) enum StoredEntry<N, B, E, P, T, A> {
    ContractNet(N),
    Bargain(B),
    Ended(E),
    Panel(P),
    Team(T),
    Auction(A),
}

pub(crate) type WrittenEntry<'a> =
    StoredEntry<&'a ContractNet, &'a Bargain, &'a Tombstone, &'a Panel, &'a Team, &'a Auction>;
pub(crate) type ReadEntry = StoredEntry<
    Box<ContractNet<Digest>>,
    Box<Bargain>,
    Box<Tombstone>,
    Box<Panel>,
    Box<Team<Digest>>,
    Box<Auction<Digest>>,
>;

impl ReadEntry {
    /// The entry with the policies it names.
    pub(crate) fn under(
        self,
        policy: impl Fn(Digest) -> Option<Arc<PinnedPolicy>>,
    ) -> Result<TableEntry, &'static str> {
        Ok(TableEntry::Open(match self {
            Self::ContractNet(net) => {
                Negotiation::ContractNet(Box::new(net.under(policy).ok_or("a negotiation has no policy")?))
            }
            Self::Bargain(bargain) => Negotiation::Bargain(bargain),
            Self::Panel(panel) => Negotiation::Panel(panel),
            Self::Team(team) => Negotiation::Team(Box::new(team.under(policy).ok_or("a team has no policy")?)),
            Self::Auction(auction) => {
                Negotiation::Auction(Box::new(auction.under(policy).ok_or("an auction has no policy")?))
            }
            Self::Ended(tombstone) => return Ok(TableEntry::Ended(tombstone)),
        }))
    }
}

/// A negotiation of a lane.
#[derive(Debug)]
pub(crate) enum TableEntry {
    /// An open negotiation.
    Open(Negotiation),
    /// An ended one.
    Ended(Box<Tombstone>),
}

impl TableEntry {
    /// What a snapshot stores of it.
    pub(crate) fn stored(&self) -> WrittenEntry<'_> {
        match self {
            Self::Open(Negotiation::ContractNet(net)) => StoredEntry::ContractNet(net),
            Self::Open(Negotiation::Bargain(bargain)) => StoredEntry::Bargain(bargain),
            Self::Open(Negotiation::Panel(panel)) => StoredEntry::Panel(panel),
            Self::Open(Negotiation::Team(team)) => StoredEntry::Team(team),
            Self::Open(Negotiation::Auction(auction)) => StoredEntry::Auction(auction),
            Self::Ended(tombstone) => StoredEntry::Ended(tombstone),
        }
    }
}

/// Asks the same of a negotiation of whichever protocol.
macro_rules! each {
    ($open:expr, $negotiation:ident => $asked:expr) => {
        match $open {
            Negotiation::ContractNet($negotiation) => $asked,
            Negotiation::Bargain($negotiation) => $asked,
            Negotiation::Panel($negotiation) => $asked,
            Negotiation::Team($negotiation) => $asked,
            Negotiation::Auction($negotiation) => $asked,
        }
    };
}

/// One open negotiation.
#[derive(Debug)]
pub(crate) enum Negotiation {
    ContractNet(Box<ContractNet>),
    Bargain(Box<Bargain>),
    Panel(Box<Panel>),
    Team(Box<Team>),
    Auction(Box<Auction>),
}

impl Negotiation {
    /// Opens what a call calls to.
    pub(crate) fn open(
        opening: Opening<'_>,
        grant: Option<SubTeamGrant>,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<Self, Refusal> {
        let cfp = opening.cfp;
        context.protocol = Protocol::of_call(cfp);
        if let Some(rules) = &cfp.auction {
            return Ok(Self::Auction(Box::new(english_auction::open(opening, rules, context, share)?)));
        }
        Ok(match (&cfp.panel, &cfp.bargain, &cfp.team) {
            (Some(rules), ..) => Self::Panel(Box::new(panel::opening::open(&opening, rules, context, share)?)),
            (None, Some(rules), _) => Self::Bargain(Box::new(opening.open_bargain(rules, context, share)?)),
            (None, None, Some(spec)) => Self::Team(Box::new(open_team(&opening, spec, grant, context, share)?)),
            (None, None, None) => Self::ContractNet(Box::new(opening.open(context, share)?)),
        })
    }

    /// Opens a task of a team. `input` begins its hash chain.
    pub(crate) fn open_task(opening: TaskOpening, input: &[u8], context: &mut InputContext<'_>) -> Self {
        context.protocol = Protocol::ContractNet;
        Self::ContractNet(Box::new(task::open_task(opening, input, context)))
    }

    pub(crate) fn header(&self) -> &Header {
        each!(self, open => open.header())
    }

    fn header_mut(&mut self) -> &mut Header {
        each!(self, open => open.header_mut())
    }

    pub(crate) fn protocol(&self) -> Protocol {
        each!(self, open => open.protocol())
    }

    pub(crate) fn phase(&self) -> Phase {
        each!(self, open => open.phase())
    }

    /// The policies that are shared with others. A bargain has taken from its policies what it needs; a panel has none.
    pub(crate) fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        each!(self, open => open.policies())
    }

    pub(crate) fn next_timer(&self) -> Option<Timer> {
        each!(self, open => open.next_timer())
    }

    /// Whether it is a team that this agent leads.
    pub(crate) fn is_led_by(&self, agent: &AgentId) -> bool {
        matches!(self, Self::Team(team) if team.lead() == Some(agent))
    }

    /// Whether it is a team that this agent has left.
    pub(crate) fn was_left_by(&self, agent: &AgentId) -> bool {
        matches!(self, Self::Team(team) if team.has_left(agent))
    }

    /// What an agent may call a sub-team with, for an award of this task.
    pub(crate) fn grant_sub_team(&self, agent: &AgentId, award_no: AwardNo) -> Result<SubTeamGrant, Refusal> {
        let Self::ContractNet(net) = self else { return Err(Refusal::silent(Disposition::Unauthorized)) };
        task::grant_sub_team(net, agent, award_no)
    }

    /// Does what another of its family orders.
    pub(crate) fn apply_order(&mut self, order: FamilyOrder, context: &mut InputContext<'_>) {
        self.header_mut().link(&order.input(), context);
        self.handle(context, |open, context| match open {
            Self::ContractNet(net) => task::handle_order(net, order.action, context),
            Self::Team(team) => team.handle_order(order.action, context),
            Self::Bargain(_) | Self::Panel(_) | Self::Auction(_) => {
                debug_assert!(false, "an order goes to a team or a task")
            }
        });
    }

    /// False when the sender takes no part.
    pub(crate) fn handle_message(&mut self, incoming: &Incoming, context: &mut InputContext<'_>) -> bool {
        self.handle(context, |open, context| {
            if let Self::ContractNet(net) = open {
                task::admit_lead(net, incoming);
            }
            each!(open, open => open.handle_message(incoming, context))
        })
    }

    pub(crate) fn fire(&mut self, kind: TimerKind, context: &mut InputContext<'_>) {
        self.header_mut().link(&kind.tag(), context);
        self.handle(context, |open, context| match kind {
            TimerKind::HARD => each!(open, open => open.handle_hard_deadline(context)),
            kind => each!(open, open => open.fire(kind, context)),
        });
    }

    pub(crate) fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        self.header_mut().link(b"delivery_failed", context);
        self.handle(context, |open, context| {
            each!(open, open => open.handle_delivery_failure(delivery, to, may_answer, context));
        });
    }

    pub(crate) fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.header_mut().link(format!("abort:{code}").as_bytes(), context);
        self.handle(context, |open, context| each!(open, open => open.handle_abort(code, context)));
    }

    /// Handles an input; the receipts that wait for whoever it tells something leave with that.
    fn handle<R>(
        &mut self,
        context: &mut InputContext<'_>,
        input: impl FnOnce(&mut Self, &mut InputContext<'_>) -> R,
    ) -> R {
        let first_effect = context.out.len();
        context.protocol = self.protocol();
        let result = input(self, context);
        each!(self, open => open.attach_receipts(first_effect, context));
        if let Self::ContractNet(net) = self {
            task::report_progress(net, context);
        }
        result
    }

    pub(crate) fn tombstone(&self, limits: &Limits) -> Tombstone {
        each!(self, open => open.tombstone(limits))
    }

    pub(crate) fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
        each!(self, open => open.view(viewer, now))
    }

    /// After a restart: shares the names of its parties with other negotiations, and the id of its call, which stands in it
    /// twice. The initiator is the first party, and the call its first message.
    pub(crate) fn share_names(&mut self, mut shared: impl FnMut(&AgentId) -> AgentId) {
        let (header, mut parties) = each!(self, open => open.header_and_parties());
        let call = parties.first().and_then(|initiator| initiator.seen.first()).map(|seen| &seen.msg_id);
        if let Some(call) = call.filter(|call| **call == header.call_msg_id) {
            header.call_msg_id = call.clone();
        }
        parties.iter_mut().for_each(|party| party.agent = shared(&party.agent));
    }

    /// What the fold relies on between the fields, and a snapshot might not keep.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        each!(self, open => open.check())
    }
}
