//! Modules that do what they must not, and what becomes of the award.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use agents::routine::{
    NativeRoutine, Routine, RoutineFault, RoutineLimits, RoutineRequest, RoutineRunner, RoutineTable,
};
use routine_wasm::{HOSTILE, MODULE_BYTES_MAX, WasmLimits, WasmRoutine, WasmRoutineError};
use schemas::document::{DocumentHash, RoutineKind};
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::TraceContext;

/// A module with this body of `run`, and anything else.
fn module(run: &str, besides: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (memory (export "memory") 1)
          {besides}
          (func (export "alloc") (param i32) (result i32) (i32.const 1024))
          (func (export "run") (param $at i32) (param $length i32) (result i64) {run}))"#
    );
    wat::parse_str(text).unwrap()
}

/// A place in memory, as `run` returns it.
fn place(at: u32, length: u32) -> String {
    format!("(i64.const {})", (u64::from(at) << 32 | u64::from(length)).cast_signed())
}

fn routine(module: &[u8]) -> WasmRoutine {
    WasmRoutine::try_new(module, WasmLimits::default()).unwrap()
}

fn fault(module: &[u8], limits: WasmLimits) -> RoutineFault {
    WasmRoutine::try_new(module, limits).unwrap().sandbox().run("1250", || false).unwrap_err()
}

fn document() -> DocumentHash {
    DocumentHash::of_bytes(b"a document")
}

fn request(text: &str) -> RoutineRequest {
    let negotiation = NegotiationId::try_new("alice~n1").unwrap();
    RoutineRequest {
        agent: AgentId::try_new("bob").unwrap(),
        context: TraceContext::of(None, &negotiation),
        negotiation,
        asked_at: Timestamp::from_ms(1_000),
        deadline: Timestamp::from_ms(60_000),
        document: Some(document()),
        text: text.to_owned(),
    }
}

fn runner(routine: impl Routine + 'static, time: Duration) -> RoutineRunner {
    let mut table = RoutineTable::default();
    table.add(document(), Arc::new(routine)).unwrap();
    RoutineRunner::new(table, RoutineLimits { time })
}

const LOOP: &str = "(loop $forever (br $forever)) (i64.const 0)";
/// Doubles its memory for ever.
const BOMB: &str = "(loop $more (drop (memory.grow (memory.size))) (br $more)) (i64.const 0)";
const RECURSION: &str = "(call $deeper (i32.const 0)) (i64.const 0)";

#[test]
fn a_module_that_does_not_end_or_stay_within_its_memory_is_stopped_with_its_fault() {
    let limits = WasmLimits::default();
    let few_steps = WasmLimits { fuel: 3_000_000, ..limits };
    let deeper = "(func $deeper (param i32) (call $deeper (local.get 0)))";
    for (run, besides, limits, expected) in [
        (LOOP, "", few_steps, RoutineFault::Exhausted("computing steps")),
        (LOOP, "", WasmLimits { fuel: u64::MAX, time: Duration::from_millis(50), ..limits }, RoutineFault::TimedOut),
        (BOMB, "", limits, RoutineFault::Exhausted("memory")),
        ("(drop (memory.grow (i32.const 256))) (i64.const 0)", "", limits, RoutineFault::Exhausted("memory")),
        (RECURSION, deeper, limits, RoutineFault::Failed("call stack exhausted".to_owned())),
        ("(unreachable)", "", limits, RoutineFault::Failed("wasm `unreachable` instruction executed".to_owned())),
        (
            "(i64.div_u (i64.const 1) (i64.const 0))",
            "",
            limits,
            RoutineFault::Failed("integer divide by zero".to_owned()),
        ),
        (
            "(drop (i32.load (i32.const 65536))) (i64.const 0)",
            "",
            limits,
            RoutineFault::Failed("out of bounds memory access".to_owned()),
        ),
        (
            "(i64.const 0)",
            "(func $start (loop $l (br $l))) (start $start)",
            limits,
            RoutineFault::Exhausted("computing steps"),
        ),
    ] {
        let began = Instant::now();
        assert_eq!(fault(&module(run, besides), limits), expected, "{run} {besides}");
        // Generous: an unoptimised build on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(20), "{run}: {:?}", began.elapsed());
    }
}

