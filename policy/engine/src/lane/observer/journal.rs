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
use schemas::document::RoutineReport;
use schemas::ids::AttrName;
use schemas::journal::{
    Happened, ISSUE_TEXT_SHOWN_MAX, ISSUE_VALUES_SHOWN_MAX, ISSUES_SHOWN_MAX, RESULT_SHOWN_MAX, Ranked, SAID_SHOWN_MAX,
};
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Conclusion, Floor, Spoken, TeamTask};
use schemas::{Act, AgentId, AwardNo, DeliveryId, DocumentHash, Lot, NegotiationId, RegisterKey};
use serde::Serialize;

use crate::lane::{DeliveryEvent, DeliveryStep};
use crate::metrics::{DeadLetterReason, WriteResult};

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
    Rules(Box<Rules>),
    Proposed(Box<Proposal>),
    Agreed(Box<Proposal>),
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
    /// `settled`: no later fact says what became of it.
    Sent {
        to: AgentId,
        act: Act,
        delivery: DeliveryId,
        settled: bool,
    },
    Acknowledged {
        by: AgentId,
        act: Act,
        delivery: DeliveryId,
        attempts: u32,
    },
    GivenUp {
        to: AgentId,
        act: Act,
        delivery: DeliveryId,
        reason: DeadLetterReason,
        was_sent: bool,
    },
    Committed {
        lot: Lot,
        award_no: AwardNo,
        contractor: AgentId,
    },
    Reported(Box<Report>),
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
    ranked: Vec<(AgentId, u32)>,
    winners: Vec<AgentId>,
    documents: Vec<DocumentHash>,
}

/// What is remembered of the rules of a bargain.
#[derive(Debug, Clone)]
struct Rules {
    parties: Vec<AgentId>,
    issues: Vec<Issue>,
}

/// An offer that stands in a bargain, or that was agreed on.
#[derive(Debug, Clone)]
struct Proposal {
    by: AgentId,
    round: u32,
    step: u32,
    terms: Terms,
}

/// What a contractor reported.
#[derive(Debug, Clone)]
struct Report {
    contractor: AgentId,
    award_no: AwardNo,
    routine: Option<RoutineReport>,
    /// As much of it as a journal holds.
    result: Option<String>,
}

impl Fact {
    /// A report, with as much of its result as a journal holds.
    fn reported(report: &ContractorReport) -> Self {
        let result = report.result.as_deref().map(|result| result.chars().take(RESULT_SHOWN_MAX).collect());
        let (contractor, award_no, routine) = (report.contractor.clone(), report.award_no, report.routine);
        Self::Reported(Box::new(Report { contractor, award_no, routine, result }))
    }

    /// The offer that stands, with as many of its issues as a journal holds.
    fn proposed(turn: &Turn, standing: &Standing) -> Self {
        Self::Proposed(Box::new(Proposal::new(&standing.by, turn.round, turn.step, &standing.terms)))
    }

    /// What was agreed on, with as many of its issues as a journal holds.
    fn agreed(agreement: &Agreement) -> Self {
        let Agreement { by, round, step, terms, .. } = agreement;
        Self::Agreed(Box::new(Proposal::new(by, *round, *step, terms)))
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
        let issues = issues.into_iter().take(ISSUES_SHOWN_MAX).map(shown).collect();
        Self::Rules(Box::new(Rules { parties: bargain.parties.clone(), issues }))
    }

