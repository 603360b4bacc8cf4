//! Panels (docs/spec/panel.md): the members of a panel answer one question in rounds, until more than two thirds agree.
//!
//! ```text
//!   ASKING(round, wave) --all asked--> [RANKING] --> [REVIEWING] --> ASKING(round + 1) ... --> PLURALITY, NO_ANSWER
//!      |  wave complete                    |
//!      +--> CONSENSUS <--------------------+                                         CANCEL: CANCELLED
//! ```
//!
//! What answers, counts, orders and importance are is arithmetic, and everybody's: [`crate::panel`]. Here is who takes part and
//! how it ends; `opening.rs` is how a panel begins, `rules.rs` what is refused, `round.rs` one round and its waves, `reply.rs`
//! what a seat replied, `review.rs` the review of a round, `transitions.rs` what follows from a message or a timer, `asks.rs` what members are shown and see, `finding.rs` the result with its
//! decision record.
//!
//! # Choices
//! * Before a round is over, nothing made from its answers leaves but each sender's own receipt.
//! * A wave is judged when it is complete. In what order its answers came changes nothing.
//! * With as many candidates as a selection keeps, or fewer, nobody is dropped: every seat goes on.
//! * A seat that strikes out takes back the answer it gave in the open round; what it said in closed rounds stands.

mod asks;
mod finding;
pub(crate) mod opening;
mod reply;
mod review;
mod round;
mod rules;
mod transitions;

use std::sync::Arc;

use schemas::delivery::{Notification, Outcome, PanelCalls, ProgressReport, Stopped};
use schemas::evidence::Usage;
use schemas::panel::{PanelSpec, REVIEWERS_MAX, Ranker, SEATS_MAX, SeatChoice, check_panel};
use schemas::record::Qos;
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Lot, Payload, RegisterKey, RegisterValue, Timestamp};
use serde::{Deserialize, Serialize};

use crate::effect::{Deliver, Event};
use crate::limits::Limits;
use crate::negotiation::disposition::{Incoming, ProtocolRules, header_and_phase};
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{ProtocolEnd, Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{Header, InputContext, NegotiationEnd, Party, Refusal, Ruling, place_of};
use crate::panel::decision::{ChoiceRecord, SelectedBy};
use schemas::protocols::{Phase, Protocol};

pub use asks::PanelView;
use finding::Ending;
use review::PanelReview;
use round::{AskedSeat, MemberIndex, PanelRound};
use rules::PanelAction;

/// `answer_by` of a wave.
const ANSWER: TimerKind = TimerKind::of(Protocol::Panel, 32);
/// `rank_by`.
const RANK: TimerKind = TimerKind::of(Protocol::Panel, 33);
/// `review_by`.
const REVIEW: TimerKind = TimerKind::of(Protocol::Panel, 34);
/// What stands where a contract net names its policy.
const POLICY_WORD: &str = "panel";
/// The only award of a panel.
const AWARD: AwardNo = AwardNo(1);
/// Most that take part: the initiator, the seats, a ranker and the reviewers.
const MEMBERS_MAX: usize = 1 + SEATS_MAX + 1 + REVIEWERS_MAX;
const _: () = assert!(MEMBERS_MAX <= MemberIndex::MAX as usize);

/// One open panel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Panel {
    header: Header,
    /// With the domain that was found for it.
    #[serde(with = "schemas::text::json")]
    rules: Box<PanelSpec>,
    rules_digest: Digest,
    task: Option<Arc<str>>,
    /// Where the call stands.
    called_at: schemas::Position,
    /// Under `choose`: among whom the seats were chosen.
    choice: Option<Box<ChoiceRecord>>,
    /// The initiator, then everybody else in the order of their ids.
    members: Vec<PanelMember>,
    /// [`Phase::Asking`], [`Phase::Ranking`], [`Phase::Reviewing`] or [`Phase::Ended`].
    phase: Phase,
    /// The last is the one that runs, or has just closed.
    rounds: Vec<PanelRound>,
    ranking: Option<Ranking>,
    selection: Option<Selected>,
    /// At most one for each round. While [`Phase::Reviewing`] the last is that which goes on.
    reviews: Vec<PanelReview>,
    calls: PanelCalls,
    usage: Usage,
    /// Answers that said what they cost.
    reported_by: u32,
    /// How it ended. Open panels, which snapshots hold, have none.
    ended: Option<PanelEnd>,
}

/// Who takes part.
#[derive(Debug, Serialize, Deserialize)]
struct PanelMember {
    party: Party,
    role: MemberRole,
    qos: Qos,
    /// It may be away for a while: its ask is delivered until the deadline.
    is_durable: bool,
    /// It is told how the panel ends.
    was_asked: bool,
    strikes: u32,
    /// For good.
    has_left: bool,
    /// What its answers cost, as it says.
    usage: Usage,
}

