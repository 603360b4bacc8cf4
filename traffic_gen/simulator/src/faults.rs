//! What goes wrong in a run, drawn from its seed: the weather all the time, and single blows at certain times. Each kind
//! is absent from many runs, so that some get far where others cannot.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::scenario::Scenario;
use super::world::NetworkFaults;

/// Kinds of blows, see [`blow`].
const KINDS: u32 = 11;
/// In one run of so many the register holds entries of another history.
const FOREIGN_ONE_IN: u32 = 8;
/// Most blows of one run.
const BLOWS_MAX: usize = 8;

/// Something done to the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SingleFault {
    /// Done to one process, named by its place: gateways first, then engines.
    Process(usize, Harm),
    /// Done to the broker.
    Broker(Trouble),
}

/// Something done to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Harm {
    /// It is killed, and started again later.
    Kill { back_after_ms: u64 },
    /// It is killed by one of its next calls.
    KillAtCall { calls: u64, back_after_ms: u64 },
    /// It stands still.
    Stall { for_ms: u64 },
    /// It cannot reach the broker.
    Cut { for_ms: u64 },
    /// It is asked to leave, and another is started. Engines only.
    Leave { back_after_ms: u64 },
}

/// Something done to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is gone.
    Down { for_ms: u64 },
    /// The log is full.
    Full { for_ms: u64 },
    /// It does what it is asked and answers no call.
    Mute { for_ms: u64 },
    /// The log's clock jumps.
    Jump { by_us: i64 },
    /// No trouble: the archive has caught up with the log.
    Archived,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Faults {
    pub(super) weather: NetworkFaults,
    /// By milliseconds since the run began.
    pub(super) blows: Vec<(u64, SingleFault)>,
}

impl Faults {
    /// Draws what goes wrong with a scenario.
    pub(super) fn draw(seed: u64, scenario: &Scenario) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let kinds: Vec<u32> = (0..KINDS).filter(|_| rng.random_range(0..2) == 0).collect();
        let count = if kinds.is_empty() { 0 } else { rng.random_range(0..=BLOWS_MAX) };
        let mut blows: Vec<(u64, SingleFault)> = (0..count)
            .map(|_| {
                let kind = kinds[rng.random_range(0..kinds.len())];
                (rng.random_range(200..scenario.troubled_ms), blow(rng, kind, scenario))
            })
            .collect();
        blows.extend(scenario.stalls(rng));
        blows.extend(scenario.departures());
        blows.sort_by_key(|(at_ms, _)| *at_ms);
        let mut faults = Self { weather: weather(rng), blows };
        if scenario.are_gateways_spared {
            faults.spare_gateways(scenario.gateways);
        }
        faults
    }
}

impl Faults {
    /// Takes out whatever keeps a gateway from hearing the bus and knowing that it does.
    fn spare_gateways(&mut self, gateways: usize) {
        self.weather = NetworkFaults { slow: 0, request_lost: 0, answer_lost: 0, ..self.weather.clone() };
        self.blows.retain(|(_, blow)| match blow {
            SingleFault::Process(place, _) => *place >= gateways,
            SingleFault::Broker(Trouble::Down { .. } | Trouble::Mute { .. }) => false,
            SingleFault::Broker(Trouble::Full { .. } | Trouble::Jump { .. } | Trouble::Archived) => true,
        });
    }
}

fn blow(rng: &mut ChaCha8Rng, kind: u32, scenario: &Scenario) -> SingleFault {
    let anyone = rng.random_range(0..scenario.gateways + scenario.engines);
    let engine = scenario.gateways + rng.random_range(0..scenario.engines);
    // Engines hold state: most of the blows go to them.
    let process = if rng.random_range(0..4) == 0 { anyone } else { engine };
    let back_after_ms = rng.random_range(50..2500);
    let harm = |harm| SingleFault::Process(process, harm);
    match kind {
        0 | 1 => harm(Harm::KillAtCall { calls: rng.random_range(0..40), back_after_ms }),
        2 => harm(Harm::Kill { back_after_ms }),
        3 => harm(Harm::Stall { for_ms: rng.random_range(100..4000) }),
        4 => harm(Harm::Cut { for_ms: rng.random_range(100..3000) }),
        5 => SingleFault::Broker(Trouble::Down { for_ms: rng.random_range(50..1500) }),
        6 => SingleFault::Broker(Trouble::Full { for_ms: rng.random_range(50..1500) }),
        7 => SingleFault::Broker(Trouble::Jump { by_us: jump_us(rng) }),
        8 => SingleFault::Process(engine, Harm::Leave { back_after_ms }),
        // Sometimes longer than a gateway tries.
        9 => SingleFault::Broker(Trouble::Mute { for_ms: rng.random_range(200..7000) }),
        _ => SingleFault::Broker(Trouble::Archived),
    }
}

/// Small jumps mostly; sometimes a large one, back or ahead.
fn jump_us(rng: &mut ChaCha8Rng) -> i64 {
    match rng.random_range(0..4) {
        0 => rng.random_range(-3_000_000..0),
        1 => rng.random_range(0..3_000_000),
        _ => rng.random_range(-50_000..50_000),
    }
}

fn weather(rng: &mut ChaCha8Rng) -> NetworkFaults {
    let latency_us = rng.random_range(300..6000);
    let timeout_us = rng.random_range(150_000..900_000);
    if rng.random_range(0..5) == 0 {
        return NetworkFaults { latency_us, timeout_us, ..NetworkFaults::default() };
    }
    let mut rate = |most: u32| if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(1..=most) };
    NetworkFaults {
        latency_us,
        slow: rate(100),
        request_lost: rate(40),
        answer_lost: rate(40),
        append_twice: rate(80),
        message_lost: rate(100),
        message_twice: rate(80),
        slow_us: rng.random_range(20_000..400_000),
        timeout_us,
        register_foreign: if rng.random_range(0..FOREIGN_ONE_IN) == 0 { rng.random_range(50..=500) } else { 0 },
    }
}
