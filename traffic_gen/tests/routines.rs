//! From a call's documents to a routine's result, on a real exchange.

use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::control::ControlClient;
use agents::observer::{Observed, Observer};
use agents::routine::native::parcel_price;
use agents::routine::{HttpRoutine, NativeRoutine, Routine, RoutineLimits, RoutineRunner, RoutineTable};
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use axum::Router;
use axum::routing::post;
use parking_lot::Mutex;
use routine_wasm::{PARCEL_PRICE, WasmLimits, WasmRoutine};
use schemas::AgentId;
use schemas::delivery::Notification;
use schemas::document::{CallDocuments, DocumentHash, RoutineKind, RoutineReport};
use schemas::payload::Offer;
use schemas::{Act, Payload};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::Recorder;
use traffic_gen::routines::RoutineSummary;

/// What agents said and were told of documents and routines.
#[derive(Default)]
struct Seen {
    offered: Mutex<Vec<Vec<DocumentHash>>>,
    /// By whom a document was seen pinned: the contractor in its ACCEPT, the initiator in the notice of the award.
    pinned: Mutex<Vec<(AgentId, Option<DocumentHash>)>>,
    reported: Mutex<Vec<(Option<String>, Option<RoutineReport>)>>,
}

impl Observer for Seen {
    fn handle(&self, agent: &AgentId, _: Instant, event: Observed<'_>) {
        match event {
            Observed::Decided { actions, .. } => {
                for action in actions {
                    if let agents::Action::Send(outgoing) = action
                        && let Payload::Offer(Offer { documents, .. }) = &outgoing.payload
                    {
                        self.offered.lock().push(documents.clone());
                    }
                }
            }
            Observed::Delivered { delivery, is_repeat: false } if delivery.payload.act() == Act::Accept => {
                let Notification::Accept(award) = &delivery.payload else { return };
                self.pinned.lock().push((agent.clone(), award.document));
            }
            Observed::Delivered { delivery, is_repeat: false } => {
                let told = serde_json::to_value(&delivery.payload).unwrap();
                if told["act"] == "inform" && told["kind"] == "awarded" {
                    let document = serde_json::from_value(told["document"].clone()).unwrap();
                    self.pinned.lock().push((agent.clone(), document));
                }
                if told["act"] == "inform" && told["routine"].is_object() {
                    let result = serde_json::from_value(told["result"].clone()).unwrap();
                    let routine = serde_json::from_value(told["routine"].clone()).unwrap();
                    self.reported.lock().push((result, routine));
                }
            }
            Observed::Connected
            | Observed::Disconnected
            | Observed::Transmitted { .. }
            | Observed::Settled { .. }
            | Observed::Deferred { .. }
            | Observed::Delivered { .. } => {}
        }
    }
}

fn unknown() -> DocumentHash {
    DocumentHash::of_bytes(b"a document nobody has a routine for")
}

fn known() -> DocumentHash {
    DocumentHash::of_bytes(b"the price of a parcel")
}

/// What a contractor reports that has no routine for the document, and no model.
const SENTENCE: &str = "As you wish.";

fn runner(routine: Option<Arc<dyn Routine>>) -> Arc<RoutineRunner> {
    let mut table = RoutineTable::default();
    if let Some(routine) = routine {
        table.add(known(), routine).unwrap();
    }
    Arc::new(RoutineRunner::new(table, RoutineLimits::default()).saying(SENTENCE))
}

/// A service that answers as the function does.
async fn serve() -> String {
    let price = |body: String| async move { parcel_price(&body) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(price))).await });
    url
}

