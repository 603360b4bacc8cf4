//! What happened in a negotiation, fact by fact, for people who look: names are shared, words are spelled only when somebody
//! asks. [`kept`] says what is remembered and for how long.

mod kept;

use std::sync::Arc;

use policy_core::{AskKind, AwardLoss, Cause, Decision, Event, Phase, Protocol};
use schemas::bargain::{Issue, IssueValues};
use schemas::delivery::{
    Agreement, BargainCall, CloseReason, ContractorReport, Disposition, Finding, Outcome, PanelistReport, Standing,
    Turn,
};
use schemas::ids::AttrName;
use schemas::journal::{
    Happened, ISSUE_TEXT_SHOWN_MAX, ISSUE_VALUES_SHOWN_MAX, ISSUES_SHOWN_MAX, RESULT_SHOWN_MAX, Ranked, SAID_SHOWN_MAX,
};
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Conclusion, Floor, Spoken, TeamTask};
use schemas::{Act, AgentId, AwardNo, DeliveryId, DocumentHash, Lot, NegotiationId, RegisterKey};
use serde::Serialize;

use crate::lane::{DeliveryEvent, DeliveryStep};
use crate::metrics::WriteResult;

pub(super) use kept::Journals;

/// Most offers of a decision that are remembered, and most winners.
const RANKED_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone)]
enum Fact {
    Called {
        protocol: Protocol,
        policy: Arc<str>,
        invited: u32,
        left_out: u32,
    },
    Message {
        from: AgentId,
        act: Act,
        disposition: Disposition,
        score: Option<u32>,
    },
    /// As it is told: cut to what a journal holds, with how many facts' worth of memory it takes.
    Told {
        what: Box<Happened>,
        weight: usize,
    },
    /// It leads, at this price.
    Bid {
        by: AgentId,
        bid_no: u32,
        price: i64,
    },
    Floor(Box<Floor>),
    Concluded(Box<Conclusion>),
    Asked {
        round: u32,
        kind: AskKind,
    },
    Found(Box<Finding>),
    Moved {
        from: Phase,
        to: Phase,
    },
    Closed {
        round: u32,
        reason: CloseReason,
        offers: u32,
        responded: u32,
        expected: u32,
    },
    Decided(Box<Choice>),
    Registered {
        key: RegisterKey,
        result: WriteResult,
    },
    /// What became of a delivery. One of which no later fact says more counts as sent once.
    Delivery {
        to: AgentId,
        act: Act,
        id: DeliveryId,
        attempts: u32,
        step: DeliveryStep,
    },
    Committed {
        lot: Lot,
        award_no: AwardNo,
        contractor: AgentId,
    },
    AwardLost {
        lot: Lot,
        award_no: AwardNo,
        contractor: AgentId,
        loss: AwardLoss,
    },
    Ended {
        outcome: Outcome,
        elapsed_us: u64,
    },
}

/// What is remembered of a decision.
#[derive(Debug, Clone)]
struct Choice {
    cause: Cause,
    ranked: Vec<Ranked>,
    winners: Vec<AgentId>,
    documents: Vec<DocumentHash>,
}

impl Fact {
    /// A report, with as much of its result as a journal holds.
    fn reported(report: &ContractorReport) -> Self {
        let result: Option<String> =
            report.result.as_deref().map(|result| result.chars().take(RESULT_SHOWN_MAX).collect());
        let weight = 1 + (size_of::<Happened>() + result.as_ref().map_or(0, String::len)).div_ceil(64);
        let (contractor, award_no, routine) = (report.contractor.clone(), report.award_no, report.routine);
        Self::Told { what: Box::new(Happened::Reported { contractor, award_no, routine, result }), weight }
    }

    /// The offer that stands, with as many of its issues as a journal holds.
    fn proposed(turn: &Turn, standing: &Standing) -> Self {
        let (terms, weight) = shown_terms(&standing.terms);
        let (by, round, step) = (standing.by.clone(), turn.round, turn.step);
        Self::Told { what: Box::new(Happened::Proposed { by, round, step, terms }), weight }
    }

    /// What was agreed on, with as many of its issues as a journal holds.
    fn agreed(agreement: &Agreement) -> Self {
        let (terms, weight) = shown_terms(&agreement.terms);
        let (by, round, step) = (agreement.by.clone(), agreement.round, agreement.step);
        Self::Told { what: Box::new(Happened::Agreed { by, round, step, terms }), weight }
    }

