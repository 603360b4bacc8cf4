//! Panels over the bus.

use std::time::Duration;

use agents::panel::{AskReply, PanelMember, Panelist};
use agents::transport::bus::BusTransport;
use agents::{ActRefusal, Agent, AgentHandle, AgentOptions, CallReport, CallRequest, Initiator};
use schemas::delivery::{
    Ask, Closing, Delivery, DeliveryEnvelope, Disposition, Finding, Misunderstanding, Notification, Outcome,
    PanelCalls, ProgressReport, RankAsk, Receipt, ShownAnswer, Stopped, UsageTotal,
};
use schemas::panel::{PanelAnswer, PanelSpec, SeatChoice};
use schemas::payload::Cfp;
use schemas::{Address, Code, Digest, NegotiationId, Refusal, Timestamp, WireTime};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fake::{FakeExchange, agent, call, delivery, delivery_id, identity, in_time, negotiation, receipt};

/// Answers `B`, is silent in round 2, leaves in round 3, and ranks backwards.
struct Fickle;

impl Panelist for Fickle {
    fn answer(&mut self, _panel: &NegotiationId, ask: &Ask) -> AskReply {
        match ask.round {
            2 => AskReply::Silence,
            3 => AskReply::Refuse("tired".to_owned()),
            _ => AskReply::answer(ask, Some("B".to_owned())),
        }
    }

