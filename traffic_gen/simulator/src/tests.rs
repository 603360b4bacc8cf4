//! The simulator itself: one seed, one history.

use super::*;

#[test]
fn a_seed_gives_the_same_trace_again_and_in_another_thread() {
    for seed in 0..50 {
        let options = Options { liveness: seed % 5 == 0 };
        let first = run(seed, &options);
        let second = std::thread::spawn(move || run(seed, &options)).join().unwrap();
        assert_eq!(first.digest(), run(seed, &options).digest(), "seed {seed}, the same thread");
        assert_eq!(first.digest(), second.digest(), "seed {seed}, another thread");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let options = Options::default();
    assert_ne!(run(1, &options).digest(), run(2, &options).digest());
}

#[test]
fn everything_comes_to_rest_once_the_faults_have_ended() {
    for seed in 0..20 {
        let trace = run(seed, &Options { liveness: true });
        assert_eq!(trace.unfinished, Vec::<String>::new(), "seed {seed}");
        assert_eq!(trace.panics, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn nothing_keeps_the_world_of_a_run_that_is_over() {
    for seed in 0..20 {
        let (trace, world) = run_to_end(seed, &Options { liveness: seed % 5 == 0 });
        assert!(!trace.records.is_empty(), "seed {seed}");
        assert_eq!(world.strong_count(), 0, "seed {seed}");
    }
}
