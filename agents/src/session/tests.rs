use schemas::payload::{Confirm, Reasoned};
use schemas::{AwardNo, Code, Payload, Refusal};
use serde_json::Value;

use super::*;
use crate::transport::Accepted;

const T0: Timestamp = Timestamp::from_ms(1_000_000);

#[test]
fn messages_are_numbered_and_their_seq_rises_inside_every_negotiation() {
    let mut session = session();
    for own in ["a", "b", "a"] {
        session.write(T0, refuse(own), None).unwrap();
        let transmit = session.poll_transmit().unwrap();
        session.handle_answer(T0, transmit.number, accepted(&transmit));
    }
    session.write(T0, refuse("a"), None).unwrap();
    let document: Value = serde_json::from_slice(&session.poll_transmit().unwrap().document).unwrap();
    let envelope = &document["envelope"];
    assert_eq!(envelope["seq"], 104);
    assert_eq!(envelope["msg_id"], "64-4");
    assert_eq!(envelope["from"], "agent://bob");
    assert_eq!(envelope["negotiation"], "alice~a");
    assert_eq!(document["payload"]["act"], "refuse");
}

#[test]
fn a_later_instance_continues_above_an_earlier_one() {
    let seq = |instance| {
        let mut session = AgentSession::new(bob(), instance, SessionLimits::default());
        session.write(T0, refuse("a"), None).unwrap();
        let document: Value = serde_json::from_slice(&session.poll_transmit().unwrap().document).unwrap();
        document["envelope"]["seq"].as_u64().unwrap()
    };
    assert!(seq(2000) > seq(1000));
}

#[test]
fn a_call_names_the_initiators_own_id() {
    let mut session = session();
    let negotiation = NegotiationId::try_new("bob~job").unwrap();
    session.write(T0, Outgoing::new(negotiation, Payload::Cfp(schemas::payload::Cfp::default())), None).unwrap();
    let document: Value = serde_json::from_slice(&session.poll_transmit().unwrap().document).unwrap();
    assert_eq!(document["envelope"]["negotiation"], "job");
}

#[test]
fn what_is_written_passes_the_published_schemas() {
    let mut session = session();
    session.write(T0, refuse("a"), None).unwrap();
    let document = session.poll_transmit().unwrap().document;
    schemas::validate::check_message(&document).unwrap();
}

#[test]
fn in_one_negotiation_the_next_message_waits_for_the_answer_to_the_last() {
    let mut session = session();
    for own in ["a", "a", "b"] {
        session.write(T0, refuse(own), None).unwrap();
    }
    let (first, other) = (session.poll_transmit().unwrap(), session.poll_transmit().unwrap());
    assert_eq!((first.negotiation.as_str(), other.negotiation.as_str()), ("alice~a", "alice~b"));
    assert!(session.poll_transmit().is_none());
    let sent = session.handle_answer(T0, first.number, accepted(&first)).unwrap();
    assert_eq!(sent.outcome, SendOutcome::Accepted { seq: Some(9), policy: None });
    assert_eq!(session.poll_transmit().unwrap().number, 2);
}

#[test]
fn an_unanswered_message_leaves_again_with_the_same_bytes_at_growing_gaps_and_is_given_up() {
    let mut session = session();
    session.write(T0, refuse("a"), None).unwrap();
    let first = session.poll_transmit().unwrap();
    let mut now = T0;
    let mut gaps_ms = Vec::new();
    for attempt in 2..=5 {
        assert_eq!(session.handle_answer(now, first.number, unknown()), None);
        let at = session.poll_timeout().unwrap();
        gaps_ms.push(at.since_us(now) / 1000);
        session.handle_timeout(Timestamp(at.0 - 1));
        assert!(session.poll_transmit().is_none(), "not before its time");
        now = at;
        session.handle_timeout(now);
        let again = session.poll_transmit().unwrap();
        assert_eq!((again.attempt, &again.document), (attempt, &first.document));
    }
    // Each gap lies between half and all of 100, 200, 400, 800.
    for (gap, ceiling) in gaps_ms.iter().zip([100, 200, 400, 800]) {
        assert!((ceiling / 2..=ceiling).contains(gap), "{gaps_ms:?}");
    }
    let given_up = session.handle_answer(now, first.number, unknown()).unwrap();
    assert_eq!(given_up.outcome, SendOutcome::Unanswered);
    assert_eq!((session.unanswered_count(), session.poll_timeout()), (0, None));
}

