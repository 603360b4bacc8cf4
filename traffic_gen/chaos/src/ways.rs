//! How agents of a run reach the cluster: over every gateway, whichever is up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agents::control::ControlClient;
use agents::session::SessionLimits;
use agents::transport::failover::FailoverTransport;
use agents::transport::faulty::{Faults, FaultyTransport};
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Transport, TransportError};
use agents::{AgentOptions, Identity, Token};
use schemas::AgentId;
use traffic_gen::live::{Access, LiveError};

use super::ChaosError;
use super::cluster::{Signer, TestCluster};
use super::journal::RunObserver;

/// Longest time for which what an agent of a process that is hit says is held back, in milliseconds: its negotiations last seconds
/// with that, and most kills find some under way, and acknowledgements that left before what was answered.
const HOLD_MS_MAX: u64 = 400;

/// Agents of a process that share a connection to a gateway, where they do.
const SHARED_BY: usize = 3;

/// The gateways, and what signs the agents' tokens.
pub(super) struct Ways {
    gateways: Vec<String>,
    sign: Signer,
    /// Every other agent shares a connection to each gateway.
    shares: bool,
    /// What agents send is held back for a while.
    holds: bool,
}

impl Ways {
    pub(super) fn to(cluster: &TestCluster, shares: bool) -> Self {
        Self { gateways: cluster.gateway_urls().to_vec(), sign: cluster.signer(), shares, holds: false }
    }

    /// To these gateways, with these tokens; what agents say is held back for [`HOLD_MS_MAX`] at most.
    pub(super) fn held_back(gateways: Vec<String>, tokens: BTreeMap<AgentId, String>) -> Self {
        let sign = Arc::new(move |agent: &AgentId| tokens.get(agent).cloned().unwrap_or_default());
        Self { gateways, sign, shares: true, holds: true }
    }

    pub(super) fn gateways(&self) -> &[String] {
        &self.gateways
    }

    pub(super) fn token(&self, agent: &AgentId) -> String {
        (self.sign)(agent)
    }

    /// Starts agents; the `attempt`-th attempt, from 0, registers them at a gateway of its own.
    pub(super) async fn with<T>(
        &self,
        attempt: usize,
        start: impl AsyncFnOnce(&Access<'_>) -> Result<T, LiveError>,
    ) -> Result<T, ChaosError> {
        let gateway = attempt.checked_rem(self.gateways.len()).and_then(|number| self.gateways.get(number));
        let control = ControlClient::try_new(gateway.map(String::as_str).unwrap_or_default())?;
        transport(&self.gateways)?;
        let shared = self.gateways.iter().map(|url| Arc::new(WebSocketTransport::new(url).shared_by(SHARED_BY)) as _);
        let shared: Vec<Arc<dyn Transport>> = shared.collect();
        let transport = |agent: &AgentId| -> Arc<dyn Transport> {
            let shares = self.shares && retry::hash(agent.as_str(), 1).is_multiple_of(2);
            let way = if shares { FailoverTransport::try_new(shared.clone()) } else { transport(&self.gateways) };
            let way = way.expect("there is a gateway, as was seen above");
            let faults = Faults { hold_sends: 1.0, hold_ms_max: HOLD_MS_MAX, ..Faults::default() };
            if self.holds { Arc::new(FaultyTransport::new(way, faults)) } else { Arc::new(way) }
        };
        let identity = |agent: &AgentId| Identity { agent: agent.clone(), token: Token::fixed(self.token(agent)) };
        Ok(start(&Access { control: &control, transport: &transport, identity: &identity }).await?)
    }
}

/// Over every gateway, beginning with one that depends on the agent.
pub(super) fn transport(gateways: &[String]) -> Result<FailoverTransport, TransportError> {
    let ways = gateways.iter().map(|url| Arc::new(WebSocketTransport::new(url)) as Arc<dyn Transport>);
    FailoverTransport::try_new(ways.collect())
}

/// Agents try again sooner than by default: the run's negotiations last seconds.
pub(super) fn options(observer: Arc<dyn RunObserver>) -> AgentOptions {
    let limits = SessionLimits { retry_max_ms: 2_000, attempts_max: 60, ..SessionLimits::default() };
    AgentOptions { limits, observer: Some(observer), drain: Duration::from_secs(1), ..AgentOptions::default() }
}
