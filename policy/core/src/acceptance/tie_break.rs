//! The order of the valid offers: score descending, equal scores by the policy's tie-break
//! (docs/spec/contract-net.md#cn-31).
//!
//! The `hash` key contains the closing position, which nobody knows before the close, and nothing of the offer itself:
//! revising an offer cannot improve its place in a tie.

use std::collections::{BTreeMap, BTreeSet};

use schemas::ids::Position;
use schemas::policy::{Policy, TieBreak};
use schemas::{AgentId, AwardNo, Digest, NegotiationId, OfferId};

/// One valid offer, as the ranking sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferCandidate {
    /// Index of its session.
    pub(crate) session: usize,
    /// Its contractor.
    pub(crate) contractor: AgentId,
    /// The offer.
    pub(crate) offer_id: OfferId,
    /// Its score.
    pub(crate) score: u32,
    /// The contractor's last win in this lane.
    pub(crate) last_win: Option<Position>,
}

/// Sorts candidates, best first.
pub(crate) fn rank(policy: &Policy, negotiation: &NegotiationId, closing: Position, candidates: &mut [OfferCandidate]) {
    let best = candidates.iter().map(|candidate| candidate.score).max().unwrap_or(0);
    let banded = |score: u32| if best - score < policy.eps_band { best } else { score };
    candidates.sort_by_key(|candidate| (std::cmp::Reverse(banded(candidate.score)), candidate.session));
    for tied in candidates.chunk_by_mut(|left, right| banded(left.score) == banded(right.score)) {
        if tied.len() > 1 {
            break_tie(policy.tie_break, negotiation, closing, tied);
        }
    }
}

/// Sorts candidates that nothing scores: by the hash that breaks ties.
pub(crate) fn rank_by_hash(negotiation: &NegotiationId, closing: Position, candidates: &mut [OfferCandidate]) {
    candidates.sort_by_cached_key(|candidate| key(None, negotiation, &candidate.contractor, closing));
}

fn break_tie(tie_break: TieBreak, negotiation: &NegotiationId, closing: Position, tied: &mut [OfferCandidate]) {
    let hash = |candidate: &OfferCandidate| key(None, negotiation, &candidate.contractor, closing);
    match tie_break {
        TieBreak::Hash => tied.sort_by_cached_key(hash),
        TieBreak::Lottery { seed } => {
            tied.sort_by_cached_key(|candidate| key(Some(seed), negotiation, &candidate.contractor, closing));
        }
        TieBreak::LeastRecentWinner => tied.sort_by_cached_key(|candidate| (candidate.last_win, hash(candidate))),
        TieBreak::Arrival => tied.sort_by_key(|candidate| candidate.offer_id),
    }
}

/// SHA-256 over the length-prefixed parts (seed, when there is one), negotiation, contractor, closing position as
/// `<seq>.<index>`.
fn key(seed: Option<u64>, negotiation: &NegotiationId, contractor: &AgentId, closing: Position) -> Digest {
    let closing = closing.to_string();
    let parts = [negotiation.as_str().as_bytes(), contractor.as_str().as_bytes(), closing.as_bytes()];
    match seed {
        None => Digest::of_parts(&parts),
        Some(seed) => Digest::of_parts(&[&seed.to_be_bytes(), parts[0], parts[1], parts[2]]),
    }
}

/// When each contractor last won in this lane, for `tie_break: least_recent_winner`.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    wins_by_agent: BTreeMap<AgentId, Win>,
    agents_by_win: BTreeSet<(Win, AgentId)>,
}

/// A win: its position, and the award's number. One input may make several awards of a negotiation, and one of each task that it
/// opens.
type Win = (Position, u32);

impl Winners {
    pub(crate) fn last_win(&self, agent: &AgentId) -> Option<Position> {
        self.wins_by_agent.get(agent).map(|(position, _)| *position)
    }

    /// Winners remembered.
    pub(crate) fn len(&self) -> usize {
        self.agents_by_win.len()
    }

    /// Every winner's last win, the least recent first.
    pub(crate) fn wins(&self) -> impl Iterator<Item = (&AgentId, Position, AwardNo)> {
        self.agents_by_win.iter().map(|((position, award_no), agent)| (agent, *position, AwardNo(*award_no)))
    }

