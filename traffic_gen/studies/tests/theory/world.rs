//! Cells as theory would have them: uniform costs, exponential delays, the best of the first `k` of `n`. What is measured in them is
//! known beforehand.

use std::collections::BTreeMap;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::Exp;
use studies::figures::group::Group;
use studies::figures::tally::Tally;
use studies::record::{AwardRecord, BidRecord, CellRecord, MessageCount, RoundRecord};

/// A configuration whose truth is known.
#[derive(Debug, Clone)]
pub struct World {
    pub policy: String,
    pub contractors: u32,
    /// How many offers are waited for.
    pub first: u32,
    /// Closes at the first offer of at most this cost instead.
    pub threshold: Option<f64>,
    pub seeds: u64,
    pub first_seed: u64,
    pub rounds: u64,
    /// Mean delay in microseconds.
    pub delay_us: f64,
    /// What the exchange itself takes.
    pub overhead_us: u64,
    /// How many times more often the first to offer wins than any other.
    pub bias: f64,
    /// Chance that a contractor answers.
    pub answers: f64,
    /// Whether a contractor offers after the close as well.
    pub is_late_offered: bool,
    /// Messages that a negotiation takes beside the offers.
    pub extra_messages: u64,
    /// Whether negotiations without all answers fail.
    pub is_strict: bool,
    pub bus: &'static str,
    /// Whether it is measured without a warm-up.
    pub is_cold: bool,
}

pub fn world(policy: &str, contractors: u32, first: u32) -> World {
    World {
        policy: policy.to_owned(),
        contractors,
        first,
        threshold: None,
        seeds: 20,
        first_seed: 1,
        rounds: 150,
        delay_us: 40_000.0,
        overhead_us: 900,
        bias: 1.0,
        answers: 1.0,
        is_late_offered: true,
        extra_messages: 3,
        is_strict: false,
        bus: "memory",
        is_cold: false,
    }
}

/// The groups of several worlds.
pub fn groups(worlds: &[World]) -> Vec<Group> {
    let tallies = worlds.iter().flat_map(World::cells).map(|(cell, rounds)| {
        let mut tally = Tally::new(cell);
        rounds.iter().for_each(|round| tally.add(round));
        tally
    });
    Group::all(tallies.collect())
}

impl World {
    pub fn group(&self) -> Group {
        let mut groups = groups(std::slice::from_ref(self));
        assert_eq!(groups.len(), 1);
        groups.remove(0)
    }

    /// Writes the cells as an experiment leaves them.
    pub fn write(&self, folder: &Path) {
        for (cell, rounds) in self.cells() {
            let folder = folder.join("cells").join(&cell.id);
            std::fs::create_dir_all(&folder).unwrap();
            let lines: Vec<String> = rounds.iter().map(|round| serde_json::to_string(round).unwrap()).collect();
            std::fs::write(folder.join("rounds.jsonl"), lines.join("\n") + "\n").unwrap();
            std::fs::write(folder.join("cell.json"), serde_json::to_string(&cell).unwrap()).unwrap();
        }
    }

    pub fn cells(&self) -> Vec<(CellRecord, Vec<RoundRecord>)> {
        (self.first_seed..self.first_seed + self.seeds).map(|seed| (self.cell(seed), self.seed(seed))).collect()
    }

    fn cell(&self, seed: u64) -> CellRecord {
        CellRecord {
            id: format!(
                "{}{}-{}-{}-{seed}",
                if self.is_cold { "cold-" } else { "" },
                self.policy.replace('@', "-"),
                self.contractors,
                self.bus
            ),
            protocol: "contract-net".into(),
            contractors: self.contractors,
            policy: self.policy.clone(),
            rate: 0.05,
            duration_s: 120.0,
            time_scale: 1.0,
            seed,
            bus: self.bus.into(),
            deciders: "scripted".into(),
            labels: self.is_cold.then(|| ("warm_up".to_owned(), "none".to_owned())).into_iter().collect(),
            populations: Vec::new(),
            rounds: self.rounds,
            elapsed_s: 120.0,
            violations: BTreeMap::new(),
            is_interrupted: false,
            model: None,
        }
    }

