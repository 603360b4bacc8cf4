use bytes::Bytes;
use prometheus::{Registry, TextEncoder};
use schemas::payload::Reasoned;
use schemas::{MsgId, NegotiationId, Payload, Refusal};

use super::*;
use crate::strategy::{Outgoing, Way};

#[test]
fn every_label_is_there_before_anything_happens() {
    let registry = Registry::new();
    let metrics = AgentMetrics::try_new(&registry).unwrap();
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        "agent_decisions_total{action=\"silence\",strategy=\"contractor\"} 0",
        "agent_messages_total{act=\"offer\",outcome=\"refused\"} 0",
        "agent_refusals_total{code=\"rate_limited\"} 0",
        "agent_deferrals_total{code=\"rate_limited\"} 0",
        "agent_deliveries_total{act=\"turn\",result=\"repeated\"} 0",
        "agent_connected{strategy=\"initiator\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    // Another agent, delivery or message makes no other series.
    exercise(&metrics);
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), series);
    assert!(series < 300, "{series}");
}

#[test]
fn what_agents_see_and_do_is_counted() {
    let metrics = AgentMetrics::try_new(&Registry::new()).unwrap();
    exercise(&metrics);
    assert_eq!(metrics.connected(), 1, "two came and one went");
    let role = AgentRole::Contractor;
    for (counter, expected) in [
        (metrics.connects.of(role), 2),
        (metrics.disconnects.of(role), 1),
        (metrics.transmissions.of(REPETITIONS[0]), 1),
        (metrics.transmissions.of(REPETITIONS[1]), 1),
        (metrics.messages.of(Act::Refuse, "refused"), 1),
        (metrics.refusals.of(Code::NoConsent), 1),
        (metrics.refusals.of(Code::RateLimited), 0),
        (metrics.deferrals.of(Code::RateLimited), 1),
        (metrics.deliveries.of(Act::Cfp, REPETITIONS[1]), 1),
        (metrics.decisions.of(role, Act::Refuse.as_str()), 1),
        (metrics.decisions.of(role, SILENCE), 1),
    ] {
        assert_eq!(counter.get(), expected, "{counter:?}");
    }
    assert_eq!(metrics.durations.of("refused").get_sample_count(), 1);
}

/// One of everything.
fn exercise(metrics: &AgentMetrics) {
    let observer = metrics.observer(AgentRole::Contractor);
    let (agent, at) = (AgentId::try_new("bob").unwrap(), Instant::now());
    let (negotiation, msg_id) = (NegotiationId::try_new("alice~n1").unwrap(), MsgId::try_new("m1").unwrap());
    let document = Bytes::new();
    let call = call();
    let outgoing = Outgoing::new(negotiation.clone(), Payload::Refuse(Reasoned::default()));
    let sent = Sent {
        negotiation: negotiation.clone(),
        msg_id: msg_id.clone(),
        act: Act::Refuse,
        outcome: SendOutcome::Refused(Refusal::new(Code::NoConsent, "no")),
        way: Way::default(),
    };
    let slow_down = Refusal::new(Code::RateLimited, "slow down");
    let left = |attempt| Observed::Transmitted {
        negotiation: &negotiation,
        msg_id: &msg_id,
        act: Act::Refuse,
        attempt,
        document: &document,
    };
    for event in [
        Observed::Connected,
        Observed::Connected,
        Observed::Disconnected,
        left(1),
        Observed::Deferred { refusal: &slow_down },
        left(2),
        Observed::Settled { sent: &sent, took: Duration::from_millis(3) },
        Observed::Delivered { delivery: &call, is_repeat: true },
        Observed::Decided { cause: Some(&call), actions: &[outgoing.into()] },
        Observed::Decided { cause: Some(&call), actions: &[] },
        Observed::Decided { cause: Some(&call), actions: &[Action::Defer] },
        Observed::Decided { cause: None, actions: &[Action::Stop] },
    ] {
        observer.handle(&agent, at, event);
    }
}

fn call() -> Delivery {
    let json = serde_json::json!({
        "envelope": {"msg_id": "00000000000000000000000000000001", "ts": "2026-11-20T00:00:00Z",
            "from": "exchange://llmx", "to": ["agent://bob"], "negotiation": "alice~n1"},
        "payload": {"act": "cfp", "round": 1, "reply_by": "2026-11-20T00:00:01Z", "ends_by": "2026-11-20T00:01:00Z",
            "policy": "medium", "policy_digest": "0".repeat(64), "lots": 1}
    });
    serde_json::from_value(json).unwrap()
}
