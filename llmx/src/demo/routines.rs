//! `llmx demo --routines`: calls name protocol documents, and routines of every kind carry the awards out.
//!
//! Every call names two documents. Nobody has a routine for the first; for the second, contractors take turns at having a
//! function, a service over HTTP, a WebAssembly module (where this build has them), a model, and none.

use std::net::Ipv4Addr;
use std::sync::Arc;

use agents::routine::native::parcel_price;
use agents::routine::{HttpRoutine, NativeRoutine, Routine, RoutineLimits, RoutineRunner, RoutineTable};
use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use schemas::document::{CallDocuments, DocumentHash};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use traffic_gen::live::CallScenario;

use crate::output::{Failure, tracer};

/// The document that there are routines for.
const PARCEL_PRICE: &str = include_str!("../../../examples/parcel-price.md");
/// The document that calls prefer and nobody knows.
const UNKNOWN: &str = "---\nname: Parcel price by volume\ndescription: A document that no contractor of the demo knows.\n\
                       multiround: false\n---\n";
/// What calls ask for: a weight in grams.
const REQUEST: &str = "1250";

/// What a contractor says whose program has no model.
const SCRIPTED: &str = "The parcel is delivered.";

/// The routines of a demo, and the service that some of them ask. It ends with this.
pub struct ParcelRoutines {
    runners: Vec<Arc<RoutineRunner>>,
    service: AbortHandle,
}

impl ParcelRoutines {
    /// Starts the service and makes the routines.
    pub async fn start() -> Result<Self, Failure> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the routines' service")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let price = |body: String| async move { parcel_price(&body).map_err(|why| (StatusCode::BAD_REQUEST, why)) };
        let serving = async move { axum::serve(listener, Router::new().route("/", post(price))).await };
        let service = tokio::spawn(serving).abort_handle();
        let native = NativeRoutine::new(parcel_price);
        let mut routines: Vec<Option<Arc<dyn Routine>>> =
            vec![Some(Arc::new(native)), Some(Arc::new(HttpRoutine::try_new(&url)?))];
        #[cfg(feature = "wasm")]
        {
            use routine_wasm::{WasmLimits, WasmRoutine};
            routines.push(Some(Arc::new(WasmRoutine::try_new(routine_wasm::PARCEL_PRICE, WasmLimits::default())?)));
        }
        let model = model();
        routines.extend(model.clone().map(Some));
        routines.push(None);
        let runners = routines.into_iter().map(|routine| runner(routine, model.clone())).collect::<Result<_, _>>()?;
        Ok(Self { runners, service })
    }

    /// A scenario whose calls name the documents and whose contractors have the routines.
    pub fn of(&self, scenario: CallScenario) -> CallScenario {
        let hashes = [UNKNOWN, PARCEL_PRICE].map(|text| DocumentHash::of_bytes(text.as_bytes())).to_vec();
        CallScenario {
            task: REQUEST.to_owned(),
            documents: Some(CallDocuments { hashes, require: false }),
            routines: self.runners.clone(),
            ..scenario
        }
    }
}

impl Drop for ParcelRoutines {
    fn drop(&mut self) {
        self.service.abort();
    }
}

/// Builds a runner with at most one routine and, if given, a model for what the routine does not answer.
fn runner(routine: Option<Arc<dyn Routine>>, model: Option<Arc<dyn Routine>>) -> Result<Arc<RoutineRunner>, Failure> {
    let mut table = RoutineTable::default();
    if let Some(routine) = routine {
        table.add(DocumentHash::of_bytes(PARCEL_PRICE.as_bytes()), routine)?;
    }
    let runner = RoutineRunner::new(table, RoutineLimits::default()).saying(SCRIPTED).traced(tracer());
    Ok(Arc::new(match model {
        Some(model) => runner.with_model(model),
        None => runner,
    }))
}

/// A stub in this process that knows the price of the one parcel.
fn model() -> Option<Arc<dyn Routine>> {
    use agents::model::stub::{StubScript, StubValue};
    use agents::model::{Consultant, ModelConfig, ModelRoutine, StubModel};

    let price = StubValue::Text(parcel_price(REQUEST).unwrap_or_default());
    let script = StubScript { answer: [("result".to_owned(), price)].into(), ..StubScript::default() };
    let consultant = Arc::new(Consultant::new(StubModel::new(script, 1), ModelConfig::default()));
    let hash = DocumentHash::of_bytes(PARCEL_PRICE.as_bytes());
    Some(Arc::new(ModelRoutine::new(consultant, "", 1).reading(hash, PARCEL_PRICE)))
}
