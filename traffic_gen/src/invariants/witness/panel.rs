//! What agents saw of one panel: its rules as they were sent, every ask and every answer, the finding, and the end.

use std::collections::{BTreeMap, BTreeSet};

use policy_core::panel::key::{agrees, key};
use schemas::delivery::{
    Ask, Closing, Delivery, Disposition, Finding, Notification, Outcome, PanelistReport, ProgressReport, ShownAnswer,
    Stopped,
};
use schemas::panel::{AnswerKind, PanelAnswer, PanelSelection, PanelSpec, Ranker};
use schemas::{Act, AgentId, MsgId, NegotiationId, Timestamp};
use serde::Deserialize;

use super::{ProtocolWatch, WatchedAgents, When, payload};
use crate::invariants::{Invariant, Verdict};

/// A call, as far as it makes a panel.
#[derive(Deserialize)]
struct SentPanel {
    panel: Option<PanelSpec>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct PanelSeen {
    /// From the initiator's own call: only a negotiation that has them is a panel.
    rules: Option<PanelSpec>,
    /// Whom the call invited, as its receipt counts them.
    seats: Option<u32>,
    /// What was said; of one id several, where it was used for several bodies.
    answers: BTreeMap<(AgentId, MsgId), Vec<PanelAnswer>>,
    /// What the exchange said of messages.
    dispositions: BTreeMap<(AgentId, MsgId), Disposition>,
    /// When messages were judged, where their senders were told so at once.
    judged_at: BTreeMap<(AgentId, MsgId), Timestamp>,
    asks: Vec<(AgentId, Ask)>,
    findings: Vec<(AgentId, Finding)>,
    ends: Vec<(AgentId, Closing)>,
}

/// The importance of a whole layer, in 10^-12.
const WHOLE_E12: u64 = 1_000_000_000_000;

/// What one agent says in one round.
struct RoundAnswer<'a> {
    agent: &'a AgentId,
    answer: &'a PanelAnswer,
}

impl ProtocolWatch for PanelSeen {
    fn is_one(&self) -> bool {
        self.rules.is_some()
    }

