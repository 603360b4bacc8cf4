//! An engine that is stopped for a while and wakes as a zombie changes nothing: what it still sends, agents have already
//! and drop; what it still logs or registers is what stands there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod freezer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agents::Identity;
use agents::control::ControlClient;
use agents::transport::bus::BusTransport;
use agents::transport::faulty::{Faults, FaultyTransport};
use agents::transport::{Connection, Transport, TransportError};
use bus::Bus;
use bus::memory::{self, MemoryOptions};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics, LanePhase};
use prometheus::Registry;
use schemas::{AgentId, DeliveryId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::recompute;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::Recorder;

use crate::freezer::{Freezer, Point};

/// Stale deliveries that must have been seen by agents.
const STALE_MIN: usize = 100;
/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a woken engine sends before it reads on.
const BLIND: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_wakes_as_a_zombie_changes_nothing_wherever_it_was_stopped() {
    let bus = memory::open(MemoryOptions::default());
    let exchange = Exchange::start(bus.clone(), ExchangeOptions::default()).await.unwrap();
    let freezer = Freezer::new();
    let zombie = second_engine(&freezer.wrap(&bus)).await;
    until("the second engine owns a lane", || owned(&zombie) > 0).await;

    let (recorder, heard) = (Arc::new(Recorder::start(Instant::now(), true, None)), Heard::default());
    let stop = CancellationToken::new();
    tokio::join!(run(&exchange, &recorder, &heard, &stop), async {
        freeze_and_thaw(&freezer, &exchange, &zombie).await;
        stop.cancel();
    });
    let (counts, mut verdict) = recorder.finish().unwrap();

    let seen = freezer.stale().iter().filter(|id| heard.times(**id) > 1).count();
    assert!(seen >= STALE_MIN, "{seen} stale deliveries reached agents");
    let report = recompute(&bus, &mut verdict).await.unwrap();
    assert_eq!(report.first_difference, None);
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    assert!(counts.cfps > 0);
    assert_eq!((counts.rounds, counts.awarded), (counts.cfps, counts.cfps), "{:?}", counts.outcomes);
    zombie.shutdown().await;
    exchange.shutdown().await;
}

/// Stops the engine at each point in turn, lets the other take over, and wakes it, until it has sent enough.
async fn freeze_and_thaw(freezer: &Freezer, exchange: &Exchange, zombie: &EngineHandle) {
    let lanes = exchange.engine().status().lanes.len();
    loop {
        for point in [Point::Register, Point::Send, Point::Append] {
            freezer.arm(point);
            freezer.until_frozen().await;
            until("the other engine takes every lane over", || owned(exchange.engine()) == lanes).await;
            freezer.thaw(BLIND).await;
            until("the zombie takes its lanes back", || owned(zombie) > 0).await;
        }
        if freezer.stale().len() > 2 * STALE_MIN {
            return;
        }
    }
}

/// Calls until told to stop, among contractors whose first acknowledgement of everything is lost: so that there is
/// always much that an engine would send again.
async fn run(exchange: &Exchange, recorder: &Arc<Recorder>, heard: &Heard, stop: &CancellationToken) {
    let scenario =
        CallScenario { rate: 40.0, duration: 2 * PATIENCE, reply_within_ms: 20_000, ..CallScenario::default() };
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let transport = |_: &AgentId| -> Arc<dyn Transport> {
        let faults = Faults { drop_acks: 1, ..Faults::default() };
        Arc::new(FaultyTransport::new(
            Listening { inner: BusTransport::new(&exchange.bus), heard: heard.clone() },
            faults,
        ))
    };
    let identity = |name: &AgentId| exchange.identity(name).unwrap();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let population = Population::start(&access, &scenario, Some(recorder)).await.unwrap();
    live::call(&access, &scenario, recorder, stop).await.unwrap();
    population.stop().await.unwrap();
}

/// Another engine of the same exchange, on a handle of its own.
async fn second_engine(bus: &Bus) -> EngineHandle {
    let metrics = Arc::new(EngineMetrics::new(&Registry::new()).unwrap());
    Engine::start(bus.clone(), EngineConfig::new("zombie"), metrics, None).await.unwrap()
}

/// Lanes an engine owns.
fn owned(engine: &EngineHandle) -> usize {
    engine.status().lanes.iter().filter(|lane| lane.phase == LanePhase::Owner).count()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How often agents were given each delivery.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<BTreeMap<DeliveryId, u32>>>);

impl Heard {
    fn times(&self, id: DeliveryId) -> u32 {
        self.0.lock().get(&id).copied().unwrap_or_default()
    }
}

/// A transport whose inbox is counted.
struct Listening {
    inner: BusTransport,
    heard: Heard,
}

impl Transport for Listening {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let Connection { link, inbox } = self.inner.connect(identity).await?;
            let heard = self.heard.clone();
            let inbox = inbox.inspect(move |message| {
                let mut times = heard.0.lock();
                message.deliveries.iter().for_each(|one| *times.entry(one.envelope.msg_id).or_default() += 1);
            });
            Ok(Connection { link, inbox: inbox.boxed() })
        }
        .boxed()
    }
}
