//! What agents saw, collected and judged without knowing anything else.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Delivery, Disposition, Notification, Outcome, ProgressReport, Receipt};
use schemas::ids::FamilyPlace;
use schemas::{Act, AgentId, AwardNo, DeliveryId, Digest, Lot, MsgId, NegotiationId, OfferId};
use serde::de::DeserializeOwned;

use super::{Invariant, Verdict};

mod bargain;
mod documents;
mod english_auction;
mod panel;
mod task;
mod team;
#[cfg(test)]
mod tests;

pub use bargain::{IsInside, judge_mandates_by};

use bargain::BargainSeen;
use documents::DocumentsSeen;
use english_auction::AuctionSeen;
use panel::PanelSeen;
use task::TaskSeen;
use team::{SubTeamFound, TaskFound, TeamSeen};

#[derive(Debug, Clone, Default)]
struct OfferSeen {
    contractor: Option<AgentId>,
    rejects: BTreeSet<DeliveryId>,
}

#[derive(Debug, Clone)]
struct AwardSeen {
    contractor: AgentId,
    offer: OfferId,
    lot: Lot,
}

#[derive(Debug, Clone, Default)]
struct NegotiationSeen {
    admitted: BTreeSet<(AgentId, MsgId)>,
    disposed: BTreeSet<(AgentId, MsgId)>,
    /// Messages whose sender is to be told whatever becomes of them, because its registration asks.
    asked: BTreeSet<(AgentId, MsgId)>,
    /// Whether a message asks for its receipt itself. Of two documents under one id only one was admitted, so both have to.
    asks: BTreeMap<(AgentId, MsgId), bool>,
    /// Who was told how it ended when it did, and with that whatever was to be told until then.
    informed: BTreeSet<AgentId>,
    offers: BTreeMap<OfferId, OfferSeen>,
    awards: BTreeMap<AwardNo, AwardSeen>,
    /// Of awards whose ACCEPT may still be under way: what is said later may arrive earlier.
    committed: BTreeSet<AwardNo>,
    cancelled: BTreeSet<AwardNo>,
    /// Who the latest award went to, as its initiator was told.
    awarded_last: Option<(AwardNo, AgentId)>,
    called: bool,
    told_closed: BTreeMap<AgentId, Outcome>,
    outcomes: BTreeSet<Outcome>,
    senders: BTreeSet<AgentId>,
    failed: BTreeSet<AgentId>,
    unreached: BTreeSet<AgentId>,
    bargain: BargainSeen,
    documents: DocumentsSeen,
    auction: AuctionSeen,
    team: TeamSeen,
    task: TaskSeen,
    panel: PanelSeen,
}

/// When agents' observations are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// In the middle of things: much may still be under way.
    Early,
    /// When traffic has stopped and every outbox is empty.
    AtRest,
}

/// Watches what only negotiations of one protocol have.
trait ProtocolWatch {
    /// Whether the negotiation is of this protocol.
    fn is_one(&self) -> bool;
    /// A message was sent, for the first time or again.
    fn sent(&mut self, agent: &AgentId, msg_id: &MsgId, act: Act, document: &[u8]);
    /// A delivery was received for the first time.
    fn told(&mut self, agent: &AgentId, delivery: &Delivery);
    /// Judges what must hold at any time, and what must at rest.
    fn judge(&self, id: &NegotiationId, agents: WatchedAgents<'_>, verdict: &mut Verdict);
}

/// What is known of agents beside what they saw.
#[derive(Clone, Copy)]
struct WatchedAgents<'a> {
    when: When,
    /// To whom a delivery was given up.
    unreached: &'a BTreeSet<AgentId>,
    /// Whether every delivery that was given up is among these.
    are_failures_told: bool,
    /// Whether an agent's messages are seen.
    is_watched: &'a dyn Fn(&AgentId) -> bool,
}

/// Collects what agents saw and judges it at the end.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    negotiations: BTreeMap<NegotiationId, NegotiationSeen>,
    contents: BTreeMap<DeliveryId, Digest>,
    /// Whose messages are seen, where there are agents whose messages are not.
    watched: Option<BTreeSet<AgentId>>,
    /// See [`Self::told_of_failures`].
    are_failures_told: bool,
    verdict: Verdict,
}

