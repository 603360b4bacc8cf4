//! Transactions of Agora by what carries them out, beside a bare HTTP service; and what one run of a routine costs.
//!
//! Every transaction is `POST /agora/{agent}`: a call to one contractor, its offer, award, confirmation, routine and report,
//! in one process on a bus in memory. Every answer is compared with the one expected. A row stands only if the award was
//! carried out by the kind it names, each time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agents::routine::native::{NATIVE_RUNS_MAX, parcel_price};
use agents::routine::{
    HttpRoutine, NativeRoutine, Routine, RoutineLimits, RoutineRequest, RoutineRunner, RoutineTable,
};
use agora::client::AgoraClient;
use agora::transaction::{TransactionReply, TransactionRequest, TransactionStatus};
use agora::{DocumentSource, Origin, ProtocolDocument, Selection};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use bus::memory::MemoryOptions;
use schemas::document::RoutineKind;
use schemas::{AgentId, NegotiationId, Timestamp};
use serde_json::Value;
use telemetry::TraceContext;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::Row;
use super::rounds::{BenchError, Rig, Way, stuck, sum, unlimited};
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::live::{Access, CallScenario, contractor_name, initiator_name};

/// Transactions open at once: as many as a native routine runs at once, so that none is turned away.
const CALLERS: usize = NATIVE_RUNS_MAX;
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Runs of one routine that are timed, one after another.
const RUNS: u32 = 1000;
/// Runs before them that are not.
const WARM_UP: u32 = 100;
/// A parcel's weight in grams.
const WEIGHT: &str = "1250";
/// Its price in cents.
const PRICE: &str = "575";
/// What the contractor reports where it has no routine.
const SENTENCE: &str = "As you wish.";
/// What transactions are under.
const DOCUMENT: &str = "---\nname: Parcel price\ndescription: The price of a parcel by its weight.\nmultiround: false\n---\n\
    Send the weight in grams, digits only. The answer is the price in cents.\n";

/// Measures everything; `each` is the time of one closed loop.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(each: Duration, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let document = ProtocolDocument::try_new(DOCUMENT, Origin::Own).map_err(stuck)?;
    let echo = LocalService::start("/", post(echoed)).await?;
    let client = AgoraClient::try_new(&echo.url, None, PATIENCE).map_err(stuck)?;
    let ceiling = closed_loop(vec![client; CALLERS], &asked(under(&document, false)), WEIGHT, each).await?;
    add(Row::new("agora.bare.http", ceiling, "requests/s"));
    let price = LocalService::start("/", post(|body: String| async move { parcel_price(&body) })).await?;
    let routines = routines(&document, &price.url)?;
    for routine in routines.iter().map(Some).chain([None]) {
        let kind = routine.map_or(RoutineKind::Language, |routine| routine.kind());
        let rate = transactions(&document, routine.cloned(), each).await?;
        add(Row::new(format!("agora.transactions.{}", kind.as_str()), rate, "requests/s").under(ceiling));
    }
    // What a model's run costs is the model's.
    for routine in routines.iter().filter(|routine| routine.kind() != RoutineKind::Model) {
        let name = format!("agora.run.{}", routine.kind().as_str());
        add(Row::new(name, us_per_run(routine.as_ref()).await?, "us/run"));
    }
    #[cfg(feature = "wasm")]
    add(Row::new("agora.run.wasm.module", us_per_module_run().await?, "us/run"));
    Ok(())
}

/// Every kind of routine that this build has, for the document.
fn routines(document: &ProtocolDocument, service: &str) -> Result<Vec<Arc<dyn Routine>>, BenchError> {
    let native: Arc<dyn Routine> = Arc::new(NativeRoutine::new(parcel_price));
    let http: Arc<dyn Routine> = Arc::new(HttpRoutine::try_new(service).map_err(stuck)?);
    Ok([native, http].into_iter().chain(module_routine()?).chain(model_routine(document)).collect())
}

#[cfg(feature = "wasm")]
fn module_routine() -> Result<Option<Arc<dyn Routine>>, BenchError> {
    Ok(Some(Arc::new(module()?)))
}

#[cfg(not(feature = "wasm"))]
fn module_routine() -> Result<Option<Arc<dyn Routine>>, BenchError> {
    Ok(None)
}

