use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent, Way};
use prometheus::{IntGauge, TextEncoder};
use schemas::delivery::Delivery;
use schemas::{Act, AgentId, Code, MsgId, NegotiationId, Refusal};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::recorder::{OPEN_AGE_MAX, Recorder};

#[test]
fn every_label_is_there_before_a_call_is_made() {
    let (registry, _) = metrics();
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        "trafficgen_arrivals_total{scenario=\"contract_net\"} 0",
        "trafficgen_dropped_total{reason=\"too_many_open\"} 0",
        "trafficgen_phase{phase=\"starting\"} 1",
        "trafficgen_phase{phase=\"running\"} 0",
        "trafficgen_requests_total{result=\"completed\",scenario=\"contract_net\"} 0",
        "trafficgen_requests_total{result=\"lost\",scenario=\"contract_net\"} 0",
        "trafficgen_run_info{git_sha=\"abc\",scenario=\"contract_net\",seed=\"7\"} 1",
        "trafficgen_response_duration_seconds_count{scenario=\"contract_net\"} 0",
        "trafficgen_schedule_lag_seconds_count 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn outcomes_are_named_as_on_the_wire() {
    for result in CallResult::all() {
        if let CallResult::Closed(outcome) = result {
            assert_eq!(serde_json::to_value(outcome).unwrap(), result.as_str());
        }
    }
}

#[test]
fn a_run_is_in_one_phase_at_a_time() {
    let (_, metrics) = metrics();
    for phase in [Phase::Running, Phase::Draining, Phase::Ended] {
        metrics.set_phase(phase);
        assert_eq!(metrics.phase(), phase);
        let sum: i64 = metrics.metrics.phase.iter().map(IntGauge::get).sum();
        assert_eq!(sum, 1);
    }
}

#[test]
fn response_counts_from_the_intended_time_and_service_from_the_time_a_call_left() {
    let run = Rig::start();
    run.call("n1");
    run.left("n1", 30);
    run.told("n1", 130, awarded());
    run.told("n1", 150, closed("completed"));
    let metrics = &run.metrics;
    assert!((metrics.metrics.lag.get_sample_sum() - 0.030).abs() < 1e-6, "{}", metrics.metrics.lag.get_sample_sum());
    assert!((metrics.metrics.response.of(metrics.scenario).get_sample_sum() - 0.130).abs() < 1e-6);
    assert!((metrics.metrics.service.of(metrics.scenario).get_sample_sum() - 0.100).abs() < 1e-6);
    assert!((metrics.metrics.rounds.of(metrics.scenario).get_sample_sum() - 0.150).abs() < 1e-6);
    // A repeat, and an end after the decision, are no second decision.
    assert_eq!(
        (metrics.metrics.response.of(metrics.scenario).get_sample_count(), metrics.metrics.in_flight.get()),
        (1, 0)
    );
    assert_eq!(run.result("completed"), 1);
}

#[test]
fn every_call_has_one_result() {
    let run = Rig::start();
    for own in ["refused", "down", "lost", "closed"] {
        run.call(own);
        run.left(own, 1);
    }
    assert_eq!(run.metrics.metrics.in_flight.get(), 4);
    run.refused("refused");
    run.recorder.turned_down(&negotiation("down"));
    run.told("closed", 5, closed("no_offers"));
    run.told("closed", 6, closed("no_offers"));
    run.recorder.forget_lost(run.started + OPEN_AGE_MAX);
    assert_eq!(run.recorder.open(), 1, "an hour is not over yet");
    run.recorder.forget_lost(run.started + OPEN_AGE_MAX + Duration::from_secs(1));
    assert_eq!((run.recorder.open(), run.recorder.counts().lost, run.metrics.metrics.in_flight.get()), (0, 1, 0));
    for result in CallResult::all().into_iter().map(CallResult::as_str) {
        let expected = u64::from(["refused", "turned_down", "no_offers", "lost"].contains(&result));
        assert_eq!(run.result(result), expected, "{result}");
    }
    // What comes after an end changes nothing.
    run.told("lost", 7, closed("completed"));
    assert_eq!(run.result("completed"), 0);
}