impl Witness {
    /// A witness that sees only these agents, among others.
    pub fn among_others(self, watched: BTreeSet<AgentId>) -> Self {
        Self { watched: Some(watched), ..self }
    }

    /// Whoever feeds it tells of every delivery that was given up ([`Self::unreached`]): what is missing all the same is a fault.
    pub fn told_of_failures(self) -> Self {
        Self { are_failures_told: true, ..self }
    }

    /// An agent was told by a gateway that its message is in the log (202).
    pub fn accepted(&mut self, agent: &AgentId, msg_id: &MsgId, negotiation: &NegotiationId) {
        let seen = self.negotiations.entry(negotiation.clone()).or_default();
        seen.admitted.insert((agent.clone(), msg_id.clone()));
    }

    /// The sender of a message asks for its receipt at once, whatever it says: its registration does.
    pub fn asked(&mut self, agent: &AgentId, msg_id: &MsgId, negotiation: &NegotiationId) {
        let seen = self.negotiations.entry(negotiation.clone()).or_default();
        seen.asked.insert((agent.clone(), msg_id.clone()));
    }

    /// An agent sent a message, for the first time or again; the document is what it sent.
    pub fn sent(&mut self, agent: &AgentId, negotiation: &NegotiationId, act: Act, document: &[u8]) {
        let seen = self.negotiations.entry(negotiation.clone()).or_default();
        seen.senders.insert(agent.clone());
        if let Some((msg_id, asks)) = asks_itself(document) {
            if act == Act::Offer {
                seen.documents.sent_offer(agent, &msg_id, document);
            }
            seen.watches_mut().into_iter().for_each(|watch| watch.sent(agent, &msg_id, act, document));
            seen.asks.entry((agent.clone(), msg_id)).and_modify(|all| *all &= asks).or_insert(asks);
        }
        seen.auction.sent(act, document);
        if act == Act::Failure {
            seen.failed.insert(agent.clone());
        } else if act == Act::Inform {
            seen.task.sent(agent, document);
        }
    }

    /// An agent received a delivery, for the first time or again.
    pub fn received(&mut self, agent: &AgentId, delivery: &Delivery) {
        let id = delivery.envelope.msg_id;
        let content = Digest::of_bytes(&delivery.encode().unwrap_or_default());
        let first = self.contents.insert(id, content);
        self.verdict.check(Invariant::Idempotent, first.is_none_or(|first| first == content), || {
            format!("delivery {id} to {agent} changed its content")
        });
        if first.is_some() {
            return;
        }
        // Of a task its team's members speak, who said so there.
        let above = delivery.envelope.negotiation.parent().and_then(|above| self.negotiations.get(&above));
        let members: BTreeSet<AgentId> = above.map(|above| above.senders.clone()).unwrap_or_default();
        let seen = self.negotiations.entry(delivery.envelope.negotiation.clone()).or_default();
        if let Some(sender) = delivery.envelope.from.strip_prefix("agent://") {
            let watched = self.watched.as_ref();
            let is_known = |sender: &AgentId| {
                seen.senders.contains(sender)
                    || members.contains(sender)
                    || watched.is_some_and(|watched| !watched.contains(sender))
            };
            let known = AgentId::try_new(sender).is_ok_and(|sender| is_known(&sender));
            self.verdict.check(Invariant::Authentic, known, || {
                format!("{id} says it is from {sender}, who sent nothing in {}", delivery.envelope.negotiation)
            });
        }
        seen.told(agent, delivery, &mut self.verdict);
    }

    /// A delivery to an agent was given up (the log says so): what it was not told in this negotiation proves nothing.
    pub fn unreached(&mut self, agent: &AgentId, negotiation: &NegotiationId) {
        self.negotiations.entry(negotiation.clone()).or_default().unreached.insert(agent.clone());
    }

    /// Judges everything seen. Call it when traffic has stopped and every outbox has had time to drain.
    pub fn finish(self) -> Verdict {
        self.judge(When::AtRest)
    }

    /// Judges only what must hold at any time, with messages still under way.
    pub fn finish_early(self) -> Verdict {
        self.judge(When::Early)
    }

