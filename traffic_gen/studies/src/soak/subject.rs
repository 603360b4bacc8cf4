//! What is soaked: an exchange in this process, processes of the run's own, or processes that run elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::{ContractorConfig, Identity, Token};
use archive::{ArchiveOptions, ArchiveStatus, SEGMENT_BYTES_DEFAULT};
use bus::Bus;
use gateway::LimitConfig;
use parking_lot::Mutex;
use policy_engine::CheckpointConfig;
use prometheus::Registry;
use schemas::{AgentId, Policy, TopicName};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::Verdict;
use traffic_gen::live::{Access, CallScenario};

use super::measure::{Measuring, SoakProgress, Source};
use super::report::{self, SoakReport};
use super::sample::{End, SoakFolder, SoakLine};
use super::{Place, SoakError, SoakFaults};

/// Requests of one agent per call, at most: the call or offer, revision, confirmation, report, and repeats.
const REQUESTS_PER_CALL: f64 = 20.0;
/// How long a token is used before another is signed, well within its lifetime of a day.
const TOKEN_RENEWAL: Duration = Duration::from_secs(3600);
/// Bytes the archive of a run of its own may take.
const ARCHIVE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How long open calls are waited for at the end.
const DRAIN: Duration = Duration::from_secs(30);
/// The same where faults may leave one open until its hard deadline, two minutes after the call.
const DRAIN_WITH_FAULTS: Duration = Duration::from_secs(150);
/// Collection deadline of calls while processes are killed, in milliseconds, as in `llmx-lab chaos`.
const REPLY_WITHIN_KILLS_MS: u64 = 10_000;
/// Checkpoints in a run, so that the log is trimmed again and again; never further apart than engines store them anyway.
const CHECKPOINTS_MIN: f64 = 30.0;
const CHECKPOINT_MS_MIN: u64 = 1_000;
const CHECKPOINT_RECORDS_MIN: u64 = 50;
/// Records of one lane for each round of all, about: six over four lanes.
const RECORDS_PER_ROUND: f64 = 1.5;
/// Entries of the register stay this part of a run, within these bounds in seconds.
const REGISTER_KEEP_PARTS: f64 = 30.0;
const REGISTER_KEEP_S: (f64, f64) = (10.0, 3_600.0);
/// Agents recognise repeats of so many seconds at least, of so many calls, with so many deliveries each.
const REMEMBERED_BY_AGENTS_S: f64 = 60.0;
const CALLS_REMEMBERED_MIN: usize = 512;
const DELIVERIES_PER_CALL: usize = 8;
/// The exchange's own process, in series.
const OWN: &str = "llmx";
/// A nats-server of the run's own, in series.
const SERVER: &str = "nats-server";

/// A soak that is to be run.
pub struct Soak<'a> {
    /// Its folder, with its plan.
    pub folder: SoakFolder,
    /// The acceptance policy of calls; absent: the exchange's default.
    pub policy: Option<Policy>,
    /// What this process tells of itself.
    pub registry: Registry,
    /// Ends it before its time.
    pub cancel: CancellationToken,
    /// Hears of each sample.
    pub progress: &'a dyn Fn(&SoakProgress),
}

impl<'a> Soak<'a> {
    /// Soaks an exchange in this process over a bus. `servers` are monitoring ports of its nats-servers by name.
    ///
    /// # Errors
    /// [`SoakError`]; what was measured stays in the folder.
    pub async fn in_process(mut self, bus: Bus, servers: Vec<(String, String)>) -> Result<SoakReport, SoakError> {
        let plan = self.folder.plan().clone();
        let options = ExchangeOptions {
            policies: self.policy.iter().cloned().collect(),
            default_policy: self.policy.as_ref().map(|policy| policy.name().to_owned()),
            limits: limits(plan.rate),
            checkpoint: checkpoint(plan.duration_s, plan.rate),
            register_keep_ms: u64::try_from(register_keep(plan.duration_s).as_millis()).unwrap_or(u64::MAX),
            ..ExchangeOptions::default()
        };
        let archiver = (plan.place != Place::Nats).then(|| self.archive(&bus));
        let exchange = Exchange::start(bus.clone(), options).await?;
        let control = ControlClient::try_new(exchange.url())?;
        let transport = |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
        let key = exchange.signing_key().clone();
        let identity = |agent: &AgentId| {
            let (key, claimed) = (key.clone(), agent.clone());
            renewed(agent, move || key.sign(&Exchange::claims(&claimed)).unwrap_or_default())
        };
        let access = Access { control: &control, transport: &transport, identity: &identity };
        let own = Source::Own(OWN.to_owned(), vec![self.registry.clone(), exchange.registry.clone()]);
        let servers = servers.into_iter().map(|(name, url)| Source::Server(name, url));
        let measuring =
            Measuring { bus: Some(bus.clone()), ..self.measuring(&access, [own].into_iter().chain(servers).collect()) };
        let measured = Box::pin(measuring.run(&mut self.folder)).await;
        let mut verdict = Verdict::default();
        exchange.check_bounds(&mut verdict);
        exchange.shutdown().await;
        let archived = match archiver {
            Some(archiver) => archiver.end().await,
            None => Ok(()),
        };
        let report = self.conclude(measured, verdict)?;
        archived.map(|()| report)
    }