/// As what a member takes part. The initiator may be the ranker, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum MemberRole {
    Initiator,
    Seat,
    Ranker,
    Reviewer,
}

/// The ranker is asked.
#[derive(Debug, Serialize, Deserialize)]
struct Ranking {
    ask: DeliveryId,
    rank_by: Timestamp,
    /// In the order in which the ranker sees them.
    candidates: Vec<MemberIndex>,
}

/// Who goes on after a selection.
#[derive(Debug, Serialize, Deserialize)]
struct Selected {
    after_round: u32,
    by: SelectedBy,
    /// All candidates, the best first.
    ranked: Vec<MemberIndex>,
    /// How many of them go on.
    keep: usize,
}

impl Selected {
    fn kept(&self) -> &[MemberIndex] {
        self.ranked.get(..self.keep).unwrap_or(&self.ranked)
    }
}

impl PanelMember {
    fn new(agent: AgentId, role: MemberRole, qos: Qos, is_durable: bool) -> Self {
        let party = Party::new(agent);
        Self { party, role, qos, is_durable, was_asked: false, strikes: 0, has_left: false, usage: Usage::default() }
    }
}

/// How a panel ended, beside its outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PanelEnd {
    pub(crate) detail: Option<Box<str>>,
    /// Who ranked without having called the panel.
    ranker: Option<u16>,
    reviewers: Box<[u16]>,
}

impl ProtocolRules for Panel {
    type Speaker = MemberIndex;
    type Action = PanelAction;

    const PROTOCOL: Protocol = Protocol::Panel;
    const STRIKE: PanelAction = PanelAction::Strike;

    header_and_phase!();