#[test]
fn the_hostile_module_does_what_its_request_says_and_is_stopped_each_time() {
    let hostile = WasmRoutine::try_new(HOSTILE, WasmLimits { fuel: 3_000_000, ..WasmLimits::default() }).unwrap();
    for (request, expected) in [
        ("loop", RoutineFault::Exhausted("computing steps")),
        ("memory", RoutineFault::Exhausted("memory")),
        ("recursion", RoutineFault::Failed("call stack exhausted".to_owned())),
        ("x", RoutineFault::Failed("wasm `unreachable` instruction executed".to_owned())),
        ("", RoutineFault::Failed("wasm `unreachable` instruction executed".to_owned())),
    ] {
        assert_eq!(hostile.sandbox().run(request, || false), Err(expected), "{request}");
    }
}

#[test]
fn a_module_may_use_its_memory_up_to_the_limit() {
    let whole = routine(&module("(drop (memory.grow (i32.const 255))) (i64.const 0)", ""));
    assert_eq!(whole.sandbox().run("", || false).as_deref(), Ok(""), "256 pages are 16 MiB");
}

#[test]
fn a_result_outside_of_memory_too_long_or_no_text_is_a_fault() {
    for (at, length, expected) in [
        (65_536, 1, RoutineFault::Unreadable),
        (65_535, 2, RoutineFault::Unreadable),
        (u32::MAX, u32::MAX, RoutineFault::Unreadable),
        (0, 65_536, RoutineFault::TooLong),
        (0, 16_385, RoutineFault::TooLong),
        (512, 2, RoutineFault::Unreadable),
    ] {
        let module = module(&place(at, length), r#"(data (i32.const 512) "\ff\fe")"#);
        assert_eq!(fault(&module, WasmLimits::default()), expected, "{at} {length}");
    }
    let empty = routine(&module(&place(65_536, 0), ""));
    assert_eq!(empty.sandbox().run("", || false).as_deref(), Ok(""), "the end of memory is a place");
}

#[test]
fn an_alloc_that_points_outside_of_memory_is_a_fault() {
    for at in [65_535_i64, -1, -2_147_483_648] {
        let text = format!(
            r#"(module (memory (export "memory") 1)
              (func (export "alloc") (param i32) (result i32) (i32.const {at}))
              (func (export "run") (param i32 i32) (result i64) (i64.const 0)))"#
        );
        assert_eq!(fault(&wat::parse_str(text).unwrap(), WasmLimits::default()), RoutineFault::Unreadable, "{at}");
    }
}