#[test]
fn only_refusals_that_can_pass_are_tried_again_and_not_before_the_gateway_says() {
    for (code, is_final) in [
        (Code::NoConsent, true),
        (Code::Conflict, true),
        (Code::TokenExpired, true),
        (Code::LogUnavailable, false),
        (Code::RateLimited, false),
        (Code::Overloaded, false),
    ] {
        let mut session = session();
        session.write(T0, refuse("a"), None).unwrap();
        let number = session.poll_transmit().unwrap().number;
        let refusal = Refusal::new(code, "").retry_after_ms(700);
        let sent = session.handle_answer(T0, number, SendReply::Refused(refusal));
        assert_eq!(sent.is_some(), is_final, "{code}");
        if !is_final {
            assert!(session.poll_timeout().unwrap() >= T0.plus_ms(700), "{code}");
        }
    }
}

#[test]
fn a_message_that_was_only_held_back_is_refused_in_the_end_and_one_without_an_answer_is_not() {
    let overloaded = || SendReply::Refused(Refusal::new(Code::Overloaded, "").retry_after_ms(100));
    for (unanswered, lost, is_refused) in [(None, false, true), (Some(2), false, false), (None, true, false)] {
        let mut session = session();
        session.write(T0, refuse("a"), None).unwrap();
        let mut now = T0;
        let mut outcome = None;
        for attempt in 1..=5 {
            let number = session.poll_transmit().unwrap().number;
            if attempt == 3 && lost {
                session.handle_disconnected();
                session.handle_connected();
                continue;
            }
            let answer = if unanswered == Some(attempt) { unknown() } else { overloaded() };
            outcome = session.handle_answer(now, number, answer).map(|sent| sent.outcome);
            now = session.poll_timeout().unwrap_or(now);
            session.handle_timeout(now);
        }
        let refused = SendOutcome::Refused(Refusal::new(Code::Overloaded, "").retry_after_ms(100));
        let wanted = if is_refused { refused } else { SendOutcome::Unanswered };
        assert_eq!(outcome, Some(wanted), "{unanswered:?} {lost}");
    }
}

#[test]
fn who_is_overloaded_says_when_to_come_back_and_a_new_connection_does_not_change_that() {
    let mut session = session();
    session.write(T0, refuse("a"), None).unwrap();
    for (attempt, wait_ms) in [(1, 60), (2, 150), (3, 60), (4, 700)] {
        let number = session.poll_transmit().unwrap().number;
        let refusal = Refusal::new(Code::Overloaded, "").retry_after_ms(wait_ms);
        assert_eq!(session.handle_answer(T0, number, SendReply::Refused(refusal)), None);
        session.handle_connected();
        assert!(session.poll_transmit().is_none(), "attempt {attempt} is held back");
        assert_eq!(session.poll_timeout(), Some(T0.plus_ms(wait_ms)), "attempt {attempt}");
        session.handle_timeout(T0.plus_ms(wait_ms));
    }
}

