//! What those who take part in a panel are told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::digest::Digest;
use crate::evidence::Usage;
use crate::ids::AgentId;
use crate::panel::AnswerKind;
use crate::time::WireTime;

/// A seat is to answer, the ranker to rank, or a reviewer to review.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// The round, counted from 1; ANSWER repeats it.
    pub round: u32,
    /// Rounds of the panel; to seats.
    pub rounds: Option<u32>,
    /// The question.
    pub task: Option<Arc<str>>,
    /// How answers are compared; to seats.
    pub answer: Option<Arc<AnswerKind>>,
    /// ANSWER by then; exactly then is on time.
    pub answer_by: WireTime,
    /// The panel ends then at the latest.
    pub ends_by: WireTime,
    /// Digest of the panel's rules; to seats.
    pub rules_digest: Option<Digest>,
    /// The recipient's own answer of the round before.
    pub own: Option<ShownAnswer>,
    /// The others' answers in an order of the recipient's own: to a seat those of the round before, else of this round.
    pub peers: Option<Vec<ShownAnswer>>,
    /// Whom `ratings` of the answer rate; absent: nobody.
    pub rate: Option<Rated>,
    /// To the ranker: what to answer.
    pub rank: Option<RankAsk>,
    /// To a reviewer: it is to answer `reviews`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub review: bool,
}

/// An answer as others see it: without a name. Its texts are shared between those who are shown them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShownAnswer {
    /// The answer; none: no opinion.
    pub answer: Option<Arc<str>>,
    /// How its author came to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// What each reviewer said of it, in an order of the recipient's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<Option<Arc<str>>>,
}

/// Whom the ratings of an answer rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rated {
    /// The entries of `peers`, in their order.
    Peers,
    /// The reviewers, in the order of each entry's `reviews`.
    Reviewers,
}

/// What the ranker is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankAsk {
    /// How many go on: `order` names at most as many.
    pub keep: u32,
}

crate::words! {
    /// What ended a panel that came to a result.
    pub enum Stopped {
        /// A consensus among the answers of a round.
        Answers,
        /// A consensus among those a selection kept.
        Selection,
        /// The rounds were over.
        Rounds,
        /// The time was over.
        Timeout,
        /// Nobody replied in a round.
        Silence,
    }
}

/// The result of a panel, for its initiator: registered before it is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// How the panel ended: consensus or plurality.
    pub outcome: Outcome,
    /// What ended it.
    pub stopped: Stopped,
    /// The result, in the words of the first seat that supports it.
    pub answer: Arc<str>,
    /// Its key; none where answers are compared by BLEU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Seats that support it.
    pub agreed: u32,
    /// Members of the deciding round.
    pub of: u32,
    /// The deciding round.
    pub round: u32,
    /// Digest of the decision record.
    pub decision: Digest,
    /// What was asked.
    pub calls: PanelCalls,
    /// What the answers cost, as their senders say.
    pub usage: UsageTotal,
    /// Every seat, in the order of ids.
    pub panelists: Vec<PanelistReport>,
    /// Every reviewer, in the order of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<ReviewerReport>,
}

/// Asks sent, whether answered or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct PanelCalls {
    /// To seats.
    pub answers: u32,
    /// To the ranker.
    pub ranks: u32,
    /// To reviewers.
    pub reviews: u32,
    /// How many of all of them were answered.
    pub answered: u32,
}

/// What answers cost, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct UsageTotal {
    /// The sums.
    #[serde(flatten)]
    pub usage: Usage,
    /// Answers that said what they cost.
    pub reported_by: u32,
}

/// What one seat contributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PanelistReport {
    /// The seat's agent.
    pub agent: AgentId,
    /// Its answer in the deciding round; none where it gave none, or had no opinion.
    pub answer: Option<Arc<str>>,
    /// Whether that supports the result.
    pub agreed: bool,
    /// Its importance in each round up to the deciding one, in 10^-12.
    pub importance_e12: Vec<u64>,
    /// Their sum, rounded once.
    pub total_e12: u64,
    /// Its share, where the mean of all seats is 1 000 000.
    pub relative_ppm: u64,
}

/// What one reviewer contributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReviewerReport {
    /// The reviewer.
    pub agent: AgentId,
    /// Its importance in all review layers, in 10^-12.
    pub total_e12: u64,
    /// Its share, where the mean of all reviewers is 1 000 000.
    pub relative_ppm: u64,
}