    fn seed(&self, seed: u64) -> Vec<RoundRecord> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed * 7919 + u64::from(self.contractors));
        (0..self.rounds).map(|round| self.round(round, &mut rng)).collect()
    }

    fn round(&self, round: u64, rng: &mut ChaCha12Rng) -> RoundRecord {
        let intended_us = round * 1_000_000;
        let delay = Exp::new(1.0 / self.delay_us).unwrap();
        let mut bids: Vec<BidRecord> = (0..self.contractors)
            .map(|contractor| {
                let (delay, cost) = (rng.sample(delay) as u64, 10.0 + 90.0 * rng.random::<f64>());
                let sent_us = intended_us + 300 + delay;
                BidRecord {
                    from: format!("contractor-{contractor:02}"),
                    position: None,
                    cost,
                    own_cost: Some(cost - 2.0),
                    delay_us: Some(delay),
                    sent_us,
                    stored_us: Some(sent_us + 200),
                    disposition: "late".into(),
                    is_injection: false,
                }
            })
            .collect();
        bids.retain(|_| rng.random_bool(self.answers));
        bids.sort_by_key(|bid| bid.sent_us);
        let wanted = match self.threshold {
            Some(threshold) => bids.iter().position(|bid| bid.cost <= threshold).map_or(bids.len(), |place| place + 1),
            None => bids.len().min(self.first as usize),
        };
        bids[..wanted].iter_mut().for_each(|bid| bid.disposition = "ok".into());
        if !self.is_late_offered {
            bids.truncate(wanted);
        }
        let is_complete = bids.len() == self.contractors as usize;
        let end = |bids: &[BidRecord]| bids[wanted - 1].stored_us.unwrap() + self.overhead_us - 500;
        let decided_us = (wanted > 0).then(|| end(&bids));
        let is_awarded = wanted > 0 && (is_complete || !self.is_strict);
        let award = is_awarded.then(|| self.chosen(&bids[..wanted], rng));
        RoundRecord {
            round,
            negotiation: Some(format!("alice~{round}")),
            intended_us,
            sent_us: intended_us + 20,
            stored_us: Some(intended_us + 200),
            is_warm_up: false,
            invited: self.contractors,
            decided_us,
            confirmed_us: decided_us.map(|at| at + 400),
            ended_us: decided_us.map(|at| at + 900),
            outcome: Some(if is_awarded { "completed" } else { "incomplete" }.into()),
            refusal: None,
            awards: award
                .map(|to| AwardRecord { to, at_us: decided_us.unwrap(), is_bound: true })
                .into_iter()
                .collect(),
            refusals: BTreeMap::new(),
            sent: BTreeMap::from([
                ("cfp".to_owned(), MessageCount { messages: 1, bytes: 500 }),
                ("offer".to_owned(), MessageCount { messages: bids.len() as u64, bytes: 400 * bids.len() as u64 }),
                ("inform".to_owned(), MessageCount { messages: self.extra_messages, bytes: 900 }),
            ]),
            delivered: BTreeMap::new(),
            retries: 0,
            duplicates: 0,
            dispositions: BTreeMap::new(),
            bargain: None,
            offers: bids,
        }
    }

    fn chosen(&self, in_time: &[BidRecord], rng: &mut ChaCha12Rng) -> String {
        let n = f64::from(self.contractors);
        let fair = 1.0 / n;
        let wanted = self.bias / (self.bias + n - 1.0);
        if rng.random_bool(((wanted - fair) / (1.0 - fair)).max(0.0)) {
            return in_time[0].from.clone();
        }
        in_time.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap().from.clone()
    }
}