#[cfg(feature = "wasm")]
fn module() -> Result<routine_wasm::WasmRoutine, BenchError> {
    use routine_wasm::{PARCEL_PRICE, WasmLimits, WasmRoutine};
    WasmRoutine::try_new(PARCEL_PRICE, WasmLimits::default()).map_err(stuck)
}

/// A stub in place of a model: it answers at once, so that what is left is the adapter's own.
fn model_routine(document: &ProtocolDocument) -> Option<Arc<dyn Routine>> {
    use agents::model::stub::{StubScript, StubValue};
    use agents::model::{Consultant, ModelConfig, ModelRoutine, StubModel};

    let answer = [("result".to_owned(), StubValue::Text(PRICE.to_owned()))].into();
    let stub = StubModel::new(StubScript { answer, ..StubScript::default() }, 1);
    let consultant = Arc::new(Consultant::new(stub, ModelConfig::default()));
    Some(Arc::new(ModelRoutine::new(consultant, "", 1).reading(document.hash(), document.text())))
}

/// Transactions per second with one contractor that has this routine for the document; without one, in natural language.
async fn transactions(
    document: &ProtocolDocument,
    routine: Option<Arc<dyn Routine>>,
    duration: Duration,
) -> Result<f64, BenchError> {
    let kind = routine.as_ref().map_or(RoutineKind::Language, |routine| routine.kind());
    let (first, further, answer) = match routine {
        Some(_) => (under(document, true), under(document, false), PRICE),
        None => (Selection::Language, Selection::Language, SENTENCE),
    };
    let mut table = RoutineTable::default();
    if let Some(routine) = routine {
        table.add(document.hash(), routine).map_err(stuck)?;
    }
    let runner = Arc::new(RoutineRunner::new(table, RoutineLimits::default()).saying(SENTENCE));
    let exchange = unlimited(bus::memory::open(MemoryOptions::default()), ExchangeOptions::default()).await?;
    let scenario = CallScenario { contractors: 1, routines: vec![Arc::clone(&runner)], ..CallScenario::default() };
    let measuring = async |rig: &Rig, _: &Access<'_>| {
        let target = format!("{}/agora/{}", rig.exchange.url(), contractor_name(0));
        // The gateway bounds the transactions of one caller, so each has a name of its own.
        let clients = (0..CALLERS).map(|number| {
            let caller = AgentId::try_new(&format!("caller-{number}")).map_err(stuck)?;
            let token = rig.exchange.identity(&caller)?.token.current();
            AgoraClient::try_new(&target, Some(token), PATIENCE).map_err(stuck)
        });
        let clients = clients.collect::<Result<Vec<_>, BenchError>>()?;
        // The first one brings the document.
        for client in clients.iter().take(1) {
            ask(client, &asked(first.clone()), answer).await?;
        }
        closed_loop(clients, &asked(further), answer, duration).await
    };
    let rate = Rig { exchange, scenario }.populated(Way::Bus, measuring).await?;
    let tallies = runner.tallies();
    let is_of_one_kind = tallies.iter().all(|(ran, tally)| *ran == kind && tally.failed == 0);
    if is_of_one_kind { Ok(rate) } else { Err(stuck(format!("of {}, these ran: {tallies:?}", kind.as_str()))) }
}

/// Requests per second of callers that each ask one after another.
async fn closed_loop(
    clients: Vec<AgoraClient>,
    request: &TransactionRequest,
    answer: &'static str,
    duration: Duration,
) -> Result<f64, BenchError> {
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for client in clients {
        let request = request.clone();
        callers.spawn(async move {
            let mut answered = 0_u64;
            while began.elapsed() < duration {
                ask(&client, &request, answer).await?;
                answered += 1;
            }
            Ok::<_, BenchError>(answered)
        });
    }
    Ok(sum(callers).await? as f64 / began.elapsed().as_secs_f64().max(f64::EPSILON))
}

async fn ask(client: &AgoraClient, request: &TransactionRequest, answer: &str) -> Result<(), BenchError> {
    let reply = client.begin(request).await.map_err(stuck)?;
    let is_expected = reply.status == TransactionStatus::Success && reply.body == answer;
    if is_expected { Ok(()) } else { Err(stuck(format!("`{answer}` was expected, and this came: {reply:?}"))) }
}

fn asked(selection: Selection) -> TransactionRequest {
    TransactionRequest { selection, body: WEIGHT.to_owned(), multiround: false }
}

