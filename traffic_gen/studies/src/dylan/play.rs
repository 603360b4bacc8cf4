//! One panel of scripted agents, by the core's arithmetic: three rounds, a quorum asked first, and of more than three seats two
//! kept after the second round.

use policy_core::panel::count::{consensus, quorum};
use policy_core::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
use policy_core::panel::ranker::{Candidate, completed, rank, received};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use schemas::Digest;
use schemas::panel::Ranker;

/// Rounds at most.
pub const ROUNDS: usize = 3;
/// Round after which seats are dropped, counted from 1.
const SELECT_AFTER: usize = 2;
/// How many are kept.
const KEEP: usize = 2;
/// The most seats of which none are dropped.
const ALL_IF_AT_MOST: usize = 3;

/// Who keeps seats after the second round.
#[derive(Debug, Clone, Copy)]
pub enum StubRanker {
    /// An agent that is shown the answers: one call. What it leaves out is filled by support.
    Agent(fn(&[u32], &mut ChaCha8Rng) -> Vec<usize>),
    /// How many agree with a seat, then the ratings it received.
    Support,
    /// The ratings a seat received, then how many agree with it.
    Rating,
}

impl StubRanker {
    /// An agent that draws whom to keep.
    pub const DRAWN: Self = Self::Agent(|answers, random| {
        let mut places: Vec<usize> = (0..answers.len()).collect();
        places.shuffle(random);
        places
    });
}

/// Under which rules a panel is played.
#[derive(Debug, Clone, Copy)]
pub struct PlayRules {
    /// Seats.
    pub seats: usize,
    /// Who keeps seats.
    pub ranker: StubRanker,
    /// Whether a consensus of those that are kept ends the panel.
    pub recheck: bool,
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

/// What a seat says: an answer, and ratings from 1 to 5.
#[derive(Debug)]
pub struct SeatAnswer {
    /// A number that stands for the answer.
    pub answer: u32,
    /// Of each peer; none: all alike.
    pub ratings: Option<Vec<u32>>,
    /// Of its own answer of the round before. It counts in [`PlayedRounds::counted`] only.
    pub own_rating: u32,
}

impl SeatAnswer {
    /// An answer without ratings.
    pub fn unrated(answer: u32) -> Self {
        Self { answer, ratings: None, own_rating: 1 }
    }
}

/// What one panel came to.
#[derive(Debug, Default)]
pub struct PlayedRounds {
    /// The answer that more than two thirds gave, else that most gave in the last round.
    pub answer: u32,
    /// Whether it was a consensus, and of which round.
    pub consensus_in: Option<usize>,
    /// Asks, that of a ranking agent included.
    pub calls: u64,
    /// Seats asked in the first round.
    pub asked_first: u64,
    /// What each seat contributed.
    pub importance: Option<Importance>,
    /// The rounds, as importance sees them.
    layers: Vec<Layer>,
    /// The ratings that seats gave their own answers: by round and node.
    own_ratings: Vec<Vec<u32>>,
    /// Who supports the answer.
    supporters: Vec<usize>,
}

impl PlayedRounds {
    /// What each seat would have contributed, had its rating of its own answer counted like those of others.
    pub fn counted(&self) -> Option<Importance> {
        let layer = |(layer, own_ratings): (&Layer, &Vec<u32>)| {
            let node = |(node, rating): (&LayerNode, &u32)| {
                let own = node.own.map(|member| Shown { member, rating: *rating });
                LayerNode { member: node.member, own: None, shown: node.shown.iter().copied().chain(own).collect() }
            };
            Layer { members: layer.members, nodes: layer.nodes.iter().zip(own_ratings).map(node).collect() }
        };
        let layers: Vec<Layer> = self.layers.iter().zip(&self.own_ratings).map(layer).collect();
        importance(&layers, &self.supporters)
    }