    fn rank(&mut self, _panel: &NegotiationId, ask: &Ask, keep: u32) -> AskReply {
        let peers = u32::try_from(ask.peers.as_ref().map_or(0, Vec::len)).unwrap();
        let order = (1..=peers).rev().take(keep as usize).collect();
        AskReply::Answer(Box::new(PanelAnswer { round: ask.round, order: Some(order), ..PanelAnswer::default() }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_answers_an_ask_once_however_often_it_is_told_and_forgets_the_panel_at_its_end() {
    let mut exchange = FakeExchange::start().await;
    let _member = member(&exchange, Fickle);
    exchange.hello().await;
    for _ in 0..2 {
        exchange.deliver(&agent("bob"), &[asked(1, ask(1))]).await;
    }
    let answer = exchange.message().await;
    assert_eq!(answer.document["payload"], json!({"act": "answer", "round": 1, "answer": "B"}));
    assert_eq!(answer.document["envelope"]["negotiation"], "alice~n1");
    exchange.accept(&answer, 1).await;
    assert!(exchange.is_silent_for(Duration::from_millis(1)).await, "the agent hears that it was accepted");
    // Told anew under another id, it says the same again, byte for byte: the exchange counts it once.
    exchange.deliver(&agent("bob"), &[asked(2, ask(1))]).await;
    let again = exchange.message().await;
    assert_eq!(again.received.payload, answer.received.payload);
    exchange.accept(&again, 1).await;
    assert!(exchange.is_silent_for(Duration::from_secs(5)).await);

    exchange.deliver(&agent("bob"), &[asked(3, ask(2))]).await;
    assert!(exchange.is_silent_for(Duration::from_secs(5)).await);
    exchange.deliver(&agent("bob"), &[asked(4, ask(3))]).await;
    let refusal = exchange.message().await;
    assert_eq!(refusal.document["payload"], json!({"act": "refuse", "reason": "tired"}));
    exchange.accept(&refusal, 2).await;

    exchange.deliver(&agent("bob"), &[delivery(5, "n1", closed()), asked(6, ask(1))]).await;
    let anew = exchange.message().await;
    assert_ne!(anew.document["envelope"]["msg_id"], answer.document["envelope"]["msg_id"], "it was forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_function_is_a_panelist_that_neither_ranks_nor_reviews_and_takes_no_calls() {
    let mut exchange = FakeExchange::start().await;
    let _member = member(&exchange, |_: &NegotiationId, ask: &Ask| AskReply::answer(ask, None));
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[asked(1, ask(1))]).await;
    let answer = exchange.message().await;
    assert_eq!(answer.document["payload"], json!({"act": "answer", "round": 1, "answer": null}));
    exchange.accept(&answer, 1).await;
    let other = |n, own: &str, ask| Delivery { ..delivery(n, own, Notification::Ask(Box::new(ask))) };
    let refused = [
        (other(2, "n2", Ask { rank: Some(RankAsk { keep: 1 }), ..ask(1) }), "does not rank"),
        (other(3, "n3", Ask { review: true, ..ask(1) }), "does not review"),
        (call(4, "n4"), "takes part in panels only"),
    ];
    for (told, reason) in refused {
        exchange.deliver(&agent("bob"), &[told]).await;
        let refusal = exchange.message().await;
        assert_eq!(refusal.document["payload"], json!({"act": "refuse", "reason": reason}));
        exchange.accept(&refusal, 2).await;
    }
}

/// Says what its refusals teach it: first all of them, then nothing.
struct Learner {
    learnt: mpsc::UnboundedSender<(String, Option<u32>)>,
}

impl Panelist for Learner {
    fn answer(&mut self, _panel: &NegotiationId, ask: &Ask) -> AskReply {
        AskReply::answer(ask, Some("twelve".to_owned()))
    }

    fn refused(&mut self, _panel: &NegotiationId, refusal: &ActRefusal, ask: Option<&Ask>) -> AskReply {
        self.learnt.send((refusal.to_string(), ask.map(|ask| ask.round))).unwrap();
        ask.map_or(AskReply::Silence, |ask| AskReply::answer(ask, Some("12".to_owned())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panelist_learns_why_its_answer_does_not_count_and_corrects_it_in_time() {
    let mut exchange = FakeExchange::start().await;
    let (learnt, mut lessons) = mpsc::unbounded_channel();
    let _member = member(&exchange, Learner { learnt });
    exchange.hello().await;
    let mut lesson = async || in_time(lessons.recv()).await.unwrap();
    let bad = |reason: &str, pointer: &str| {
        let pointer = Some(pointer.to_owned());
        Notification::NotUnderstood(Misunderstanding { reason: reason.to_owned(), expected: Vec::new(), pointer })
    };
    exchange.deliver(&agent("bob"), &[asked(1, ask(1))]).await;
    let first = exchange.message().await;
    exchange.accept(&first, 1).await;
    let malformed = receipt(first.document["envelope"]["msg_id"].as_str().unwrap(), Disposition::Malformed, None);
    let why = bad("bad_answer", "/payload/answer");
    exchange.deliver(&agent("bob"), &[delivery(2, "n1", malformed), delivery(3, "n1", why.clone())]).await;
    assert_eq!(lesson().await, ("bad_answer at /payload/answer".to_owned(), Some(1)));
    // A gateway's refusal can be corrected too; the exchange's bound on corrections holds for both.
    let second = exchange.message().await;
    assert_eq!(second.document["payload"], json!({"act": "answer", "round": 1, "answer": "12"}));
    assert_ne!(second.document["envelope"]["msg_id"], first.document["envelope"]["msg_id"], "it is another message");
    let refused = Refusal::new(Code::OutOfRange, "too long").at("/payload/text");
    exchange.answer(&second, &json!({ "refused": refused })).await;
    assert_eq!(lesson().await, ("out_of_range at /payload/text".to_owned(), Some(1)));
    let third = exchange.message().await;
    exchange.accept(&third, 2).await;
    exchange.deliver(&agent("bob"), &[delivery(4, "n1", why)]).await;
    assert_eq!(lesson().await, ("bad_answer at /payload/answer".to_owned(), None));
    assert!(exchange.is_silent_for(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_counts_came_too_late_or_is_of_an_earlier_ask_is_not_corrected() {
    let mut exchange = FakeExchange::start().await;
    let (learnt, mut lessons) = mpsc::unbounded_channel();
    let _member = member(&exchange, Learner { learnt });
    exchange.hello().await;
    let why = |reason: &str| {
        let reason = reason.to_owned();
        Notification::NotUnderstood(Misunderstanding { reason, expected: Vec::new(), pointer: None })
    };
    let at = |ms: u64, delivery: Delivery| {
        let envelope = DeliveryEnvelope { ts: WireTime(Timestamp::from_ms(ms)), ..delivery.envelope };
        Delivery { envelope, ..delivery }
    };
    let told = |payload: Notification| delivery(2, "n1", payload);
    let said = |disposition: Disposition| told(receipt("m1", disposition, None));
    let cases = [
        (vec![said(Disposition::Ok), told(why("bad_answer"))], "bad_answer"),
        (vec![said(Disposition::Late)], "late"),
        (vec![said(Disposition::StaleRound)], "stale_round"),
        (vec![told(why("not_asked"))], "not_asked"),
        // Of the time before this ask.
        (vec![at(999_999, told(why("bad_answer")))], "bad_answer"),
        // `answer_by` is over.
        (vec![at(1_000_501, told(why("bad_answer")))], "bad_answer"),
    ];
    for (index, (deliveries, reason)) in cases.into_iter().enumerate() {
        let panel = negotiation(&format!("n{index}"));
        let elsewhere = |number: usize, delivery: Delivery| {
            let mut delivery = delivery;
            delivery.envelope.negotiation = panel.clone();
            delivery.envelope.msg_id = delivery_id(u8::try_from(10 * index + number).unwrap());
            delivery
        };
        exchange.deliver(&agent("bob"), &[elsewhere(1, asked(1, ask(1)))]).await;
        let answer = exchange.message().await;
        exchange.accept(&answer, 1).await;
        let deliveries: Vec<Delivery> =
            deliveries.into_iter().enumerate().map(|(number, delivery)| elsewhere(number + 2, delivery)).collect();
        exchange.deliver(&agent("bob"), &deliveries).await;
        assert_eq!(in_time(lessons.recv()).await, Some((reason.to_owned(), None)), "{index}");
        assert!(exchange.is_silent_for(Duration::from_secs(1)).await, "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_initiator_hears_how_the_seats_of_its_panel_were_chosen() {
    let mut exchange = FakeExchange::start().await;
    let transport = BusTransport::new(&exchange.bus);
    let initiator = Initiator::spawn(transport, identity("alice"), AgentOptions::default());
    let (sender, mut events) = mpsc::channel(16);
    let rules: PanelSpec = serde_json::from_value(json!({"choose": {"keep": 2}})).unwrap();
    let cfp = Cfp { panel: Some(Box::new(rules)), ..Cfp::default() };
    initiator.call(CallRequest::new("n1", vec![Address::Agent(agent("bob"))], cfp), sender).await.unwrap();
    let called = exchange.message().await;
    exchange.accept(&called, 1).await;
    let msg_id = called.document["envelope"]["msg_id"].as_str().unwrap();
    let Notification::Ack(opened) = receipt(msg_id, Disposition::Ok, Some(2)) else { panic!("it is one") };
    let opened = Notification::Ack(Receipt { seats: Some(SeatChoice::Trial), left_out: Some(1), ..opened });
    let mut next = async || in_time(events.recv()).await.unwrap().report;
    assert_eq!(next().await, CallReport::Accepted { seq: Some(1) });
    exchange.deliver(&agent("alice"), &[delivery(1, "n1", opened)]).await;
    let seats = Some(SeatChoice::Trial);
    assert_eq!(next().await, CallReport::Opened { invited: 2, left_out: 1, seats });
}

#[tokio::test(start_paused = true)]
async fn an_initiator_ranks_its_own_panel_and_hears_what_was_found() {
    let mut exchange = FakeExchange::start().await;
    let transport = BusTransport::new(&exchange.bus);
    let initiator = Initiator::spawn_ranking(transport, identity("alice"), AgentOptions::default(), Fickle);
    let (sender, mut events) = mpsc::channel(16);
    let rules: PanelSpec = serde_json::from_value(json!({"rounds": 2})).unwrap();
    let cfp = Cfp { panel: Some(Box::new(rules)), ..Cfp::default() };
    initiator.call(CallRequest::new("n1", vec![Address::Agent(agent("bob"))], cfp), sender).await.unwrap();
    let called = exchange.message().await;
    assert_eq!(called.document["payload"]["panel"]["rounds"], 2);
    exchange.accept(&called, 1).await;
    let peers = vec![ShownAnswer { answer: None, text: None, reviews: Vec::new() }; 3];
    let rank = Ask { rank: Some(RankAsk { keep: 2 }), peers: Some(peers), ..ask(1) };
    exchange.deliver(&agent("alice"), &[asked(1, rank)]).await;
    let order = exchange.message().await;
    assert_eq!(order.document["payload"], json!({"act": "answer", "round": 1, "order": [3, 2]}));
    exchange.accept(&order, 2).await;
    let found = Notification::Inform(ProgressReport::Finding(Box::new(finding())));
    exchange.deliver(&agent("alice"), &[delivery(2, "n1", found), delivery(3, "n1", closed())]).await;
    let mut next = async || in_time(events.recv()).await.unwrap().report;
    assert_eq!(next().await, CallReport::Accepted { seq: Some(1) });
    assert_eq!(next().await, CallReport::Found(Box::new(finding())));
    assert!(matches!(next().await, CallReport::Closed(_)));
}

fn member<P: Panelist + 'static>(exchange: &FakeExchange, panelist: P) -> AgentHandle<PanelMember<P>> {
    let transport = BusTransport::new(&exchange.bus);
    Agent::new(transport, identity("bob"), PanelMember::new(panelist)).spawn(CancellationToken::new())
}

fn ask(round: u32) -> Ask {
    let time = WireTime(Timestamp::from_ms(1_000_500));
    Ask {
        round,
        rounds: Some(3),
        task: Some("Which is prime?".into()),
        answer: None,
        answer_by: time,
        ends_by: time,
        rules_digest: None,
        own: None,
        peers: None,
        rate: None,
        rank: None,
        review: false,
    }
}

fn asked(n: u8, ask: Ask) -> Delivery {
    delivery(n, "n1", Notification::Ask(Box::new(ask)))
}

fn finding() -> Finding {
    Finding {
        outcome: Outcome::Consensus,
        stopped: Stopped::Answers,
        answer: "B".into(),
        key: Some("B".to_owned()),
        agreed: 1,
        of: 1,
        round: 1,
        decision: Digest([0; 32]),
        calls: PanelCalls::default(),
        usage: UsageTotal::default(),
        panelists: Vec::new(),
        reviewers: Vec::new(),
    }
}

fn closed() -> Notification {
    Notification::Closed(Closing::new(Outcome::Completed, Digest([0; 32])))
}