    /// Soaks an exchange in this process on a nats-server of the run's own.
    ///
    /// # Errors
    /// As [`Soak::in_process`].
    pub async fn on_local_server(self) -> Result<SoakReport, SoakError> {
        let server = nats_server::LocalServer::start(nats_server::LocalServerOptions::default()).await?;
        let mut options = bus::nats::NatsOptions::new(server.url());
        options.name = "llmx-soak".to_owned();
        let bus = bus::nats::open(options).await?;
        self.in_process(bus, vec![(SERVER.to_owned(), server.monitor_url())]).await
    }

    /// Soaks processes that run elsewhere, each scraped where the plan says, with agents of its own over `access`.
    ///
    /// # Errors
    /// As [`Soak::in_process`].
    pub async fn against(mut self, access: &Access<'_>) -> Result<SoakReport, SoakError> {
        let mut sources: Vec<Source> = self.folder.plan().metrics.iter().map(|url| source(url)).collect();
        sources.push(Source::Own("soak".to_owned(), vec![self.registry.clone()]));
        let measuring = self.measuring(access, sources);
        let measured = Box::pin(measuring.run(&mut self.folder)).await;
        self.conclude(measured, Verdict::default())
    }

    /// Soaks processes of the run's own, made from `binary`, while some are killed.
    ///
    /// # Errors
    /// As [`Soak::in_process`].
    pub async fn on_processes(mut self, binary: PathBuf) -> Result<SoakReport, SoakError> {
        use agents::transport::failover::FailoverTransport;
        use agents::transport::websocket::WebSocketTransport;

        let seed = self.folder.plan().seed.wrapping_add(u64::from(self.folder.part()));
        let keep = register_keep(self.folder.plan().duration_s);
        let mut rig = chaos::ProcessRig::start(seed, keep, &binary).await?;
        let bus = rig.bus();
        let archiver = self.archive(&bus);
        let control = ControlClient::try_new(rig.gateway_urls()[0].as_str())?;
        if let Some(policy) = &self.policy {
            control.put_policy(&rig.admin_token()?, policy).await?;
        }
        let ways: Vec<Arc<dyn Transport>> =
            rig.gateway_urls().iter().map(|url| Arc::new(WebSocketTransport::new(url)) as Arc<dyn Transport>).collect();
        // Whether there is an address shows here, so that it need not be asked for each agent.
        FailoverTransport::try_new(ways.clone())?;
        let transport = |_: &AgentId| -> Arc<dyn Transport> {
            Arc::new(FailoverTransport::try_new(ways.clone()).expect("the same addresses made one before"))
        };
        let signer = rig.signer();
        let identity = |agent: &AgentId| {
            let (signer, claimed) = (Arc::clone(&signer), agent.clone());
            renewed(agent, move || signer(&claimed))
        };
        let access = Access { control: &control, transport: &transport, identity: &identity };
        let mut sources: Vec<Source> =
            rig.metrics_urls().into_iter().map(|(name, url)| Source::Metrics(name, url)).collect();
        sources.extend(rig.monitor_url().map(|url| Source::Server(SERVER.to_owned(), url)));
        sources.push(Source::Own("soak".to_owned(), vec![self.registry.clone()]));
        let counts = rig.fault_counts();
        let measuring = Measuring {
            bus: Some(bus),
            injected: Some(Arc::new(move || std::mem::take(&mut *counts.lock()))),
            ..self.measuring(&access, sources)
        };
        let length = self.folder.plan().fill() + Duration::from_secs_f64(self.folder.remaining_s());
        let faults_until = tokio::time::Instant::now() + length;
        let over = CancellationToken::new();
        let work = async {
            let measured = Box::pin(measuring.run(&mut self.folder)).await;
            over.cancel();
            measured
        };
        let (measured, driven) = tokio::join!(work, rig.drive(faults_until, &self.cancel, &over));
        let ended = driven?;
        let unwilling = rig.end().await?;
        let archived = archiver.end().await;
        let measured = measured.map(|mut end| {
            for (name, words) in [("processes/none_ended_by_itself", ended), ("processes/ended_when_asked", unwilling)]
            {
                if !words.is_empty() {
                    end.violations.insert(name.to_owned(), words.len() as u64);
                    end.examples.extend(words);
                }
            }
            end
        });
        let report = self.conclude(measured, Verdict::default())?;
        archived.map(|()| report)
    }