    fn view(&self, viewer: &AgentId, _: Timestamp) -> Option<NegotiationView> {
        asks::view_of(self, viewer)
    }

    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.end(Outcome::Aborted, Some(code), None, context);
    }

    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        let is_asking = self.phase == Phase::Asking;
        if !(is_asking && self.ends_by_consensus(context)) {
            self.end_by_plurality(Stopped::Timeout, context);
        }
    }

    fn next_timer(&self) -> Option<Timer> {
        let hard = (self.phase != Phase::Ended).then_some((self.header.ends_by, TimerKind::HARD));
        let asking = self.round().answer_by().filter(|_| self.phase == Phase::Asking);
        let asking = asking.map(|at| (at, ANSWER));
        let ranking = self.ranking.as_ref().filter(|_| self.phase == Phase::Ranking);
        let ranking = ranking.map(|ranking| (ranking.rank_by, RANK));
        let reviewing = self.review().map(|review| (review.review_by, REVIEW));
        [hard, asking, ranking, reviewing].into_iter().flatten().min()
    }

    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>) {
        match timer {
            ANSWER => self.round_mut().stop_waiting(),
            RANK => self.select(SelectedBy::Fallback, &[], context),
            REVIEW => self.review_mut().into_iter().for_each(PanelReview::stop_waiting),
            // No timer of it: left alone it would be due for ever.
            _ => return self.handle_abort("unknown_timer", context),
        }
        self.advance(context);
    }

    fn tombstone(&self, limits: &Limits) -> Tombstone {
        let parties: Vec<&Party> = self.members.iter().map(|one| &one.party).collect();
        let end = ProtocolEnd::Panel(self.ended.clone().unwrap_or_default());
        Tombstone::of(&self.header, self.round().number, &parties, end, limits)
    }

    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>) {
        (&mut self.header, self.members.iter_mut().map(|one| &mut one.party).collect())
    }

    fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        let members = &self.members;
        ensure(
            self.header.outcome.is_none() && Protocol::Panel.phases().contains(&self.phase),
            "an open panel has ended",
        )?;
        ensure((2..=MEMBERS_MAX).contains(&members.len()), "a panel has too few members, or too many")?;
        let others = members.get(1..).unwrap_or_default();
        let is_initiator = |one: &PanelMember| one.role == MemberRole::Initiator;
        ensure(
            members.first().is_some_and(is_initiator) && !others.iter().any(is_initiator),
            "a panel has one initiator",
        )?;
        ensure(self.seats().count() <= self.rules.seats_max(), "a panel has too many seats")?;
        ensure(others.is_sorted_by(|one, next| one.party.agent < next.party.agent), "members are not in their order")?;
        members.iter().try_for_each(|one| one.party.check())?;
        ensure(
            self.choice.is_some() == self.rules.choose.is_some(),
            "seats were chosen where the rules do not say so, or the reverse",
        )?;
        check_panel(&self.rules).map_err(|_| "the rules of a panel contradict themselves")?;
        let is_role = |place: MemberIndex, role| members.get(usize::from(place)).is_some_and(|one| one.role == role);
        let (is_seat, is_reviewer) =
            (|place| is_role(place, MemberRole::Seat), |place| is_role(place, MemberRole::Reviewer));
        let rounds = (1..).zip(&self.rounds);
        let in_order = rounds
            .into_iter()
            .all(|(number, round)| round.number == number && round.is_sound(&self.rules.answer, is_seat, is_reviewer));
        ensure(!self.rounds.is_empty() && in_order, "a round asks who has no seat, or is not in its order")?;
        let closed = self.rounds.iter().rev().skip(1).all(|round| round.closed_at.is_some());
        ensure(closed, "a round before the last goes on")?;
        let in_order = self.reviews.is_sorted_by(|one, next| one.round < next.round)
            && self.reviews.iter().all(|review| review.is_sound(is_reviewer, is_seat));
        ensure(in_order, "a review is by nobody who reviews, or is not in its order")?;
        let last_reviewed = self.reviews.last().map(|review| review.round);
        ensure(
            self.phase != Phase::Reviewing || last_reviewed == Some(self.round().number),
            "nobody reviews the answers of the round",
        )?;
        let is_ranking = self.phase == Phase::Ranking;
        ensure(is_ranking == self.ranking.is_some(), "somebody ranks who was not asked")?;
        ensure(!is_ranking || self.ranker().is_some(), "nobody ranks")?;
        let candidates = self.ranking.iter().flat_map(|ranking| &ranking.candidates);
        let ranked = self.selection.iter().flat_map(|selection| &selection.ranked);
        ensure(candidates.chain(ranked).all(|place| is_seat(*place)), "who is no seat is selected")
    }

    fn speaker(&self, agent: &AgentId) -> Option<MemberIndex> {
        MemberIndex::try_from(place_of(&self.members, agent, |one| &one.party)?).ok()
    }

    fn party(&self, speaker: MemberIndex) -> &Party {
        &self.member(speaker).party
    }

    fn party_mut(&mut self, speaker: MemberIndex) -> &mut Party {
        &mut self.members[usize::from(speaker)].party
    }

    fn invited(&self) -> usize {
        self.seats().count()
    }

    /// One that names a round may be of an earlier one, and ends nothing then.
    fn leaves(&self, speaker: MemberIndex, payload: &Payload) -> bool {
        matches!(payload, Payload::Cancel(reasoned) if speaker == 0 && reasoned.round.is_none())
    }

    fn judge(
        &self,
        speaker: MemberIndex,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<PanelAction>, Refusal> {
        self.judge_message(speaker, &incoming.payload, context).map(Ruling::ok)
    }

    fn expected_acts(&self, speaker: MemberIndex) -> ActSet {
        self.legal_acts(speaker)
    }

    fn seat_choice(&self) -> Option<SeatChoice> {
        self.choice.as_ref().map(|choice| choice.seats)
    }

    fn follow(&mut self, speaker: MemberIndex, action: PanelAction, context: &mut InputContext<'_>) {
        match action {
            PanelAction::Nothing => {}
            PanelAction::Strike => self.strike(speaker, context),
            PanelAction::Reply(reply, usage) => self.reply(speaker, reply, usage, context),
            PanelAction::Order(chosen, usage) => self.order(speaker, &chosen, usage, context),
            PanelAction::Review(reply, usage) => self.note_review(speaker, *reply, usage, context),
            PanelAction::Leave => self.leave(speaker, context),
            PanelAction::Cancel => self.end(Outcome::Cancelled, None, None, context),
        }
    }

    /// An ask could not be delivered: nobody waits for its recipient any more.
    fn handle_delivery_failure(&mut self, delivery: DeliveryId, to: &AgentId, _: bool, context: &mut InputContext<'_>) {
        let Some(place) = self.speaker(to) else { return };
        let is_ask = |asked: &AskedSeat| asked.ask == delivery && asked.is_waited;
        let is_rank = self.ranking.as_ref().is_some_and(|ranking| ranking.ask == delivery);
        let reviewer = self.review().and_then(|review| review.asked(place));
        let is_review = reviewer.is_some_and(|asked| asked.ask == delivery && asked.is_waited);
        if is_rank || is_review || self.round().asked(place).is_some_and(is_ask) {
            self.stop_waiting_for(place, context);
        }
    }
}

impl Panel {
    fn member(&self, place: MemberIndex) -> &PanelMember {
        &self.members[usize::from(place)]
    }

    fn agent(&self, place: MemberIndex) -> &AgentId {
        &self.member(place).party.agent
    }

