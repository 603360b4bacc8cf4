//! Scripted agents that debate and rate each other, and what their panels show about them.
//!
//! What an agent draws depends on seed, agent, panel and round only, so that one that behaves otherwise changes nobody
//! else's draws.

use policy_core::panel::importance::Importance;
use policy_core::panel::reputation::{PRIOR_RUNS, ReputationBasis, choose, reputation};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::evidence::{EvidenceCounts, EvidenceSource};
use schemas::panel::ChooseSpec;
use schemas::{AgentId, NegotiationId};

use super::play::{PlayRules, PlayedRounds, SeatAnswer, SeatView, StubRanker, play};

/// Wrong options beside the right one, which is number 0.
pub const WRONG: u32 = 3;
/// Panels it takes to have a reputation.
pub const MIN_RUNS: u32 = 10;
/// 10^12: the unit of importance.
const E12: u64 = 1_000_000_000_000;

/// How an agent rates peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubRating {
    /// What it takes for right 4 or 5, what it takes for wrong 1 or 2.
    Honest,
    /// Agents of the ring 5, others 1. A ring of one rates itself 5 and everybody else 1.
    Ring(&'static [usize]),
}

/// How an agent behaves.
#[derive(Debug, Clone, Copy)]
pub struct StubAgent {
    /// How often its first answer is right.
    pub accuracy: f64,
    /// How often it takes an answer for what it is.
    pub discernment: f64,
    /// How it rates.
    pub rates: StubRating,
    /// It always gives the same wrong answer.
    pub is_liar: bool,
}

/// How often an agent keeps its answer.
const HOLDS: f64 = 0.5;

impl StubAgent {
    /// An agent that debates and rates honestly.
    pub const fn honest(accuracy: f64, discernment: f64) -> Self {
        Self { accuracy, discernment, rates: StubRating::Honest, is_liar: false }
    }

    /// One that always gives the same wrong answer, and rates honestly.
    pub const fn liar(discernment: f64) -> Self {
        Self { is_liar: true, ..Self::honest(0.0, discernment) }
    }

    fn by_itself(&self, random: &mut ChaCha8Rng) -> u32 {
        let is_right = random.random_bool(self.accuracy);
        let wrong = random.random_range(1..=WRONG);
        match (self.is_liar, is_right) {
            (true, _) => WRONG,
            (false, true) => 0,
            (false, false) => wrong,
        }
    }

    fn rate(&self, agent: usize, answer: u32, random: &mut ChaCha8Rng) -> u32 {
        let judged = judge(self.discernment, answer, random);
        match self.rates {
            StubRating::Honest => judged,
            StubRating::Ring(ring) if ring.contains(&agent) => 5,
            StubRating::Ring(_) => 1,
        }
    }
}

/// What one of this discernment makes of an answer: 4 or 5 if it takes it for right, else 1 or 2.
pub fn judge(discernment: f64, answer: u32, random: &mut ChaCha8Rng) -> u32 {
    let looks_right = (answer == 0) == random.random_bool(discernment);
    let is_extreme = random.random_bool(0.5);
    match (looks_right, is_extreme) {
        (true, true) => 5,
        (true, false) => 4,
        (false, true) => 1,
        (false, false) => 2,
    }
}

/// Agents that are asked together, again and again.
#[derive(Debug, Clone)]
pub struct Crowd {
    /// The agents.
    pub agents: Vec<StubAgent>,
    /// Who keeps seats after the second round.
    pub ranker: StubRanker,
    /// From which everything is drawn.
    pub seed: u64,
}

impl Crowd {
    /// Plays one panel of the agents named, each once.
    pub fn play(&self, panel: u64, seats: &[usize]) -> PlayedRounds {
        let rules = PlayRules { seats: seats.len(), ranker: self.ranker, recheck: true };
        let mut order = self.draws(panel, u64::MAX, 0);
        play(rules, &mut order, |seat, seen, _| {
            let number = seats.get(seat).copied();
            number.map_or(SeatAnswer::unrated(WRONG), |number| self.says(panel, number, seats, seen))
        })
    }

    /// What the agent of this number says in a panel; the seats of those it is shown are numbers in `seats`.
    pub fn says(&self, panel: u64, number: usize, seats: &[usize], seen: &SeatView<'_>) -> SeatAnswer {
        let Some(agent) = self.agents.get(number) else { return SeatAnswer::unrated(WRONG) };
        let mut random = self.draws(panel, number as u64, seen.round as u64);
        says(agent, number, seats, seen, &mut random)
    }