fn under(document: &ProtocolDocument, with_text: bool) -> Selection {
    let sources = if with_text { vec![DocumentSource::of_text(document.text())] } else { Vec::new() };
    Selection::Document { hash: document.hash(), sources }
}

/// Answers a transaction with what it asks.
async fn echoed(Json(document): Json<Value>) -> Json<Value> {
    let reply = match TransactionRequest::try_new(&document) {
        Ok(request) => TransactionReply::success(request.body),
        Err(refusal) => TransactionReply::refused(&refusal),
    };
    Json(reply.to_json())
}

/// Microseconds per run, as awards run it: on a thread for blocking work, or by a connection that stays.
async fn us_per_run(routine: &dyn Routine) -> Result<f64, BenchError> {
    let negotiation = NegotiationId::form(&initiator_name(), "bench").map_err(stuck)?;
    let request = RoutineRequest {
        agent: contractor_name(0),
        context: TraceContext::of(None, &negotiation),
        negotiation,
        asked_at: Timestamp(0),
        deadline: Timestamp::MAX,
        document: None,
        text: WEIGHT.to_owned(),
    };
    let mut began = Instant::now();
    for run in 0..WARM_UP + RUNS {
        if run == WARM_UP {
            began = Instant::now();
        }
        check_price(&routine.run(request.clone()).await.map_err(stuck)?)?;
    }
    Ok(us_each(began))
}

/// Microseconds per run of the module alone, on a thread that does nothing else.
#[cfg(feature = "wasm")]
async fn us_per_module_run() -> Result<f64, BenchError> {
    let module = module()?;
    let running = tokio::task::spawn_blocking(move || {
        let mut began = Instant::now();
        for run in 0..WARM_UP + RUNS {
            if run == WARM_UP {
                began = Instant::now();
            }
            check_price(&module.sandbox().run(WEIGHT, || false).map_err(stuck)?)?;
        }
        Ok(us_each(began))
    });
    running.await.map_err(stuck)?
}

fn check_price(result: &str) -> Result<(), BenchError> {
    if result == PRICE { Ok(()) } else { Err(stuck(format!("a routine gave `{result}`, not `{PRICE}`"))) }
}

fn us_each(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / f64::from(RUNS)
}

/// An HTTP service on loopback, ended when dropped.
pub struct LocalService {
    /// Where it answers.
    pub url: String,
    _serving: JoinSet<()>,
}

impl LocalService {
    /// Answers so at a path.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when no port can be opened.
    pub async fn start(path: &str, answering: MethodRouter) -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(stuck)?;
        let url = format!("http://{}{path}", listener.local_addr().map_err(stuck)?);
        let router = Router::new().route(path, answering);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // It ends with its task only.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, _serving: serving })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_kind_of_routine_of_the_build_has_a_row_beside_the_bare_service() {
        let mut rows = Vec::new();
        measure(SHORT, &mut |row| rows.push(row)).await.unwrap();
        assert!(rows.iter().all(|row| row.value > 0.0), "{rows:?}");
        let bare = rows[0].value;
        let mut transactions = Vec::new();
        let mut runs = Vec::new();
        for row in &rows[1..] {
            match row.name.strip_prefix("agora.transactions.") {
                Some(kind) => {
                    assert_eq!(row.ceiling, Some(bare), "{row:?}");
                    transactions.push(kind);
                }
                None => runs.push(row.name.strip_prefix("agora.run.").unwrap()),
            }
        }
        let built = |kind: &'static str, is_built: bool| is_built.then_some(kind);
        let wasm = cfg!(feature = "wasm");
        let expected = [Some("native"), Some("http"), built("wasm", wasm), Some("model"), Some("language")];
        assert_eq!(transactions, expected.into_iter().flatten().collect::<Vec<_>>());
        let expected = [Some("native"), Some("http"), built("wasm", wasm), built("wasm.module", wasm)];
        assert_eq!(runs, expected.into_iter().flatten().collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_routine_that_fails_gives_no_figure() {
        let document = ProtocolDocument::try_new(DOCUMENT, Origin::Own).unwrap();
        let failing: Arc<dyn Routine> = Arc::new(NativeRoutine::new(|_| Err("out of order".to_owned())));
        let failed = transactions(&document, Some(failing), SHORT).await.unwrap_err().to_string();
        assert!(failed.contains("routine_failed"), "{failed}");
    }
}
