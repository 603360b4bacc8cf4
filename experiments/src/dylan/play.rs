//! One panel of scripted agents, by the core's arithmetic: three rounds, a quorum asked first, and of more than three seats two
//! kept after the second round.

use policy_core::panel::count::{consensus, quorum};
use policy_core::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Rounds at most.
pub const ROUNDS: usize = 3;
/// Round after which seats are dropped, counted from 1.
const SELECT_AFTER: usize = 2;
/// How many are kept.
const KEEP: usize = 2;
/// The most seats of which none are dropped.
const ALL_IF_AT_MOST: usize = 3;

/// Who keeps seats after the second round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubRanker {
    /// An agent that draws whom to keep: one call.
    Agent,
    /// How many agree with a seat, ties drawn.
    Support,
}

/// What a seat is shown.
#[derive(Debug)]
pub struct SeatView<'a> {
    /// The round, counted from 1.
    pub round: usize,
    /// How many were asked before it in this round.
    pub place: usize,
    /// Its own answer of the round before.
    pub own: Option<u32>,
    /// The others' numbers and answers of the round before.
    pub peers: &'a [(usize, u32)],
}

/// What a seat says: an answer, and a rating for each peer.
#[derive(Debug)]
pub struct SeatAnswer {
    /// A number that stands for the answer.
    pub answer: u32,
    /// 1 to 5; none: all alike.
    pub ratings: Option<Vec<u32>>,
}

/// What one panel came to.
#[derive(Debug)]
pub struct PlayedRounds {
    /// The answer that more than two thirds gave, else that most gave in the last round, ties drawn.
    pub answer: u32,
    /// Whether it was a consensus, and of which round.
    pub consensus_in: Option<usize>,
    /// Asks, that of a ranking agent included.
    pub calls: u64,
    /// Seats asked in the first round.
    pub asked_first: u64,
    /// What each seat contributed.
    pub importance: Option<Importance>,
}

/// Plays a panel of `seats` seats.
pub fn play(
    seats: usize,
    ranker: StubRanker,
    random: &mut ChaCha8Rng,
    mut says: impl FnMut(usize, &SeatView<'_>, &mut ChaCha8Rng) -> SeatAnswer,
) -> PlayedRounds {
    let (mut members, mut before): (Vec<usize>, Vec<(usize, u32)>) = ((0..seats).collect(), Vec::new());
    let (mut layers, mut calls, mut asked_first) = (Vec::new(), 0, 0);
    for round in 1..=ROUNDS {
        members.shuffle(random);
        let mut answers: Vec<(usize, u32)> = Vec::new();
        let mut layer = Layer { members: seats, nodes: Vec::new() };
        while answers.len() < members.len() && !consensus(most(&answers).1, members.len()) {
            let lacking = quorum(members.len()).saturating_sub(most(&answers).1).max(1);
            let asked: Vec<usize> = members.iter().skip(answers.len()).take(lacking).copied().collect();
            for seat in asked {
                let own = before.iter().find(|(other, _)| *other == seat).map(|(_, answer)| *answer);
                let peers: Vec<(usize, u32)> = before.iter().filter(|(other, _)| *other != seat).copied().collect();
                let said = says(seat, &SeatView { round, place: answers.len(), own, peers: &peers }, random);
                let rating = |place: usize| said.ratings.as_ref().and_then(|all| all.get(place)).copied().unwrap_or(1);
                let shown =
                    peers.iter().enumerate().map(|(place, (peer, _))| Shown { member: *peer, rating: rating(place) });
                layer.nodes.push(LayerNode { member: seat, own: own.map(|_| seat), shown: shown.collect() });
                answers.push((seat, said.answer));
            }
        }
        layers.push(layer);
        calls += answers.len() as u64;
        if round == 1 {
            asked_first = calls;
        }
        let (leading, count) = most(&answers);
        let is_over = consensus(count, members.len());
        if is_over || round == ROUNDS {
            let answer = if is_over { leading } else { drawn_leader(&answers, count, random) };
            let supporters = answers.iter().filter(|(_, other)| *other == answer).map(|(seat, _)| *seat);
            let importance = importance(&layers, &supporters.collect::<Vec<_>>());
            return PlayedRounds { answer, consensus_in: is_over.then_some(round), calls, asked_first, importance };
        }
        if round == SELECT_AFTER && seats > ALL_IF_AT_MOST {
            calls += u64::from(ranker == StubRanker::Agent);
            answers.shuffle(random);
            if ranker == StubRanker::Support {
                let support = |answer: u32| answers.iter().filter(|(_, other)| *other == answer).count();
                let mut ranked = answers.clone();
                ranked.sort_by_key(|(_, answer)| std::cmp::Reverse(support(*answer)));
                answers = ranked;
            }
            answers.truncate(KEEP);
            members = answers.iter().map(|(seat, _)| *seat).collect();
        }
        before = answers;
    }
    PlayedRounds { answer: 0, consensus_in: None, calls, asked_first, importance: None }
}

/// An answer that stands most often, and how often.
fn most(answers: &[(usize, u32)]) -> (u32, usize) {
    let count = |answer: u32| answers.iter().filter(|(_, other)| *other == answer).count();
    answers.iter().map(|(_, answer)| (*answer, count(*answer))).max_by_key(|(_, count)| *count).unwrap_or((0, 0))
}

fn drawn_leader(answers: &[(usize, u32)], most: usize, random: &mut ChaCha8Rng) -> u32 {
    let count = |answer: u32| answers.iter().filter(|(_, other)| *other == answer).count();
    let mut leaders: Vec<u32> =
        answers.iter().map(|(_, answer)| *answer).filter(|answer| count(*answer) == most).collect();
    leaders.sort_unstable();
    leaders.dedup();
    let drawn = random.random_range(0..leaders.len().max(1));
    leaders.get(drawn).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn unanimous_panels_ask_a_quorum_and_those_that_never_agree_ask_everybody() {
        let calls = |seats: usize, answer: fn(usize) -> u32| {
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let said =
                |_, seen: &SeatView<'_>, _: &mut ChaCha8Rng| SeatAnswer { answer: answer(seen.place), ratings: None };
            play(seats, StubRanker::Agent, &mut random, said).calls
        };
        assert_eq!([4, 7, 12].map(|seats| calls(seats, |_| 1)), [3, 5, 9]);
        assert_eq!([3, 4, 7, 12].map(|seats| calls(seats, |place| place as u32)), [9, 11, 17, 27]);
    }

    #[test]
    fn kept_are_those_with_most_support() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        // Seats 1 and 3 agree; nobody else does.
        let said = |seat, seen: &SeatView<'_>, _: &mut ChaCha8Rng| {
            assert!(seen.round < 3 || [1, 3].contains(&seat), "seat {seat} goes on");
            SeatAnswer { answer: if [1, 3].contains(&seat) { 9 } else { seat as u32 }, ratings: None }
        };
        let played = play(5, StubRanker::Support, &mut random, said);
        assert_eq!((played.answer, played.consensus_in, played.calls), (9, Some(3), 12));
        let importance = played.importance.unwrap();
        assert_eq!((importance.layers(), importance.share(2, 1).to_string()), (3, "1/2".to_owned()));
    }
}