    /// What a fact of the core is here, and of which negotiation; some are nothing.
    fn of(event: &Event) -> Option<(&NegotiationId, Self)> {
        Some(match event {
            Event::Started { negotiation, protocol, phase: _, policy, invited, left_out, at: _ } => {
                let policy = Arc::clone(policy);
                (negotiation, Self::Called { protocol: *protocol, policy, invited: *invited, left_out: *left_out })
            }
            // Whoever is no party must not fill another's journal.
            Event::Disposed { disposition: Disposition::Unauthorized, .. } => return None,
            Event::Disposed { negotiation, from, act, disposition, score, at: _ } => {
                let (from, act, disposition, score) = (from.clone(), *act, *disposition, *score);
                (negotiation, Self::Message { from, act, disposition, score })
            }
            Event::Transition { negotiation, from, to } => (negotiation, Self::Moved { from: *from, to: *to }),
            Event::Closed { negotiation, round, reason, offers, responded, expected, .. } => {
                let (round, reason, offers) = (*round, *reason, *offers);
                let (responded, expected) = (*responded, *expected);
                (negotiation, Self::Closed { round, reason, offers, responded, expected })
            }
            Event::Decided(decision) => (&decision.negotiation, Self::Decided(Box::new(Choice::of(decision)))),
            Event::Committed { negotiation, lot, award_no, contractor, elapsed_us: _ } => {
                (negotiation, Self::Committed { lot: *lot, award_no: *award_no, contractor: contractor.clone() })
            }
            Event::AwardLost { negotiation, lot, award_no, contractor, loss } => {
                let (lot, award_no, contractor, loss) = (*lot, *award_no, contractor.clone(), *loss);
                (negotiation, Self::AwardLost { lot, award_no, contractor, loss })
            }
            Event::Ended { negotiation, outcome, elapsed_us, .. } => {
                (negotiation, Self::Ended { outcome: *outcome, elapsed_us: *elapsed_us })
            }
            Event::Excluded { .. }
            | Event::Asked { .. }
            | Event::TurnTaken { .. }
            | Event::TaskEnded { .. }
            | Event::Found(_)
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => return None,
        })
    }

    /// What became of a delivery.
    fn of_delivery_event(event: &DeliveryEvent) -> Self {
        let DeliveryEvent { id: delivery, act, attempts, .. } = *event;
        let to = event.to.clone();
        match event.step {
            DeliveryStep::Sent => Self::Sent { to, act, delivery, settled: false },
            DeliveryStep::SentOnce => Self::Sent { to, act, delivery, settled: true },
            DeliveryStep::Acknowledged => Self::Acknowledged { by: to, act, delivery, attempts },
            DeliveryStep::GivenUp(reason) => Self::GivenUp { to, act, delivery, reason, was_sent: attempts > 0 },
        }
    }

    /// Whether it may be left out of a long journal in favour of what matters more.
    const fn is_routine(&self) -> bool {
        if let Self::Registered { result, .. } = self {
            return !matches!(result, WriteResult::Different);
        }
        let is_step = matches!(self, Self::Message { .. } | Self::Proposed(_) | Self::Floor(_));
        is_step || matches!(self, Self::Sent { .. } | Self::Acknowledged { .. })
    }

    /// Whether only a negotiation that was open can have led to it.
    const fn is_of_an_open_one(&self) -> bool {
        let is_followed = matches!(self, Self::Message { disposition: Disposition::Ok, .. });
        is_followed
            || matches!(self, Self::Moved { .. } | Self::Closed { .. } | Self::Decided(_) | Self::AwardLost { .. })
    }

    /// Whether it is an offer that counts.
    const fn is_valid_offer(&self) -> bool {
        matches!(self, Self::Message { act: Act::Offer, disposition: Disposition::Ok, .. })
    }

    /// The delivery it says the fate of.
    const fn settles(&self) -> Option<DeliveryId> {
        if let Self::Acknowledged { delivery, .. } | Self::GivenUp { delivery, .. } = self {
            Some(*delivery)
        } else {
            None
        }
    }

    /// By how much it changes the number of deliveries that wait for an acknowledgement.
    const fn waiting(&self) -> i64 {
        let is_sent = matches!(self, Self::Sent { settled: false, .. });
        let is_settled =
            matches!(self, Self::Acknowledged { attempts: 1.., .. } | Self::GivenUp { was_sent: true, .. });
        is_sent as i64 - is_settled as i64
    }