    fn sent(&mut self, agent: &AgentId, msg_id: &MsgId, act: Act, document: &[u8]) {
        if act == Act::Cfp
            && let Some(SentPanel { panel }) = payload(document)
        {
            self.rules = panel.or_else(|| self.rules.take());
        }
        if act == Act::Answer
            && let Some(answer) = payload::<PanelAnswer>(document)
        {
            let bodies = self.answers.entry((agent.clone(), msg_id.clone())).or_default();
            if !bodies.contains(&answer) {
                bodies.push(answer);
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not told of panels")]
    fn told(&mut self, agent: &AgentId, delivery: &Delivery) {
        for receipt in delivery.receipts_told() {
            self.seats = receipt.invited.or(self.seats);
            let disposition = receipt.first.unwrap_or(receipt.disposition);
            self.dispositions.entry((agent.clone(), receipt.ack_of.clone())).or_insert(disposition);
        }
        match &delivery.payload {
            Notification::Ask(ask) => self.asks.push((agent.clone(), Ask::clone(ask))),
            Notification::Inform(ProgressReport::Finding(finding)) => {
                self.findings.push((agent.clone(), Finding::clone(finding)));
            }
            Notification::Closed(closing) => self.ends.push((agent.clone(), closing.clone())),
            // A receipt that does not come along with something else says when the message was judged.
            Notification::Ack(receipt) if receipt.first.is_none() => {
                let said = (agent.clone(), receipt.ack_of.clone());
                self.judged_at.entry(said).or_insert(delivery.envelope.ts.0);
            }
            _ => {}
        }
    }

    fn judge(&self, id: &NegotiationId, agents: WatchedAgents<'_>, verdict: &mut Verdict) {
        let WatchedAgents { when, unreached, are_failures_told, is_watched } = agents;
        let Some(rules) = &self.rules else { return };
        let is_reached = !unreached.iter().any(|agent| agent.as_str() == id.initiator());
        self.judge_finding(id, when == When::AtRest && is_reached, verdict);
        // What agents that are not watched said is not known.
        let mut seats = self.findings.iter().flat_map(|(_, finding)| &finding.panelists);
        let mut reviewers = self.findings.iter().flat_map(|(_, finding)| &finding.reviewers);
        if !(seats.all(|seat| is_watched(&seat.agent)) && reviewers.all(|reviewer| is_watched(&reviewer.agent))) {
            return;
        }
        self.judge_asks(id, rules, verdict);
        self.judge_times(id, verdict);
        let is_all_known = when == When::AtRest && unreached.is_empty();
        self.judge_selection(id, rules, is_all_known, verdict);
        for (_, finding) in &self.findings {
            self.judge_quorum(id, rules, finding, verdict);
            judge_importance(id, finding, verdict);
            if is_all_known {
                self.judge_calls(id, finding, are_failures_told, verdict);
            }
        }
    }
}

impl PanelSeen {
    /// One finding at most, told to the initiator alone, and the one that the end says there is.
    fn judge_finding(&self, id: &NegotiationId, is_complete: bool, verdict: &mut Verdict) {
        let is_one = self.findings.windows(2).all(|pair| matches!(pair, [(_, one), (_, other)] if one == other));
        verdict.check(Invariant::OneFinding, is_one, || format!("{id} has several findings: {:?}", self.findings));
        for (agent, _) in &self.findings {
            let is_own = agent.as_str() == id.initiator();
            verdict.check(Invariant::RoundSealed, is_own, || format!("{agent} was told the finding of {id}"));
        }
        for (agent, closing) in &self.ends {
            let is_result = matches!(closing.outcome, Outcome::Consensus | Outcome::Plurality);
            let holds = match self.findings.first() {
                Some((_, finding)) => is_result && finding.outcome == closing.outcome,
                None => !(is_result && is_complete),
            };
            verdict.check(Invariant::OneFinding, holds, || {
                format!("{agent} was told that {id} ended as {:?}, with {:?}", closing.outcome, self.findings.first())
            });
        }
    }

    /// Who is asked is shown answers of the round before, and its own; who ranks or reviews, those of the round.
    fn judge_asks(&self, id: &NegotiationId, rules: &PanelSpec, verdict: &mut Verdict) {
        for (agent, ask) in &self.asks {
            let is_seat = ask.rank.is_none() && !ask.review;
            let shown_round = if is_seat { ask.round.saturating_sub(1) } else { ask.round };
            let others = || self.said_in(shown_round).filter(|said| said.agent != agent);
            let peers = ask.peers.as_deref().unwrap_or_default();
            let are_fresh = peers.iter().all(|peer| others().any(|said| said.is_shown_as(peer)));
            let is_own =
                |own: &ShownAnswer| self.said_in(shown_round).any(|said| said.agent == agent && said.is_shown_as(own));
            let shown = || ask.own.iter().chain(peers);
            let are_reviewed = shown().all(|one| self.are_said_of(one, shown_round));
            verdict.check(Invariant::NoStaleAnswer, are_reviewed, || {
                format!("{agent} was shown in round {} of {id} reviews that nobody gave: {ask:?}", ask.round)
            });
            let is_early = !is_seat && shown().any(|one| !one.reviews.is_empty());
            verdict.check(Invariant::RoundSealed, !is_early, || {
                format!("{agent} was shown others' reviews of the running round {} of {id}: {ask:?}", ask.round)
            });
            verdict.check(Invariant::NoStaleAnswer, are_fresh && ask.own.as_ref().is_none_or(is_own), || {
                format!("{agent} was shown in round {} of {id} what nobody said in {shown_round}: {ask:?}", ask.round)
            });
            let in_running = |peer: &ShownAnswer| {
                let is_said = |said: RoundAnswer<'_>| said.agent != agent && said.is_shown_as(peer);
                self.said_in(ask.round).any(is_said) && !others().any(|said| said.is_shown_as(peer))
            };
            let is_sealed = !(is_seat && peers.iter().any(in_running));
            verdict.check(Invariant::RoundSealed, is_sealed, || {
                format!("{agent} was shown an answer of the running round {} of {id}: {ask:?}", ask.round)
            });
            let seats = self.seats.unwrap_or(u32::MAX) as usize;
            let is_within = (1..=rules.rounds).contains(&ask.round) && peers.len() <= seats;
            verdict.check(Invariant::CallsBounded, is_within, || {
                format!(
                    "{agent} was asked in round {} of {} in {id}, with {} peers",
                    ask.round,
                    rules.rounds,
                    peers.len()
                )
            });
        }
    }

    /// What is taken was said before the answer was due.
    fn judge_times(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for (message @ (agent, msg_id), at) in &self.judged_at {
            let is_taken = self.dispositions.get(message) == Some(&Disposition::Ok);
            let Some([said]) = self.answers.get(message).filter(|_| is_taken).map(Vec::as_slice) else { continue };
            let mut asked = self.asks.iter().filter(|(whom, ask)| whom == agent && ask.round == said.round);
            let Some((_, ask)) = asked.next() else { continue };
            let due = ask.answer_by.0;
            verdict.check(Invariant::NoStaleAnswer, *at <= due, || {
                format!("{agent}'s {msg_id} in {id}, due by {due:?}, was taken at {at:?}")
            });
        }
    }

    /// After a selection as many go on as the rules keep: nobody else is asked any more, shown to anybody, or has a part in the
    /// result; and whom the ranker put first goes on.
    fn judge_selection(&self, id: &NegotiationId, rules: &PanelSpec, is_all_known: bool, verdict: &mut Verdict) {
        let is_selecting = |select: &&PanelSelection| {
            let is_asked = self.asks.iter().any(|(_, ask)| ask.rank.is_some());
            is_asked || (is_all_known && self.has_dropped(rules, select))
        };
        let Some(select) = rules.select.as_ref().filter(is_selecting) else { return };
        let keep = select.keep as usize;
        let is_of_seat = |ask: &Ask| ask.rank.is_none() && !ask.review;
        let after = || self.asks.iter().filter(|(_, ask)| is_of_seat(ask) && ask.round > select.after_round);
        let asked: BTreeSet<&AgentId> = after().map(|(agent, _)| agent).collect();
        verdict.check(Invariant::SelectionFinal, asked.len() <= keep, || {
            format!("{keep} go on in {id} after round {}, and {asked:?} were asked", select.after_round)
        });
        let chosen = self.chosen();
        let reviews = self.asks.iter().filter(|(_, ask)| ask.review && ask.round >= select.after_round);
        for (agent, ask) in after().chain(reviews) {
            let shown: Vec<&ShownAnswer> = ask.own.iter().chain(ask.peers.iter().flatten()).collect();
            let is_next = is_of_seat(ask) && ask.round == select.after_round + 1;
            let is_there =
                |one: &&ShownAnswer| shown.iter().any(|shown| (&shown.answer, &shown.text) == (&one.answer, &one.text));
            let are_there = !is_next || chosen.iter().all(is_there);
            verdict.check(Invariant::SelectionFinal, shown.len() <= keep && are_there, || {
                format!("{agent} was shown in {id}, of whom {keep} go on, {chosen:?} first: {ask:?}")
            });
        }
        for (_, finding) in &self.findings {
            if finding.round <= select.after_round && finding.stopped != Stopped::Selection {
                continue;
            }
            let since = select.after_round.saturating_sub(1) as usize;
            let has_part = |seat: &&PanelistReport| seat.importance_e12.iter().skip(since).any(|share| *share > 0);
            let with_part = finding.panelists.iter().filter(has_part).count();
            verdict.check(Invariant::SelectionFinal, with_part <= keep && finding.of as usize == keep, || {
                format!("{keep} go on in {id} after round {}, and found {finding:?}", select.after_round)
            });
        }
    }

    /// Whether seats are dropped for certain, if the panel goes on after the round: more gave an opinion than are kept. Who strikes
    /// out takes its answer along.
    fn has_dropped(&self, rules: &PanelSpec, select: &PanelSelection) -> bool {
        let strikes = |of: &AgentId| {
            let own = self.dispositions.iter().filter(|((agent, _), _)| agent == of);
            own.filter(|(_, disposition)| **disposition == Disposition::OutOfTurn).count()
        };
        let is_opinion = |said: &PanelAnswer| said.round == select.after_round && matches!(said.answer, Some(Some(_)));
        let has_answered = |(message, bodies): &(&(AgentId, MsgId), &Vec<PanelAnswer>)| {
            self.dispositions.get(*message) == Some(&Disposition::Ok) && bodies.iter().all(is_opinion)
        };
        let certain: BTreeSet<&AgentId> =
            self.answers.iter().filter(has_answered).map(|((agent, _), _)| agent).collect();
        let count = certain.into_iter().filter(|agent| strikes(agent) < rules.max_strikes as usize).count();
        count > select.keep as usize && self.seats.is_some_and(|seats| seats > select.if_more_than)
    }

    /// What a ranking agent put first, as it was shown it; nothing where it is not certain that its order was taken.
    fn chosen(&self) -> Vec<&ShownAnswer> {
        let Some((ranker, ask)) = self.asks.iter().find(|(_, ask)| ask.rank.is_some()) else { return Vec::new() };
        let of_ranker = |((agent, _), bodies): &(&(AgentId, MsgId), &Vec<PanelAnswer>)| {
            agent == ranker && bodies.iter().any(|said| said.order.is_some())
        };
        let is_taken = |message: &(AgentId, MsgId)| self.dispositions.get(message) == Some(&Disposition::Ok);
        let mut orders = self.answers.iter().filter(of_ranker).filter(|(message, _)| is_taken(message));
        let Some([PanelAnswer { order: Some(order), .. }]) = orders.next().map(|(_, bodies)| bodies.as_slice()) else {
            return Vec::new();
        };
        let peers = ask.peers.as_deref().unwrap_or_default();
        order.iter().filter_map(|place| peers.get(place.checked_sub(1)? as usize)).collect()
    }

    /// Whether each text that stands with an answer is what a reviewer said of that answer.
    fn are_said_of(&self, shown: &ShownAnswer, round: u32) -> bool {
        let texts = shown.reviews.iter().flatten();
        texts.into_iter().all(|text| {
            self.said_in(round).any(|said| {
                let Some(reviews) = &said.answer.reviews else { return false };
                let is_its = |(agent, ask): &&(AgentId, Ask)| agent == said.agent && ask.review && ask.round == round;
                let reviewed = self.asks.iter().filter(is_its).filter_map(|(_, ask)| ask.peers.as_ref());
                let is_said = |(peer, review): (&ShownAnswer, &Option<String>)| {
                    (&peer.answer, &peer.text) == (&shown.answer, &shown.text) && review.as_deref() == Some(&**text)
                };
                reviewed.into_iter().any(|peers| peers.iter().zip(reviews).any(is_said))
            })
        })
    }

    /// A consensus is more than two thirds of the members of its round who said the same.
    fn judge_quorum(&self, id: &NegotiationId, rules: &PanelSpec, finding: &Finding, verdict: &mut Verdict) {
        let (agreed, of) = (finding.agreed as usize, finding.of as usize);
        let is_enough = finding.outcome != Outcome::Consensus || 3 * agreed > 2 * of;
        let supporters: BTreeSet<&AgentId> = self
            .said_in(finding.round)
            .filter(|said| said.supports(&rules.answer, &finding.answer))
            .map(|said| said.agent)
            .collect();
        let named = finding.panelists.iter().filter(|seat| seat.agreed);
        let are_theirs = named.clone().all(|seat| supporters.contains(&seat.agent)) && named.count() == agreed;
        let keep = rules.select.as_ref().map(|select| select.keep as usize);
        let is_full = Some(of) == keep || of == finding.panelists.len();
        verdict.check(Invariant::Quorum, is_enough && are_theirs && is_full, || {
            format!("{id} found {finding:?}, supported by {supporters:?}")
        });
    }

    /// As many asks as the rules allow at most, and as many as the exchange says. An ask that nobody answered may have expired
    /// before its agent had it, where nobody tells of such.
    fn judge_calls(&self, id: &NegotiationId, finding: &Finding, are_failures_told: bool, verdict: &mut Verdict) {
        let Some(rules) = &self.rules else { return };
        let count = |is_kind: fn(&Ask) -> bool| self.asks.iter().filter(|(_, ask)| is_kind(ask)).count() as u64;
        let ranks = count(|ask| ask.rank.is_some());
        let reviews = count(|ask| ask.review);
        let answers = self.asks.len() as u64 - ranks - reviews;
        let (calls, seats) = (&finding.calls, finding.panelists.len() as u64);
        let told = [calls.answers, calls.ranks, calls.reviews].map(u64::from);
        let expired = told.iter().sum::<u64>().saturating_sub(self.asks.len() as u64);
        let unanswered = told.iter().sum::<u64>().saturating_sub(u64::from(calls.answered));
        let is_told = told.iter().zip([answers, ranks, reviews]).all(|(told, seen)| seen <= *told)
            && (expired == 0 || (!are_failures_told && expired <= unanswered));
        let has_ranker = matches!(&rules.select, Some(select) if matches!(select.ranker, Ranker::Agent { .. }));
        let reviewers = rules.review.as_ref().map_or(0, |review| review.by.len()) as u64;
        let rounds = u64::from(rules.rounds);
        let is_bounded =
            answers <= rounds * seats && ranks <= u64::from(has_ranker) && reviews <= (rounds - 1) * reviewers;
        verdict.check(Invariant::CallsBounded, is_told && is_bounded, || {
            format!("{id} asked {answers} answers, {ranks} orders and {reviews} reviews, and says {calls:?}")
        });
    }

    /// What was said in a round, and was not refused.
    fn said_in(&self, round: u32) -> impl Iterator<Item = RoundAnswer<'_>> {
        let taken = |message: &(AgentId, MsgId)| {
            self.dispositions.get(message).is_none_or(|disposition| *disposition == Disposition::Ok)
        };
        let taken = self.answers.iter().filter(move |(message, _)| taken(message));
        taken
            .flat_map(|((agent, _), bodies)| bodies.iter().map(move |answer| RoundAnswer { agent, answer }))
            .filter(move |said| said.answer.round == round)
    }
}

/// The seats' importance sums to 1 in every round up to the deciding one, the reviewers' to the number of reviews at most
/// between these. Each is rounded by itself.
fn judge_importance(id: &NegotiationId, finding: &Finding, verdict: &mut Verdict) {
    let (seats, reviewers) = (&finding.panelists, &finding.reviewers);
    let is_whole = |sum: u64, of: u64, count: usize| sum.abs_diff(of * WHOLE_E12) <= count as u64;
    let rounds = u64::from(finding.round);
    let of_round = |round: usize| seats.iter().filter_map(|seat| seat.importance_e12.get(round)).sum::<u64>();
    let are_whole = (0..finding.round as usize).all(|round| is_whole(of_round(round), 1, seats.len()));
    let total = seats.iter().map(|seat| seat.total_e12).sum();
    let reviewed = reviewers.iter().map(|reviewer| reviewer.total_e12).sum();
    let is_reviewed = reviewers.is_empty() || (0..rounds).any(|reviews| is_whole(reviewed, reviews, reviewers.len()));
    verdict.check(
        Invariant::ImportanceConserved,
        are_whole && is_whole(total, rounds, seats.len()) && is_reviewed,
        || format!("the importance of {id} does not sum to its layers: {finding:?}"),
    );
}

impl RoundAnswer<'_> {
    fn is_shown_as(&self, shown: &ShownAnswer) -> bool {
        let answer = self.answer.answer.as_ref().map(Option::as_deref);
        answer == Some(shown.answer.as_deref()) && self.answer.text.as_deref() == shown.text.as_deref()
    }

    fn supports(&self, kind: &AnswerKind, result: &str) -> bool {
        let Some(Some(answer)) = &self.answer.answer else { return false };
        // Texts that are alike by BLEU need not all be like the one that is told.
        if matches!(kind, AnswerKind::Bleu { .. }) {
            return true;
        }
        match (key(kind, answer), key(kind, result)) {
            (Ok(own), Ok(result)) => agrees(kind, &own, &result),
            (_, _) => false,
        }
    }
}

#[cfg(test)]
mod tests;