    fn judge(mut self, when: When) -> Verdict {
        for (id, seen) in &self.negotiations {
            let is_watched = |agent: &AgentId| self.watched.as_ref().is_none_or(|watched| watched.contains(agent));
            let (unreached, are_failures_told) = (&seen.unreached, self.are_failures_told);
            let agents = WatchedAgents { when, unreached, are_failures_told, is_watched: &is_watched };
            seen.judge(id, agents, &mut self.verdict);
            let find = |number| task_found(&self.negotiations, id, number);
            seen.team.judge_tasks(id, when, find, &mut self.verdict);
        }
        self.verdict
    }
}

impl NegotiationSeen {
    /// Who watches what only negotiations of one protocol have.
    fn watches(&self) -> [&dyn ProtocolWatch; 3] {
        [&self.bargain, &self.team, &self.panel]
    }

    fn watches_mut(&mut self) -> [&mut dyn ProtocolWatch; 3] {
        [&mut self.bargain, &mut self.team, &mut self.panel]
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is watched by protocol")]
    fn told(&mut self, agent: &AgentId, delivery: &Delivery, verdict: &mut Verdict) {
        let negotiation = &delivery.envelope.negotiation;
        delivery.receipts_told().for_each(|receipt| self.told_receipt(agent, receipt));
        self.task.told(agent, delivery);
        self.auction.told(agent, delivery);
        self.watches_mut().into_iter().for_each(|watch| watch.told(agent, delivery));
        match &delivery.payload {
            Notification::Accept(award) if !self.bargain.is_one() => {
                let known = self.awards.get(&award.award_no);
                verdict.check(Invariant::OneAward, known.is_none_or(|known| known.contractor == *agent), || {
                    format!("award {} of {negotiation} was given to two contractors", award.award_no)
                });
                self.awards.entry(award.award_no).or_insert_with(|| AwardSeen {
                    contractor: agent.clone(),
                    offer: award.offer_id,
                    lot: award.lot,
                });
                self.documents.told_award(award.award_no, award.offer_id, award.document);
            }
            Notification::Reject(rejection) => {
                if let Some(offer) = rejection.offer_id {
                    self.offers.entry(offer).or_default().rejects.insert(delivery.envelope.msg_id);
                }
            }
            Notification::Cancel(cancellation) => {
                self.cancelled.insert(cancellation.award_no);
            }
            Notification::Closed(closing) => {
                // An ended negotiation answers CLOSED once more to whoever asks, and nothing comes along with that.
                let is_initiator =
                    negotiation.place() == FamilyPlace::Root && negotiation.initiator() == agent.as_str();
                if delivery.envelope.in_reply_to.is_none() || is_initiator {
                    self.informed.insert(agent.clone());
                }
                self.told_closed.insert(agent.clone(), closing.outcome);
                self.outcomes.insert(closing.outcome);
            }
            // Under a policy without confirmation nothing else says that an award binds.
            Notification::Inform(ProgressReport::Committed(news)) => {
                self.committed.insert(news.award_no);
            }
            Notification::Inform(ProgressReport::Offers(_) | ProgressReport::Awarded(_)) => {
                // Who assigned a task does not show in its id.
                let initiator = negotiation.place() != FamilyPlace::Root || negotiation.initiator() == agent.as_str();
                verdict.check(Invariant::Sealed, initiator, || format!("{agent} was told offers of {negotiation}"));
                if let Notification::Inform(ProgressReport::Awarded(news)) = &delivery.payload
                    && self.awarded_last.as_ref().is_none_or(|(no, _)| *no < news.award_no)
                {
                    self.awarded_last = Some((news.award_no, news.contractor.clone()));
                }
                if let Notification::Inform(ProgressReport::Awarded(news)) = &delivery.payload {
                    self.documents.told_award(news.award_no, news.offer_id, news.document);
                }
            }
            Notification::Inform(
                ProgressReport::Done(report) | ProgressReport::Result(report) | ProgressReport::Cancelled(report),
            ) => self.documents.told_report(report),
            Notification::Cfp(call) => {
                self.documents.told_call(call.documents.as_ref().map_or(&[], |documents| &documents.hashes));
            }
            _ => {}
        }
    }

    fn told_receipt(&mut self, agent: &AgentId, receipt: &Receipt) {
        self.task.told_receipt(agent, receipt);
        // It may well arrive before the gateway's 202.
        self.disposed.insert((agent.clone(), receipt.ack_of.clone()));
        if receipt.invited.is_some() {
            self.called = true;
        }
        if let (Disposition::Ok, Some(offer)) = (receipt.disposition, receipt.offer_id) {
            self.offers.entry(offer).or_default().contractor = Some(agent.clone());
            self.documents.told_offer_id(offer, agent, &receipt.ack_of);
        }
        if receipt.disposition == Disposition::Committed {
            self.committed.extend(receipt.award_no);
        }
    }

    fn judge(&self, id: &NegotiationId, agents: WatchedAgents<'_>, verdict: &mut Verdict) {
        let WatchedAgents { when, is_watched, .. } = agents;
        if when == When::AtRest {
            self.judge_admissions(id, verdict);
        }
        if let FamilyPlace::Task(_) = id.place() {
            return self.judge_task(id, when, verdict);
        }
        if !self.called {
            return;
        }
        // Whose call a sub-team is does not show in its id.
        let caller = self.team.lead().map_or(id.initiator(), AgentId::as_str);
        // Who has left a team hears no more of it, and who stayed may not have been reached.
        let has_left = self.team.has_left(caller);
        let is_reached = !self.unreached.iter().any(|agent| has_left || agent.as_str() == caller);
        if when == When::AtRest && is_reached {
            let is_to_hear = |agent: &AgentId| has_left || agent.as_str() == caller;
            // An agent that is not of the run may have left with its work undone: the end waits for its deadline.
            let ends_by_itself = self.awarded_last.as_ref().is_none_or(|(_, contractor)| is_watched(contractor));
            let ended = !ends_by_itself || self.told_closed.keys().any(is_to_hear);
            verdict.check(Invariant::Terminates, ended, || format!("{id} did not end"));
        }
        verdict.check(Invariant::Absorbing, self.outcomes.len() <= 1, || format!("{id} ended as {:?}", self.outcomes));
        if let Some(watch) = self.watches().into_iter().find(|watch| watch.is_one()) {
            return watch.judge(id, agents, verdict);
        }
        self.judge_offers(id, when, verdict);
        self.documents.judge(id, verdict);
        self.auction.judge_bids(id, verdict);
        if when == When::AtRest && self.unreached.is_empty() {
            self.auction.judge_awards(id, verdict);
        }
        if when == When::AtRest {
            self.judge_awards(id, verdict);
        }
    }

    /// A task of a team: nobody calls for it by a message, and who is its initiator only its team knows.
    fn judge_task(&self, id: &NegotiationId, when: When, verdict: &mut Verdict) {
        verdict.check(Invariant::Absorbing, self.outcomes.len() <= 1, || format!("{id} ended as {:?}", self.outcomes));
        let is_begun = self.committed.iter().any(|award_no| self.awards.contains_key(award_no));
        if when == When::AtRest && is_begun && self.unreached.is_empty() {
            let is_over = !self.told_closed.is_empty() || self.committed.iter().all(|no| self.cancelled.contains(no));
            verdict.check(Invariant::Terminates, is_over, || format!("{id} did not end"));
        }
    }

    fn judge_admissions(&self, id: &NegotiationId, verdict: &mut Verdict) {
        // Who did not ask may not be told of a bare `ok`, unless it was told later how the negotiation ended. A call is
        // always answered, and so is whatever is said where none was followed. A task that was awarded has none.
        // Its ACCEPT may be given up, and its initiator told of the award all the same.
        let is_awarded = !self.awards.is_empty() || self.awarded_last.is_some();
        let is_awarded_task = matches!(id.place(), FamilyPlace::Task(_)) && is_awarded;
        let is_begun = self.called || is_awarded_task;
        let is_call = |sender: &AgentId| !is_begun && sender.as_str() == id.initiator();
        let is_owed = |message: &&(AgentId, MsgId)| {
            let asks = self.asked.contains(message) || self.asks.get(*message).is_some_and(|asks| *asks);
            asks || self.informed.contains(&message.0) || is_call(&message.0)
        };
        let reached = self.admitted.iter().filter(|(sender, _)| !self.unreached.contains(sender));
        for message in reached.filter(is_owed) {
            verdict.check(Invariant::NoLostAdmission, self.disposed.contains(message), || {
                format!("{}'s {} in {id} got no disposition", message.0, message.1)
            });
        }
    }

    fn judge_offers(&self, id: &NegotiationId, when: When, verdict: &mut Verdict) {
        for (offer, seen) in &self.offers {
            let Some(contractor) = &seen.contractor else { continue };
            let award = self.awards.iter().find(|(_, award)| award.offer == *offer);
            let cancels = usize::from(award.is_some_and(|(no, _)| self.cancelled.contains(no)));
            let is_committed = award.is_some_and(|(no, _)| self.committed.contains(no));
            let closings = usize::from(cancels == 0 && is_committed && self.told_closed.contains_key(contractor));
            let notices = seen.rejects.len() + cancels + closings;
            let is_complete = when == When::AtRest && !self.unreached.contains(contractor);
            let holds = notices == 1 || (notices == 0 && !is_complete);
            verdict.check(Invariant::FinalNotice, holds, || {
                format!("{contractor}'s {offer} in {id} got {notices} final notices (award: {award:?})")
            });
            for other in self.awards.values().filter(|award| award.offer == *offer) {
                verdict.check(Invariant::Sealed, other.contractor == *contractor, || {
                    format!("{}'s award in {id} carries {contractor}'s offer", other.contractor)
                });
            }
        }
    }

    fn judge_awards(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for (award_no, award) in self.awards.iter().filter(|(_, award)| !self.unreached.contains(&award.contractor)) {
            let applied = self.offers.get(&award.offer).is_some_and(|offer| offer.contractor.is_some());
            verdict.check(Invariant::NoLateWinner, applied, || {
                format!("award {award_no} of {id} accepts {}, which was never applied", award.offer)
            });
        }
        let lots: BTreeSet<Lot> = self.awards.values().map(|award| award.lot).collect();
        for lot in lots {
            let live = self.awards.iter().filter(|(no, award)| {
                let is_bound = self.committed.contains(no) && !self.cancelled.contains(no);
                let is_known = !self.failed.contains(&award.contractor) && !self.unreached.contains(&award.contractor);
                award.lot == lot && is_bound && is_known
            });
            let live = live.count();
            verdict.check(Invariant::OneAward, live <= 1, || format!("lot {lot} of {id} has {live} live awards"));
        }
    }
}

/// The task of a team, and the sub-teams that worked for it.
fn task_found<'a>(
    negotiations: &'a BTreeMap<NegotiationId, NegotiationSeen>,
    team: &NegotiationId,
    number: u32,
) -> Option<TaskFound<'a>> {
    let id = team.task(number)?;
    let NegotiationSeen { task, unreached, awards, .. } = negotiations.get(&id)?;
    let sub_teams = awards.keys().filter_map(|award_no| {
        let NegotiationSeen { team, unreached, .. } = negotiations.get(&id.sub_team(*award_no)?)?;
        Some(SubTeamFound { award_no: *award_no, team, unreached })
    });
    Some(TaskFound { task, unreached, sub_teams: sub_teams.collect() })
}

/// What the payload of a message says, as far as it is asked for.
fn payload<P: DeserializeOwned>(document: &[u8]) -> Option<P> {
    #[derive(serde::Deserialize)]
    struct SentPayload<P> {
        payload: P,
    }
    serde_json::from_slice(document).ok().map(|SentPayload { payload }| payload)
}

/// The id of a message, and whether its own envelope asks for a receipt.
fn asks_itself(document: &[u8]) -> Option<(MsgId, bool)> {
    #[derive(serde::Deserialize)]
    struct Sent {
        envelope: SentEnvelope,
    }
    #[derive(serde::Deserialize)]
    struct SentEnvelope {
        msg_id: MsgId,
        #[serde(default)]
        receipt: bool,
    }
    let Sent { envelope } = serde_json::from_slice(document).ok()?;
    Some((envelope.msg_id, envelope.receipt))
}
