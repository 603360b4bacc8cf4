//! What a scripted panelist draws: it depends on seed, agent, panel and round only.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::{AgentId, Digest, NegotiationId};

/// The draws of one agent in one round of a panel, to be made in a fixed order.
pub struct RoundDraws(ChaCha12Rng);

impl RoundDraws {
    /// The same draws for the same seed, agent, panel and round.
    #[must_use]
    pub fn new(seed: u64, agent: &AgentId, panel: &NegotiationId, round: u32) -> Self {
        let digest = Digest::of_parts(&[
            &seed.to_be_bytes(),
            agent.as_str().as_bytes(),
            panel.as_str().as_bytes(),
            &round.to_be_bytes(),
        ]);
        Self(ChaCha12Rng::from_seed(digest.0))
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, chance: f64) -> bool {
        self.0.random::<f64>() < chance
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = self.0.random::<u64>();
        // Scaled rather than drawn within a range: a bound of 0 or 1 takes as many draws as any other.
        usize::try_from((u128::from(drawn) * bound as u128) >> 64).unwrap_or(0)
    }
}