    /// What is measured of these sources over this way.
    fn measuring<'b>(&self, access: &'b Access<'b>, sources: Vec<Source>) -> Measuring<'b>
    where
        'a: 'b,
    {
        let (scenario, cancel, progress) = (self.scenario(), self.cancel.clone(), self.progress);
        Measuring { access, scenario, sources, bus: None, injected: None, cancel, progress }
    }

    /// Adds the end of the part, and writes the report; also over a part that failed, which is what is answered then.
    fn conclude(mut self, measured: Result<End, SoakError>, verdict: Verdict) -> Result<SoakReport, SoakError> {
        let mut fault = None;
        match measured {
            Ok(mut end) => {
                for (invariant, tally) in verdict.by_name.iter().filter(|(_, tally)| tally.violated > 0) {
                    end.violations.insert(format!("exchange/{}", invariant.as_str()), tally.violated);
                }
                end.examples.extend(verdict.examples);
                self.folder.add(&SoakLine::End(end))?;
            }
            Err(error) => fault = Some(error),
        }
        let written = report::write(self.folder.path());
        match (fault, written) {
            (Some(fault), _) => Err(fault),
            (None, written) => written?.ok_or_else(|| SoakError::Report("the folder holds no part".to_owned())),
        }
    }

    /// Archives the log of a run of its own, so that it is trimmed: of each part apart, whose log begins anew.
    fn archive(&self, bus: &Bus) -> Archiver {
        let folder = self.folder.path().join("archive").join(format!("part-{}", self.folder.part() + 1));
        let options = ArchiveOptions {
            folder,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            keep_bytes: Some(ARCHIVE_BYTES_MAX),
            once: false,
        };
        let cancel = CancellationToken::new();
        let archiving = archive::run(bus.clone(), options, Arc::new(ArchiveStatus::default()), cancel.clone());
        Archiver { cancel, task: tokio::spawn(archiving) }
    }

    fn scenario(&self) -> CallScenario {
        let plan = self.folder.plan();
        let now = jiff::Timestamp::now().as_second();
        // On an exchange that others use, no name, topic or id is theirs, nor that of an earlier part.
        let prefix = format!("soak-{now:x}-{:x}-", std::process::id());
        let mut scenario = CallScenario {
            contractors: plan.agents,
            policy: self.policy.as_ref().map(|policy| policy.name().to_owned()),
            rate: plan.rate,
            // Another part is another run.
            seed: plan.seed.wrapping_add(u64::from(self.folder.part())),
            run: format!("soak-{now:x}"),
            contractor: contractor(plan.faults, plan.seed),
            drain: if plan.faults == SoakFaults::None { DRAIN } else { DRAIN_WITH_FAULTS },
            ..CallScenario::default()
        };
        if let (Ok(topic), Ok(initiator)) =
            (TopicName::try_new(&format!("{prefix}topic")), AgentId::try_new(&format!("{prefix}alice")))
        {
            (scenario.topic, scenario.initiator, scenario.prefix) = (topic, initiator, prefix);
        }
        // What agents remember against repeats, which come within seconds, is bounded by what a minute or two lead to.
        let calls = (plan.rate * REMEMBERED_BY_AGENTS_S) as usize;
        let limits = &mut scenario.options.limits;
        limits.negotiations_remembered = calls.clamp(CALLS_REMEMBERED_MIN, limits.negotiations_remembered);
        limits.deliveries_remembered =
            (limits.negotiations_remembered * DELIVERIES_PER_CALL).min(limits.deliveries_remembered);
        if plan.are_processes_killed() {
            scenario.reply_within_ms = REPLY_WITHIN_KILLS_MS;
            scenario.options.limits.retry_max_ms = 2_000;
            scenario.options.limits.attempts_max = 60;
        }
        scenario
    }
}