    /// The seats, in the order of their ids.
    fn seats(&self) -> impl Iterator<Item = MemberIndex> {
        (0..).zip(&self.members).filter(|(_, member)| member.role == MemberRole::Seat).map(|(place, _)| place)
    }

    /// The round that runs, or has just closed.
    fn round(&self) -> &PanelRound {
        &self.rounds[self.rounds.len() - 1]
    }

    fn round_mut(&mut self) -> &mut PanelRound {
        let last = self.rounds.len() - 1;
        &mut self.rounds[last]
    }

    /// Who was to rank, if an agent was.
    fn ranker(&self) -> Option<MemberIndex> {
        match &self.rules.select.as_ref()?.ranker {
            Ranker::Agent { agent, .. } => self.speaker(agent),
            Ranker::Support | Ranker::Rating | Ranker::Hash => None,
        }
    }

    /// The reviewers, in the order of the call.
    fn reviewers(&self) -> impl Iterator<Item = MemberIndex> {
        self.rules.review.iter().flat_map(|review| &review.by).filter_map(|agent| self.speaker(agent))
    }

    /// The review that goes on.
    fn review(&self) -> Option<&PanelReview> {
        self.reviews.last().filter(|_| self.phase == Phase::Reviewing)
    }

    fn review_mut(&mut self) -> Option<&mut PanelReview> {
        let is_reviewing = self.phase == Phase::Reviewing;
        self.reviews.last_mut().filter(|_| is_reviewing)
    }

    /// The review of a round's answers, if anybody replied.
    fn review_of(&self, round: u32) -> Option<&PanelReview> {
        self.reviews.iter().find(|review| review.round == round && review.replies().next().is_some())
    }

    /// Whether a selection has dropped a seat.
    fn is_dropped(&self, place: MemberIndex) -> bool {
        self.selection.as_ref().is_some_and(|selection| !selection.kept().contains(&place))
    }

    /// Enters the terminal state with a result, which is registered before anybody is told.
    fn end_with(&mut self, ending: Ending, context: &mut InputContext<'_>) {
        let Ending { finding, decision, evidence } = ending;
        evidence.into_iter().for_each(|(subject, shown)| context.ledger.add(subject, &shown));
        let key = RegisterKey::Award(self.header.id.clone(), Lot(0), AWARD);
        let value = RegisterValue::Finding { chain: self.header.chain, decision: finding.decision };
        context.event(Event::Found(decision));
        context.register(key.clone(), value, None);
        let (outcome, stopped) = (finding.outcome, finding.stopped);
        let told = Notification::Inform(ProgressReport::Finding(Box::new(finding)));
        let delivery = self.header.delivery(context, &self.members[0].party.agent, told);
        context.deliver(Deliver { after: Some(key.clone()), ..delivery });
        self.end(outcome, Some(stopped.as_str()), Some(key), context);
    }

    /// Enters the terminal state.
    fn end(
        &mut self,
        outcome: Outcome,
        detail: Option<&str>,
        before: Option<RegisterKey>,
        context: &mut InputContext<'_>,
    ) {
        debug_assert!(self.header.outcome.is_none(), "a panel has one end");
        self.header.outcome = Some(outcome);
        let of_role = |role: MemberRole| {
            let places = (0_u16..).zip(&self.members);
            places.filter(move |(_, member)| member.role == role).map(|(place, _)| place)
        };
        self.ended = Some(PanelEnd {
            detail: detail.map(Box::from),
            ranker: of_role(MemberRole::Ranker).next(),
            reviewers: of_role(MemberRole::Reviewer).collect(),
        });
        let awards = u32::from(before.is_some());
        let others = self.members.iter().skip(1).filter(|one| one.was_asked).map(|one| &one.party.agent);
        let end = NegotiationEnd { outcome, detail, agreement: None, before };
        self.header.tell_closed(end, &self.members[0].party.agent, others, context);
        let counts = (self.round().number, self.calls.answered, awards);
        self.finish(outcome, Arc::from(POLICY_WORD), counts, context);
    }

    /// Ends without a consensus: the last closed round that has an answer decides, failing that the open one.
    fn end_by_plurality(&mut self, stopped: Stopped, context: &mut InputContext<'_>) {
        self.round_mut().stop_waiting();
        let closed = self.rounds.iter().rposition(|round| round.closed_at.is_some() && round.has_answer());
        let open = Some(self.rounds.len() - 1).filter(|_| self.round().has_answer());
        self.round_mut().closed_at.get_or_insert(context.position);
        let ending =
            closed.or(open).and_then(|round| finding::ending(self, round, Outcome::Plurality, stopped, context));
        match ending {
            Some(ending) => self.end_with(ending, context),
            None => self.end(Outcome::NoAnswer, Some(stopped.as_str()), None, context),
        }
    }
}