    /// How many facts' worth of memory it takes.
    fn weight(&self) -> usize {
        match self {
            Self::Decided(choice) => 2 + (choice.ranked.len() + choice.winners.len() + choice.documents.len()) / 2,
            Self::Proposed(proposal) | Self::Agreed(proposal) => proposal.weight(),
            Self::Rules(rules) => rules.weight(),
            Self::Reported(report) => report.weight(),
            Self::Floor(floor) => floor_weight(floor),
            Self::Concluded(conclusion) => 1 + (size_of::<Conclusion>() + conclusion.text.len()).div_ceil(64),
            Self::Found(finding) => finding_weight(finding),
            Self::Called { .. }
            | Self::Message { .. }
            | Self::Asked { .. }
            | Self::Moved { .. }
            | Self::Closed { .. }
            | Self::Registered { .. }
            | Self::Sent { .. }
            | Self::Acknowledged { .. }
            | Self::GivenUp { .. }
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
            Self::Proposed(proposal) => {
                let Proposal { by, round, step, terms } = *proposal;
                Happened::Proposed { by, round, step, terms }
            }
            Self::Agreed(proposal) => {
                let Proposal { by, round, step, terms } = *proposal;
                Happened::Agreed { by, round, step, terms }
            }
            Self::Floor(floor) => Happened::Floor(floor),
            Self::Concluded(conclusion) => Happened::Concluded(conclusion),
            Self::Asked { round, kind } => Happened::Asked { round, kind: <&str>::from(kind).to_owned() },
            Self::Found(finding) => Happened::Found(finding),
            Self::Rules(rules) => {
                let Rules { parties, issues } = *rules;
                Happened::Rules { parties, issues }
            }
            Self::Moved { from, to } => Happened::Moved { from: from.as_str().to_owned(), to: to.as_str().to_owned() },
            Self::Closed { round, reason, offers, responded, expected } => {
                Happened::Closed { round, reason: word(&reason), offers, responded, expected }
            }
            Self::Decided(choice) => choice.told(),
            Self::Registered { key, result } => {
                Happened::Registered { key: key.to_string(), result: <&str>::from(result).to_owned() }
            }
            Self::Sent { to, act, delivery, settled } => {
                Happened::Sent { to, act: act.as_str().to_owned(), delivery, settled }
            }
            Self::Acknowledged { by, act, delivery, attempts } => {
                Happened::Acknowledged { by, act: act.as_str().to_owned(), delivery, attempts }
            }
            Self::GivenUp { to, act, delivery, reason, was_sent: _ } => {
                let (act, reason) = (act.as_str().to_owned(), <&str>::from(reason).to_owned());
                Happened::GivenUp { to, act, delivery, reason }
            }
            Self::Committed { lot, award_no, contractor } => Happened::Committed { lot, award_no, contractor },
            Self::Reported(report) => {
                let Report { contractor, award_no, routine, result } = *report;
                Happened::Reported { contractor, award_no, routine, result }
            }
            Self::AwardLost { lot, award_no, contractor, loss } => {
                Happened::AwardLost { lot, award_no, contractor, loss: word(&loss) }
            }
            Self::Ended { outcome, elapsed_us } => Happened::Ended { outcome: outcome.as_str().to_owned(), elapsed_us },
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

impl Rules {
    /// As [`Fact::weight`].
    fn weight(&self) -> usize {
        let bytes = |issue: &Issue| match &issue.values {
            IssueValues::Discrete { values } => {
                size_of_val(values.as_slice()) + values.iter().map(text_len).sum::<usize>()
            }
            IssueValues::Range { .. } => 0,
        };
        let issues = self.issues.iter().map(|issue| size_of::<Issue>() + bytes(issue)).sum::<usize>();
        2 + (size_of_val(self.parties.as_slice()) + issues) / 64
    }
}

impl Proposal {
    fn new(by: &AgentId, round: u32, step: u32, terms: &Terms) -> Self {
        let terms = terms.iter().take(ISSUES_SHOWN_MAX).map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { by: by.clone(), round, step, terms }
    }

    /// As [`Fact::weight`]: a map's node is ten facts' worth, texts come on top.
    fn weight(&self) -> usize {
        let text = |(name, value): (&AttrName, &AttrValue)| name.as_str().len() + text_len(value);
        12 + self.terms.iter().map(text).sum::<usize>() / 64
    }
}

impl Report {
    /// As [`Fact::weight`].
    fn weight(&self) -> usize {
        1 + (size_of::<Self>() + self.result.as_ref().map_or(0, String::len)).div_ceil(64)
    }
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
                .map(|offer| (offer.contractor.clone(), offer.score))
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
        let ranked = self.ranked.into_iter().map(|(contractor, score)| Ranked { contractor, score }).collect();
        Happened::Decided { cause: cause.to_owned(), ranked, winners: self.winners, documents: self.documents }
    }
}

/// A value of a closed set, as it stands on the wire.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
