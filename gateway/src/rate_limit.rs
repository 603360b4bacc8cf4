//! Rates, per key and bounded (GCRA, by `governor`).

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::{DashMapStateStore, ShrinkableKeyedStateStore};
use governor::{InsufficientCapacity, Quota, RateLimiter};
use schemas::{AgentId, Code, Refusal};
use tokio_util::sync::CancellationToken;

use crate::config::LimitConfig;
use crate::metrics::{GatewayMetrics, Limiter, ShedReason};
use crate::until;

/// How often keys that are back at full quota are dropped.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);
/// Least time between two sweeps caused by a full key map, in milliseconds: a sweep visits every key.
const FORCED_SWEEP_MS_MIN: u64 = 1000;
/// Peers tracked at once; as many as connections can come from.
const PEERS_MAX: usize = 65_536;
/// A request of more bytes costs as many permits as it has such parts: an agent's bytes per second are bounded with its
/// requests. An offer has a tenth of it.
const PERMIT_BYTES: usize = 8192;
/// Profiles looked at that cost a permit: as much processor time as a small request.
const PERMIT_PROFILES: usize = 500;

/// Who is charged for the verification of a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A client by its address.
    Address(IpAddr),
    /// An agent on the bus, by the subject it published to: no other may publish there.
    OnBus(AgentId),
    /// A client nothing is known of.
    Unknown,
}

/// The rates of one gateway.
pub(crate) struct RateLimits {
    agents: KeyedLimiter<AgentId>,
    peers: KeyedLimiter<Peer>,
    /// What a refusal by each limiter expects, settings named.
    agents_expected: String,
    peers_expected: String,
    metrics: Arc<GatewayMetrics>,
}

impl RateLimits {
    pub(crate) fn new(config: &LimitConfig, metrics: Arc<GatewayMetrics>) -> Self {
        Self {
            agents: KeyedLimiter::new(config.requests_per_s, config.burst, config.rate_keys_max),
            peers: KeyedLimiter::new(config.verifications_per_s, config.verification_burst, PEERS_MAX),
            agents_expected: format!(
                "at most {} requests per second of one agent (requests_per_s), {} at once after a pause (burst)",
                config.requests_per_s, config.burst
            ),
            peers_expected: format!(
                "at most {} new tokens per second of one peer (verifications_per_s), {} at once after a pause \
                 (verification_burst)",
                config.verifications_per_s, config.verification_burst
            ),
            metrics,
        }
    }

    /// Charges an agent for one request with a document of so many bytes: 0 where it has none.
    ///
    /// # Errors
    /// [`Code::RateLimited`] with the time of the next permit; [`Code::Overloaded`] when no further agent is tracked.
    pub(crate) fn charge_agent(&self, agent: &AgentId, bytes: usize) -> Result<(), Refusal> {
        self.answer(Limiter::Agent, self.agents.charge(agent, permits(bytes)))
    }

    /// Charges an agent for so many requests at once.
    ///
    /// # Errors
    /// As [`RateLimits::charge_agent`].
    pub(crate) fn charge_requests(&self, agent: &AgentId, requests: NonZeroU32) -> Result<(), Refusal> {
        self.answer(Limiter::Agent, self.agents.charge(agent, requests))
    }

    /// Charges an agent for an answer of so many bytes, for which so many profiles were looked at, beyond the one permit of its
    /// request. It is answered all the same: what more it cost than there were permits is forgotten.
    pub(crate) fn charge_answer(&self, agent: &AgentId, bytes: usize, profiles: usize) {
        let further = (bytes.div_ceil(PERMIT_BYTES)).saturating_sub(1) + profiles / PERMIT_PROFILES;
        self.agents.take(agent, u32::try_from(further).unwrap_or(u32::MAX));
    }

    /// Charges a peer for the verification of a token that is not remembered.
    ///
    /// # Errors
    /// As [`RateLimits::charge_agent`].
    pub(crate) fn charge_peer(&self, peer: &Peer) -> Result<(), Refusal> {
        self.answer(Limiter::Peer, self.peers.charge(peer, NonZeroU32::MIN))
    }

    /// Drops keys at full quota at intervals until the gateway stops.
    pub(crate) async fn drive_sweeps(self: Arc<Self>, stop: CancellationToken) {
        while until(&stop, tokio::time::sleep(SWEEP_PERIOD)).await.is_some() {
            self.agents.sweep();
            self.peers.sweep();
            self.metrics.access.limiter_swept(Limiter::Agent, self.agents.len(), self.agents.take_evicted());
            self.metrics.access.limiter_swept(Limiter::Peer, self.peers.len(), self.peers.take_evicted());
        }
    }

