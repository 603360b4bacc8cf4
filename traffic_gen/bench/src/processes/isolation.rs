//! How long decisions of ordinary negotiations take while the modules of another contractor do what their limits are for.
//!
//! Everything is a process of its own, on one machine: nats-server, engine, gateway, twelve contractors, the initiator, and the
//! contractor with the modules. Measurements with and without calls to it take turns, so that both have the same machine. At
//! the same time as many of its modules loop as the machine has cores; further ones take memory without end, and call
//! themselves without end. Every run must fail, and is followed by the next.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agora::client::AgoraClient;
use agora::transaction::{TransactionReply, TransactionRequest, TransactionStatus};
use agora::{DocumentSource, Origin, ProtocolDocument, Selection};
use routine_wasm::HOSTILE;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::exchange::MeasuredExchange;
use super::{AgentsVia, MeasuredBuild, P99, ProcessPlan, UNENDED};
use crate::Row;
use crate::overhead::median;
use crate::rounds::{BenchError, stuck};

/// Calls per second among ordinary agents: far from what the exchange can do.
const RATE: u32 = 100;
/// Ordinary contractors.
const CONTRACTORS: u32 = 12;
/// Longest wait for one answer of the contractor with the modules.
const PATIENCE: Duration = Duration::from_secs(30);
/// From one request of a caller to its next, unless an answer takes longer.
const PACE: Duration = Duration::from_millis(250);
/// How long a run may go on behind the last answer, and the wait between two measurements.
const SETTLING: Duration = Duration::from_secs(3);
/// What the routines of that contractor are.
const ROUTINES: &str = "[[routine]]\ndocument = \"hostile.md\"\nwasm = \"hostile.wasm\"\n";
/// What calls to it are under.
const DOCUMENT: &str = "---\nname: Limits\ndescription: What limits are for.\nmultiround: false\n---\nSend a letter.\n";
/// What the answer to a run that failed says.
const FAILED: &str = "routine_failed";

/// Measures so many pairs, each of two loads that last `calling`.
///
/// # Errors
/// [`BenchError`], also when a module was not stopped, or an ordinary call did not end.
pub async fn measure(binary: &Path, pairs: usize, calling: Duration) -> Result<[Row; 2], BenchError> {
    let plan = ProcessPlan {
        build: MeasuredBuild { binary: binary.to_owned(), nats_threads: 1 },
        engines: 1,
        contractors: CONTRACTORS,
        policy: "high".to_owned(),
        ..ProcessPlan::default()
    };
    let mut exchange = MeasuredExchange::start(&plan.build, &plan, AgentsVia::Websocket).await?;
    let files: [(&str, &[u8]); 3] =
        [("hostile.toml", ROUTINES.as_bytes()), ("hostile.md", DOCUMENT.as_bytes()), ("hostile.wasm", HOSTILE)];
    let target = exchange.host("hostile.toml", &files).await?;
    let client = AgoraClient::try_new(&target, Some(exchange.token("visitor").await?), PATIENCE).map_err(stuck)?;
    let callers = HostileCallers::try_new(client)?;
    // The first loads of a process are of caches and connections.
    p99(&mut exchange, calling / 2).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Which is first takes turns as well.
        for is_hostile in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            if is_hostile {
                with.push(callers.during(p99(&mut exchange, calling)).await?);
            } else {
                without.push(p99(&mut exchange, calling).await?);
            }
            sleep(SETTLING).await;
        }
    }
    let decision = Row::new("agora.isolation.decision_p99", median(&with), "ms").under(median(&without));
    let stopped = callers.stopped.load(Ordering::Relaxed) as f64;
    Ok([decision.aiming_at("<= 1.20"), Row::new("agora.isolation.runs_stopped", stopped, "runs")])
}

/// 99 % of decisions in a load of ordinary calls, in milliseconds.
async fn p99(exchange: &mut MeasuredExchange, calling: Duration) -> Result<f64, BenchError> {
    let figures = exchange.measure(f64::from(RATE), calling).await?;
    let unended = figures.value(UNENDED).unwrap_or_default();
    if unended > 0.0 {
        return Err(stuck(format!("{unended} ordinary calls did not end")));
    }
    figures.value(P99).ok_or_else(|| stuck("there were no decisions"))
}

/// Those who ask for what modules must not do.
struct HostileCallers {
    client: AgoraClient,
    document: ProtocolDocument,
    /// The request that each caller repeats.
    requests: Vec<&'static str>,
    stopped: Arc<AtomicU64>,
}

impl HostileCallers {
    fn try_new(client: AgoraClient) -> Result<Self, BenchError> {
        let document = ProtocolDocument::try_new(DOCUMENT, Origin::Own).map_err(stuck)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let requests = std::iter::repeat_n("loop", cores).chain(["memory", "recursion"]).collect();
        Ok(Self { client, document, requests, stopped: Arc::default() })
    }

    /// Asks for as long as something is measured; what was measured.
    async fn during<T>(&self, measured: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
        let mut asking = JoinSet::new();
        for body in &self.requests {
            let sources = vec![DocumentSource::of_text(self.document.text())];
            let selection = Selection::Document { hash: self.document.hash(), sources };
            let request = TransactionRequest { selection, body: (*body).to_owned(), multiround: false };
            asking.spawn(ask_on(self.client.clone(), request, Arc::clone(&self.stopped)));
        }
        // Callers end with a fault only.
        tokio::select! {
            measured = measured => measured,
            Some(ended) = asking.join_next() => Err(ended.map_err(stuck)?),
        }
    }
}

/// Asks for a run, waits for its end, and asks for the next, until a run is not stopped.
async fn ask_on(client: AgoraClient, request: TransactionRequest, stopped: Arc<AtomicU64>) -> BenchError {
    loop {
        let next = Instant::now() + PACE;
        match client.begin(&request).await {
            Ok(reply) if is_stopped(&reply) => stopped.fetch_add(1, Ordering::Relaxed),
            Ok(reply) => return stuck(format!("a module was not stopped: {reply:?}")),
            Err(error) => return stuck(error),
        };
        sleep_until(next).await;
    }
}

fn is_stopped(reply: &TransactionReply) -> bool {
    reply.status == TransactionStatus::Error && reply.message.as_deref().is_some_and(|message| message.contains(FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_failed_counts_as_stopped() {
        let error = |message: &str| TransactionReply::unanswered(TransactionStatus::Error, message);
        assert!(is_stopped(&error("the agent failed: routine_failed")));
        assert!(!is_stopped(&error("the agent did not answer in time")));
        assert!(!is_stopped(&TransactionReply::unanswered(TransactionStatus::Rejected, "routine_failed")));
        assert!(!is_stopped(&TransactionReply::success("routine_failed".to_owned())));
    }
}