#[test]
fn a_new_connection_sends_at_once_what_waited() {
    let mut session = session();
    session.write(T0, refuse("a"), None).unwrap();
    let first = session.poll_transmit().unwrap();
    session.handle_answer(T0, first.number, unknown());
    assert!(session.poll_transmit().is_none());
    session.handle_connected();
    assert_eq!(session.poll_transmit().unwrap().document, first.document);
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn what_was_under_way_over_a_lost_connection_leaves_over_the_next_in_the_same_order() {
    let mut session = session();
    for own in ["a", "b", "c"] {
        session.write(T0, refuse(own), None).unwrap();
    }
    let left: Vec<_> = (0..3).map(|_| session.poll_transmit().unwrap()).collect();
    // A receipt shows that one of them did arrive.
    session.handle_receipt(&left[1].msg_id);
    let settled = session.handle_disconnected();
    assert_eq!(settled.into_iter().map(|sent| sent.msg_id).collect::<Vec<_>>(), [left[1].msg_id.clone()]);
    session.handle_connected();
    for index in [0, 2] {
        let again = session.poll_transmit().unwrap();
        assert_eq!((again.attempt, &again.document), (2, &left[index].document));
    }
    assert!(session.poll_transmit().is_none());
    assert_eq!(session.handle_disconnected(), []);
}

#[test]
fn a_receipt_is_an_answer() {
    let mut session = session();
    session.write(T0, refuse("a"), None).unwrap();
    session.write(T0, refuse("a"), None).unwrap();
    let first = session.poll_transmit().unwrap();
    // While its answer is out, its successor may leave, and a lost answer does not send it again.
    assert_eq!(session.handle_receipt(&first.msg_id), None);
    let second = session.poll_transmit().unwrap();
    let sent = session.handle_answer(T0, first.number, unknown()).unwrap();
    assert_eq!(sent.outcome, SendOutcome::Accepted { seq: None, policy: None });
    // While it waits for a retry, a receipt ends the wait.
    assert_eq!(session.handle_answer(T0, second.number, unknown()), None);
    assert_eq!(
        session.handle_receipt(&second.msg_id).unwrap().outcome,
        SendOutcome::Accepted { seq: None, policy: None }
    );
    assert_eq!((session.unanswered_count(), session.poll_timeout()), (0, None));
    assert_eq!(session.handle_receipt(&MsgId::try_new("somebody-elses").unwrap()), None);
}

#[test]
fn what_is_said_once_keeps_its_bytes_until_released() {
    let mut session = session();
    session.write(T0, confirm(1), None).unwrap();
    let first = session.poll_transmit().unwrap();
    // Still unanswered: saying it again adds nothing.
    session.write(T0.plus_ms(5), confirm(1), None).unwrap();
    session.handle_answer(T0, first.number, accepted(&first));
    assert!(session.poll_transmit().is_none());
    // Answered: it leaves again, unchanged. Another number, or another act, is another message.
    session.write(T0.plus_ms(10), confirm(1), None).unwrap();
    let again = session.poll_transmit().unwrap();
    assert_eq!((&again.document, &again.msg_id), (&first.document, &first.msg_id));
    session.handle_answer(T0, again.number, accepted(&again));
    session.write(T0, confirm(2), None).unwrap();
    let second = session.poll_transmit().unwrap();
    assert_ne!(second.msg_id, first.msg_id);
    session.handle_answer(T0, second.number, accepted(&second));
    session.write(T0, refuse("a").once(1), None).unwrap();
    assert_eq!(session.poll_transmit().unwrap().act, Act::Refuse);
    session.release(&first.negotiation);
    session.write(T0, confirm(1), None).unwrap();
    session.handle_receipt(&MsgId::try_new("64-3").unwrap());
    assert_ne!(session.poll_transmit().unwrap().msg_id, first.msg_id);
}

#[test]
fn a_repeated_delivery_is_recognised() {
    let mut session = session();
    let id = |n| DeliveryId::new(schemas::Lane(0), [n; 16]);
    assert!(session.handle_delivery(id(1)));
    assert!(session.handle_delivery(id(2)));
    assert!(!session.handle_delivery(id(1)));
}

#[test]
fn beyond_its_bound_a_message_is_refused_and_told() {
    let limits = SessionLimits { unanswered_max: 2, ..SessionLimits::default() };
    let mut session = AgentSession::new(bob(), 0, limits);
    session.write(T0, refuse("a"), None).unwrap();
    session.write(T0, refuse("b"), None).unwrap();
    let sent = session.write(T0, refuse("c"), None).unwrap_err();
    assert!(matches!(sent.outcome, SendOutcome::Refused(Refusal { code: Code::Overloaded, .. })));
    let first = session.poll_transmit().unwrap();
    session.handle_answer(T0, first.number, accepted(&first));
    session.write(T0, refuse("c"), None).unwrap();
}

fn session() -> AgentSession {
    let limits = SessionLimits { attempts_max: 5, retry_base_ms: 100, retry_max_ms: 800, ..SessionLimits::default() };
    AgentSession::new(bob(), 100, limits)
}

fn bob() -> AgentId {
    AgentId::try_new("bob").unwrap()
}

fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

fn refuse(own: &str) -> Outgoing {
    Outgoing::new(negotiation(own), Payload::Refuse(Reasoned::default()))
}

fn confirm(award_no: u32) -> Outgoing {
    Outgoing::new(negotiation("a"), Payload::Confirm(Confirm { award_no: AwardNo(award_no), terms_digest: None }))
        .once(award_no)
}

fn accepted(transmit: &Transmit) -> SendReply {
    let Transmit { msg_id, negotiation, .. } = transmit.clone();
    SendReply::Accepted(Accepted { seq: 9, msg_id, negotiation, policy: None })
}

fn unknown() -> SendReply {
    SendReply::Unknown(String::new())
}