    fn answer(&self, limiter: Limiter, verdict: RateDecision) -> Result<(), Refusal> {
        self.metrics.access.charged(limiter, matches!(verdict, RateDecision::Allowed));
        match verdict {
            RateDecision::Allowed => Ok(()),
            RateDecision::Limited { retry_after_ms } => {
                let expected = match limiter {
                    Limiter::Agent => &self.agents_expected,
                    Limiter::Peer => &self.peers_expected,
                };
                Err(Refusal::new(Code::RateLimited, "the rate is used up; requests that are refused count too")
                    .expecting(expected)
                    .retry_after_ms(retry_after_ms))
            }
            RateDecision::Full => {
                self.metrics.access.limiter_cap_hits.of(limiter).inc();
                self.metrics.messages.shed.of(ShedReason::Senders).inc();
                Err(Refusal::new(Code::Overloaded, "no further sender can be tracked now").retry_after_ms(1000))
            }
        }
    }
}

/// How many permits a request with a document of so many bytes costs.
fn permits(bytes: usize) -> NonZeroU32 {
    let parts = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
    NonZeroU32::new(parts).unwrap_or(NonZeroU32::MIN)
}

/// What a limiter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateDecision {
    Allowed,
    Limited { retry_after_ms: u64 },
    Full,
}

/// A rate per key, for a bounded number of keys. Keys already tracked are never pushed out by new ones.
struct KeyedLimiter<K: Hash + Eq + Clone> {
    keys: Keys<K>,
    limiter: RateLimiter<K, Keys<K>, DefaultClock>,
    burst: NonZeroU32,
    keys_max: usize,
    created: Instant,
    swept_ms: AtomicU64,
    /// Keys dropped since [`KeyedLimiter::take_evicted`] was last asked.
    evicted: AtomicUsize,
}

impl<K: Hash + Eq + Clone> KeyedLimiter<K> {
    fn new(per_s: u32, burst: u32, keys_max: usize) -> Self {
        let at_least_one = |value: u32| NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN);
        let burst = at_least_one(burst);
        let quota = Quota::per_second(at_least_one(per_s)).allow_burst(burst);
        let keys = Keys(Arc::new(DashMapStateStore::default()));
        let limiter = RateLimiter::new(quota, keys.clone(), DefaultClock::default());
        Self {
            keys,
            limiter,
            burst,
            keys_max,
            created: Instant::now(),
            swept_ms: AtomicU64::new(0),
            evicted: AtomicUsize::new(0),
        }
    }

    /// Takes permits of a key, at most a burst: what costs more would never be allowed.
    fn charge(&self, key: &K, permits: NonZeroU32) -> RateDecision {
        if !self.keys.0.contains_key(key) && self.limiter.len() >= self.keys_max {
            self.sweep_if_due();
            if self.limiter.len() >= self.keys_max {
                return RateDecision::Full;
            }
        }
        match self.limiter.check_key_n(key, permits.min(self.burst)) {
            // More than a burst is never asked for.
            Ok(Ok(())) | Err(InsufficientCapacity(_)) => RateDecision::Allowed,
            Ok(Err(until)) => {
                let wait = until.wait_time_from(self.limiter.clock().now());
                let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                RateDecision::Limited { retry_after_ms: ms.saturating_add(1) }
            }
        }
    }

    /// Takes so many permits of a key that is tracked, or as many as there are.
    fn take(&self, key: &K, permits: u32) {
        let mut left = permits.min(self.burst.get());
        let mut step = left;
        while let Some(some) = NonZeroU32::new(step.min(left)) {
            match self.limiter.check_key_n(key, some) {
                Ok(Ok(())) => left -= some.get(),
                Ok(Err(_)) | Err(InsufficientCapacity(_)) => step = some.get() / 2,
            }
        }
    }

    fn sweep_if_due(&self) {
        let now_ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        let swept_ms = self.swept_ms.load(Ordering::Relaxed);
        let is_due = now_ms >= swept_ms.saturating_add(FORCED_SWEEP_MS_MIN);
        let is_mine = || self.swept_ms.compare_exchange(swept_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_due && is_mine() {
            self.drop_idle();
        }
    }

    fn sweep(&self) {
        self.drop_idle();
        self.limiter.shrink_to_fit();
    }

    /// Drops keys that are back at their full quota. How many is as near as can be told while others add keys.
    fn drop_idle(&self) {
        let before = self.limiter.len();
        self.limiter.retain_recent();
        self.evicted.fetch_add(before.saturating_sub(self.limiter.len()), Ordering::Relaxed);
    }

    /// How many keys were dropped since this was last asked.
    fn take_evicted(&self) -> usize {
        self.evicted.swap(0, Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.limiter.len()
    }
}

/// The limiter's own map, shared so that membership can be asked before a key is added.
struct Keys<K: Hash + Eq + Clone>(Arc<DashMapStateStore<K>>);

impl<K: Hash + Eq + Clone> Clone for Keys<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Hash + Eq + Clone> StateStore for Keys<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, f)
    }
}