    fn end(&mut self, answer: u32, supporters: impl Iterator<Item = usize>) {
        self.answer = answer;
        self.supporters = supporters.collect();
        self.importance = importance(&self.layers, &self.supporters);
    }
}

/// Plays a panel.
pub fn play(
    rules: PlayRules,
    random: &mut ChaCha8Rng,
    mut says: impl FnMut(usize, &SeatView<'_>, &mut ChaCha8Rng) -> SeatAnswer,
) -> PlayedRounds {
    let (mut members, mut before): (Vec<usize>, Vec<(usize, u32)>) = ((0..rules.seats).collect(), Vec::new());
    let mut played = PlayedRounds::default();
    let mut is_ranked = false;
    for round in 1..=ROUNDS {
        // Those that a selection kept stand in its order; whom it asks first changes nothing.
        if !is_ranked {
            members.shuffle(random);
        }
        let mut answers: Vec<(usize, u32)> = Vec::new();
        let (mut layer, mut own_ratings) = (Layer { members: rules.seats, nodes: Vec::new() }, Vec::new());
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
                own_ratings.push(said.own_rating);
                answers.push((seat, said.answer));
            }
        }
        played.layers.push(layer);
        played.own_ratings.push(own_ratings);
        played.calls += answers.len() as u64;
        if round == 1 {
            played.asked_first = played.calls;
        }
        let (leading, count) = most(&answers);
        let is_over = consensus(count, members.len());
        if is_over || round == ROUNDS {
            played.consensus_in = is_over.then_some(round);
            let answer = if is_over { leading } else { leader(&answers, is_ranked, random) };
            played.end(answer, supporters(&answers, answer));
            return played;
        }
        if round == SELECT_AFTER && rules.seats > ALL_IF_AT_MOST {
            played.calls += u64::from(matches!(rules.ranker, StubRanker::Agent(_)));
            answers = kept(&answers, played.layers.last(), rules.ranker, random);
            (members, is_ranked) = (answers.iter().map(|(seat, _)| *seat).collect(), true);
            let (leading, count) = most(&answers);
            if rules.recheck && consensus(count, members.len()) {
                played.consensus_in = Some(round);
                played.end(leading, supporters(&answers, leading));
                return played;
            }
        }
        before = answers;
    }
    played
}

/// Those that go on, the best first.
fn kept(
    answers: &[(usize, u32)],
    layer: Option<&Layer>,
    ranker: StubRanker,
    random: &mut ChaCha8Rng,
) -> Vec<(usize, u32)> {
    let ratings_of = |seat: usize| -> Vec<u32> {
        let shown = layer.into_iter().flat_map(|layer| &layer.nodes).flat_map(|node| &node.shown);
        shown.filter(|shown| shown.member == seat).map(|shown| shown.rating).collect()
    };
    let candidate = |(seat, answer): &(usize, u32)| Candidate {
        support: supporters(answers, *answer).count(),
        received: received(&ratings_of(*seat)),
        hash: Digest(random.random()),
    };
    let candidates: Vec<Candidate> = answers.iter().map(candidate).collect();
    let ranked = match ranker {
        StubRanker::Support => rank(&Ranker::Support, &candidates),
        StubRanker::Rating => rank(&Ranker::Rating, &candidates),
        StubRanker::Agent(order) => {
            let shown: Vec<u32> = answers.iter().map(|(_, answer)| *answer).collect();
            completed(&order(&shown, random), &rank(&Ranker::Support, &candidates))
        }
    };
    ranked.into_iter().take(KEEP).filter_map(|place| answers.get(place).copied()).collect()
}

/// The seats that gave an answer.
fn supporters(answers: &[(usize, u32)], answer: u32) -> impl Iterator<Item = usize> {
    answers.iter().filter(move |(_, other)| *other == answer).map(|(seat, _)| *seat)
}

/// An answer that stands most often, and how often.
fn most(answers: &[(usize, u32)]) -> (u32, usize) {
    let count = |answer: u32| supporters(answers, answer).count();
    answers.iter().map(|(_, answer)| (*answer, count(*answer))).max_by_key(|(_, count)| *count).unwrap_or((0, 0))
}

/// The answer that stands most often: of several that of who was ranked highest, without a ranking any of them.
fn leader(answers: &[(usize, u32)], is_ranked: bool, random: &mut ChaCha8Rng) -> u32 {
    let (_, most) = most(answers);
    let is_leading = |answer: &u32| supporters(answers, *answer).count() == most;
    let mut leaders: Vec<u32> = answers.iter().map(|(_, answer)| *answer).filter(is_leading).collect();
    if is_ranked {
        return leaders.first().copied().unwrap_or(0);
    }
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
            let said = |_, seen: &SeatView<'_>, _: &mut ChaCha8Rng| SeatAnswer::unrated(answer(seen.place));
            play(PlayRules { seats, ranker: StubRanker::DRAWN, recheck: false }, &mut random, said).calls
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
            SeatAnswer::unrated(if [1, 3].contains(&seat) { 9 } else { seat as u32 })
        };
        let rules = PlayRules { seats: 5, ranker: StubRanker::Support, recheck: false };
        let played = play(rules, &mut random, said);
        assert_eq!((played.answer, played.consensus_in, played.calls), (9, Some(3), 12));
        let importance = played.importance.unwrap();
        assert_eq!((importance.layer_count(), importance.share(2, 1).to_string()), (3, "1/2".to_owned()));
    }
}
