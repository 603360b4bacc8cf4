//! Batches, told from what they report.

use super::*;
use crate::trace::Noted;

#[test]
fn a_batch_shows_the_same_on_one_thread_and_on_three() {
    let batch =
        |threads| Batch { base: 70, safety: 12, liveness: 4, threads, keep_going: true }.simulate(|| false, |_| {});
    let (one, three) = (batch(1), batch(3));
    assert_eq!((one.safety, one.liveness), (12, 4));
    assert_eq!(checked(&one), checked(&three));
    assert_eq!(one.sometimes, three.sometimes);
    assert_eq!((one.records, one.deliveries), (three.records, three.deliveries));
    assert_eq!(one.deliveries_by_protocol, three.deliveries_by_protocol);
}

#[test]
fn progress_ends_with_every_run_done() {
    let last = Mutex::new(None);
    let batch = Batch { base: 1, safety: 3, liveness: 0, threads: 2, keep_going: false };
    batch.simulate(|| false, |progress| *last.lock() = Some((progress.done, progress.total)));
    assert_eq!(*last.lock(), Some((3, 3)));
}

#[test]
fn a_large_batch_that_left_something_out_is_not_fine() {
    let shown = |runs, never_reached| Report { safety: runs, never_reached, ..Report::default() };
    assert!(shown(CONCLUSIVE_RUNS - 1, vec!["clock_back"]).is_fine());
    assert!(!shown(CONCLUSIVE_RUNS, vec!["clock_back"]).is_fine());
    assert!(shown(CONCLUSIVE_RUNS, Vec::new()).is_fine());
}

#[test]
fn a_panic_is_a_violation_and_names_its_seed() {
    let judged = Judged {
        verdict: Verdict::default(),
        panics: vec!["index out of bounds".to_owned()],
        sometimes: BTreeMap::new(),
        records: 0,
        deliveries: BTreeMap::new(),
    };
    assert!(!judged.is_fine());
    let violation = judged.violation(42, Options { liveness: true });
    assert_eq!(violation.invariants, [PANIC]);
    assert_eq!(violation.repeat, "llmx-lab simulate --seed 42 --liveness 1");
}

/// The goal for teams is a fifth of what agents are told, and for panels likewise; none of these runs is flooded with nets.
#[test]
fn teams_and_panels_are_each_a_fifth_of_the_work_at_least() {
    let report = Batch { base: 100, safety: 60, liveness: 0, threads: 2, keep_going: true }.simulate(|| false, |_| {});
    assert_eq!(report.deliveries_by_protocol.values().sum::<u64>(), report.deliveries);
    for protocol in ["team", "panel"] {
        let share = report.deliveries_by_protocol.get(protocol).copied().unwrap_or(0);
        assert!(share * 5 >= report.deliveries, "{protocol}: {share} of {}", report.deliveries);
    }
}

#[test]
fn a_story_tells_the_log_and_the_agents_in_the_order_of_time() {
    let trace = run(1, &Options::default());
    let told = story(&trace, &Verdict::default());
    let sent = trace.journals.values().flatten().filter(|entry| matches!(entry.kind, Noted::Sent { .. })).count();
    assert!(sent > 0);
    assert_eq!(told.lines().filter(|line| line.contains(" sends ")).count(), sent);
    let seconds: Vec<f64> = told.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert!(seconds.is_sorted());
}

fn checked(report: &Report) -> Vec<(&'static str, u64, u64)> {
    report.invariants.iter().map(|(name, tally)| (*name, tally.checked, tally.violated)).collect()
}
