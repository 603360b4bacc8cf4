//! What teams cost, beside rounds of the contract net and bargains in the same run.
//!
//! | module | measures |
//! |---|---|
//! | [`folded`] | says in the core alone, among few and many open teams, in small and large ones; what teams keep in memory |
//! | [`live`] | whole teams through everything; from a say until the next speaker knows of it |

pub mod folded;
pub mod live;

use std::time::Duration;

use bus::Bus;
use bus::memory::MemoryOptions;
use nats_server::{LocalServer, LocalServerOptions};

use super::overhead::median;
use super::rounds::{BenchError, on_server};
use super::suite::{BenchPlan, CONTRACTORS, OPEN, computed};
use super::units::UnitCounter;
use super::{Row, rounds, steps};

/// Teams open at once at most in the fold.
const FOLDED_TEAMS_MAX: usize = 100_000;
/// Times that few teams are measured, of which the median counts: their says take milliseconds.
const FEW_TIMES: usize = 25;
/// Teams of which the memory is measured by how large they are.
const WEIGHED: usize = 10_000;
/// Teams open while says are waited for.
const OPEN_WAITED: usize = 1_000;
/// Says per second over all of them, and moves of bargains beside them.
const SAYS_PER_S: f64 = 10.0;
/// How much longer than another latency run that takes: a quantile of 99 % needs hundreds of says.
const WAITED_TIMES: u32 = 3;

/// Measures everything. The server that is returned must run until the end of the suite.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<LocalServer, BenchError> {
    // First, while nothing that was freed is taken again for what they keep.
    in_the_fold(plan, add).await?;
    let memory = || bus::memory::open(MemoryOptions::default());
    beside_rounds("memory", (memory(), memory()), plan.closed_loop, add).await?;
    let (server, nats) = on_server(LocalServerOptions::default()).await?;
    beside_rounds("nats.log", (nats.clone(), nats.clone()), plan.closed_loop, add).await?;
    waited(nats, plan.latency * WAITED_TIMES, add).await?;
    Ok(server)
}

async fn in_the_fold(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let of = |open, members| computed(move || folded::measure(open, members));
    let few = || folded::measure(100, 5).map(|(cost, _)| cost.us_per_say);
    let base = computed(move || (0..FEW_TIMES).map(|_| few()).collect::<Result<Vec<f64>, _>>()).await?;
    let base = median(&base);
    add(Row::new("teams.say.open_100", base, "us/message"));
    let open = FOLDED_TEAMS_MAX.min(plan.open_max);
    let (many, _kept) = of(open, 5).await?;
    let row = Row::new(format!("teams.say.open_{open}"), many.us_per_say, "us/message");
    add(row.under(base).aiming_at("<= 1.5"));
    let row = Row::new("teams.bytes_per_team", many.bytes_per_team, "bytes");
    add(row.under(8192.0).aiming_at("<= 8192 bytes"));
    let ((small, _few), (large, _several)) = (of(WEIGHED, 5).await?, of(WEIGHED, 15).await?);
    let row = Row::new("teams.bytes_per_member", (large.bytes_per_team - small.bytes_per_team) / 10.0, "bytes");
    add(row.under(512.0).aiming_at("<= 512 bytes"));
    let ((small, _), (large, _)) = (of(1_000, 5).await?, of(1_000, 50).await?);
    add(Row::new("teams.delivery.members_5", small.us_per_delivery, "us/delivery"));
    let row = Row::new("teams.delivery.members_50", large.us_per_delivery, "us/delivery");
    add(row.under(small.us_per_delivery).aiming_at("<= 1.3"));
    Ok(())
}

/// Units of rounds, then of teams, as many open at once of one as of the other, with as many agents.
async fn beside_rounds(
    place: &str,
    (of_rounds, of_teams): (Bus, Bus),
    duration: Duration,
    add: &mut impl FnMut(Row),
) -> Result<(), BenchError> {
    let counter = UnitCounter::new(duration);
    rounds::counted(of_rounds, CONTRACTORS, OPEN, &counter, "beside").await?;
    let ceiling = counter.units_per_s();
    add(Row::new(format!("teams.units.rounds.{place}"), ceiling, "units/s"));
    let counter = UnitCounter::new(duration);
    live::keep_open(of_teams, OPEN, &counter, "loop").await?;
    add(Row::new(format!("teams.units.{place}"), counter.units_per_s(), "units/s").under(ceiling).aiming_at(">= 0.8"));
    Ok(())
}

/// A say until the next speaker knows, beside a move of a bargain until the other party does. The moves of a bargain follow
/// each other at once, so as many says do; and then each comes alone, when everything has rested since the last.
async fn waited(nats: Bus, duration: Duration, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let moved = steps::move_latency(nats.clone(), SAYS_PER_S / f64::from(steps::MOVES), duration).await?;
    let said = async |in_a_row, run| {
        live::to_next_speaker(nats.clone(), OPEN_WAITED, (SAYS_PER_S, in_a_row), duration, run).await
    };
    let (said, alone) = (said(steps::MOVES, "waited").await?, said(1, "alone").await?);
    for (quantile, target) in [(0.50, "<= 1.5"), (0.99, "<= 2")] {
        let name = format!("nats.p{:.0}", quantile * 100.0);
        let [said, alone, moved] = [&said, &alone, &moved].map(|latency| latency.quantile_ms(quantile));
        add(Row::new(format!("teams.move.{name}"), moved, "ms"));
        add(Row::new(format!("teams.say.{name}"), said, "ms").under(moved).aiming_at(target));
        add(Row::new(format!("teams.say_alone.{name}"), alone, "ms").under(moved));
    }
    Ok(())
}