#[test]
fn what_an_inbox_still_holds_of_an_earlier_run_counts_in_none_of_the_figures() {
    let run = Rig::start();
    let recorder = Recorder::start(run.started, false, None).of_run("run-2");
    let run = Rig { recorder, ..run };
    run.call("run-2-0");
    for own in ["run-1-0", "run-1-1", "run-20-0"] {
        run.told(own, 1, awarded());
        run.told(own, 2, receipt());
        run.told(own, 3, closed("completed"));
    }
    let counts = run.recorder.counts();
    assert_eq!((counts.awards, counts.awarded, counts.rounds), (0, 0, 0));
    assert!(counts.dispositions.is_empty() && counts.outcomes.is_empty(), "{counts:?}");
    run.told("run-2-0", 4, awarded());
    run.told("run-2-0", 5, receipt());
    run.told("run-2-0", 6, closed("completed"));
    let counts = run.recorder.counts();
    assert_eq!((counts.awards, counts.awarded, counts.rounds), (1, 1, 1));
    assert_eq!((counts.dispositions.len(), counts.outcomes.len()), (1, 1), "{counts:?}");
}

fn metrics() -> (Registry, TrafficMetrics) {
    let registry = Registry::new();
    let run = Run { scenario: Protocol::ContractNet, seed: 7, git_sha: "abc" };
    let metrics = TrafficMetrics::try_new(&registry, &run).unwrap();
    (registry, metrics)
}

/// A recorder that an initiator's events go to.
struct Rig {
    started: Instant,
    recorder: Recorder,
    metrics: TrafficMetrics,
}

impl Rig {
    fn start() -> Self {
        let (started, (_, metrics)) = (Instant::now(), metrics());
        let recorder = Recorder::start(started, false, None).with_metrics(metrics.clone());
        Self { started, recorder, metrics }
    }

    fn call(&self, own: &str) {
        self.recorder.call_due(negotiation(own), self.started);
    }

    fn see(&self, ms: u64, event: Observed<'_>) {
        let alice = AgentId::try_new("alice").unwrap();
        self.recorder.handle(&alice, self.started + Duration::from_millis(ms), event);
    }

    fn left(&self, own: &str, ms: u64) {
        let (negotiation, msg_id, document) = (negotiation(own), MsgId::try_new(own).unwrap(), bytes::Bytes::new());
        for attempt in [1, 2] {
            let (negotiation, msg_id, document) = (&negotiation, &msg_id, &document);
            let event = Observed::Transmitted { negotiation, msg_id, act: Act::Cfp, attempt, document };
            self.see(ms * u64::from(attempt), event);
        }
    }

    fn refused(&self, own: &str) {
        let outcome = SendOutcome::Refused(Refusal::new(Code::RateLimited, "slow down"));
        let msg_id = MsgId::try_new(own).unwrap();
        let sent = Sent { negotiation: negotiation(own), msg_id, act: Act::Cfp, outcome, way: Way::default() };
        self.see(2, Observed::Settled { sent: &sent, took: Duration::ZERO });
    }

    fn told(&self, own: &str, ms: u64, payload: serde_json::Value) {
        let json = json!({
            "envelope": {"msg_id": "00000000000000000000000000000001", "ts": "2026-11-20T00:00:00Z",
                "from": "exchange://llmx", "to": ["agent://alice"], "negotiation": negotiation(own)},
            "payload": payload,
        });
        let delivery: Delivery = serde_json::from_value(json).unwrap();
        self.see(ms, Observed::Delivered { delivery: &delivery, is_repeat: false });
    }

    fn result(&self, result: &str) -> u64 {
        let known = CallResult::all().into_iter().find(|known| known.as_str() == result).unwrap();
        self.metrics.metrics.requests.of(Protocol::ContractNet, known).get()
    }
}

fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

fn closed(outcome: &str) -> serde_json::Value {
    json!({"act": "closed", "outcome": outcome, "digest": "0".repeat(64)})
}

fn receipt() -> serde_json::Value {
    json!({"act": "ack", "ack_of": "m1", "disposition": "ok"})
}

fn awarded() -> serde_json::Value {
    json!({"act": "inform", "kind": "awarded", "contractor": "bob", "offer_id": "o1-0", "lot": 1, "award_no": 1,
           "terms": {}, "score": 1, "reason": "deadline", "complete": true, "offers": 1, "decision": "0".repeat(64)})
}
