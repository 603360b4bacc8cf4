//! What a run consists of, drawn from its seed: how many of everything, which settings, which policies, who calls whom
//! when. What goes wrong is in `faults`.

mod bargains;
mod english_auction;
mod flooded;
mod leases;
mod panels;
mod policies;
mod reputations;
pub(super) mod teams;
mod upgraded;
pub(super) mod usurped;

use policy_core::Limits;
use policy_engine::{BatchConfig, CheckpointConfig, EngineConfig, MembershipConfig, OutboxConfig, Trim};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::control::{Consent, ConsentEffect, Group, ReceiptPreference, Registration};
use schemas::document::CallDocuments;
use schemas::ids::{AttrName, Capability, DomainName};
use schemas::payload::Cfp;
use schemas::record::Qos;
use schemas::{Address, AgentId, DocumentHash, GroupId, Policy, TopicName};

use super::faults::AgentFaults;
use super::{AgentPlan, CallPlan, Scenario};
pub(super) use upgraded::Upgrades;

/// Names of initiators. In a flooded run the first one calls too much.
pub(super) const INITIATORS: [&str; 2] = ["ann", "ben"];
/// Names of contractors.
pub(super) const CONTRACTORS: [&str; 6] = ["cat", "dan", "eve", "fay", "gus", "hal"];
/// The topic contractors subscribe to.
const TOPIC: &str = "courier";
/// Calls that name protocol documents: one in so many.
const DOCUMENTS_ONE_IN: u32 = 2;
/// Calls with documents that require one: one in so many.
const REQUIRE_ONE_IN: u32 = 3;
/// Runs with many lanes and engines: one in so many.
const SPREAD_ONE_IN: u32 = 4;
/// The group they are members of.
const GROUP: &str = "crew";

impl Scenario {
    /// Draws a scenario.
    pub(super) fn draw(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let troubled_ms = rng.random_range(3000..8000);
        let policies: Vec<Policy> = (0..2).map(|n| policies::draw(rng, &format!("p{n}@1"))).collect();
        let contractors = rng.random_range(3..=CONTRACTORS.len());
        let names: Vec<AgentId> = CONTRACTORS[..contractors].iter().map(|name| agent(name)).collect();
        let qos = if rng.random_range(0..3) == 0 { Qos::BestEffort } else { Qos::AtLeastOnce };
        let group = Group { id: group(), members: names.clone(), qos };
        let mut agents: Vec<AgentPlan> = names.iter().map(|id| plan(rng, id, Vec::new())).collect();
        for name in &INITIATORS[..rng.random_range(1..=INITIATORS.len())] {
            let id = agent(name);
            let calls = (0..rng.random_range(1..=4)).map(|n| call(rng, &id, n, &names, troubled_ms)).collect();
            agents.push(plan(rng, &id, calls));
        }
        let mut scenario = Self {
            lanes: if rng.random_range(0..5) < 3 { 1 } else { 2 },
            gateways: rng.random_range(1..=2),
            engines: [1, 2, 2, 2, 2, 2, 2, 3, 3, 3][rng.random_range(0..10)],
            troubled_ms,
            policies,
            agents,
            group,
            settings: settings(rng),
            append_ms: rng.random_range(300..3000),
            is_usurped: rng.random_range(0..usurped::USURPED_ONE_IN) == 0,
            are_gateways_spared: false,
            upgrades: Upgrades::default(),
            paces: None,
        };
        if scenario.is_usurped {
            usurped::apply(&mut scenario, rng);
        }
        let bargains = rng.random();
        scenario.spread(rng.random());
        scenario.upgrades = Upgrades::draw(rng.random(), &scenario);
        leases::add(&mut scenario, rng.random());
        expire(&mut scenario.settings, rng.random());
        scenario.name_documents(rng.random());
        bargains::add(&mut scenario, bargains);
        let panels = rng.random();
        teams::add(&mut scenario, rng.random());
        panels::add(&mut scenario, panels);
        reputations::add(&mut scenario, rng.random());
        panels::choose_seats(&mut scenario, rng.random());
        let flooded = rng.random();
        english_auction::add(&mut scenario, rng.random());
        flooded::apply(&mut scenario, flooded);
        scenario
    }

    /// Adds protocol documents to calls. They draw from a generator of their own: other runs stay as they are.
    fn name_documents(&mut self, seed: u64) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        for call in self.agents.iter_mut().flat_map(|plan| &mut plan.calls) {
            if rng.random_range(0..DOCUMENTS_ONE_IN) == 0 {
                let mut hashes = known_documents();
                hashes.shuffle(rng);
                hashes.truncate(rng.random_range(1..=hashes.len()));
                call.cfp.documents = Some(CallDocuments { hashes, require: rng.random_range(0..REQUIRE_ONE_IN) == 0 });
            }
        }
    }

    /// Draws how many engines stand by for each lane, and the theme of some runs: more lanes and engines, so that most engines
    /// fold only some lanes, and take up and let go of others as engines come and go.
    fn spread(&mut self, seed: u64) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        self.settings.standbys = [0, 0, 1, 1, 1, 2][rng.random_range(0..6)];
        if rng.random_range(0..SPREAD_ONE_IN) == 0 {
            (self.lanes, self.engines) = (rng.random_range(2..=4), rng.random_range(3..=4));
            self.settings.standbys = rng.random_range(0..2);
        }
    }
}

