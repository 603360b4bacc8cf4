//! One request, three kinds of routine, one result.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;

use agents::routine::native::parcel_price;
use agents::routine::{HttpRoutine, NativeRoutine, Routine, RoutineFault, RoutineRequest};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use routine_wasm::{HOSTILE, PARCEL_PRICE, WASM_RUNS_MAX, WasmLimits, WasmRoutine};
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::TraceContext;

fn request(text: &str) -> RoutineRequest {
    let negotiation = NegotiationId::try_new("alice~n1").unwrap();
    RoutineRequest {
        agent: AgentId::try_new("bob").unwrap(),
        context: TraceContext::of(None, &negotiation),
        negotiation,
        asked_at: Timestamp::from_ms(1_000),
        deadline: Timestamp::from_ms(60_000),
        document: None,
        text: text.to_owned(),
    }
}

/// A service that answers as the function does.
async fn serve() -> String {
    let price = |body: String| async move { parcel_price(&body).map_err(|why| (StatusCode::BAD_REQUEST, why)) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(price))).await });
    url
}

#[tokio::test]
async fn native_http_and_wasm_give_the_same_result() {
    let routines: [Arc<dyn Routine>; 3] = [
        Arc::new(NativeRoutine::named("parcel-price").unwrap()),
        Arc::new(HttpRoutine::try_new(&serve().await).unwrap()),
        Arc::new(WasmRoutine::try_new(PARCEL_PRICE, WasmLimits::default()).unwrap()),
    ];
    for text in ["0", "7", "10", "1250", "99999", "100000", "000042"] {
        let expected = parcel_price(text);
        for routine in &routines {
            assert_eq!(routine.run(request(text)).await, Ok(expected.clone().unwrap()), "{:?} {text}", routine.kind());
        }
    }
    for text in ["", "100001", "-5", "1.5", "parcel", "18446744073709551616", "１２"] {
        for routine in &routines {
            let fault = routine.run(request(text)).await.unwrap_err();
            let is_failure = matches!(fault, RoutineFault::Failed(_) | RoutineFault::Unavailable(_));
            assert!(is_failure, "{:?} {text}: {fault}", routine.kind());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_as_may_run_at_once_can_ask_again_as_soon_as_they_are_answered() {
    let routine = Arc::new(WasmRoutine::try_new(PARCEL_PRICE, WasmLimits::default()).unwrap());
    let askers = (0..WASM_RUNS_MAX).map(|_| {
        let routine = Arc::clone(&routine);
        tokio::spawn(async move {
            for _ in 0..100 {
                assert_eq!(routine.run(request("1250")).await, parcel_price("1250").map_err(RoutineFault::Failed));
            }
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        asker.await.unwrap();
    }
}

#[test]
fn the_modules_are_what_their_texts_say() {
    let [price, hostile] = [include_str!("../modules/parcel_price.wat"), include_str!("../modules/hostile.wat")];
    assert!(wat::parse_str(price).unwrap() == PARCEL_PRICE, "compile modules/parcel_price.wat anew");
    assert!(wat::parse_str(hostile).unwrap() == HOSTILE, "compile modules/hostile.wat anew");
}
