//! What open panels, and the ledger of what ended ones have shown, keep in memory.

use policy_core::panel::evidence::EvidenceLedger;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use schemas::AgentId;
use schemas::evidence::{EvidenceCounts, EvidenceRole, EvidenceSubject};
use schemas::ids::DomainName;
use schemas::record::Record;

use super::folded::{PanelBench, SEATS};
use crate::rounds::{BenchError, stuck};
use crate::usage::resident_bytes;

/// Characters of an answer, and of a long one.
const SHORT: usize = 64;
const LONG: usize = 4096;
/// Seats of a large panel: as many as there may be.
const SEATS_LARGE: u32 = 32;
/// Of those that are larger, or answered at length, this part of the panels is weighed.
const FEWER: usize = 8;
/// Initiators of the panels in the ledger: it takes so many to fill it.
const INITIATORS: usize = 16;

/// Bytes by what keeps them.
#[derive(Debug, Clone, Copy)]
pub struct PanelMemory {
    /// Of an open panel of four seats, with the answers of its first round.
    pub panel: f64,
    /// Of one more seat.
    pub seat: f64,
    /// Of the answers of two rounds, all but the last, that are 4 KiB long, beyond those of short ones.
    pub texts: f64,
    /// The letters of these answers, beyond those of short ones.
    pub letters: f64,
    /// Of an entry of the ledger.
    pub entry: f64,
}

/// Opens `open` panels, and some others that are larger, or answered at length; then fills a ledger with so many entries.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up, or is not followed.
pub fn measure(open: usize, entries: usize) -> Result<PanelMemory, BenchError> {
    let fewer = (open / FEWER).max(1);
    // All of it is kept until the last is weighed: what was freed would be taken again, and not be seen.
    let mut kept = Vec::new();
    let mut weigh = |panels: usize, seats: u32, rounds: &[u32], len: usize| {
        let mut weighed = Weighed::new(seats)?;
        let bytes = weighed.weigh(panels, rounds, len)?;
        kept.push(weighed);
        Ok::<f64, BenchError>(bytes as f64 / panels as f64)
    };
    let panel = weigh(open, SEATS, &[SEATS], SHORT)?;
    let large = weigh(fewer, SEATS_LARGE, &[SEATS_LARGE], SHORT)?;
    let small = weigh(fewer, SEATS, &[SEATS], SHORT)?;
    let rounds = [SEATS, SEATS - 1];
    let short = weigh(fewer, SEATS, &rounds, SHORT)?;
    let long = weigh(fewer, SEATS, &rounds, LONG)?;
    let answers: u32 = rounds.iter().sum();
    Ok(PanelMemory {
        panel,
        seat: (large - small) / f64::from(SEATS_LARGE - SEATS),
        texts: long - short,
        letters: f64::from(answers) * (LONG - SHORT) as f64,
        entry: bytes_per_entry(entries)?,
    })
}

/// A lane, and the records that it was fed with.
struct Weighed {
    bench: PanelBench,
    records: Vec<Vec<Record>>,
}

impl Weighed {
    fn new(seats: u32) -> Result<Self, BenchError> {
        Ok(Self { bench: PanelBench::new(seats)?, records: Vec::new() })
    }

    /// Bytes that so many panels take in which, round by round, so many seats have answered.
    fn weigh(&mut self, panels: usize, rounds: &[u32], len: usize) -> Result<u64, BenchError> {
        let calls = self.bench.calls(panels)?;
        let mut bytes = self.fold(calls);
        for (round, seats) in (1..).zip(rounds) {
            let answers = self.bench.answers(panels, (*seats, round), len)?;
            bytes += self.fold(answers);
        }
        match self.bench.open_count() {
            open if open == panels => Ok(bytes),
            open => Err(stuck(format!("{open} of {panels} panels are open"))),
        }
    }

    /// Bytes that these records, which are there already, lead to.
    fn fold(&mut self, records: Vec<Record>) -> u64 {
        let before = resident_bytes("self");
        for record in &records {
            self.bench.fold(record);
        }
        self.records.push(records);
        resident_bytes("self").saturating_sub(before)
    }
}

/// Bytes of each of so many entries of a ledger, as panels of four add them.
fn bytes_per_entry(entries: usize) -> Result<f64, BenchError> {
    let name = |kind: &str, number: usize| AgentId::try_new(&format!("{kind}-{number:05}")).map_err(stuck);
    let agents_of = entries / INITIATORS;
    let mut agents: Vec<AgentId> = (0..agents_of).map(|number| name("panelist", number)).collect::<Result<_, _>>()?;
    let initiators: Vec<AgentId> = (0..INITIATORS).map(|number| name("alice", number)).collect::<Result<_, _>>()?;
    let counts = EvidenceCounts { runs: 1, asked: 3, replied: 3, layers: 3, ..EvidenceCounts::default() };
    let before = resident_bytes("self");
    let mut ledger = EvidenceLedger::default();
    let mut random = ChaCha12Rng::seed_from_u64(1);
    for initiator in &initiators {
        agents.shuffle(&mut random);
        for seats in agents.chunks(SEATS as usize) {
            // Every panel's rules were read from its own call: names of agents are shared, that of the domain is not.
            let domain = DomainName::try_new("college-mathematics").map_err(stuck)?;
            for agent in seats {
                let (agent, initiator) = (agent.clone(), initiator.clone());
                let role = EvidenceRole::Panelist;
                ledger.add(EvidenceSubject { domain: domain.clone(), agent, role, initiator }, &counts);
            }
        }
    }
    let bytes = resident_bytes("self").saturating_sub(before);
    match ledger.len() {
        held if held == agents_of * INITIATORS => Ok(bytes as f64 / held as f64),
        held => Err(stuck(format!("the ledger holds {held} of {entries} entries"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_that_are_weighed_are_open_and_hold_seven_long_answers() {
        // What other tests free meanwhile is taken again: bytes show in a process of one's own only.
        let memory = measure(40, 16).unwrap();
        assert!((memory.letters - 7.0 * 4032.0).abs() < 1e-9, "{memory:?}");
        let ended = Weighed::new(SEATS).unwrap().weigh(3, &[SEATS; 3], SHORT);
        assert!(matches!(ended, Err(BenchError::Stuck(why)) if why == "0 of 3 panels are open"));
    }

    #[test]
    fn a_ledger_is_filled_and_not_beyond_what_it_holds() {
        let forgotten = bytes_per_entry(2 << 16);
        assert!(matches!(forgotten, Err(BenchError::Stuck(why)) if why == "the ledger holds 65536 of 131072 entries"));
        assert!(bytes_per_entry(16 * 256).unwrap() >= 0.0);
    }
}