    /// A step of a team, with as much of what was said as a journal holds.
    fn floor(floor: &Floor) -> Self {
        let mut floor = Box::new(floor.clone());
        if let Some(Spoken::Text { text }) = &mut floor.said {
            cut(text);
        }
        floor.tasks.iter_mut().filter_map(|task| task.result.as_mut()).for_each(cut);
        floor.conclusion.iter_mut().for_each(|conclusion| cut(&mut conclusion.text));
        Self::Floor(floor)
    }

    /// What a team concluded, as much of it as a journal holds.
    fn concluded(conclusion: &Conclusion) -> Self {
        let mut conclusion = Box::new(conclusion.clone());
        cut(&mut conclusion.text);
        Self::Concluded(conclusion)
    }

    /// What a panel found, with as much of its answers as a journal holds.
    fn found(finding: &Finding) -> Self {
        let mut finding = Box::new(finding.clone());
        cut_shared(&mut finding.answer);
        finding.key.iter_mut().for_each(cut);
        finding.panelists.iter_mut().filter_map(|seat| seat.answer.as_mut()).for_each(cut_shared);
        Self::Found(finding)
    }

    /// The rules of a bargain, as many of its issues as a journal holds: the same that it holds of terms.
    fn rules(bargain: &BargainCall) -> Self {
        let mut issues: Vec<&Issue> = bargain.rules.issues.iter().collect();
        issues.sort_by(|one, other| one.name.cmp(&other.name));
        let issues: Vec<Issue> = issues.into_iter().take(ISSUES_SHOWN_MAX).map(shown).collect();
        let bytes: usize = issues.iter().map(|issue| size_of::<Issue>() + values_len(&issue.values)).sum();
        let weight = 3 + (size_of_val(bargain.parties.as_slice()) + bytes) / 64;
        Self::Told { what: Box::new(Happened::Rules { parties: bargain.parties.clone(), issues }), weight }
    }

    /// What a fact of the core is here, and of which negotiation; some are nothing.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is no fact of a journal")]
    fn of(event: Event) -> Option<(NegotiationId, Self)> {
        Some(match event {
            Event::Started { negotiation, protocol, policy, invited, left_out, .. } => {
                (negotiation, Self::Called { protocol, policy, invited, left_out })
            }
            // Whoever is no party must not fill another's journal.
            Event::Disposed { disposition: Disposition::Unauthorized, .. } => return None,
            Event::Disposed { negotiation, from, act, disposition, score, .. } => {
                (negotiation, Self::Message { from, act, disposition, score })
            }
            Event::Transition { negotiation, from, to, .. } => (negotiation, Self::Moved { from, to }),
            Event::Closed { negotiation, round, reason, offers, responded, expected, .. } => {
                (negotiation, Self::Closed { round, reason, offers, responded, expected })
            }
            Event::Decided(decision) => (decision.negotiation.clone(), Self::Decided(Box::new(Choice::of(&decision)))),
            Event::Committed { negotiation, lot, award_no, contractor, .. } => {
                (negotiation, Self::Committed { lot, award_no, contractor })
            }
            Event::AwardLost { negotiation, lot, award_no, contractor, loss } => {
                (negotiation, Self::AwardLost { lot, award_no, contractor, loss })
            }
            Event::Ended { negotiation, outcome, elapsed_us, .. } => (negotiation, Self::Ended { outcome, elapsed_us }),
            _ => return None,
        })
    }

    /// What became of a delivery.
    fn of_delivery_event(event: &DeliveryEvent) -> Self {
        let DeliveryEvent { id, act, attempts, step, .. } = *event;
        Self::Delivery { to: event.to.clone(), act, id, attempts, step }
    }

    /// Whether it may be left out of a long journal in favour of what matters more.
    fn is_routine(&self) -> bool {
        if let Self::Registered { result, .. } = self {
            return *result != WriteResult::Different;
        }
        if let Self::Told { what, .. } = self {
            return matches!(**what, Happened::Proposed { .. });
        }
        let is_step = matches!(self, Self::Message { .. } | Self::Floor(_));
        is_step || matches!(self, Self::Delivery { step, .. } if !matches!(step, DeliveryStep::GivenUp(_)))
    }

    /// Whether only a negotiation that was open can have led to it.
    const fn is_of_an_open_one(&self) -> bool {
        let is_followed = matches!(self, Self::Message { disposition: Disposition::Ok, .. });
        is_followed
            || matches!(self, Self::Moved { .. } | Self::Closed { .. } | Self::Decided(_) | Self::AwardLost { .. })
    }