    /// Notes a win and forgets the least recent winner beyond `max`.
    pub(crate) fn note(&mut self, agent: &AgentId, position: Position, award_no: AwardNo, max: usize) {
        let win = (position, award_no.0);
        if let Some(earlier) = self.wins_by_agent.insert(agent.clone(), win) {
            self.agents_by_win.remove(&(earlier, agent.clone()));
        }
        self.agents_by_win.insert((win, agent.clone()));
        if self.wins_by_agent.len() > max
            && let Some((_, forgotten)) = self.agents_by_win.pop_first()
        {
            self.wins_by_agent.remove(&forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wins_in_one_input_is_remembered_beside_the_others() {
        let (position, agents) =
            (Position { seq: 9, index: 0 }, ["bob", "carol"].map(|name| AgentId::try_new(name).unwrap()));
        let mut winners = Winners::default();
        for agent in &agents {
            winners.note(agent, position, AwardNo(1), 8);
        }
        assert_eq!(winners.wins().map(|(agent, ..)| agent).collect::<Vec<_>>(), agents.iter().collect::<Vec<_>>());
        winners.note(&agents[0], Position { seq: 10, index: 0 }, AwardNo(1), 8);
        assert_eq!(
            winners.wins().map(|(agent, at, _)| (agent, at.seq)).collect::<Vec<_>>(),
            [(&agents[1], 9), (&agents[0], 10)]
        );
        winners.note(&AgentId::try_new("dan").unwrap(), Position { seq: 11, index: 0 }, AwardNo(1), 2);
        assert_eq!((winners.len(), winners.last_win(&agents[1])), (2, None), "the least recent is forgotten");
    }

    #[test]
    fn scores_within_the_band_of_the_best_tie_with_it_and_others_do_not() {
        let mut policy = crate::policy::preset("medium").unwrap();
        (policy.eps_band, policy.tie_break) = (10, TieBreak::Arrival);
        let mut candidates = [candidate(0, 90, 5), candidate(1, 100, 4), candidate(2, 91, 3), candidate(3, 89, 1)];
        rank(&policy, &negotiation(), Position { seq: 9, index: 0 }, &mut candidates);
        assert_eq!(candidates.map(|candidate| candidate.session), [2, 1, 0, 3]);
    }

    #[test]
    fn revising_an_offer_changes_no_tie_except_under_arrival() {
        let mut policy = crate::policy::preset("medium").unwrap();
        let closing = Position { seq: 9, index: 0 };
        let order = |policy: &Policy, last_seq: u64| {
            let mut tied = [candidate(0, 7, last_seq), candidate(1, 7, 2), candidate(2, 7, 3)];
            rank(policy, &negotiation(), closing, &mut tied);
            tied.map(|candidate| candidate.session)
        };
        for tie_break in [TieBreak::Hash, TieBreak::Lottery { seed: 4 }, TieBreak::LeastRecentWinner] {
            policy.tie_break = tie_break;
            assert!((4..50).all(|seq| order(&policy, seq) == order(&policy, 1)), "{tie_break:?}");
        }
        policy.tie_break = TieBreak::Arrival;
        assert_ne!(order(&policy, 4), order(&policy, 1));
    }

    #[test]
    fn the_hash_depends_on_the_closing_position() {
        let policy = crate::policy::preset("medium").unwrap();
        let orders: std::collections::BTreeSet<Vec<usize>> = (1..40)
            .map(|seq| {
                let mut tied = [candidate(0, 7, 1), candidate(1, 7, 2), candidate(2, 7, 3)];
                rank(&policy, &negotiation(), Position { seq, index: 0 }, &mut tied);
                tied.map(|candidate| candidate.session).to_vec()
            })
            .collect();
        assert_eq!(orders.len(), 6);
    }

    #[test]
    fn who_has_not_won_for_longest_comes_first() {
        let mut policy = crate::policy::preset("medium").unwrap();
        policy.tie_break = TieBreak::LeastRecentWinner;
        let mut tied = [candidate(0, 7, 1), candidate(1, 7, 2), candidate(2, 7, 3)];
        tied[0].last_win = Some(Position { seq: 8, index: 0 });
        tied[1].last_win = Some(Position { seq: 5, index: 0 });
        rank(&policy, &negotiation(), Position { seq: 9, index: 0 }, &mut tied);
        assert_eq!(tied.map(|candidate| candidate.session), [2, 1, 0]);
    }

    fn negotiation() -> NegotiationId {
        NegotiationId::try_new("alice~job").unwrap()
    }

    fn candidate(session: usize, score: u32, seq: u64) -> OfferCandidate {
        OfferCandidate {
            session,
            contractor: AgentId::try_new(&format!("c{session}")).unwrap(),
            offer_id: OfferId(Position { seq, index: 0 }),
            score,
            last_win: None,
        }
    }
}
