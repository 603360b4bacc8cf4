//! How long agents take to acknowledge: where that is long because everybody is busy, repeats wait longer, so that they do not
//! add to the load.

use std::time::Duration;

use retry::RecentMap;
use schemas::AgentId;

/// Slow agents that are remembered, twice over; of those forgotten the usual gap holds again.
const AGENTS_MAX: usize = 4096;
/// A gap is lengthened to at most this many times the usual one.
const LENGTHENED_MAX: u32 = 8;

/// Smoothed times of the agents that are slow to acknowledge. Of all others nothing is kept.
pub(super) struct AnswerTimes {
    by_agent: RecentMap<AgentId, AnswerTime>,
    gap_min: Duration,
}

/// Mean and mean deviation, smoothed as for TCP's retransmissions (RFC 6298, section 2).
#[derive(Debug, Clone, Copy)]
struct AnswerTime {
    mean: Duration,
    deviation: Duration,
}

impl AnswerTimes {
    /// Nothing known. `gap_min` is the gap before the first repeat to an agent that is not slow.
    pub(super) fn new(gap_min: Duration) -> Self {
        Self { by_agent: RecentMap::new(AGENTS_MAX), gap_min }
    }

    /// An agent acknowledged something this long after it had left. Of what was sent twice the time of the first counts: that
    /// is too long where the first was lost, but what counts from the second would be too short for a queue to be seen.
    pub(super) fn note(&mut self, agent: &AgentId, waited: Duration) {
        let time = match self.by_agent.value(agent) {
            None => AnswerTime { mean: waited, deviation: waited / 2 },
            Some(time) => time.after(waited),
        };
        if time.gap() <= self.gap_min {
            self.by_agent.remove(agent);
        } else {
            self.by_agent.insert(agent.clone(), time);
        }
    }

    /// The gap before the first repeat to an agent.
    pub(super) fn gap(&self, agent: &AgentId) -> Duration {
        let Some(time) = self.by_agent.value(agent) else { return self.gap_min };
        time.gap().clamp(self.gap_min, LENGTHENED_MAX * self.gap_min)
    }
}

impl AnswerTime {
    fn gap(self) -> Duration {
        self.mean + 4 * self.deviation
    }

    fn after(self, waited: Duration) -> Self {
        let deviation = (3 * self.deviation + self.mean.abs_diff(waited)) / 4;
        Self { mean: (7 * self.mean + waited) / 8, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_millis(500);

    fn after(waits_ms: &[u64]) -> Duration {
        let agent = AgentId::try_new("bob").unwrap();
        let mut times = AnswerTimes::new(GAP);
        for wait_ms in waits_ms {
            times.note(&agent, Duration::from_millis(*wait_ms));
        }
        times.gap(&agent)
    }

    #[test]
    fn repeats_to_an_agent_wait_as_long_as_it_is_slow_and_no_longer() {
        for (waits_ms, gap_ms) in [
            (&[][..], 500),
            (&[3, 120, 50], 500),
            (&[200], 600),
            (&[400], 1200),
            (&[400, 400, 400, 400, 400, 400, 400, 400], 506),
            (&[2000], 4000),
            (&[100_000, 100_000], 4000),
        ] {
            assert_eq!(after(waits_ms).as_millis(), gap_ms, "{waits_ms:?}");
        }
    }

    #[test]
    fn an_agent_that_is_quick_again_is_forgotten() {
        let agent = AgentId::try_new("bob").unwrap();
        let mut times = AnswerTimes::new(GAP);
        times.note(&agent, Duration::from_secs(2));
        for _ in 0..40 {
            times.note(&agent, Duration::from_millis(60));
        }
        assert_eq!((times.gap(&agent), times.by_agent.len()), (GAP, 0));
    }

    #[test]
    fn what_is_known_of_one_agent_says_nothing_of_another() {
        let mut times = AnswerTimes::new(GAP);
        times.note(&AgentId::try_new("slow").unwrap(), Duration::from_secs(2));
        assert_eq!(times.gap(&AgentId::try_new("bob").unwrap()), GAP);
    }
}
