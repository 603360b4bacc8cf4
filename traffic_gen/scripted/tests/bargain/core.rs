//! The sample through the core alone.

use scripted::bargain::in_memory::InMemoryExchange;
use scripted::bargain::run;
use traffic_gen::bargain::matchup::SessionParty;

use crate::vectors::{all, name};

#[test]
fn every_run_of_the_sample_is_repeated_by_the_core_alone() {
    let mut runs = 0;
    for vector in all() {
        let mut exchange = InMemoryExchange::default();
        let parties = [SessionParty::new(name(0)), SessionParty::new(name(1))];
        for run in &vector.runs {
            let mut strategies = vector.strategies(run);
            let rules = vector.rules(run);
            let played =
                run::run(&mut exchange, &format!("run-{runs}"), &parties, &rules, &vector.space(), &mut strategies)
                    .unwrap();
            vector.compare(run, &played);
            runs += 1;
        }
        assert!(exchange.is_ordered(), "{}: something was told before it was registered", vector.id);
    }
    println!("{runs} runs");
}
