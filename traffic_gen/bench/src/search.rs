//! Searches over generated profiles: their time with few and with many agents, at rest and while agents register, what an
//! agent takes in memory, and how fast an index is built. On one thread, without a gateway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use schemas::AgentId;
use scripted::corpus::Corpus;
use search::{PostingsIndex, ProfileDocument, ProfileStanding, Query};

use super::rounds::{BenchError, stuck};
use super::usage::resident_bytes;

/// Searches that are timed.
const SEARCHES: usize = 4000;
/// Hits of each.
const HITS: usize = 10;
/// Agents a task is generated with.
const LABELLED: usize = 2;
/// Seed of the profiles that are searched.
const SEED: u64 = 1;
/// Seed of the profiles that agents register with meanwhile.
const SEED_LATER: u64 = 2;
/// Between two registrations meanwhile: a hundred a second.
const REGISTRATION_PERIOD: Duration = Duration::from_millis(10);

/// What a search costs among so many agents.
#[derive(Debug, Clone, Copy)]
pub struct SearchCost {
    /// Time of half of the searches at most, in milliseconds.
    pub p50_ms: f64,
    /// Time of 99 in 100 at most, in milliseconds.
    pub p99_ms: f64,
    /// The same while a hundred agents a second register.
    pub p99_registering_ms: f64,
    /// Memory of the index, per agent.
    pub bytes_per_agent: f64,
    /// Agents added per second.
    pub built_per_s: f64,
}

/// Measures among so many agents. Takes a minute among a million.
///
/// # Errors
/// [`BenchError::Stuck`] when a search finds fewer than its clauses must.
pub fn measure(agents: usize) -> Result<SearchCost, BenchError> {
    let mut corpus = Corpus::new(SEED);
    let mut index = PostingsIndex::default();
    let mut clauses = Vec::new();
    let (mut building, mut number) = (Duration::ZERO, 0);
    let resident_before = resident_bytes("self");
    while number < agents {
        let task = corpus.task(LABELLED);
        if clauses.len() < SEARCHES {
            clauses.extend(task.clauses);
        }
        for labelled in task.labelled {
            let began = Instant::now();
            index.put(&agent(number)?, document(&labelled.profile), ProfileStanding::Listed, ());
            building += began.elapsed();
            number += 1;
        }
    }
    let resident = resident_bytes("self").saturating_sub(resident_before);
    while clauses.len() < SEARCHES {
        clauses.extend(corpus.task(LABELLED).clauses);
    }
    clauses.truncate(SEARCHES);
    let index = RwLock::new(index);
    let at_rest = timed(&index, &clauses)?;
    let registering = while_registering(&index, agents, || timed(&index, &clauses))??;
    Ok(SearchCost {
        p50_ms: quantile(&at_rest, 50),
        p99_ms: quantile(&at_rest, 99),
        p99_registering_ms: quantile(&registering, 99),
        bytes_per_agent: resident as f64 / number as f64,
        built_per_s: number as f64 / building.as_secs_f64().max(f64::EPSILON),
    })
}

/// Times searches, in milliseconds, the shortest first.
fn timed(index: &RwLock<PostingsIndex<()>>, clauses: &[String]) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(clauses.len());
    for clause in clauses {
        let began = Instant::now();
        let query = Query::of_text(clause);
        let hits = index.read().search(&query, HITS, None, &|_, ()| true);
        times.push(1e3 * began.elapsed().as_secs_f64());
        if hits.len() < HITS {
            return Err(stuck(format!("{} hits, not {HITS}, for: {clause}", hits.len())));
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Measures while a hundred agents a second replace their registrations.
fn while_registering<R>(
    index: &RwLock<PostingsIndex<()>>,
    agents: usize,
    measure: impl FnOnce() -> R,
) -> Result<R, BenchError> {
    let is_over = AtomicBool::new(false);
    let registering = || {
        let mut corpus = Corpus::new(SEED_LATER);
        while !is_over.load(Ordering::Relaxed) {
            for labelled in corpus.task(LABELLED).labelled {
                let (agent, document) = (agent(corpus.below(agents))?, document(&labelled.profile));
                let mut index = index.write();
                index.put(&agent, document, ProfileStanding::Listed, ());
                drop(index);
                std::thread::sleep(REGISTRATION_PERIOD);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let registered = scope.spawn(registering);
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        let ended = registered.join();
        ended.map_err(|_| stuck("the registrations panicked"))?.map(|()| measured)
    })
}

fn agent(number: usize) -> Result<AgentId, BenchError> {
    AgentId::try_new(&format!("agent-{number}")).map_err(stuck)
}

fn document(profile: &str) -> ProfileDocument {
    ProfileDocument::of_texts([profile])
}

/// The time that so many in a hundred do not exceed.
fn quantile(times: &[f64], percent: usize) -> f64 {
    let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(index).copied().unwrap_or_default()
}
