//! Orders within a panel: who goes on after a selection, who is asked first, in which order answers are shown
//! (docs/spec/panel-answers.md#pa-12). Arrival decides none of them.

use std::cmp::Reverse;

use schemas::ids::Position;
use schemas::panel::Ranker;
use schemas::{AgentId, Digest, NegotiationId};

/// The rating of one whom nobody rated: above twice the lower rating, below twice the middle one.
pub const UNRATED: u32 = 6;

/// One whose answer may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Candidates that agree with its answer, itself included.
    pub support: usize,
    /// What [`received`] makes of the ratings it got.
    pub received: u32,
    /// What [`asking`] says of it in the round of the selection.
    pub hash: Digest,
}

/// The candidates' numbers, the best first. A ranking agent's own order is not known here: its fallback is `support`.
#[must_use]
pub fn rank(ranker: &Ranker, candidates: &[Candidate]) -> Vec<usize> {
    let key = |candidate: &Candidate| {
        let (support, received) = (Reverse(candidate.support as u64), Reverse(u64::from(candidate.received)));
        match ranker {
            Ranker::Support | Ranker::Agent { .. } => (Some((support, received)), candidate.hash),
            Ranker::Rating => (Some((received, support)), candidate.hash),
            Ranker::Hash => (None, candidate.hash),
        }
    };
    let mut ranked: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    ranked.sort_by_key(|(_, candidate)| key(candidate));
    ranked.into_iter().map(|(number, _)| number).collect()
}

/// What an agent chose, each once, and what it left out in the order of `ranked`.
#[must_use]
pub fn completed(chosen: &[usize], ranked: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(ranked.len());
    for candidate in chosen.iter().chain(ranked) {
        if !order.contains(candidate) && ranked.contains(candidate) {
            order.push(*candidate);
        }
    }
    order
}

/// The sum of the lower and the upper median of the ratings that one was given; [`UNRATED`] without any.
#[must_use]
pub fn received(ratings: &[u32]) -> u32 {
    let mut sorted = ratings.to_vec();
    sorted.sort_unstable();
    let at = |place: usize| sorted.get(place).copied();
    match (at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2)) {
        (Some(lower), Some(upper)) => lower.saturating_add(upper),
        _ => UNRATED,
    }
}

/// Ascending, the order in which a round's members are asked. `call` is the position of the call.
#[must_use]
pub fn asking(negotiation: &NegotiationId, call: Position, round: u32, agent: &AgentId) -> Digest {
    of_parts(negotiation, call, &[&u64::from(round).to_be_bytes(), agent.as_str().as_bytes()])
}

/// Ascending, the order in which a recipient is shown others' answers. `ended` is the position that ended their round.
#[must_use]
pub fn showing(negotiation: &NegotiationId, ended: Position, recipient: &AgentId, shown: &AgentId) -> Digest {
    of_parts(negotiation, ended, &[recipient.as_str().as_bytes(), shown.as_str().as_bytes()])
}

/// The least decides between answers with as many supporters. `closing` is the position that closed the round.
#[must_use]
pub fn tie(negotiation: &NegotiationId, closing: Position, key: &str) -> Digest {
    of_parts(negotiation, closing, &[key.as_bytes()])
}

fn of_parts(negotiation: &NegotiationId, position: Position, others: &[&[u8]]) -> Digest {
    let position = position.to_string();
    let first: [&[u8]; 2] = [negotiation.as_str().as_bytes(), position.as_bytes()];
    Digest::of_parts(&[&first, others].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ranker_breaks_its_ties_by_the_next() {
        let candidates = [(1, 9, 5), (2, 4, 9), (2, 7, 8), (2, 7, 3), (1, 9, 1)]
            .map(|(support, received, hash)| Candidate { support, received, hash: Digest([hash; 32]) });
        let agent = Ranker::Agent { agent: agent("r"), rank_ms: 1 };
        assert_eq!(rank(&Ranker::Support, &candidates), [3, 2, 1, 4, 0]);
        assert_eq!(rank(&agent, &candidates), [3, 2, 1, 4, 0]);
        assert_eq!(rank(&Ranker::Rating, &candidates), [4, 0, 3, 2, 1]);
        assert_eq!(rank(&Ranker::Hash, &candidates), [4, 3, 0, 2, 1]);
    }

    #[test]
    fn what_an_order_leaves_out_is_filled_by_the_ranker() {
        assert_eq!(completed(&[3], &[0, 1, 2, 3]), [3, 0, 1, 2]);
        assert_eq!(completed(&[2, 2, 9, 0], &[0, 1, 2]), [2, 0, 1]);
        assert_eq!(completed(&[], &[1, 0]), [1, 0]);
    }

    #[test]
    fn a_received_rating_is_the_sum_of_both_medians() {
        assert_eq!([&[][..], &[4], &[1, 5], &[5, 1, 2], &[4, 1, 3, 1]].map(received), [6, 8, 6, 4, 4]);
    }

    #[test]
    fn orders_depend_on_each_of_their_parts_and_follow_from_the_digest_of_parts() {
        let (at, later) = (Position { seq: 7, index: 1 }, Position { seq: 7, index: 2 });
        let (one, other) = (NegotiationId::try_new("alice~a").unwrap(), NegotiationId::try_new("alice~b").unwrap());
        let digests = [
            asking(&one, at, 1, &agent("ann")),
            asking(&other, at, 1, &agent("ann")),
            asking(&one, later, 1, &agent("ann")),
            asking(&one, at, 2, &agent("ann")),
            asking(&one, at, 1, &agent("bob")),
            showing(&one, at, &agent("ann"), &agent("bob")),
            showing(&one, at, &agent("bob"), &agent("ann")),
            showing(&one, later, &agent("ann"), &agent("bob")),
            tie(&one, at, "A"),
            tie(&one, at, "B"),
            tie(&one, later, "A"),
        ];
        let different: std::collections::BTreeSet<Digest> = digests.into_iter().collect();
        assert_eq!(different.len(), digests.len());
        assert_eq!(digests[0], Digest::of_parts(&[b"alice~a", b"7.1", &[0, 0, 0, 0, 0, 0, 0, 1], b"ann"]));
    }

    fn agent(id: &str) -> AgentId {
        AgentId::try_new(id).unwrap()
    }
}
