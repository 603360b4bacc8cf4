//! Strategies and alternation against runs of NegMAS 0.16.0 (`data/alternating_offers.jsonl`): every offer, every end.

use std::sync::Arc;

use agents::bargain::{BargainRules, BargainStrategy, Domain, Move, OfferMade, Preferences, StrategyKind, TurnView};
use serde::Deserialize;

/// One domain and its runs.
#[derive(Deserialize)]
struct Vector {
    id: String,
    dims: Vec<usize>,
    u0: Vec<f64>,
    u1: Vec<f64>,
    reserved: [f64; 2],
    runs: Vec<Run>,
}

/// One run.
#[derive(Deserialize)]
struct Run {
    /// A letter per party: Boulware, linear, conceder.
    spec: String,
    n_steps: u32,
    /// (round from 0, party, outcome) of each offer.
    trace: Vec<(u32, usize, usize)>,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, PartialEq, Deserialize)]
struct End {
    agreement: Option<usize>,
    timedout: bool,
    broken: bool,
    /// Rounds begun.
    steps: u32,
}

#[test]
fn every_run_of_the_sample_is_repeated_offer_by_offer() {
    let vectors: Vec<Vector> =
        include_str!("data/alternating_offers.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut runs = 0;
    for vector in &vectors {
        let tables = vec![(vector.u0.clone(), vector.reserved[0]), (vector.u1.clone(), vector.reserved[1])];
        let domain = Domain::tabular(&vector.id, &vector.dims, tables, BargainRules::default()).unwrap();
        let preferences = [0, 1].map(|party| domain.preferences(party).unwrap());
        for run in &vector.runs {
            let name = format!("{} {} {}", vector.id, run.spec, run.n_steps);
            let (trace, end) = alternate(&preferences, &run.spec, run.n_steps);
            assert_eq!(trace, run.trace, "{name}");
            assert_eq!(end, run.end, "{name}");
            runs += 1;
        }
    }
    assert_eq!((vectors.len(), runs), (8, 280));
}

fn alternate(preferences: &[Arc<Preferences>; 2], spec: &str, rounds: u32) -> (Vec<(u32, usize, usize)>, End) {
    let strategy = |(preferences, letter): (&Arc<Preferences>, char)| -> Box<dyn BargainStrategy> {
        let kind = match letter {
            'B' => StrategyKind::Boulware,
            'L' => StrategyKind::Linear,
            'C' => StrategyKind::Conceder,
            other => panic!("no strategy {other}"),
        };
        kind.build(preferences.clone(), 0)
    };
    let mut strategies: Vec<_> = preferences.iter().zip(spec.chars()).map(strategy).collect();
    let mut offers: Vec<OfferMade> = Vec::new();
    let trace =
        |offers: &[OfferMade]| offers.iter().map(|offer| (offer.round - 1, offer.party, offer.outcome)).collect();
    for step in 0..2 * rounds {
        let (party, round) = (step as usize % 2, step / 2 + 1);
        let standing = offers.last().map(|offer| offer.outcome);
        let t = TurnView::relative_time(round, rounds);
        let view = TurnView { party, parties: 2, round, rounds: Some(rounds), t, standing, offers: &offers };
        let end = |agreement, broken| End { agreement, timedout: false, broken, steps: round };
        match strategies[party].decide(&view) {
            Move::Offer(outcome) => offers.push(OfferMade { step, round, party, outcome }),
            Move::Accept => return (trace(&offers), end(standing, false)),
            Move::End => return (trace(&offers), end(None, true)),
        }
    }
    (trace(&offers), End { agreement: None, timedout: true, broken: false, steps: rounds })
}
