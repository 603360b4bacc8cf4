//! Runs of NegMAS 0.16.0 that every implementation of the protocol must repeat.

use std::sync::Arc;

use agents::bargain::strategy::TimeDependent;
use agents::bargain::{BargainStrategy, Preferences, Space};
use schemas::AgentId;
use schemas::bargain::{BargainSpec, Issue, IssueValues};
use schemas::ids::AttrName;
use serde::Deserialize;
use traffic_gen::bargain::analysis::Plane;
use traffic_gen::bargain::{BargainEnd, Played};

/// One domain with its runs.
#[derive(Debug, Deserialize)]
pub(crate) struct Vector {
    pub(crate) id: String,
    pub(crate) dims: Vec<usize>,
    pub(crate) u0: Vec<f64>,
    pub(crate) u1: Vec<f64>,
    pub(crate) reserved: [f64; 2],
    pub(crate) stats: Stats,
    pub(crate) runs: Vec<Run>,
}

/// What stands out in the domain.
#[derive(Debug, Deserialize)]
pub(crate) struct Stats {
    pub(crate) pareto: Vec<usize>,
    pub(crate) nash: Vec<usize>,
    pub(crate) kalai: Vec<usize>,
    pub(crate) ks: Vec<usize>,
    pub(crate) max_welfare: Vec<usize>,
    pub(crate) opposition: f64,
}

/// One run.
#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    /// A letter per party: Boulware, linear, conceder.
    pub(crate) spec: String,
    pub(crate) n_steps: u32,
    /// (round from 0, party, outcome) of each offer.
    pub(crate) trace: Vec<(u32, usize, usize)>,
    pub(crate) agreement: Option<usize>,
    pub(crate) timedout: bool,
    pub(crate) broken: bool,
    /// Rounds begun.
    pub(crate) steps: u32,
}

impl Vector {
    pub(crate) fn issues(&self) -> Vec<Issue> {
        let issue = |(number, &size): (usize, &usize)| {
            let name = AttrName::try_new(&format!("issue_{number}")).unwrap();
            Issue { name, values: IssueValues::Range { min: 0, max: i64::try_from(size).unwrap() - 1 } }
        };
        self.dims.iter().enumerate().map(issue).collect()
    }

    pub(crate) fn space(&self) -> Space {
        Space::try_new(self.issues()).unwrap()
    }

    pub(crate) fn rules(&self, run: &Run) -> BargainSpec {
        BargainSpec {
            issues: self.issues(),
            rounds: Some(run.n_steps),
            deadline_ms: None,
            step_ms: 60_000,
            confirm_ms: None,
            forbid_repeat: false,
            max_strikes: 3,
        }
    }

    pub(crate) fn strategies(&self, run: &Run) -> Vec<Box<dyn BargainStrategy>> {
        let parties = [(&self.u0, self.reserved[0]), (&self.u1, self.reserved[1])];
        let build = |((utilities, reserved), letter): ((&Vec<f64>, f64), char)| -> Box<dyn BargainStrategy> {
            let preferences = Arc::new(Preferences::try_new(utilities.clone(), reserved, |_| true).unwrap());
            Box::new(match letter {
                'B' => TimeDependent::boulware(preferences),
                'L' => TimeDependent::linear(preferences),
                'C' => TimeDependent::conceder(preferences),
                other => panic!("{}: no strategy is called {other}", self.id),
            })
        };
        parties.into_iter().zip(run.spec.chars()).map(build).collect()
    }

    /// Trace, agreement, end and steps are the sample's.
    pub(crate) fn compare(&self, run: &Run, played: &Played) {
        let at = format!("{} {} over {} rounds", self.id, run.spec, run.n_steps);
        let trace: Vec<_> = played.trace.iter().map(|made| (made.round - 1, made.party, made.outcome)).collect();
        assert_eq!(trace, run.trace, "{at}: trace");
        assert_eq!(played.agreement(), run.agreement, "{at}: agreement");
        assert_eq!(matches!(played.end, BargainEnd::NoAgreement { .. }), run.timedout, "{at}: timed out");
        assert_eq!(matches!(played.end, BargainEnd::Ended { .. }), run.broken, "{at}: broken");
        assert_eq!(played.rounds, run.steps, "{at}: steps");
        let turns = run.trace.len() + usize::from(run.agreement.is_some());
        assert_eq!(played.steps as usize, turns, "{at}: turns taken");
    }
}

/// The name of a party; the order of turns is that of the names.
pub(crate) fn name(party: usize) -> AgentId {
    AgentId::try_new(&format!("party-{party}")).unwrap()
}

/// All of them.
pub(crate) fn all() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agents/tests/data/alternating_offers.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let vectors: Vec<Vector> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!vectors.is_empty(), "{path} holds no vectors");
    vectors
}

#[test]
fn the_statistics_of_every_domain_are_those_of_negmas() {
    for vector in all() {
        let plane = Plane::try_new(&[vector.u0, vector.u1], &vector.reserved).unwrap();
        let (ours, theirs) = (plane.solutions(), vector.stats);
        assert_eq!(ours.pareto, theirs.pareto, "{}: Pareto", vector.id);
        assert_eq!(ours.nash, theirs.nash, "{}: Nash", vector.id);
        assert_eq!(ours.kalai, theirs.kalai, "{}: Kalai", vector.id);
        assert_eq!(ours.kalai_smorodinsky, theirs.ks, "{}: Kalai-Smorodinsky", vector.id);
        assert_eq!(ours.max_welfare, theirs.max_welfare, "{}: welfare", vector.id);
        let opposition = ours.opposition.unwrap();
        assert!((opposition - theirs.opposition).abs() < 1e-9, "{}: {opposition}", vector.id);
    }
}
