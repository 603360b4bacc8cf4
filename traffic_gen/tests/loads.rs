//! Loads on a real exchange: calls leave when they are due, and what delays them shows in every latency.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::control::ControlClient;
use agents::observer::{Observed, Observer};
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use parking_lot::Mutex;
use schemas::delivery::Notification;
use schemas::{Act, AgentId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};

async fn run(scenario: &CallScenario) -> (Counts, Vec<Instant>) {
    let bus = bus::memory::open(bus::memory::MemoryOptions::default());
    let exchange = Exchange::start(bus.clone(), ExchangeOptions::default()).await.unwrap();
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let transport = |_: &AgentId| Arc::new(BusTransport::new(&bus)) as Arc<dyn Transport>;
    let identity = |agent: &AgentId| exchange.identity(agent).unwrap();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let due = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&due);
    let listener = Box::new(move |_: &_, intended| noted.lock().push(intended));
    let recorder = Arc::new(Recorder::start(Instant::now(), false, None).with_due(listener));
    let population = Population::start(&access, scenario, Some(&recorder)).await.unwrap();
    live::call(&access, scenario, &recorder, &CancellationToken::new()).await.unwrap();
    population.stop().await.unwrap();
    exchange.shutdown().await;
    let due = due.lock().clone();
    (recorder.counts(), due)
}

/// Holds the initiator's loop up once, in the middle of the run.
struct Pause {
    calls: AtomicU64,
    length: Duration,
}

impl Observer for Pause {
    fn handle(&self, _: &AgentId, _: Instant, event: Observed<'_>) {
        let is_call = matches!(event, Observed::Transmitted { act: Act::Cfp, attempt: 1, .. });
        if is_call && self.calls.fetch_add(1, Ordering::Relaxed) == 50 {
            std::thread::sleep(self.length);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_generator_that_pauses_hides_nothing_from_the_quantiles() {
    let pause = Arc::new(Pause { calls: AtomicU64::new(0), length: Duration::from_secs(1) });
    let mut scenario = CallScenario {
        contractors: 2,
        rate: 50.0,
        duration: Duration::from_secs(3),
        load: "uniform".parse().unwrap(),
        ..CallScenario::default()
    };
    scenario.options.observer = Some(pause);
    let (counts, due) = run(&scenario).await;
    assert_eq!((due.len(), counts.cfps, counts.rounds), (150, 150, 150));
    // A third of the calls was due during the pause, and half of these waited for half of it.
    for (what, latency) in [("lag", counts.lag), ("decision", counts.decision), ("round", counts.round)] {
        let quantiles = latency.quantiles();
        assert!(quantiles.p95 > 700.0 && quantiles.max > 900.0, "{what}: {quantiles:?}");
        assert!(quantiles.p50 < 500.0, "{what}: {quantiles:?}");
    }
}

/// Calls open at once, at most.
#[derive(Default)]
struct OpenCalls {
    open: AtomicU64,
    most: AtomicU64,
}

impl Observer for OpenCalls {
    fn handle(&self, agent: &AgentId, _: Instant, event: Observed<'_>) {
        match event {
            Observed::Transmitted { act: Act::Cfp, attempt: 1, .. } => {
                let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(open, Ordering::Relaxed);
            }
            Observed::Delivered { delivery, is_repeat: false }
                if agent.as_str() == live::INITIATOR && matches!(delivery.payload, Notification::Closed(_)) =>
            {
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
            Observed::Connected
            | Observed::Disconnected
            | Observed::Transmitted { .. }
            | Observed::Settled { .. }
            | Observed::Deferred { .. }
            | Observed::Delivered { .. }
            | Observed::Decided { .. } => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_load_keeps_so_many_calls_open_and_no_more() {
    let seen = Arc::new(OpenCalls::default());
    let mut scenario = CallScenario {
        contractors: 2,
        duration: Duration::from_secs(2),
        load: "closed:3:0.01".parse().unwrap(),
        ..CallScenario::default()
    };
    scenario.options.observer = Some(Arc::clone(&seen) as _);
    let (counts, due) = run(&scenario).await;
    assert_eq!(seen.most.load(Ordering::Relaxed), 3);
    assert!(counts.rounds > 20 && counts.rounds == due.len() as u64, "{counts:?}");
}