/// Runs a few calls that name both documents, to one contractor with these routines.
async fn run(runner: &Arc<RoutineRunner>) -> Arc<Seen> {
    let bus = bus::memory::open(bus::memory::MemoryOptions::default());
    let exchange = Exchange::start(bus.clone(), ExchangeOptions::default()).await.unwrap();
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let transport = |_: &AgentId| Arc::new(BusTransport::new(&bus)) as Arc<dyn Transport>;
    let identity = |agent: &AgentId| exchange.identity(agent).unwrap();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let seen = Arc::new(Seen::default());
    let scenario = CallScenario {
        contractors: 1,
        rate: 10.0,
        duration: Duration::from_millis(300),
        load: "uniform".parse().unwrap(),
        task: "1250".to_owned(),
        documents: Some(CallDocuments { hashes: vec![unknown(), known()], require: false }),
        routines: vec![Arc::clone(runner)],
        options: AgentOptions { observer: Some(Arc::clone(&seen) as Arc<dyn Observer>), ..AgentOptions::default() },
        ..CallScenario::default()
    };
    let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
    let population = Population::start(&access, &scenario, Some(&recorder)).await.unwrap();
    live::call(&access, &scenario, &recorder, &CancellationToken::new()).await.unwrap();
    population.stop().await.unwrap();
    exchange.shutdown().await;
    let finished = recorder.finish_after(false).unwrap();
    assert_eq!((finished.counts.rounds, finished.verdict.violated()), (3, 0), "{:?}", finished.verdict);
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routine_of_the_pinned_document_gives_the_same_result_whatever_it_is() {
    let routines: [Arc<dyn Routine>; 3] = [
        Arc::new(NativeRoutine::named("parcel-price").unwrap()),
        Arc::new(HttpRoutine::try_new(&serve().await).unwrap()),
        Arc::new(WasmRoutine::try_new(PARCEL_PRICE, WasmLimits::default()).unwrap()),
    ];
    for routine in routines {
        let kind = routine.kind();
        let runner = runner(Some(routine));
        let seen = run(&runner).await;
        assert_eq!(*seen.offered.lock(), vec![vec![known()]; 3], "{kind:?}");
        let pinned = seen.pinned.lock().clone();
        for who in ["alice", "contractor-0"] {
            let pinned: Vec<_> =
                pinned.iter().filter(|(agent, _)| agent.as_str() == who).map(|(_, hash)| *hash).collect();
            assert_eq!(pinned, [Some(known()); 3], "{kind:?} {who}");
        }
        let report = RoutineReport { hash: Some(known()), kind };
        assert_eq!(*seen.reported.lock(), vec![(Some("575".to_owned()), Some(report)); 3]);
        let summary = RoutineSummary::of(&[Arc::clone(&runner), runner]);
        assert_eq!((summary.runs(kind).answered, summary.runs(kind).failed), (3, 0));
        assert_eq!(summary.to_string(), format!("{} 3; awards carried out 3", kind.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_award_without_a_common_document_is_carried_out_in_natural_language() {
    let seen = run(&runner(None)).await;
    assert_eq!(*seen.offered.lock(), vec![Vec::new(); 3]);
    assert!(seen.pinned.lock().iter().all(|(_, document)| document.is_none()));
    let report = RoutineReport { hash: None, kind: RoutineKind::Language };
    assert_eq!(*seen.reported.lock(), vec![(Some(SENTENCE.to_owned()), Some(report)); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routine_that_fails_is_replaced_by_the_model_under_the_same_document() {
    use agents::model::stub::{StubScript, StubValue};
    use agents::model::{Consultant, ModelConfig, ModelRoutine, StubModel};

    let answer = [("result".to_owned(), StubValue::Text("575".to_owned()))].into();
    let stub = StubModel::new(StubScript { answer, ..StubScript::default() }, 1);
    let consultant = Arc::new(Consultant::new(stub, ModelConfig::default()));
    let model = Arc::new(ModelRoutine::new(consultant, "", 1).reading(known(), "the price of a parcel"));
    let mut table = RoutineTable::default();
    table.add(known(), Arc::new(NativeRoutine::new(|_| Err("out of order".to_owned())))).unwrap();
    let runner = Arc::new(RoutineRunner::new(table, RoutineLimits::default()).with_model(model));
    let seen = run(&runner).await;
    let report = RoutineReport { hash: Some(known()), kind: RoutineKind::Model };
    assert_eq!(*seen.reported.lock(), vec![(Some("575".to_owned()), Some(report)); 3]);
    assert_eq!(RoutineSummary::of(&[runner]).to_string(), "native 0 (3 failed), model 3; awards carried out 3");
}
