//! A place where one process runs, and after it the next.

use std::sync::Arc;

use gateway::{Gateway, GatewayConfig, GatewayHandle, GatewayMetrics};
use parking_lot::Mutex;
use policy_engine::{ClockConfig, Engine, EngineConfig, EngineHandle, EngineMetrics, LaneStatus, OutboxConfig};
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Failed;
use crate::world::{Intervention, LinkId, ProcessRole, World};
use crate::{Scenario, keys};

/// See the module.
pub(super) struct Slot {
    role: ProcessRole,
    index: usize,
    place: usize,
    incarnation: u32,
    world: Arc<World>,
    scenario: Arc<Scenario>,
    failures: mpsc::UnboundedSender<Failed>,
    link: Option<LinkId>,
    running: Arc<Mutex<Option<Running>>>,
    starting: Option<JoinHandle<()>>,
    /// When it is started again after a call has killed it, in milliseconds.
    pub(super) back_after_ms: u64,
    /// Setting of the engines that run here.
    pub(super) in_flight_max: usize,
}

/// A process that has started; it stops when this is dropped.
enum Running {
    Gateway(GatewayHandle),
    Engine(EngineHandle),
}

impl Slot {
    pub(super) fn new(
        role: ProcessRole,
        index: usize,
        world: Arc<World>,
        scenario: Arc<Scenario>,
        failures: mpsc::UnboundedSender<Failed>,
    ) -> Self {
        let place = if role == ProcessRole::Engine { scenario.gateways + index } else { index };
        let (link, running, starting) = (None, Arc::default(), None);
        let in_flight_max = scenario.settings.outbox.in_flight_max;
        Self {
            role,
            index,
            place,
            incarnation: 0,
            world,
            scenario,
            failures,
            link,
            running,
            starting,
            back_after_ms: 0,
            in_flight_max,
        }
    }

    /// The name of the process that runs here, or ran last: unique among all.
    pub(super) fn name(&self) -> String {
        let role = if self.role == ProcessRole::Engine { "engine" } else { "gateway" };
        format!("{role}-{}-{}", self.index, self.incarnation)
    }

    pub(super) fn role(&self) -> ProcessRole {
        self.role
    }

    pub(super) fn link(&self) -> Option<LinkId> {
        self.link
    }

    pub(super) fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    /// Whether this is the process that runs here now.
    pub(super) fn is(&self, incarnation: u32) -> bool {
        self.link.is_some() && self.incarnation == incarnation
    }

    /// Whether a process has started and not ended.
    pub(super) fn is_running(&self) -> bool {
        self.running.lock().is_some()
    }

    /// What an engine says of its lanes.
    pub(super) fn lanes(&self) -> Option<Vec<LaneStatus>> {
        match &*self.running.lock() {
            Some(Running::Engine(engine)) => Some(engine.status().lanes),
            Some(Running::Gateway(_)) | None => None,
        }
    }

    /// Starts the next process, unless one runs here.
    pub(super) fn start(&mut self) {
        if self.link.is_some() {
            return;
        }
        self.incarnation += 1;
        let (name, role) = (self.name(), self.role);
        self.world.note(format!("{name} starts"));
        let (link, bus) = self.world.connect(name.clone(), role);
        self.link = Some(link);
        self.running = Arc::default();
        let (running, failures) = (Arc::clone(&self.running), self.failures.clone());
        let (process, incarnation, in_flight_max) = (self.place, self.incarnation, self.in_flight_max);
        let (world, scenario) = (Arc::clone(&self.world), Arc::clone(&self.scenario));
        let rules_newest = scenario.upgrades.rules_newest(self.index, world.elapsed_ms());
        self.starting = Some(tokio::spawn(async move {
            let started = match role {
                ProcessRole::Engine => {
                    let config = engine_config(name, in_flight_max, rules_newest, &world, &scenario);
                    start_engine(bus, config).await.map(Running::Engine)
                }
                ProcessRole::Gateway | ProcessRole::Agent => {
                    start_gateway(bus, name, scenario.append_ms).await.map(Running::Gateway)
                }
            };
            match started {
                Ok(started) => {
                    if let Running::Gateway(gateway) = &started {
                        world.set_gateway(link, Some(gateway));
                    }
                    *running.lock() = Some(started);
                }
                // The manager ends only with the run.
                Err(why) => drop(failures.send(Failed { process, incarnation, why })),
            }
        }));
    }

    /// Forgets the process, which is dead already.
    pub(super) fn abandon(&mut self) {
        if let Some(starting) = self.starting.take() {
            starting.abort();
        }
        *self.running.lock() = None;
        if let Some(link) = self.link.take() {
            self.world.set_gateway(link, None);
        }
    }

    /// Asks an engine to leave; whether one runs here. It goes on by itself, on its own link, until it has left.
    pub(super) fn leave(&mut self) -> bool {
        let engine = {
            let mut running = self.running.lock();
            match running.take() {
                Some(Running::Engine(engine)) => engine,
                other => {
                    *running = other;
                    return false;
                }
            }
        };
        let (world, link) = (Arc::clone(&self.world), self.link.take());
        tokio::spawn(async move {
            engine.shutdown().await;
            if let Some(link) = link {
                world.apply(Intervention::Kill(link));
            }
        });
        true
    }
}

fn engine_config(
    id: String,
    in_flight_max: usize,
    rules_newest: Option<u32>,
    world: &Arc<World>,
    scenario: &Scenario,
) -> EngineConfig {
    let (settings, clock) = (scenario.settings.clone(), Arc::clone(world));
    EngineConfig {
        id,
        outbox: OutboxConfig { in_flight_max, ..settings.outbox },
        clock: ClockConfig { now: Arc::new(move || clock.now()), ..ClockConfig::default() },
        rules_newest: rules_newest.unwrap_or(settings.rules_newest),
        ..settings
    }
}

async fn start_engine(bus: bus::Bus, config: EngineConfig) -> Result<EngineHandle, String> {
    let metrics = EngineMetrics::new(&Registry::new()).map_err(|error| error.to_string())?;
    Engine::start(bus, config, Arc::new(metrics), None).await.map_err(|error| error.to_string())
}

async fn start_gateway(bus: bus::Bus, id: String, append_ms: u64) -> Result<GatewayHandle, String> {
    let mut config = GatewayConfig::new(keys::auth());
    config.id = id;
    config.listen = None;
    // Rates are kept by the real clock, which stands still here: nobody may reach them.
    config.limits.requests_per_s = 1_000_000;
    config.limits.burst = 1_000_000;
    config.limits.append_ms = append_ms;
    let metrics = GatewayMetrics::new(&Registry::new()).map_err(|error| error.to_string())?;
    Gateway::start(bus, config, Arc::new(metrics)).await.map_err(|error| error.to_string())
}
