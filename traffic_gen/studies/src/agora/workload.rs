//! Who asks whom for what: 85 assistants and 15 servers, and the queries of a seed.
//!
//! As in the paper on Agora: assistants have budgets of queries by a Pareto distribution of shape 0.5, each at least one query.
//! A budget is split over three kinds of task by one of shape 1, and all queries come in an order drawn at random.

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::conversation::PricedModel;
use super::task::{TaskData, TaskKind, tasks};

/// Agents that ask.
pub const ASSISTANTS: usize = 85;
/// Queries of a run.
pub const QUERIES: usize = 1000;
/// Document registries; an assistant uses one of them.
pub const REGISTRIES: usize = 3;
/// Kinds of task of one assistant.
const KINDS_EACH: usize = 3;
/// Where among the streams of a seed the workload draws.
const STREAM: u64 = 1;

/// An agent that asks.
#[derive(Debug, Clone)]
pub struct Assistant {
    /// Its name.
    pub name: String,
    /// Its model.
    pub model: PricedModel,
    /// The registry it uses, from 0.
    pub registry: usize,
}

/// An agent that answers.
#[derive(Debug, Clone)]
pub struct TaskServer {
    /// Its name.
    pub name: String,
    /// Its model.
    pub model: PricedModel,
    /// What it does.
    pub kind: &'static TaskKind,
}

/// One query.
#[derive(Debug, Clone)]
pub struct Query {
    /// Number of the assistant.
    pub assistant: usize,
    /// Number of the server.
    pub server: usize,
    /// What is asked.
    pub data: TaskData,
}

/// The agents and queries of a seed.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Who asks.
    pub assistants: Vec<Assistant>,
    /// Who answers.
    pub servers: Vec<TaskServer>,
    /// In their order.
    pub queries: Vec<Query>,
}

impl Workload {
    /// Draws the workload of a seed.
    pub fn drawn(seed: u64) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        let models = PricedModel::SHARES.iter().flat_map(|(model, count)| std::iter::repeat_n(*model, *count));
        let mut models: Vec<PricedModel> = models.collect();
        models.shuffle(&mut random);
        let (of_assistants, of_servers) = models.split_at(ASSISTANTS.min(models.len()));
        let assistant = |(number, model): (usize, &PricedModel)| Assistant {
            name: format!("assistant-{:02}", number + 1),
            model: *model,
            registry: number % REGISTRIES,
        };
        let server = |(number, (model, kind)): (usize, (&PricedModel, &'static TaskKind))| TaskServer {
            name: format!("server-{:02}", number + 1),
            model: *model,
            kind,
        };
        let assistants: Vec<Assistant> = of_assistants.iter().enumerate().map(assistant).collect();
        let servers: Vec<TaskServer> = of_servers.iter().zip(tasks().iter().cycle()).enumerate().map(server).collect();
        let queries = queries(&servers, &mut random);
        Self { assistants, servers, queries }
    }
}

fn queries(servers: &[TaskServer], random: &mut ChaCha12Rng) -> Vec<Query> {
    let weights: Vec<f64> = (0..ASSISTANTS).map(|_| pareto_of_shape_half(random)).collect();
    let budgets = split(QUERIES, 1, &weights);
    let mut queries = Vec::with_capacity(QUERIES);
    for (assistant, budget) in budgets.into_iter().enumerate() {
        let kinds: Vec<&TaskKind> = tasks().sample(random, KINDS_EACH).collect();
        let weights: Vec<f64> = kinds.iter().map(|_| pareto_of_shape_one(random)).collect();
        for (kind, count) in kinds.into_iter().zip(split(budget, 0, &weights)) {
            let able: Vec<usize> = (0_usize..)
                .zip(servers)
                .filter(|(_, server)| server.kind.name == kind.name)
                .map(|(at, _)| at)
                .collect();
            let Some(&server) = able.choose(random) else { continue };
            queries.extend((0..count).map(|_| Query { assistant, server, data: kind.drawn(random) }));
        }
    }
    queries.shuffle(random);
    queries
}

/// A number above 0, up to 1.
fn uniform(random: &mut ChaCha12Rng) -> f64 {
    1.0 - random.random::<f64>()
}

fn pareto_of_shape_half(random: &mut ChaCha12Rng) -> f64 {
    let uniform = uniform(random);
    1.0 / (uniform * uniform)
}

fn pareto_of_shape_one(random: &mut ChaCha12Rng) -> f64 {
    1.0 / uniform(random)
}

/// Splits a total by weights, each part with so much at least; what rounding leaves goes to the heaviest, one each.
fn split(total: usize, at_least: usize, weights: &[f64]) -> Vec<usize> {
    let rest = total.saturating_sub(at_least * weights.len());
    let sum: f64 = weights.iter().sum();
    let part = |weight: &f64| at_least + (rest as f64 * weight / sum).floor() as usize;
    let mut parts: Vec<usize> = weights.iter().map(part).collect();
    let mut heaviest: Vec<usize> = (0..weights.len()).collect();
    heaviest.sort_by(|one, other| {
        let weight = |at: &usize| weights.get(*at).copied().unwrap_or_default();
        weight(other).total_cmp(&weight(one))
    });
    let left = total.saturating_sub(parts.iter().sum());
    for at in heaviest.into_iter().cycle().take(left) {
        if let Some(part) = parts.get_mut(at) {
            *part += 1;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_workload_has_a_thousand_queries_of_assistants_with_one_to_three_kinds_each() {
        for seed in 1..=20 {
            let workload = Workload::drawn(seed);
            assert_eq!((workload.assistants.len(), workload.servers.len(), workload.queries.len()), (85, 15, 1000));
            for assistant in 0..ASSISTANTS {
                let own = workload.queries.iter().filter(|query| query.assistant == assistant);
                let kinds: BTreeSet<&str> =
                    own.map(|query| workload.servers[query.server].kind.name.as_str()).collect();
                assert!((1..=3).contains(&kinds.len()), "seed {seed}: {kinds:?}");
            }
        }
    }

    #[test]
    fn a_total_is_split_to_the_last_one_and_everybody_has_the_least() {
        assert_eq!(split(10, 1, &[1.0, 1.0, 6.0]), [2, 1, 7], "two are left: one for the heaviest, one for the next");
        assert_eq!(split(5, 0, &[1.0, 3.0]), [1, 4]);
        assert_eq!(split(3, 1, &[1e9, 1.0, 1.0]), [1, 1, 1]);
    }

    #[test]
    fn a_seed_draws_the_same_workload_again_and_another_seed_another() {
        let drawn = |seed| format!("{:?}", Workload::drawn(seed).queries);
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
