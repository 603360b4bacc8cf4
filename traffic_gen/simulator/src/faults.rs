//! What goes wrong in a run, drawn from its seed: the network all the time, processes and broker at certain times, agents
//! by occasion. Each kind is absent from many runs, so that some get far where others cannot.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use strum::VariantArray;

use super::Scenario;
use super::world::NetworkFaults;

/// Kinds of single faults, see [`single_fault`].
const KINDS: u32 = 11;
/// Gap between two looks of an archiver that follows the log, in milliseconds.
const ARCHIVED_MS: u64 = 150;
/// Most single faults of one run that are no theme's.
const SINGLE_FAULTS_MAX: usize = 8;

/// Something done to the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SingleFault {
    /// Done to one process, named by its place: gateways first, then engines.
    Process(usize, ProcessFault),
    /// Done to the broker.
    Broker(BrokerFault),
}

/// Something done to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessFault {
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
pub(super) enum BrokerFault {
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
    pub(super) network: NetworkFaults,
    /// By milliseconds since the run began.
    pub(super) single: Vec<(u64, SingleFault)>,
}

impl Faults {
    /// Draws what goes wrong with a scenario.
    pub(super) fn draw(seed: u64, scenario: &Scenario) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let kinds: Vec<u32> = (0..KINDS).filter(|_| rng.random_range(0..2) == 0).collect();
        let count = if kinds.is_empty() { 0 } else { rng.random_range(0..=SINGLE_FAULTS_MAX) };
        let mut single: Vec<(u64, SingleFault)> = (0..count)
            .map(|_| {
                let kind = kinds[rng.random_range(0..kinds.len())];
                (rng.random_range(200..scenario.troubled_ms), single_fault(rng, kind, scenario))
            })
            .collect();
        single.extend(super::scenario::usurped::stalls(scenario, rng));
        single.extend(scenario.upgrades.departures(scenario.gateways));
        single.extend(archived(scenario));
        single.sort_by_key(|(at_ms, _)| *at_ms);
        let mut faults = Self { network: NetworkFaults::draw(rng), single };
        if scenario.are_gateways_spared {
            faults.spare_gateways(scenario.gateways);
        }
        if let Some(paces) = scenario.paces {
            faults = Self { network: NetworkFaults::paced(paces), single: Vec::new() };
        }
        faults
    }

    /// Takes out whatever keeps a gateway from hearing the bus and knowing that it does.
    fn spare_gateways(&mut self, gateways: usize) {
        self.network.spare_gateways();
        self.single.retain(|(_, fault)| match fault {
            SingleFault::Process(place, _) => *place >= gateways,
            SingleFault::Broker(BrokerFault::Down { .. } | BrokerFault::Mute { .. }) => false,
            SingleFault::Broker(BrokerFault::Full { .. } | BrokerFault::Jump { .. } | BrokerFault::Archived) => true,
        });
    }
}

/// An archiver that follows the log, where entries of the register wait for one.
fn archived(scenario: &Scenario) -> impl Iterator<Item = (u64, SingleFault)> {
    let is_followed = scenario.settings.register_keep_ms > 0;
    let times = (1..scenario.troubled_ms / ARCHIVED_MS).filter(move |_| is_followed);
    times.map(|time| (time * ARCHIVED_MS, SingleFault::Broker(BrokerFault::Archived)))
}