impl<K: Hash + Eq + Clone> ShrinkableKeyedStateStore<K> for Keys<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        ShrinkableKeyedStateStore::retain_recent(&*self.0, drop_below);
    }

    fn shrink_to_fit(&self) {
        ShrinkableKeyedStateStore::shrink_to_fit(&*self.0);
    }

    fn len(&self) -> usize {
        ShrinkableKeyedStateStore::len(&*self.0)
    }

    fn is_empty(&self) -> bool {
        ShrinkableKeyedStateStore::is_empty(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    #[test]
    fn a_burst_is_allowed_and_then_the_wait_is_named() {
        let limiter: KeyedLimiter<u32> = KeyedLimiter::new(1, 3, 10);
        assert!((0..3).all(|_| limiter.charge(&7, ONE) == RateDecision::Allowed));
        let RateDecision::Limited { retry_after_ms } = limiter.charge(&7, ONE) else { panic!("a fourth was allowed") };
        assert!((1..=1001).contains(&retry_after_ms), "{retry_after_ms}");
        assert_eq!(limiter.charge(&8, ONE), RateDecision::Allowed, "another key has its own rate");
    }

    #[test]
    fn a_request_costs_a_permit_for_each_8_kib_it_has_begun_and_at_most_a_burst() {
        for (bytes, cost) in [(0, 1), (1, 1), (8192, 1), (8193, 2), (65_536, 8)] {
            assert_eq!(permits(bytes).get(), cost, "{bytes}");
        }
        let limiter: KeyedLimiter<u32> = KeyedLimiter::new(1, 8, 10);
        assert_eq!(limiter.charge(&1, permits(65_536)), RateDecision::Allowed);
        assert!(matches!(limiter.charge(&1, ONE), RateDecision::Limited { .. }), "a large one used all up");
        let tight: KeyedLimiter<u32> = KeyedLimiter::new(1, 3, 10);
        assert_eq!(tight.charge(&1, permits(65_536)), RateDecision::Allowed, "no request costs more than there is");
        assert!(matches!(tight.charge(&1, ONE), RateDecision::Limited { .. }));
    }

    #[test]
    fn an_answer_costs_a_permit_for_each_further_8_kib_and_500_profiles_and_at_most_what_is_left() {
        for (bytes, profiles, cost) in
            [(0, 0, 0), (8192, 499, 0), (8193, 0, 1), (830_000, 0, 101), (0, 50_000, 100), (8193, 500, 2)]
        {
            let config = LimitConfig { requests_per_s: 1, burst: 200, ..LimitConfig::default() };
            let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
            let limits = RateLimits::new(&config, metrics);
            let agent = AgentId::try_new("alice").unwrap();
            limits.charge_answer(&agent, bytes, profiles);
            let left = (0..400).take_while(|_| limits.charge_agent(&agent, 0).is_ok()).count();
            assert!((200 - cost..=201 - cost).contains(&left), "{bytes} bytes, {profiles} profiles: {left} are left");
        }
        let limiter: KeyedLimiter<u32> = KeyedLimiter::new(1, 100, 10);
        assert_eq!(limiter.charge(&1, NonZeroU32::new(63).unwrap()), RateDecision::Allowed);
        limiter.take(&1, u32::MAX);
        assert!(matches!(limiter.charge(&1, ONE), RateDecision::Limited { .. }), "what was left is used up");
    }

    #[test]
    fn one_agent_on_the_bus_uses_up_no_others_verifications() {
        let peer = |agent: &str| Peer::OnBus(AgentId::try_new(agent).expect("an agent's name"));
        let limiter: KeyedLimiter<Peer> = KeyedLimiter::new(1, 2, 10);
        assert!((0..2).all(|_| limiter.charge(&peer("mallory"), ONE) == RateDecision::Allowed));
        assert!(matches!(limiter.charge(&peer("mallory"), ONE), RateDecision::Limited { .. }));
        assert_eq!(limiter.charge(&peer("dave"), ONE), RateDecision::Allowed);
    }

    #[test]
    fn a_full_key_map_refuses_newcomers_and_keeps_those_it_tracks() {
        let limiter: KeyedLimiter<u32> = KeyedLimiter::new(1, 100, 50);
        for key in 0..50 {
            assert_eq!(limiter.charge(&key, ONE), RateDecision::Allowed);
        }
        for key in 50..1000 {
            assert_eq!(limiter.charge(&key, ONE), RateDecision::Full);
        }
        assert_eq!(limiter.len(), 50);
        assert_eq!(limiter.charge(&3, ONE), RateDecision::Allowed);
    }

    #[test]
    fn keys_that_are_back_at_full_quota_are_dropped_and_counted_once() {
        let limiter: KeyedLimiter<u32> = KeyedLimiter::new(u32::MAX, u32::MAX, 50);
        assert!((0..20).all(|key| limiter.charge(&key, ONE) == RateDecision::Allowed));
        limiter.sweep();
        assert_eq!((limiter.len(), limiter.take_evicted(), limiter.take_evicted()), (0, 20, 0));
    }
}
