//! The contract nets of a run: contractors in crews, and callers that keep so many calls open between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agents::contractor::Distribution;
use agents::{Agent, CallRequest, Contractor, ContractorConfig, Initiator};
use schemas::control::Registration;
use schemas::english_auction::{AuctionRules, AuctionSpec, Extension, PriceDirection, Step};
use schemas::payload::Cfp;
use schemas::{Address, NegotiationId, Policy, TopicName};
use tokio::time::Instant;
use traffic_gen::live::{Access, AgentWay, LiveError, RunningAgents};
use traffic_gen::load::{Ledger, LoadScenario, ProtocolLoad, RunningLoad};
use traffic_gen::recorder::observed;

/// Callers among the agents: several, so that no single one's rate limit is the exchange's.
const CALLERS: u32 = 4;
/// Contractors a call reaches. The others belong to other crews.
const CREW: u32 = 12;
/// Collection deadline of a call, in milliseconds. Everybody answers within a second unless a fault is in the way.
const REPLY_WITHIN_MS: u64 = 10_000;

/// The policy of these runs: `high` with runners-up held until the award is confirmed, and timers that end what is left
/// over soon after the run.
pub(super) fn policy() -> Policy {
    let mut policy = policy_core::preset("high").expect("`high` is a preset");
    policy.id = "chaos@1".to_owned();
    policy.timers_ms.confirm = 15_000;
    policy.timers_ms.perform = 30_000;
    policy.timers_ms.hard = 60_000;
    policy
}

/// How contractors behave: honest, at times unwilling, and slow enough that a negotiation lasts some ten seconds.
fn behaviour(seed: u64) -> ContractorConfig {
    ContractorConfig {
        seed,
        reply_delay_ms: Distribution::Uniform { lo: 0, hi: 500 },
        refuse: 0.10,
        revise: 0.05,
        withdraw: 0.05,
        decline: 0.05,
        confirm_delay_ms: Distribution::Uniform { lo: 1_000, hi: 8_000 },
        perform_ms: Distribution::Uniform { lo: 1_000, hi: 8_000 },
        ..ContractorConfig::default()
    }
}

/// Contract nets: some of the agents call, the others offer, or bid.
#[derive(Debug, Clone, Default)]
pub(super) struct ContractNets {
    auction: Option<AuctionSpec>,
}

impl ContractNets {
    /// English auctions of some seconds: contractors bid half a second after each other.
    pub(super) fn auctions() -> Self {
        let extend = Some(Extension { ms: 1_000, latest_within_ms: 15_000 });
        let (direction, step) = (PriceDirection::Descending, Step::Permille(50));
        let rules = AuctionRules { direction, start: 150_000_000, step, quiet_ms: Some(3_000), extend };
        Self { auction: Some(AuctionSpec { rules, reserve: None }) }
    }
}

/// Contractors by crew, and who calls them.
pub(super) struct NetAgents {
    crews: Vec<RunningAgents<Contractor>>,
    callers: Vec<Caller>,
}

/// A caller, and how many calls it has begun.
struct Caller {
    initiator: Initiator,
    called: AtomicUsize,
}

impl ProtocolLoad for ContractNets {
    const AGENT: &'static str = "contractor";
    /// The callers, and one who offers.
    const AGENTS_MIN: u32 = CALLERS + 1;
    type State = ();
    type Agents = NetAgents;

    fn state(&self) {}

    async fn start(
        access: &Access<'_>,
        scenario: &LoadScenario<Self>,
        ledger: &Arc<Ledger<()>>,
    ) -> Result<NetAgents, LiveError> {
        let options = observed(&scenario.options, Some(ledger.recorder()));
        let contractors = scenario.agents.saturating_sub(CALLERS);
        let crews = contractors.div_ceil(CREW).max(1) as usize;
        let contractor = |number| {
            let name = scenario.agent_name(number);
            Ok((name.clone(), Contractor::try_new(&name, behaviour(scenario.seed))?))
        };
        let spawn = |contractor, (transport, identity, options): AgentWay, cancel| {
            Agent::new(transport, identity, contractor).with_options(options).spawn(cancel)
        };
        let mut agents = NetAgents { crews: Vec::new(), callers: Vec::new() };
        for number in 0..crews {
            let members = (0..contractors).skip(number).step_by(crews).map(contractor);
            let members = (members.collect::<Result<_, LiveError>>()?, &registration(number));
            agents.crews.push(RunningAgents::start(access, members, &options, spawn).await?);
        }
        for number in 0..CALLERS {
            let name = scenario.name(&format!("caller-{number}"));
            let initiator = Initiator::spawn((access.transport)(&name), (access.identity)(&name), options.clone());
            initiator.connected().await?;
            agents.callers.push(Caller { initiator, called: AtomicUsize::new(0) });
        }
        Ok(agents)
    }

    /// Calls for one of the places that are kept open, and waits for the end. A place is always the same caller's.
    async fn open(load: &RunningLoad<Self>, place: u64, intended: Instant) -> Result<(), LiveError> {
        let NetAgents { crews, callers } = &load.agents;
        let Caller { initiator, called } = &callers[place as usize % callers.len()];
        let number = called.fetch_add(1, Ordering::Relaxed);
        let own_id = format!("run-{}-{number}", load.scenario.seed);
        let mut call = request(own_id, crew(number % crews.len()));
        call.cfp.auction = load.scenario.protocol.auction.clone().map(Box::new);
        if let Ok(negotiation) = NegotiationId::form(initiator.agent(), &call.own_id) {
            load.ledger.recorder().call_due(negotiation, intended);
        }
        initiator.call_to_end(call).await?;
        Ok(())
    }

    async fn stop(agents: NetAgents) -> Result<(), LiveError> {
        for caller in agents.callers {
            caller.initiator.shutdown().await?;
        }
        for crew in agents.crews {
            crew.stop().await?;
        }
        Ok(())
    }
}

fn request(own_id: String, crew: TopicName) -> CallRequest {
    let cfp = Cfp {
        task: Some("carry on whatever happens".to_owned()),
        policy: Some("chaos".to_owned()),
        reply_within_ms: Some(REPLY_WITHIN_MS),
        ..Cfp::default()
    };
    CallRequest::new(own_id, vec![Address::Topic(crew)], cfp)
}

fn registration(number: usize) -> Registration {
    Registration { topics: vec![crew(number)], ..Registration::open_to_all() }
}

fn crew(number: usize) -> TopicName {
    TopicName::try_new(&format!("crew-{number}")).expect("a number makes a name")
}
