//! Federation: the exchange lives beside one nats-server, its contractors beside another one, a leaf node with a gateway of
//! its own; the link between the two is cut and left half open while they negotiate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::websocket::WebSocketTransport;
use agents::{ContractorConfig, Identity, contractor::Distribution};
use bus::Bus;
use bus::nats::{self, NatsOptions};
use chaos::proxy::{Mode, Proxy};
use gateway::keys::key_set;
use gateway::{AuthConfig, Gateway, GatewayConfig, GatewayHandle, GatewayMetrics, KeySource};
use nats_server::{LocalServer, LocalServerOptions};
use prometheus::Registry;
use schemas::AgentId;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::recompute;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::Recorder;

/// The run takes some ten seconds, and half as many to drain.
const TEST_MAX: Duration = Duration::from_secs(120);
/// Between what is done to the link.
const A_WHILE: Duration = Duration::from_secs(2);
/// How long what was under way on the link may still arrive.
const ON_ITS_WAY: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awards_across_a_leaf_node_survive_the_loss_of_the_link() {
    timeout(TEST_MAX, Box::pin(negotiate_over_a_broken_link())).await.expect("the run ends in time");
}

async fn negotiate_over_a_broken_link() {
    let hub = LocalServer::start(LocalServerOptions { accepts_leaves: true, ..LocalServerOptions::default() }).await;
    let hub = hub.unwrap();
    let leaf_address: SocketAddr = hub.leaf_url().trim_start_matches("nats-leaf://").parse().unwrap();
    let link = Proxy::start(leaf_address).await.unwrap();
    let leaf_of = Some(format!("nats-leaf://{}", link.address()));
    let leaf = LocalServer::start(LocalServerOptions { leaf_of, ..LocalServerOptions::default() }).await.unwrap();

    let here = nats::open(NatsOptions::new(hub.url())).await.unwrap();
    let exchange = Exchange::start(here.clone(), ExchangeOptions::default()).await.unwrap();
    let there = gateway_at(&exchange, nats::open(NatsOptions::new(leaf.url())).await.unwrap()).await;
    let there_url = format!("http://{}", there.local_addr().unwrap());

    let scenario = scenario();
    let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
    let identity = |name: &AgentId| -> Identity { exchange.identity(name).unwrap() };
    let at = |url: &str| Arc::new(WebSocketTransport::new(url)) as Arc<dyn Transport>;
    let (near, far) = (|_: &AgentId| at(exchange.url()), |_: &AgentId| at(&there_url));
    let (near_control, far_control) =
        (ControlClient::try_new(exchange.url()).unwrap(), ControlClient::try_new(&there_url).unwrap());
    let contractors = Access { control: &far_control, transport: &far, identity: &identity };
    let population = Population::start(&contractors, &scenario, Some(&recorder)).await.unwrap();
    let alice = Access { control: &near_control, transport: &near, identity: &identity };
    let cancel = CancellationToken::new();
    let calling = live::call(&alice, &scenario, &recorder, &cancel);
    let (shed, ()) = tokio::join!(calling, break_and_heal(&link, &recorder));
    assert_eq!(shed.unwrap(), 0);
    population.stop().await.unwrap();

    let (counts, mut verdict) = recorder.finish().unwrap();
    recompute(&here, &mut verdict).await.unwrap();
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    assert!(counts.cfps > 0 && counts.rounds == counts.cfps, "{counts:?}");
    assert_eq!(counts.outcomes.get("completed"), Some(&counts.rounds), "{:?}", counts.outcomes);
    there.shutdown().await;
    exchange.shutdown().await;
}

/// Cuts the link and heals it, leaves it half open and heals it; nothing crosses it meanwhile.
async fn break_and_heal(link: &Proxy, recorder: &Recorder) {
    for broken in [Mode::Cut, Mode::HalfOpen] {
        sleep(A_WHILE).await;
        link.set(broken);
        sleep(ON_ITS_WAY).await;
        let before = recorder.counts();
        sleep(A_WHILE).await;
        let after = recorder.counts();
        assert_eq!(after.offers, before.offers, "{broken:?}: an offer crossed the broken link");
        assert!(after.cfps > before.cfps && recorder.open() > 0, "{broken:?}: nothing was open across it");
        link.set(Mode::Forward);
    }
}

/// Twenty calls a second, so that some are in every state when the link breaks; time enough for all of them to get over
/// it.
fn scenario() -> CallScenario {
    CallScenario {
        contractors: 5,
        policy: Some("high".to_owned()),
        rate: 20.0,
        duration: Duration::from_secs(10),
        reply_within_ms: 20_000,
        // Who is beyond a link that breaks is waited for.
        durable: true,
        contractor: ContractorConfig {
            confirm_delay_ms: Distribution::Uniform { lo: 0, hi: 1_000 },
            perform_ms: Distribution::Uniform { lo: 0, hi: 1_000 },
            ..ContractorConfig::default()
        },
        ..CallScenario::default()
    }
}

async fn gateway_at(exchange: &Exchange, bus: Bus) -> GatewayHandle {
    let key = exchange.signing_key();
    let issuer = Exchange::claims(&live::initiator_name()).iss;
    let auth = AuthConfig::new(KeySource::Inline(key_set(&[key])), issuer);
    let config = GatewayConfig {
        id: "gateway-there".to_owned(),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        policies: policy_core::presets(),
        ..GatewayConfig::new(auth)
    };
    let metrics = Arc::new(GatewayMetrics::new(&Registry::new()).unwrap());
    Gateway::start(bus, config, metrics).await.unwrap()
}
