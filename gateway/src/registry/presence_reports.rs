//! Keeps presence up to date: hears hellos and other gateways' reports, reports whom this gateway heard, and finds absent
//! whose lease has ended. Hears of engines which agents acknowledge too little, and how much lanes may be asked to open. What is decided of it stands in [`super::presence`].

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use schemas::presence::{REPORT_PERIOD_MS, decode_report, encode_report};
use schemas::{AgentId, subject};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{PresenceSignal, Registry};
use crate::metrics::GatewayMetrics;

/// Between two questions to the bus; each also looks for leases that have ended.
const ASK_PERIOD: Duration = Duration::from_secs(1);
/// Longest wait for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Says which agents have a stream open.
type OpenStreamsFn = Box<dyn Fn() -> Vec<AgentId> + Send + Sync>;

/// The one task of a gateway that keeps presence.
pub(crate) struct PresenceReports {
    pub_sub: Arc<dyn PubSub>,
    hellos: BoxStream<'static, Received>,
    reports: BoxStream<'static, Received>,
    backlogs: BoxStream<'static, Received>,
    behind: BoxStream<'static, Received>,
    admissions: BoxStream<'static, Received>,
    /// Where this gateway's reports go.
    subject: String,
    registry: Arc<Registry>,
    /// The agents that have a stream open to this gateway.
    open_streams: OpenStreamsFn,
    metrics: Arc<GatewayMetrics>,
    /// The messages of its last report that have not come back to it.
    said: Vec<Bytes>,
    /// Whoever was heard from then on is in the next report.
    reported_ms: u64,
}

impl PresenceReports {
    /// Listens from now on.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    pub(crate) async fn subscribe(
        pub_sub: &Arc<dyn PubSub>,
        gateway: &str,
        registry: Arc<Registry>,
        open_streams: OpenStreamsFn,
        metrics: Arc<GatewayMetrics>,
    ) -> Result<Self, BusError> {
        let hellos = pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await?;
        let reports = pub_sub.subscribe(subject::ALL_PRESENCE.to_owned(), None).await?;
        let backlogs = pub_sub.subscribe(subject::ALL_BACKLOGS.to_owned(), None).await?;
        let behind = pub_sub.subscribe(subject::ALL_BEHIND.to_owned(), None).await?;
        let admissions = pub_sub.subscribe(subject::ALL_ADMISSIONS.to_owned(), None).await?;
        let subject = subject::presence(&subject::token(gateway));
        Ok(Self {
            pub_sub: pub_sub.clone(),
            hellos,
            reports,
            backlogs,
            behind,
            admissions,
            subject,
            registry,
            open_streams,
            metrics,
            said: Vec::new(),
            reported_ms: 0,
        })
    }

    /// Keeps presence until the gateway stops.
    pub(crate) async fn drive(mut self, stop: CancellationToken) {
        let mut asking = interval(ASK_PERIOD);
        asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported_at = Instant::now();
        loop {
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = asking.tick() => {
                    self.ask().await;
                    if reported_at.elapsed() >= Duration::from_millis(REPORT_PERIOD_MS) {
                        reported_at = Instant::now();
                        self.report().await;
                    }
                    continue;
                }
                // First: that they come late says that the gateway does not keep up.
                received = self.admissions.next() => received.map(|received| self.handle_admission(&received)),
                received = self.hellos.next() => received.map(|received| self.handle_hello(&received)),
                received = self.reports.next() => received.map(|received| self.handle_report(&received)),
                received = self.backlogs.next() => received.map(|received| self.handle_backlog(&received)),
                received = self.behind.next() => received.map(|received| self.handle_behind(&received)),
            };
            if heard.is_none() {
                return;
            }
        }
    }

    /// Every gateway hears a hello itself: nobody reports it.
    fn handle_hello(&self, received: &Received) {
        if let Some(agent) = subject::agent_of(&received.subject) {
            self.registry.note_presence(&agent, PresenceSignal::Hello);
        }
    }

    fn handle_backlog(&self, received: &Received) {
        let Some(engine) = subject::backlog_engine_of(&received.subject) else { return };
        match decode_report(&received.payload) {
            Ok(agents) => self.registry.handle_backlog(engine, agents),
            Err(error) => tracing::debug!(%error, "a report of backlogs is not readable"),
        }
    }

    fn handle_behind(&self, received: &Received) {
        let Some(engine) = subject::behind_engine_of(&received.subject) else { return };
        match decode_report(&received.payload) {
            Ok(agents) => self.registry.handle_behind(engine, agents),
            Err(error) => tracing::debug!(%error, "a report of who is behind is not readable"),
        }
    }

    fn handle_admission(&self, received: &Received) {
        let Some(lane) = subject::admission_lane_of(&received.subject) else { return };
        match serde_json::from_slice(&received.payload) {
            Ok(word) => self.registry.openings().handle_word(lane, word, Instant::now()),
            Err(error) => tracing::debug!(%error, "what a lane may be asked to open is not readable"),
        }
    }

    fn handle_report(&mut self, received: &Received) {
        // What this gateway said itself is no news: its own agents' leases would otherwise last until its next report. It is
        // known by its content, since nothing keeps two gateways from having one name.
        if let Some(own) = self.said.iter().position(|said| *said == received.payload) {
            self.said.swap_remove(own);
            return;
        }
        match decode_report(&received.payload) {
            Ok(agents) => agents.iter().for_each(|agent| self.registry.note_presence(agent, PresenceSignal::Reported)),
            Err(error) => tracing::debug!(%error, "a report of presence is not readable"),
        }
    }

    /// Asks whether this gateway still hears what is said on the bus, and looks whose lease has ended.
    async fn ask(&mut self) {
        if matches!(timeout(ANSWER_MAX, self.pub_sub.flush()).await, Ok(Ok(()))) {
            self.registry.handle_answer();
        }
        while self.registry.sweep() {
            tokio::task::yield_now().await;
        }
        let (registered, present) = {
            let tables = self.registry.read();
            (tables.agents.len(), tables.agents.present_len())
        };
        self.metrics.access.agents(registered, present);
    }

    /// Reports whom this gateway heard since its last report, and whose streams it holds.
    async fn report(&mut self) {
        for agent in (self.open_streams)() {
            self.registry.note_presence(&agent, PresenceSignal::Here);
        }
        let since_ms = std::mem::replace(&mut self.reported_ms, self.registry.now_ms());
        let agents = self.registry.read().agents.heard_here(since_ms.max(1));
        let Ok(messages) = encode_report(&agents) else { return };
        self.said = messages.into_iter().map(Bytes::from).collect();
        for message in self.said.clone() {
            if let Err(error) = self.pub_sub.publish(self.subject.clone(), message).await {
                tracing::debug!(%error, "a report of presence was not published");
            }
        }
    }
}