    fn draws(&self, panel: u64, agent: u64, round: u64) -> ChaCha8Rng {
        let mut seed = [0_u8; 32];
        for (bytes, number) in seed.chunks_exact_mut(8).zip([self.seed, panel, agent, round]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        ChaCha8Rng::from_seed(seed)
    }
}

fn says(agent: &StubAgent, number: usize, seats: &[usize], seen: &SeatView<'_>, random: &mut ChaCha8Rng) -> SeatAnswer {
    let (found, holds, drawn) = (agent.by_itself(random), random.random_bool(HOLDS), random.random::<f64>());
    if seen.round == 1 {
        return SeatAnswer::unrated(found);
    }
    let of_seat = |seat: usize| seats.get(seat).copied().unwrap_or(usize::MAX);
    let rate = |(seat, answer): &(usize, u32)| agent.rate(of_seat(*seat), *answer, random);
    let ratings: Vec<u32> = seen.peers.iter().map(rate).collect();
    let own_rating = seen.own.map_or(1, |own| agent.rate(number, own, random));
    let total: u32 = ratings.iter().sum();
    let mut left = drawn * f64::from(total);
    let peer = seen.peers.iter().zip(&ratings).find(|(_, rating)| {
        left -= f64::from(**rating);
        left < 0.0
    });
    let peer = peer.map(|((_, answer), _)| *answer);
    let own = seen.own.filter(|_| holds || peer.is_none());
    let answer = if agent.is_liar { found } else { own.or(peer).unwrap_or(found) };
    SeatAnswer { answer, ratings: Some(ratings), own_rating }
}

/// What a panel of so many seats shows about one of them.
pub fn shown(importance: &Importance, seats: usize, seat: usize) -> EvidenceCounts {
    let layers = importance.layer_count() as u64;
    EvidenceCounts {
        runs: 1,
        layers,
        total_e12: importance.total(0..importance.layer_count(), seat).e12(),
        fair_e12: (E12 * layers).checked_div(seats as u64).unwrap_or(0),
        ..EvidenceCounts::default()
    }
}

/// Adds what a panel of all agents has shown.
pub fn add_all(evidence: &mut [EvidenceCounts], importance: Option<&Importance>) {
    let seats = evidence.len();
    for (seat, counts) in evidence.iter_mut().enumerate() {
        if let Some(importance) = importance {
            counts.add(&shown(importance, seats, seat));
        }
    }
}

/// The importance of an agent, 1 being a fair share.
pub fn relative(counts: &EvidenceCounts) -> f64 {
    counts.total_e12 as f64 / counts.fair_e12 as f64
}

/// The name of an agent.
pub fn name(agent: usize) -> AgentId {
    AgentId::try_new(&format!("agent-{agent}")).expect("letters, a dash and digits are a name")
}

/// The `count` agents that evidence recommends for the panel of this number, as the exchange chooses them; everybody where too
/// few have taken part often enough.
pub fn best(evidence: &[EvidenceCounts], count: usize, panel: u64) -> Vec<usize> {
    let caller = AgentId::try_new("initiator").expect("letters are a name");
    let negotiation = NegotiationId::try_new(&format!("{caller}~panel-{panel}")).expect("a name and a run are an id");
    let basis =
        ReputationBasis { from: &EvidenceSource::Own, own: &caller, min_runs: MIN_RUNS, prior_runs: PRIOR_RUNS };
    let known = |counts: &EvidenceCounts| reputation([(&caller, *counts)].into_iter(), basis);
    let candidates: Vec<(AgentId, Option<u64>)> =
        evidence.iter().enumerate().map(|(agent, counts)| (name(agent), known(counts))).collect();
    let keep = u32::try_from(count).unwrap_or(u32::MAX);
    let rule = ChooseSpec { keep, from: EvidenceSource::Own, min_runs: MIN_RUNS, newcomers: 0 };
    let chosen = choose(&negotiation, &rule, &candidates).seats;
    (0..evidence.len()).filter(|agent| chosen.contains(&name(*agent))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_behaves_otherwise_changes_nobody_elses_first_answer() {
        let crowd = |first: StubAgent| Crowd {
            agents: [&[first][..], &[StubAgent::honest(0.5, 0.8); 6]].concat(),
            ranker: StubRanker::Support,
            seed: 7,
        };
        let draws = |crowd: &Crowd| {
            (1..7).map(|agent| crowd.agents[agent].by_itself(&mut crowd.draws(3, agent as u64, 1))).collect::<Vec<_>>()
        };
        let (honest, liar) = (crowd(StubAgent::honest(0.5, 0.8)), crowd(StubAgent::liar(0.8)));
        assert_eq!(draws(&honest), draws(&liar));
        assert_eq!(liar.agents[0].by_itself(&mut liar.draws(3, 0, 1)), WRONG);
    }

    #[test]
    fn importance_of_a_panel_is_added_beside_its_fair_share_and_the_best_are_named() {
        let crowd = Crowd { agents: vec![StubAgent::honest(0.9, 0.8); 4], ranker: StubRanker::Support, seed: 1 };
        let mut evidence = [EvidenceCounts::default(); 4];
        let played = crowd.play(0, &[0, 1, 2, 3]);
        add_all(&mut evidence, played.importance.as_ref());
        let layers = played.importance.unwrap().layer_count() as u64;
        assert!(evidence.iter().all(|one| (one.runs, one.layers, one.fair_e12) == (1, layers, E12 * layers / 4)));
        let total: u64 = evidence.iter().map(|one| one.total_e12).sum();
        assert!(total.abs_diff(E12 * layers) <= 4);
        let of = |total_e12| EvidenceCounts { runs: 10, total_e12, fair_e12: 10, ..EvidenceCounts::default() };
        assert_eq!(best(&[of(3), of(9), of(1), of(4)], 2, 1), [1, 3]);
        let few = EvidenceCounts { runs: 9, ..of(20) };
        assert_eq!(best(&[few, of(9), few, few], 2, 1), [0, 1, 2, 3], "one is too few to choose from");
    }
}