fn single_fault(rng: &mut ChaCha8Rng, kind: u32, scenario: &Scenario) -> SingleFault {
    let anyone = rng.random_range(0..scenario.gateways + scenario.engines);
    let engine = scenario.gateways + rng.random_range(0..scenario.engines);
    // Engines hold state: most of the faults are theirs.
    let process = if rng.random_range(0..4) == 0 { anyone } else { engine };
    let back_after_ms = rng.random_range(50..2500);
    let of_process = |fault| SingleFault::Process(process, fault);
    match kind {
        0 | 1 => of_process(ProcessFault::KillAtCall { calls: rng.random_range(0..40), back_after_ms }),
        2 => of_process(ProcessFault::Kill { back_after_ms }),
        3 => of_process(ProcessFault::Stall { for_ms: rng.random_range(100..4000) }),
        4 => of_process(ProcessFault::Cut { for_ms: rng.random_range(100..3000) }),
        5 => SingleFault::Broker(BrokerFault::Down { for_ms: rng.random_range(50..1500) }),
        6 => SingleFault::Broker(BrokerFault::Full { for_ms: rng.random_range(50..1500) }),
        7 => SingleFault::Broker(BrokerFault::Jump { by_us: jump_us(rng) }),
        8 => SingleFault::Process(engine, ProcessFault::Leave { back_after_ms }),
        // Sometimes longer than a gateway tries.
        9 => SingleFault::Broker(BrokerFault::Mute { for_ms: rng.random_range(200..7000) }),
        _ => SingleFault::Broker(BrokerFault::Archived),
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

/// What an agent may do wrong, in the order in which its rates are drawn.
#[derive(Debug, Clone, Copy, strum::VariantArray)]
pub(super) enum AgentFault {
    /// A call is declined, in one of three ways.
    Decline,
    /// A call is not answered.
    Ignore,
    /// An offer comes after the deadline.
    OfferLate,
    /// An offer is replaced by another.
    Revise,
    /// An offer is withdrawn.
    Withdraw,
    /// An offer breaks the policy's gates.
    OfferUnfit,
    /// An offer is valid for a short time only.
    OfferBrief,
    /// An award is declined, in one of four ways.
    DeclineAward,
    /// An award is not answered.
    IgnoreAward,
    /// An award is confirmed too late.
    ConfirmLate,
    /// Another award is confirmed first.
    ConfirmWrong,
    /// The work fails.
    Fail,
    /// The work never ends.
    Dawdle,
    /// An initiator calls it off.
    Cancel,
    /// An initiator that may choose does not, or chooses what is not there.
    ChooseBadly,
    /// A message is sent again for no reason.
    Repeat,
    /// A message id is used for another body.
    Conflict,
    /// A message is sent under another's name.
    Forge,
    /// Something is said that nobody asked for.
    SpeakUnasked,
    /// A sequence number is lower than the one before.
    StaleSeq,
    /// A delivery is not acknowledged.
    AckSkip,
    /// It is acknowledged late.
    AckLate,
    /// It is acknowledged twice.
    AckTwice,
    /// The agent goes away and comes back.
    Reconnect,
    /// A bargain is left.
    Leave,
    /// Something is said in a bargain out of turn.
    SpeakOut,
    /// What the party's own mandate forbids is offered or accepted.
    Overreach,
}

impl AgentFault {
    /// The greatest rate, given that of most faults.
    const fn rate_max(self, most: u32) -> u32 {
        if matches!(self, Self::OfferUnfit | Self::ConfirmWrong) {
            most / 2
        } else if matches!(self, Self::Conflict | Self::Forge | Self::SpeakUnasked | Self::StaleSeq | Self::Leave) {
            most / 3
        } else if matches!(self, Self::Reconnect) {
            most / 5
        } else if matches!(self, Self::Overreach) {
            2 * most
        } else {
            most
        }
    }
}

/// How often an agent commits each fault, in per mille of the occasions.
#[derive(Debug, Clone)]
pub(super) struct AgentFaults([u32; AgentFault::VARIANTS.len()]);

impl AgentFaults {
    /// Half of the agents do what they should, some are a little careless, few are hopeless.
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Self {
        let mut faults = Self([0; AgentFault::VARIANTS.len()]);
        let most = match rng.random_range(0..8) {
            0..4 => return faults,
            4..7 => 150,
            _ => 500,
        };
        for fault in AgentFault::VARIANTS {
            // Each is absent from half of the agents, so that some runs go deep where others cannot.
            if rng.random_range(0..2) > 0 {
                faults.0[*fault as usize] = rng.random_range(0..=fault.rate_max(most));
            }
        }
        match rng.random_range(0..12) {
            0 => faults.0[AgentFault::AckSkip as usize] = 1000,
            1 => return Self::unreachable(),
            _ => {}
        }
        faults
    }

    /// One fault.
    pub(super) fn only(fault: AgentFault, rate: u32) -> Self {
        let mut faults = Self([0; AgentFault::VARIANTS.len()]);
        faults.0[fault as usize] = rate;
        faults
    }

    /// The agent answers and acknowledges nothing, so that deliveries to it are given up.
    pub(super) fn unreachable() -> Self {
        let mut faults = Self::only(AgentFault::AckSkip, 1000);
        faults.0[AgentFault::Ignore as usize] = 1000;
        faults
    }

    /// How often the agent commits a fault, in per mille.
    pub(super) const fn rate(&self, fault: AgentFault) -> u32 {
        self.0[fault as usize]
    }
}
