//! The rate of one agent: what the default is enough for, and that agents count what a tighter one holds back.

use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::metrics::{AgentMetrics, AgentRole};
use agents::observer::Observer;
use agents::transport::Transport;
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use gateway::LimitConfig;
use prometheus::Registry;
use prometheus::proto::Metric;
use schemas::{AgentId, Code};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::deferrals::DeferralCounter;
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};

use crate::rig::Rig;

/// Calls a second that one party can take part in under the default limits.
const CALLS_PER_S: f64 = 200.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_tight_limit_holds_back_is_counted_by_the_agents_and_the_setting_is_named() {
    let limits = LimitConfig { requests_per_s: 20, burst: 5, ..LimitConfig::default() };
    let rig = Rig::start_with(ExchangeOptions { limits, ..ExchangeOptions::default() }).await;
    let (deferrals, registry) = (Arc::new(DeferralCounter::default()), Registry::new());
    let metrics = AgentMetrics::try_new(&registry).unwrap();
    let observers: Vec<Arc<dyn Observer>> = vec![metrics.observer(AgentRole::Other), deferrals.clone()];
    let options = AgentOptions { observer: Some(Arc::new(observers)), ..AgentOptions::default() };
    let scenario = CallScenario { contractors: 1, rate: 20.0, options, ..scenario() };
    let url = rig.exchange.url().to_owned();
    let counts = run(&rig, &scenario, &|_| Arc::new(HttpTransport::try_new(&url).unwrap())).await;
    assert!(counts.cfps > 0 && counts.rounds == counts.cfps, "what is held back is sent again: {counts:?}");
    assert_eq!(counts.rejected.get("rate_limited"), None, "none is refused for good");

    let held_back = deferrals.total();
    let of_code = held_back.of(Code::RateLimited);
    let denied = counter(&rig.exchange.registry, "exchange_rate_limit_decisions_total", &["agent", "deny"]);
    assert!(of_code > 0 && of_code <= denied, "{of_code} of {denied}");
    assert_eq!(of_code, counter(&registry, "agent_deferrals_total", &["rate_limited"]));
    let line = held_back.to_string();
    for words in ["at most 20 requests per second of one agent (requests_per_s), 5 at once", "[gateway.limits]"] {
        assert!(line.contains(words), "{words} in {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_the_default_limits_a_party_takes_part_in_200_calls_a_second() {
    let limits = LimitConfig::default();
    assert!(limits.burst >= limits.requests_per_s, "what is due in a second may come at once");
    for is_over_http in [true, false] {
        for is_contractor in [true, false] {
            let rig = Rig::start().await;
            let (gateway, other_url) = rig.second_gateway().await;
            let url = rig.exchange.url().to_owned();
            // The one party goes over the gateway whose requests are counted, the other over the other.
            let transport = |agent: &AgentId| -> Arc<dyn Transport> {
                let is_counted = is_contractor == (*agent != live::initiator_name());
                let url = if is_counted { &url } else { &other_url };
                if is_over_http {
                    Arc::new(HttpTransport::try_new(url).unwrap())
                } else {
                    Arc::new(WebSocketTransport::new(url))
                }
            };
            let counts = run(&rig, &CallScenario { contractors: 1, ..scenario() }, &transport).await;
            let requests = counter(&rig.exchange.registry, "exchange_rate_limit_decisions_total", &["agent", "allow"]);
            assert!(counts.confirms == counts.cfps && counts.cfps > 5, "one contractor wins every call: {counts:?}");
            let per_call = requests as f64 / counts.cfps as f64;
            let enough = f64::from(limits.requests_per_s) / CALLS_PER_S;
            assert!(
                (1.0..=enough).contains(&per_call),
                "{per_call} requests a call, {enough} are allowed (HTTP {is_over_http}, contractor {is_contractor})"
            );
            gateway.shutdown().await;
        }
    }
}

fn scenario() -> CallScenario {
    CallScenario {
        policy: Some("high".to_owned()),
        rate: 20.0,
        duration: Duration::from_secs(1),
        ..CallScenario::default()
    }
}

async fn run(rig: &Rig, scenario: &CallScenario, transport: &dyn Fn(&AgentId) -> Arc<dyn Transport>) -> Counts {
    let identity = |name: &AgentId| rig.identity(name.as_str());
    let access = Access { control: &rig.control, transport, identity: &identity };
    let recorder = Arc::new(Recorder::start(Instant::now(), false, None));
    let population = Population::start(&access, scenario, Some(&recorder)).await.unwrap();
    live::call(&access, scenario, &recorder, &CancellationToken::new()).await.unwrap();
    population.stop().await.unwrap();
    recorder.finish().unwrap().0
}

/// The series of a metric with these values of its labels.
fn counter(registry: &Registry, name: &str, labels: &[&str]) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let has = |metric: &Metric, value: &str| metric.get_label().iter().any(|pair| pair.value() == value);
    let series = family.get_metric().iter().find(|metric| labels.iter().all(|label| has(metric, label))).unwrap();
    series.get_counter().get_value() as u64
}
