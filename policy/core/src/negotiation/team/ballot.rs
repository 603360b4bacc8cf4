//! A conclusion, and the vote on it (docs/spec/team.md#tm-34).

use schemas::team::{ProposedConclusion, VoteCount, VoteOf};
use schemas::{Digest, OfferId, Timestamp};
use serde::{Deserialize, Serialize};

use super::roster::Roster;

/// A conclusion.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConclusionText {
    pub(super) offer_id: OfferId,
    /// Index of its author.
    pub(super) by: usize,
    pub(super) text: Box<str>,
    /// SHA-256 of its text.
    pub(super) digest: Digest,
    /// The turn it was said in.
    pub(super) turn: u32,
}

/// A conclusion that is voted on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub(super) conclusion: ConclusionText,
    pub(super) vote_by: Timestamp,
    /// Who has voted, and whether for it.
    votes: Vec<(usize, bool)>,
}

/// What a vote has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VoteResult {
    Open,
    Passed,
    Rejected,
}

impl Ballot {
    /// Its author is for it.
    pub(super) fn new(conclusion: ConclusionText, vote_by: Timestamp) -> Self {
        let votes = vec![(conclusion.by, true)];
        Self { conclusion, vote_by, votes }
    }

    pub(super) fn has_voted(&self, index: usize) -> bool {
        self.votes.iter().any(|(voter, _)| *voter == index)
    }

    pub(super) fn vote(&mut self, index: usize, is_for: bool) {
        self.votes.push((index, is_for));
    }

    /// Whether everybody it names is one of so many.
    pub(super) fn is_within(&self, members: usize) -> bool {
        self.conclusion.by < members && self.votes.iter().all(|(voter, _)| *voter < members)
    }

    /// Votes of those that are members now.
    pub(super) fn count(&self, roster: &Roster) -> VoteCount {
        let count = |is_for: bool| {
            let votes = self.votes.iter().filter(|(voter, vote)| *vote == is_for && roster.member(*voter).is_seated());
            u32::try_from(votes.count()).unwrap_or(u32::MAX)
        };
        VoteCount { yes: count(true), no: count(false) }
    }

    /// What it comes to; `is_over`: whoever has not voted is against it.
    pub(super) fn result(&self, of: VoteOf, roster: &Roster, is_over: bool) -> VoteResult {
        let members = u32::try_from(roster.seated().count()).unwrap_or(u32::MAX);
        let needed = match of {
            VoteOf::Majority => members / 2 + 1,
            VoteOf::All => members,
        };
        let VoteCount { yes, no } = self.count(roster);
        let possible = if is_over { yes } else { members.saturating_sub(no) };
        if !roster.member(self.conclusion.by).is_seated() || possible < needed {
            VoteResult::Rejected
        } else if yes >= needed {
            VoteResult::Passed
        } else {
            VoteResult::Open
        }
    }
}

impl ConclusionText {
    /// As members are told it while they vote.
    pub(super) fn proposed(&self, roster: &Roster) -> ProposedConclusion {
        ProposedConclusion {
            offer_id: self.offer_id,
            by: roster.agent(self.by).clone(),
            text: self.text.to_string(),
            terms_digest: self.digest,
        }
    }
}
