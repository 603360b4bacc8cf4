//! What of a run is judged that was asked to end before its time.

use std::time::Duration;

use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent, Way};
use schemas::{Act, AgentId, MsgId, NegotiationId};
use tokio::time::Instant;

use super::{Finished, Recorder};
use crate::invariants::Invariant;

#[test]
fn what_an_interruption_cut_off_is_not_judged_and_what_a_run_left_by_itself_is() {
    let cut = finished_owing(true);
    assert!(cut.is_cut_off);
    assert_eq!(cut.verdict.violated(), 0, "{:?}", cut.verdict);
    let whole = finished_owing(false);
    assert!(!whole.is_cut_off);
    assert!(whole.verdict.violated_checks().any(|invariant| invariant == Invariant::NoLostAdmission));
}

#[test]
fn an_interrupted_run_that_owes_nothing_is_judged_whole() {
    let finished = Recorder::start(Instant::now(), true, None).finish_after(true).unwrap();
    assert!(!finished.is_cut_off);
}

/// A run whose only message was admitted and never answered.
fn finished_owing(interrupted: bool) -> Finished {
    let recorder = Recorder::start(Instant::now(), true, None);
    let alice = AgentId::try_new("alice").unwrap();
    let (negotiation, msg_id) = (NegotiationId::form(&alice, "job").unwrap(), MsgId::try_new("call").unwrap());
    let outcome = SendOutcome::Accepted { seq: Some(1), policy: None };
    let sent = Sent { negotiation, msg_id, act: Act::Cfp, outcome, way: Way::default() };
    recorder.handle(&alice, Instant::now(), Observed::Settled { sent: &sent, took: Duration::ZERO });
    recorder.finish_after(interrupted).unwrap()
}