/// How engines of the run are set.
fn settings(rng: &mut ChaCha8Rng) -> EngineConfig {
    let limits = Limits {
        open_max: if rng.random_range(0..12) == 0 { 2 } else { 64 },
        tombstones_max: 256,
        // Longer than the latest repetition of a message travels: see `agents::submission` and `faults`.
        tombstone_grace_ms: rng.random_range(30_000..60_000),
        stranger_receipt_ms: rng.random_range(500..2500),
        ..Limits::default()
    };
    let outbox = OutboxConfig {
        retry_base_ms: rng.random_range(60..400),
        retry_ms_max: rng.random_range(400..1500),
        attempts_max: rng.random_range(2..9),
        in_flight_max: if rng.random_range(0..6) == 0 { rng.random_range(16..=32) } else { 4096 },
        per_agent_max: if rng.random_range(0..12) == 0 { 6 } else { 512 },
        bundle_deliveries_max: [1, 2, 256][rng.random_range(0..3)],
        under_way_max: [2, 16, 1024][rng.random_range(0..3)],
        under_way_min: rng.random_range(1..=2),
        ..OutboxConfig::default()
    };
    let batch = BatchConfig {
        records_max: [1, 4, 64][rng.random_range(0..3)],
        delivered_ids: [1, 8, 256][rng.random_range(0..3)],
        delivered_ms: rng.random_range(50..1200),
        ..BatchConfig::default()
    };
    let every_records = [0, 5, 10, 20, 40][rng.random_range(0..5)];
    let every_ms = if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(500..3000) };
    let trim = [Trim::Never, Trim::AfterCheckpoint, Trim::AfterCheckpoint, Trim::AfterArchive];
    EngineConfig {
        limits,
        outbox,
        batch,
        checkpoint: CheckpointConfig { every_records, every_ms },
        trim: trim[rng.random_range(0..trim.len())],
        register_keep_ms: 0,
        membership: membership(rng),
        standbys: 1,
        digest_every: rng.random_range(1..20),
        // Nobody looks, and what is told would draw from the same numbers as what counts.
        statistics_ms: 0,
        ..EngineConfig::new("")
    }
}

/// Where there is an archive, lets entries of the register go within the run: in much less time than faults last, so that
/// a process that stood still wakes behind their removal.
fn expire(settings: &mut EngineConfig, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    if settings.trim == Trim::AfterArchive && rng.random_range(0..8) > 0 {
        settings.register_keep_ms = rng.random_range(50..1500);
        let every_ms = rng.random_range(200..800);
        settings.checkpoint.every_ms = settings.checkpoint.every_ms.clamp(1, every_ms);
    }
}

/// An engine is missed after five heartbeats. Short intervals let takeovers fall into what a negotiation waits for.
fn membership(rng: &mut ChaCha8Rng) -> MembershipConfig {
    let heartbeat_ms = [40, 100, 200][rng.random_range(0..3)];
    MembershipConfig { heartbeat_ms, dead_after_ms: 5 * heartbeat_ms }
}

fn plan(rng: &mut ChaCha8Rng, id: &AgentId, calls: Vec<CallPlan>) -> AgentPlan {
    let default = match rng.random_range(0..20) {
        0 => ConsentEffect::Deny,
        1 => ConsentEffect::Ask,
        _ => ConsentEffect::Allow,
    };
    let capabilities = vec![Capability::try_new("parcels").expect("a capability's name")];
    let receipts = if rng.random() { ReceiptPreference::All } else { ReceiptPreference::Exceptions };
    let registration = Registration {
        capabilities,
        topics: vec![topic()],
        consent: Consent { default, rules: Vec::new() },
        receipts,
        ..Registration::default()
    };
    let faults = AgentFaults::draw(rng);
    AgentPlan { id: id.clone(), registration, faults, calls, absences: Vec::new(), seed: rng.random() }
}

/// A call early enough in the run for something to go wrong with it.
fn call(rng: &mut ChaCha8Rng, initiator: &AgentId, n: u32, contractors: &[AgentId], troubled_ms: u64) -> CallPlan {
    let to = match rng.random_range(0..6) {
        0 => vec![Address::Topic(topic())],
        1 => vec![Address::Group(group())],
        2 => vec![Address::Topic(topic()), Address::Agent(contractors[0].clone())],
        _ => {
            let some = contractors.iter().filter(|_| rng.random_range(0..4) > 0).cloned().map(Address::Agent);
            let some: Vec<Address> = some.collect();
            if some.is_empty() { vec![Address::Agent(contractors[0].clone())] } else { some }
        }
    };
    let at_ms = rng.random_range(100..troubled_ms * 3 / 4);
    let policy = format!("p{}", rng.random_range(0..2));
    let reply_within_ms = if rng.random_range(0..2) == 0 { Some(rng.random_range(150..1500)) } else { None };
    CallPlan::new(initiator, &format!("n{n}"), at_ms, to, net(policy, reply_within_ms))
}

/// What a contract net calls for.
fn net(policy: String, reply_within_ms: Option<u64>) -> Cfp {
    Cfp { task: Some("carry a parcel".to_owned()), policy: Some(policy), reply_within_ms, ..Cfp::default() }
}

/// The protocol documents that calls name.
pub(super) fn known_documents() -> Vec<DocumentHash> {
    ["parcels", "prices", "weather"].map(|name| DocumentHash::of_bytes(name.as_bytes())).to_vec()
}

/// A protocol document that no call names.
pub(super) fn foreign_document() -> DocumentHash {
    DocumentHash::of_bytes(b"foreign")
}

pub(super) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("an agent's name")
}

pub(super) fn topic() -> TopicName {
    TopicName::try_new(TOPIC).expect("a topic's name")
}

/// The domain of panels that name none and whose call is addressed to agents.
pub(super) fn general_domain() -> DomainName {
    DomainName::try_new("general").expect("a domain's name")
}

fn group() -> GroupId {
    GroupId::try_new(GROUP).expect("a group's name")
}

pub(super) fn attr_name(name: &str) -> AttrName {
    AttrName::try_new(name).expect("an attribute's name")
}
