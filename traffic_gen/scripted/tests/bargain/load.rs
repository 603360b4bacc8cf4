//! Many bargains at once through a whole exchange, judged from what the agents sent and received.

use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use gateway::LimitConfig;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::bargain::load::{BargainScenario, Bargains, Traded};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Invariant, Verdict, judge_mandates_by, recompute};
use traffic_gen::load::RunningLoad;
use traffic_gen::recorder::{Counts, Recorder};

/// What agents can see broken in bargains, each to be checked in every run.
const INVARIANTS: [Invariant; 8] = [
    Invariant::NoLostAdmission,
    Invariant::Recomputable,
    Invariant::Idempotent,
    Invariant::Absorbing,
    Invariant::Terminates,
    Invariant::TurnOrder,
    Invariant::Authentic,
    Invariant::Bounded,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bargains_under_every_policy_end_keep_every_invariant_and_no_party_gets_less_than_its_mandate_allows() {
    judge_mandates_by(policy_reference::is_inside);
    for policy in [None, Some("bargain-low"), Some("bargain-medium"), Some("bargain-high")] {
        let (traded, counts, verdict) = run(policy).await;
        assert_eq!(verdict.violated(), 0, "{policy:?}: {:?}", verdict.examples);
        for invariant in INVARIANTS {
            let is_checked = verdict.by_name.get(&invariant).is_some_and(|tally| tally.checked > 0);
            assert!(is_checked, "{policy:?}: {invariant:?} was never checked");
        }
        assert_eq!(traded.tally.bargains(), counts.cfps, "{policy:?}: every bargain ends");
        assert!(traded.tally.agreements() > 0 && traded.steps > counts.cfps, "{policy:?}: {traded:?}");
        assert_eq!(traded.tally.figures(None).irrational, 0, "{policy:?}");
        assert_eq!((traded.refused, traded.declined), (0, 0), "{policy:?}");
        assert!(counts.rejected.is_empty(), "{policy:?}: {:?}", counts.rejected);
    }
}

async fn run(policy: Option<&str>) -> (Traded, Counts, Verdict) {
    let limits = LimitConfig { requests_per_s: 100_000, burst: 100_000, ..LimitConfig::default() };
    let options = ExchangeOptions { limits, ..ExchangeOptions::default() };
    let exchange = Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap();
    let scenario = BargainScenario {
        agents: 7,
        protocol: Bargains { policy: policy.map(str::to_owned), ..Bargains::default() },
        rate: 40.0,
        duration: Duration::from_millis(500),
        ..BargainScenario::default()
    };
    let recorder = Recorder::start(Instant::now(), true, None);
    let load = RunningLoad::start_on::<Box<dyn std::error::Error>>(&exchange, scenario, recorder).await.unwrap();
    load.drive(Instant::now(), &CancellationToken::new()).await.unwrap();
    let (_, ledger) = load.stop().await.unwrap();
    let (counts, mut verdict) = ledger.recorder().finish().unwrap();
    recompute(&exchange.bus, &mut verdict).await.unwrap();
    exchange.check_bounds(&mut verdict);
    exchange.shutdown().await;
    (ledger.traded(), counts, verdict)
}
