//! A leak planted into a running exchange is found by its soak.

use std::time::Duration;

use bus::memory::MemoryOptions;
use prometheus::Registry;
use studies::soak::drift::Drift;
use studies::soak::report::SoakVerdict;
use studies::soak::sample::SoakFolder;
use studies::soak::subject::Soak;
use studies::soak::{Place, SoakFaults, SoakPlan};
use telemetry::metrics::process::{self, Build};
use tokio_util::sync::CancellationToken;

const MIB: usize = 1024 * 1024;
/// What leaks every half second: at the rate of 1 MiB a minute a run of minutes would be needed.
const LEAK: usize = 2 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_leaks_is_found() {
    let out = tempfile::tempdir().expect("a folder");
    let plan = SoakPlan {
        place: Place::Embedded,
        agents: 3,
        policy: "high@1".to_owned(),
        rate: 5.0,
        faults: SoakFaults::None,
        sample_s: 0.5,
        seed: 1,
        metrics: Vec::new(),
        duration_s: 20.0,
    };
    let registry = Registry::new();
    process::register(&registry, Build { version: "0", git_sha: "unknown", rustc: "unknown" }).expect("a new registry");
    let leak = tokio::spawn(async {
        let mut leaked: Vec<Vec<u8>> = Vec::new();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            leaked.push(vec![1; LEAK]);
        }
    });
    let soak = Soak {
        folder: SoakFolder::open(out.path(), &plan).expect("a new folder"),
        policy: policy_core::preset("high"),
        registry,
        cancel: CancellationToken::new(),
        progress: &|_| {},
    };
    let report =
        Box::pin(soak.in_process(bus::memory::open(MemoryOptions::default()), Vec::new())).await.expect("a report");
    leak.abort();
    let memory = report.series.iter().find(|series| series.series == "llmx/memory").expect("memory is measured");
    assert_eq!((memory.drift, report.verdict), (Drift::Drifting, SoakVerdict::Drifting), "{report}");
    let per_hour = (LEAK * 2 * 3600) as f64;
    let slope = memory.slope_per_hour.expect("a slope");
    assert!((0.7 * per_hour..1.5 * per_hour).contains(&slope), "{slope} bytes an hour are not {per_hour}");
}