    /// The number of the bid that it is.
    const fn bid_no(&self) -> Option<u32> {
        if let Self::Bid { bid_no, .. } = self { Some(*bid_no) } else { None }
    }

    /// Whether it is an offer that counts.
    const fn is_valid_offer(&self) -> bool {
        matches!(self, Self::Message { act: Act::Offer, disposition: Disposition::Ok, .. })
    }

    /// The delivery it says the fate of.
    const fn settles(&self) -> Option<DeliveryId> {
        if let Self::Delivery { id, step: DeliveryStep::Acknowledged | DeliveryStep::GivenUp(_), .. } = self {
            Some(*id)
        } else {
            None
        }
    }

    /// By how much it changes the number of deliveries that wait for an acknowledgement.
    const fn waiting(&self) -> i64 {
        let Self::Delivery { step, attempts, .. } = self else { return 0 };
        match step {
            DeliveryStep::Sent => 1,
            DeliveryStep::SentOnce => 0,
            DeliveryStep::Acknowledged | DeliveryStep::GivenUp(_) => -((*attempts > 0) as i64),
        }
    }

    /// How many facts' worth of memory it takes.
    fn weight(&self) -> usize {
        match self {
            Self::Decided(choice) => 2 + (choice.ranked.len() + choice.winners.len() + choice.documents.len()) / 2,
            Self::Told { weight, .. } => *weight,
            Self::Floor(floor) => floor_weight(floor),
            Self::Concluded(conclusion) => 1 + (size_of::<Conclusion>() + conclusion.text.len()).div_ceil(64),
            Self::Found(finding) => finding_weight(finding),
            Self::Called { .. }
            | Self::Message { .. }
            | Self::Bid { .. }
            | Self::Asked { .. }
            | Self::Moved { .. }
            | Self::Closed { .. }
            | Self::Registered { .. }
            | Self::Delivery { .. }
            | Self::Committed { .. }
            | Self::AwardLost { .. }
            | Self::Ended { .. } => 1,
        }
    }

    /// As it is told.
    fn told(&self) -> Happened {
        match self.clone() {
            Self::Called { protocol, policy, invited, left_out } => {
                let (protocol, policy) = (protocol.as_str().to_owned(), policy.to_string());
                Happened::Called { protocol, policy, invited, left_out }
            }
            Self::Message { from, act, disposition, score } => {
                let (act, disposition) = (act.as_str().to_owned(), disposition.as_str().to_owned());
                Happened::Message { from, act, disposition, score }
            }
            Self::Told { what, .. } => *what,
            Self::Bid { by, bid_no, price } => Happened::Bid { by, bid_no, price },
            Self::Floor(floor) => Happened::Floor(floor),
            Self::Concluded(conclusion) => Happened::Concluded(conclusion),
            Self::Asked { round, kind } => Happened::Asked { round, kind: <&str>::from(kind).to_owned() },
            Self::Found(finding) => Happened::Found(finding),
            Self::Moved { from, to } => Happened::Moved { from: from.as_str().to_owned(), to: to.as_str().to_owned() },
            Self::Closed { round, reason, offers, responded, expected } => {
                Happened::Closed { round, reason: word(&reason), offers, responded, expected }
            }
            Self::Decided(choice) => choice.told(),
            Self::Registered { key, result } => {
                Happened::Registered { key: key.to_string(), result: <&str>::from(result).to_owned() }
            }
            Self::Delivery { to, act, id, attempts, step } => delivery_told(to, act, id, attempts, step),
            Self::Committed { lot, award_no, contractor } => Happened::Committed { lot, award_no, contractor },
            Self::AwardLost { lot, award_no, contractor, loss } => {
                Happened::AwardLost { lot, award_no, contractor, loss: word(&loss) }
            }
            Self::Ended { outcome, elapsed_us } => Happened::Ended { outcome: outcome.as_str().to_owned(), elapsed_us },
        }
    }
}

/// As [`Fact::told`].
fn delivery_told(to: AgentId, act: Act, delivery: DeliveryId, attempts: u32, step: DeliveryStep) -> Happened {
    let act = act.as_str().to_owned();
    match step {
        DeliveryStep::Sent | DeliveryStep::SentOnce => {
            Happened::Sent { to, act, delivery, settled: step == DeliveryStep::SentOnce }
        }
        DeliveryStep::Acknowledged => Happened::Acknowledged { by: to, act, delivery, attempts },
        DeliveryStep::GivenUp(reason) => {
            Happened::GivenUp { to, act, delivery, reason: <&str>::from(reason).to_owned() }
        }
    }
}

