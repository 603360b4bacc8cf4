//! The decision record of a panel (docs/spec/panel.md#pn-28).

use schemas::delivery::{Outcome, Stopped};
use schemas::ids::{Position, ordered_position};
use schemas::panel::SeatChoice;
use schemas::{AgentId, Digest, NegotiationId, Timestamp};
use serde::{Deserialize, Serialize};

/// The decision record of a panel: integers and texts only. Members stand in the order of their names, here and in what it
/// contains, so that compact JSON is the canonical form. Its digest stands in the register.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PanelDecision {
    /// When: log time of a message, deadline of a timer; microseconds.
    pub at: Timestamp,
    /// What was asked.
    pub calls: PanelCallsRecord,
    /// Head of the hash chain over the negotiation's inputs.
    pub chain: Digest,
    /// Under `choose`: among whom the seats were chosen.
    pub choice: Option<ChoiceRecord>,
    /// The deciding round.
    pub decided: u32,
    /// Where evidence of it belongs.
    pub domain: String,
    /// Whether it counts as evidence: peers were rated, evidence is kept, and it had at least three seats.
    pub evidence: bool,
    /// Digest of the result's key.
    pub key: Digest,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// How the panel ended.
    pub outcome: Outcome,
    /// What each seat contributed, in the order of ids.
    pub panelists: Vec<PanelistRecord>,
    /// Position of the input that ended it.
    #[serde(serialize_with = "ordered_position")]
    pub position: Position,
    /// What each reviewer contributed, in the order of the call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<ReviewerRecord>,
    /// Every review, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<ReviewRecord>,
    /// Every round, the first one first.
    pub rounds: Vec<RoundRecord>,
    /// Digest of the rules.
    pub rules: Digest,
    /// Who went on after a selection.
    pub selection: Option<SelectionRecord>,
    /// What ended it.
    pub stopped: Stopped,
}

/// Among whom the seats of a panel were chosen (docs/spec/panel.md#pn-42).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// Those that could be invited, in the order of their ids.
    pub candidates: Vec<CandidateRecord>,
    /// Whether the seats are the best of them, or all.
    pub seats: SeatChoice,
}

/// One that could be invited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateRecord {
    /// Its agent.
    pub agent: AgentId,
    /// In parts per million, as the call pins it; none without enough evidence.
    pub reputation: Option<u64>,
}

/// Asks sent, and answers to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PanelCallsRecord {
    /// Those that were answered.
    pub answered: u32,
    /// To seats.
    pub answers: u32,
    /// To the ranker.
    pub ranks: u32,
    /// To reviewers.
    pub reviews: u32,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoundRecord {
    /// Who was asked, in that order.
    pub asked: Vec<AgentId>,
    /// Position of the input that ended it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "ordered_position")]
    pub closed: Option<Position>,
    /// How many count as all.
    pub of: usize,
    /// What was replied, in the order of asking.
    pub replies: Vec<ReplyRecord>,
    /// Its number.
    pub round: u32,
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyRecord {
    /// Whose.
    pub agent: AgentId,
    /// Digest of the key of its answer; none without an opinion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Digest>,
    /// The ratings it gave, in the order in which it was shown those rated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratings: Vec<RatingRecord>,
}

/// One rating.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RatingRecord {
    /// Who was rated.
    pub agent: AgentId,
    /// 1 to 5; 0 where none was given.
    pub rating: u8,
}

/// The review of one round's answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewRecord {
    /// Who was asked, in the order of the call.
    pub asked: Vec<AgentId>,
    /// Who replied, and how it rated those it was shown.
    pub replies: Vec<ReviewReplyRecord>,
    /// The round whose answers were reviewed.
    pub round: u32,
}

/// The reply of one reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewReplyRecord {
    /// Whose.
    pub agent: AgentId,
    /// The ratings it gave, in the order in which it was shown those rated.
    pub ratings: Vec<RatingRecord>,
}

/// A selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelectionRecord {
    /// After this round.
    pub after_round: u32,
    /// Who ranked.
    pub by: SelectedBy,
    /// Who went on.
    pub kept: Vec<AgentId>,
    /// All candidates, the best first.
    pub ranked: Vec<AgentId>,
}

/// What one seat contributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PanelistRecord {
    /// Its agent.
    pub agent: AgentId,
    /// Whether it supports the result.
    pub agreed: bool,
    /// Its importance in each round up to the deciding one, in 10^-12.
    pub importance_e12: Vec<u64>,
    /// Its share, where the mean of all seats is 1 000 000.
    pub relative_ppm: u64,
    /// The sum of its importance, rounded once.
    pub total_e12: u64,
}

/// What one reviewer contributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewerRecord {
    /// Its agent.
    pub agent: AgentId,
    /// Its share, where the mean of all reviewers is 1 000 000.
    pub relative_ppm: u64,
    /// The sum of its importance in all reviews up to the deciding round, rounded once.
    pub total_e12: u64,
}

impl PanelDecision {
    /// Digest of the canonical record.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_ordered(self)
            .expect("a decision holds integers, texts and digests only, which all have a canonical form")
    }
}

/// Who has ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectedBy {
    /// The number of those that agree.
    Support,
    /// The ratings received.
    Rating,
    /// The order of asking.
    Hash,
    /// The agent named.
    Agent,
    /// The agent named did not rank in time: the number of those that agree.
    Fallback,
}