#[test]
fn a_module_that_wants_something_from_outside_or_lacks_an_export_is_refused_when_it_is_read() {
    let read = |text: &str| WasmRoutine::try_new(&wat::parse_str(text).unwrap(), WasmLimits::default()).unwrap_err();
    let clock = read(
        r#"(module (import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))
          (memory (export "memory") 1))"#,
    );
    assert!(
        matches!(&clock, WasmRoutineError::Import { module, name }
        if module == "wasi_snapshot_preview1" && name == "clock_time_get"),
        "{clock}"
    );
    let memory = read(r#"(module (import "host" "memory" (memory 1)))"#);
    assert!(matches!(memory, WasmRoutineError::Import { .. }), "{memory}");
    let alloc = r#"(func (export "alloc") (param i32) (result i32) (i32.const 0))"#;
    for (text, missing) in [
        ("(module)".to_owned(), "`memory`"),
        (r#"(module (memory (export "memory") 1))"#.to_owned(), "`alloc` as a function (i32) -> i32"),
        (format!(r#"(module (memory (export "memory") 1) {alloc})"#), "`run` as a function (i32, i32) -> i64"),
        (
            format!(
                r#"(module (memory (export "memory") 1) {alloc} (func (export "run") (param i32) (result i64) (i64.const 0)))"#
            ),
            "`run` as a function (i32, i32) -> i64",
        ),
        (
            r#"(module (memory (export "memory") 1) (global (export "alloc") i32 (i32.const 0)))"#.to_owned(),
            "`alloc` as a function (i32) -> i32",
        ),
    ] {
        let error = read(&text);
        assert!(matches!(&error, WasmRoutineError::Export(what) if *what == missing), "{text}: {error}");
    }
    let greedy = read(r#"(module (memory (export "memory") 257))"#);
    assert!(matches!(greedy, WasmRoutineError::Memory(16_842_752)), "{greedy}");
}

#[test]
fn what_is_no_module_or_too_large_is_refused_when_it_is_read() {
    let read = |bytes: &[u8]| WasmRoutine::try_new(bytes, WasmLimits::default()).unwrap_err();
    assert!(matches!(read(b""), WasmRoutineError::Invalid(_)));
    assert!(matches!(read(b"(module)"), WasmRoutineError::Invalid(_)), "text is no module");
    assert!(matches!(read(&vec![0; MODULE_BYTES_MAX + 1]), WasmRoutineError::TooLarge(_)));
    // Its code ends behind byte 200; what follows are names.
    for length in 0..200 {
        assert!(
            WasmRoutine::try_new(&routine_wasm::PARCEL_PRICE[..length], WasmLimits::default()).is_err(),
            "{length}"
        );
    }
}

#[test]
fn a_run_leaves_nothing_behind_for_the_next() {
    let counting = module(
        "(global.set $runs (i64.add (global.get $runs) (i64.const 1)))
         (i32.store8 (i32.const 0) (i32.add (i32.const 48) (i32.wrap_i64 (global.get $runs))))
         (i64.const 1)",
        "(global $runs (mut i64) (i64.const 0))",
    );
    let routine = routine(&counting);
    for _ in 0..3 {
        assert_eq!(routine.sandbox().run("", || false).as_deref(), Ok("1"));
    }
}

#[tokio::test]
async fn an_award_whose_module_loops_grows_or_traps_falls_back_while_others_go_on() {
    let time = Duration::from_millis(100);
    let healthy = runner(NativeRoutine::named("parcel-price").unwrap(), Duration::from_secs(10));
    for run in [LOOP, BOMB, "(unreachable)"] {
        let hostile = runner(routine(&module(run, "")), time);
        let (failing, working) = (request("1250"), request("1250"));
        let (fallen, other) = tokio::join!(hostile.run(&failing), healthy.run(&working));
        assert_eq!(fallen, None, "{run}");
        let other = other.unwrap();
        assert_eq!((other.report.kind, other.result.as_str()), (RoutineKind::Native, "575"));
        let wasm = hostile.tallies()[&RoutineKind::Wasm];
        assert_eq!((wasm.answered, wasm.failed), (0, 1), "{run}");
    }
}

/// Nice values of this process's threads that bear the name of a module's.
#[cfg(target_os = "linux")]
fn priorities_of_modules() -> Vec<i64> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    // proc(5): behind the name, from the state on, the nice value is the 17th.
    let nice = |stat: String| stat.split_once("(module) ")?.1.split_whitespace().nth(16)?.parse().ok();
    stats.filter_map(nice).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_module_runs_at_the_lowest_priority() {
    let looping = runner(routine(&module(LOOP, "")), Duration::from_secs(20));
    let running = tokio::spawn(async move { looping.run(&request("1250")).await });
    let seen = async {
        loop {
            let priorities = priorities_of_modules();
            if priorities.contains(&19) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap();
    running.abort();
}
