//! Reserve and budget, and parties talked into leaving their mandates.

use scripted::bargain::mandate_fuzz::{self, CASES};

/// Runs of the default test; `LLMX_HAGGLE_RUNS=10000` is the whole acceptance, as is `llmx-lab bargain --check`.
const RUNS: u64 = 1_200;

#[test]
fn a_deal_comes_where_reserve_and_budget_allow_one_and_no_party_leaves_its_mandate() {
    let asked = std::env::var("LLMX_HAGGLE_RUNS").ok();
    let runs = asked.map_or(RUNS, |runs| runs.parse().unwrap());
    let tally = mandate_fuzz::run(runs, 1, |_| std::ops::ControlFlow::Continue(())).unwrap();
    println!("{tally}");
    assert!(tally.holds(), "{tally}");
    assert_eq!(tally.runs, runs);
    for (case, (reserve, budget)) in CASES.into_iter().enumerate() {
        let wanted = if [0, 1, 2, 5].contains(&case) { tally.runs_of[case] } else { 0 };
        assert_eq!(tally.deals[case], wanted, "reserve {reserve}, budget {budget}");
    }
    assert!(tally.tried > runs && tally.injected > runs / 4 && tally.delegated > runs / 4, "too tame: {tally}");
}
