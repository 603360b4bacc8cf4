//! What panels cost, beside bargains in the same run.
//!
//! | module | measures |
//! |---|---|
//! | [`folded`] | answers in the core alone, short and long |
//! | [`memory`] | what open panels, and the ledger, keep in memory |
//! | [`arithmetic`] | importance, and texts compared by BLEU |
//! | [`live`] | answers through everything; from the last answer of a round to the asks of the next |
//! | [`reputation`] | a call that weighs reputation, beside one that does not |

pub mod arithmetic;
pub mod folded;
pub mod live;
pub mod memory;
pub mod reputation;

use std::time::Duration;

use bus::Bus;
use bus::memory::MemoryOptions;
use nats_server::{LocalServer, LocalServerOptions};

use super::recovery::{self, FillKind};
use super::rounds::{BenchError, on_server};
use super::suite::{BARGAINS, BenchPlan, LATENCY_RATE, computed};
use super::{Row, steps};

/// Panels whose answers are folded at once, and characters of each answer: short ones, and half as long as they may be.
const FOLDED: [(usize, usize); 2] = [(10_000, 64), (1_000, 4096)];
/// Panels that are weighed.
const WEIGHED: usize = 10_000;
/// Entries of a ledger that is weighed: as many as it may have.
const ENTRIES: usize = 1 << 16;
/// Panels kept open in the closed loops: each waits for four answers, so as many messages are awaited as of bargains.
const OPEN: usize = BARGAINS / 4;
/// Times each result is computed, of small and of the largest panels.
const TIMES: [usize; 2] = [10_000, 100];
/// Calls without reputation, and as many with it.
const CALLS: usize = 2_000;

/// Measures everything. The server that is returned must run until the end of the suite.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<LocalServer, BenchError> {
    // First, while nothing that was freed is taken again for what they keep.
    kept(add).await?;
    folded(add).await?;
    results(add).await?;
    let [without, with] = reputation::measure(CALLS).await?;
    add(Row::new("panels.call.admitted.with_reputation", with.admit_us, "us/call").under(without.admit_us));
    add(Row::new("panels.call.folded.with_reputation", with.fold_us, "us/call").under(without.fold_us));
    add(Row::new("panels.call.with_reputation", with.us(), "us/call").under(without.us()).aiming_at("<= 1.1"));
    let server = through_everything(plan, add).await?;
    recovered(plan, add).await?;
    Ok(server)
}

/// What open panels and the ledger keep.
async fn kept(add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let bytes = computed(|| memory::measure(WEIGHED, ENTRIES)).await?;
    let row = Row::new("panels.bytes_per_panel", bytes.panel, "bytes").under(5_120.0);
    add(row.aiming_at("<= 4096 bytes and 256 for each seat"));
    add(Row::new("panels.bytes_per_seat", bytes.seat, "bytes").under(256.0).aiming_at("<= 256 bytes"));
    add(Row::new("panels.bytes_of_texts", bytes.texts, "bytes").under(bytes.letters).aiming_at("<= 1.1"));
    add(Row::new("panels.bytes_per_ledger_entry", bytes.entry, "bytes").under(256.0).aiming_at("<= 256 bytes"));
    Ok(())
}

/// Answers in the core, beside steps of bargains.
async fn folded(add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let steps = computed(|| steps::core(BARGAINS, 50)).await?;
    add(Row::new("panels.steps.core", steps, "steps/s"));
    let [short, long] = FOLDED.map(|(open, len)| computed(move || folded::answers_per_s(open, len)));
    add(Row::new("panels.answers.core", short.await?, "answers/s").under(steps).aiming_at(">= 0.5"));
    add(Row::new("panels.answers.core.long", long.await?, "answers/s").under(steps).aiming_at(">= 0.25"));
    Ok(())
}

/// What a result takes to compute.
async fn results(add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let [many, few] = TIMES;
    let small = computed(move || arithmetic::importance_us(4, 3, many)).await?;
    add(Row::new("panels.importance.seats_4.rounds_3", small, "us").under(20.0).aiming_at("<= 20 us"));
    let large = computed(move || arithmetic::importance_us(32, 8, few)).await?;
    add(Row::new("panels.importance.seats_32.rounds_8", large, "us").under(5_000.0).aiming_at("<= 5000 us"));
    let bleu = computed(move || arithmetic::bleu(many)).await?;
    add(Row::new("panels.bleu.key", bleu.key_us, "us"));
    add(Row::new("panels.bleu.pair", bleu.pair_us, "us").under(100.0).aiming_at("<= 100 us"));
    add(Row::new("panels.bleu.restarted", bleu.restarted_us, "us").under(10_000.0).aiming_at("<= 10000 us"));
    Ok(())
}

/// Answers through everything beside moves of bargains, in memory and over NATS with the log.
async fn through_everything(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<LocalServer, BenchError> {
    let memory = || bus::memory::open(MemoryOptions::default());
    answered("memory", (memory(), memory()), plan.closed_loop, add).await?;
    let (server, nats) = on_server(LocalServerOptions::default()).await?;
    answered("nats.log", (nats.clone(), nats.clone()), plan.closed_loop, add).await?;
    let moved = steps::move_latency(nats.clone(), LATENCY_RATE, plan.latency).await?.quantile_ms(0.95);
    add(Row::new("panels.move.nats.p95", moved, "ms"));
    let asked = live::to_next_ask(nats, LATENCY_RATE, plan.latency, "latency").await?.quantile_ms(0.95);
    add(Row::new("panels.next_ask.nats.p95", asked, "ms").under(moved).aiming_at("<= 1.5"));
    Ok(server)
}

async fn answered(
    place: &str,
    (of_bargains, of_panels): (Bus, Bus),
    duration: Duration,
    add: &mut impl FnMut(Row),
) -> Result<(), BenchError> {
    let steps = steps::closed_loop(of_bargains, BARGAINS, duration, "beside").await?;
    add(Row::new(format!("panels.steps.{place}"), steps, "steps/s"));
    let answers = live::answers_per_s(of_panels, OPEN, duration, "loop").await?;
    add(Row::new(format!("panels.answers.{place}"), answers, "answers/s").under(steps).aiming_at(">= 0.6"));
    Ok(())
}

/// An engine that is killed with as many open panels, and with as many open bargains.
async fn recovered(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let open = plan.recovered;
    let bargains = recovery::from_checkpoint_s(&plan.exchange, FillKind::Bargains, open).await?;
    add(Row::new(format!("panels.recovery.bargains_{open}"), bargains, "s"));
    let panels = recovery::from_checkpoint_s(&plan.exchange, FillKind::Panels, open).await?;
    add(Row::new(format!("panels.recovery.panels_{open}"), panels, "s").under(bargains).aiming_at("<= 1.5"));
    Ok(())
}