/// An archiver in this process.
struct Archiver {
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), archive::ArchiveError>>,
}

impl Archiver {
    async fn end(self) -> Result<(), SoakError> {
        self.cancel.cancel();
        self.task.await.map_err(|panic| SoakError::Report(panic.to_string()))??;
        Ok(())
    }
}

/// How contractors behave.
fn contractor(faults: SoakFaults, seed: u64) -> ContractorConfig {
    let steady = ContractorConfig { seed, ..ContractorConfig::default() };
    match faults {
        SoakFaults::None | SoakFaults::Kills => steady,
        SoakFaults::Light => ContractorConfig {
            silent: 0.01,
            refuse: 0.05,
            late: 0.01,
            revise: 0.05,
            withdraw: 0.02,
            decline: 0.02,
            fail: 0.02,
            ..steady
        },
    }
}

/// The gateway's usual limits, raised where the asked rate needs more.
fn limits(rate: f64) -> LimitConfig {
    let usual = LimitConfig::default();
    let needed = (rate * REQUESTS_PER_CALL).clamp(1.0, f64::from(u32::MAX)) as u32;
    let (requests_per_s, burst) = (usual.requests_per_s.max(needed), usual.burst.max(needed.saturating_mul(2)));
    LimitConfig { requests_per_s, burst, ..usual }
}

/// Often enough that the log is trimmed again and again even in a short run: engines trim no fewer records than lie between
/// two checkpoints.
fn checkpoint(duration_s: f64, rate: f64) -> CheckpointConfig {
    let usual = CheckpointConfig::default();
    let every_ms = (duration_s * 1_000.0 / CHECKPOINTS_MIN) as u64;
    let every_records = (duration_s * rate * RECORDS_PER_ROUND / CHECKPOINTS_MIN) as u64;
    CheckpointConfig {
        every_ms: every_ms.clamp(CHECKPOINT_MS_MIN, usual.every_ms),
        every_records: every_records.clamp(CHECKPOINT_RECORDS_MIN, usual.every_records),
    }
}

/// So short that entries of the register are removed as fast as they are written before the warm-up, a fifth of the run, is
/// over; an hour at most, as in an exchange that nobody has configured.
fn register_keep(duration_s: f64) -> Duration {
    Duration::from_secs_f64((duration_s / REGISTER_KEEP_PARTS).clamp(REGISTER_KEEP_S.0, REGISTER_KEEP_S.1))
}

/// An agent whose token is signed anew long before it expires.
fn renewed(agent: &AgentId, sign: impl Fn() -> String + Send + Sync + 'static) -> Identity {
    let cached = Mutex::new(None::<(Instant, String)>);
    let token = Token::renewed(move || {
        let mut cached = cached.lock();
        let (_, token) = match cached.take().filter(|(signed_at, _)| signed_at.elapsed() < TOKEN_RENEWAL) {
            Some(fresh) => cached.insert(fresh),
            None => cached.insert((Instant::now(), sign())),
        };
        token.clone()
    });
    Identity { agent: agent.clone(), token }
}

/// Where an address is scraped, and the name of its series: host and port, or its last part in a query.
fn source(url: &str) -> Source {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let name = behind.split_once('/').map_or(behind, |(host, _)| host);
    let is_root = !behind.contains('/') || behind.ends_with('/');
    let url = if is_root { format!("{}/metrics", url.trim_end_matches('/')) } else { url.to_owned() };
    Source::Metrics(name.to_owned(), url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_is_that_of_its_metrics() {
        for (url, name, expected) in [
            ("http://engine-1:9464", "engine-1:9464", "http://engine-1:9464/metrics"),
            ("http://gateway-1:8080/", "gateway-1:8080", "http://gateway-1:8080/metrics"),
            (
                "http://x:7777/metrics?target=http://nats:8222",
                "x:7777",
                "http://x:7777/metrics?target=http://nats:8222",
            ),
        ] {
            let Source::Metrics(found, address) = source(url) else { panic!("{url}") };
            assert_eq!((found.as_str(), address.as_str()), (name, expected));
        }
    }

    #[test]
    fn a_token_is_signed_once_in_a_while() {
        let signed = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counting = Arc::clone(&signed);
        let agent = AgentId::try_new("a").unwrap();
        let identity = renewed(&agent, move || {
            let number = counting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            format!("token-{number}")
        });
        assert_eq!((identity.token.current(), identity.token.current()), ("token-0".to_owned(), "token-0".to_owned()));
        assert_eq!(signed.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
