//! What agents saw of one task of a team: who was told what is to be done, who was bound to it and when no longer, and what was
//! reported.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Delivery, Disposition, Notification, Outcome, ProgressReport, Receipt};
use schemas::{AgentId, AwardNo, Timestamp};
use serde::Deserialize;

use super::payload;

/// A report, as it was sent.
#[derive(Deserialize)]
struct SentReport {
    result: Option<String>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskSeen {
    /// Who was told something that only members of its team may know, what, and when last.
    told: BTreeMap<AgentId, (&'static str, Timestamp)>,
    /// Who was bound to it, one after another.
    bound: BTreeSet<AgentId>,
    /// When each award was committed, where somebody was told so at once.
    committed: BTreeMap<AwardNo, Timestamp>,
    /// When each award was lost or called off, as anybody was told.
    lost: BTreeMap<AwardNo, Timestamp>,
    /// When it ended, how, and whether only those were told who asked, which may have been later.
    ended: Option<(Timestamp, Outcome, bool)>,
    /// Who sent a report, and its result.
    reports: BTreeSet<(AgentId, Option<String>)>,
}

impl TaskSeen {
    /// An INFORM was sent.
    pub(super) fn sent(&mut self, agent: &AgentId, document: &[u8]) {
        if let Some(SentReport { result }) = payload(document) {
            self.reports.insert((agent.clone(), result));
        }
    }

    pub(super) fn told(&mut self, agent: &AgentId, delivery: &Delivery) {
        let (told, at) = (&delivery.payload, delivery.envelope.ts.0);
        self.note_award(delivery, at);
        if let Notification::Inform(ProgressReport::Committed(news)) = told {
            self.bound.insert(news.contractor.clone());
        }
        let is_called = matches!(told, Notification::Cfp(call) if call.brief.is_some());
        let is_awarded = matches!(told, Notification::Accept(award) if award.brief.is_some());
        let is_result = matches!(told, Notification::Inform(ProgressReport::Done(_) | ProgressReport::Result(_)));
        if !(is_called || is_awarded || is_result) {
            return;
        }
        let what = if is_result { "a result" } else { "what is to be done" };
        let told = self.told.entry(agent.clone()).or_insert((what, at));
        if told.1 < at {
            *told = (what, at);
        }
    }

    /// What is said of an award, or of all of them.
    fn note_award(&mut self, delivery: &Delivery, at: Timestamp) {
        let (times, award_no) = match (&delivery.payload, delivery.envelope.in_reply_to.is_some()) {
            (Notification::Inform(ProgressReport::Committed(news)), _) => (&mut self.committed, Some(news.award_no)),
            (Notification::Ack(receipt), _) if receipt.disposition == Disposition::Committed => {
                (&mut self.committed, receipt.award_no)
            }
            (Notification::Cancel(cancellation), _) => (&mut self.lost, Some(cancellation.award_no)),
            (Notification::Failure(failure), _) => (&mut self.lost, Some(failure.award_no)),
            (Notification::Closed(closing), is_answer) => {
                let ended = self.ended.get_or_insert((at, closing.outcome, is_answer));
                (ended.0, ended.2) = (ended.0.min(at), ended.2 && is_answer);
                return;
            }
            (_, _) => return,
        };
        if let Some(award_no) = award_no {
            times.entry(award_no).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
    }

    pub(super) fn told_receipt(&mut self, agent: &AgentId, receipt: &Receipt) {
        if receipt.disposition == Disposition::Committed {
            self.bound.insert(agent.clone());
        }
    }

    /// Who was told something that only members may know, what, and when last.
    pub(super) fn told_to(&self) -> impl Iterator<Item = (&AgentId, &'static str, Timestamp)> {
        self.told.iter().map(|(agent, (what, at))| (agent, *what, *at))
    }

    /// Whether an agent was bound to it.
    pub(super) fn has_bound(&self, agent: &AgentId) -> bool {
        self.bound.contains(agent)
    }

    /// When an award was committed, where somebody was told so at once.
    pub(super) fn committed_at(&self, award_no: AwardNo) -> Option<Timestamp> {
        self.committed.get(&award_no).copied()
    }

    /// From when on an award was committed no longer, as anybody was told: it was lost or called off, or the task had ended.
    pub(super) fn lost_at(&self, award_no: AwardNo) -> Option<Timestamp> {
        self.lost.get(&award_no).copied().into_iter().chain(self.ended.map(|(at, ..)| at)).min()
    }

    /// When it ended, how, and whether only those were told who asked, which may have been later.
    pub(super) fn ended(&self) -> Option<(Timestamp, Outcome, bool)> {
        self.ended
    }

    /// Whether an agent has sent this as its result.
    pub(super) fn has_reported(&self, agent: &AgentId, result: Option<&str>) -> bool {
        self.reports.iter().any(|(by, reported)| by == agent && reported.as_deref() == result)
    }
}