/// As much of a text as a journal holds.
fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(SAID_SHOWN_MAX) {
        text.truncate(end);
        text.shrink_to_fit();
    }
}

/// As [`cut`], of a text that others share.
fn cut_shared(text: &mut Arc<str>) {
    if let Some((end, _)) = text.char_indices().nth(SAID_SHOWN_MAX) {
        *text = text[..end].into();
    }
}

/// As [`Fact::weight`].
fn finding_weight(finding: &Finding) -> usize {
    let of_seat = |seat: &PanelistReport| {
        size_of::<PanelistReport>()
            + size_of_val(seat.importance_e12.as_slice())
            + seat.answer.as_deref().map_or(0, str::len)
    };
    let seats: usize = finding.panelists.iter().map(of_seat).sum();
    let texts = finding.answer.len() + finding.key.as_ref().map_or(0, String::len);
    1 + (size_of::<Finding>() + texts + seats + size_of_val(finding.reviewers.as_slice())).div_ceil(64)
}

/// As [`Fact::weight`].
fn floor_weight(floor: &Floor) -> usize {
    let said = if let Some(Spoken::Text { text }) = &floor.said { text.len() } else { 0 };
    let of_task = |task: &TeamTask| {
        size_of::<TeamTask>() + [&task.title, &task.result].into_iter().flatten().map(String::len).sum::<usize>()
    };
    let tasks: usize = floor.tasks.iter().map(of_task).sum();
    let names = size_of_val(floor.members.as_slice()) + size_of_val(floor.muted.as_slice());
    let conclusion = floor.conclusion.as_ref().map_or(0, |conclusion| conclusion.text.len());
    1 + (size_of::<Floor>() + said + tasks + names + size_of_val(floor.waits.as_slice()) + conclusion).div_ceil(64)
}

/// An issue with its values, where they are not too many.
fn shown(issue: &Issue) -> Issue {
    let mut issue = issue.clone();
    if let IssueValues::Discrete { values } = &mut issue.values
        && (values.len() > ISSUE_VALUES_SHOWN_MAX || values.iter().map(text_len).sum::<usize>() > ISSUE_TEXT_SHOWN_MAX)
    {
        values.clear();
    }
    issue
}

fn text_len(value: &AttrValue) -> usize {
    if let AttrValue::Text(text) = value { text.len() } else { 0 }
}

/// The bytes that values of an issue take beside it.
fn values_len(values: &IssueValues) -> usize {
    match values {
        IssueValues::Discrete { values } => size_of_val(values.as_slice()) + values.iter().map(text_len).sum::<usize>(),
        IssueValues::Range { .. } => 0,
    }
}

/// As many terms as a journal holds, and their weight: a map's node is ten facts' worth, texts come on top.
fn shown_terms(terms: &Terms) -> (Terms, usize) {
    let text = |(name, value): (&AttrName, &AttrValue)| name.as_str().len() + text_len(value);
    let shown: Terms = terms.iter().take(ISSUES_SHOWN_MAX).map(|(name, value)| (name.clone(), value.clone())).collect();
    let weight = 13 + shown.iter().map(text).sum::<usize>() / 64;
    (shown, weight)
}

impl Choice {
    fn of(decision: &Decision) -> Self {
        let winner = |offer_id| decision.offers.iter().find(|offer| offer.offer_id == offer_id);
        let winners = decision.awards.iter().filter_map(|award| winner(award.offer_id));
        let mut documents: Vec<DocumentHash> = decision.awards.iter().filter_map(|award| award.document).collect();
        documents.sort();
        documents.dedup();
        Self {
            cause: decision.cause,
            ranked: decision
                .offers
                .iter()
                .take(RANKED_MAX)
                .map(|offer| Ranked { contractor: offer.contractor.clone(), score: offer.score })
                .collect(),
            winners: winners.take(RANKED_MAX).map(|offer| offer.contractor.clone()).collect(),
            documents,
        }
    }

    fn told(self) -> Happened {
        let cause = match self.cause {
            Cause::Score => "score",
            Cause::Initiator => "initiator",
            Cause::InitiatorSilent => "initiator_silent",
            // How the award before was lost stands in the entry before.
            Cause::ReAward(_) => "re_award",
            Cause::Direct => "direct",
        };
        let Self { ranked, winners, documents, .. } = self;
        Happened::Decided { cause: cause.to_owned(), ranked, winners, documents }
    }
}

/// A value of a closed set, as it stands on the wire.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
