//! The mixed case of JADE's contract-net test over the real exchange. The core has its own table of it, step by step;
//! here ten agents with strategies meet gateway, log and engine, and the order between agents is not ours to choose.

use std::collections::BTreeMap;
use std::sync::Arc;

use agents::observer::Observer;
use agents::transport::bus::BusTransport;
use agents::{Action, Agent, AgentHandle, AgentOptions, CallReport, CallRequest, Initiator, Outgoing, Strategy};
use schemas::delivery::{Delivery, Disposition, Notification, Outcome, RejectReason};
use schemas::payload::{Cfp, Confirm, Failure, FailurePhase, Inform, InformKind, Offer, Reasoned};
use schemas::policy::HoldUntil;
use schemas::{Act, Address, AwardNo, NegotiationId, Payload, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use traffic_gen::invariants::Invariant;

use crate::journal::Journal;
use crate::party::UNIT;
use crate::rig::{PATIENCE, Rig, agent, open_registration, policy, until};

/// What one responder does.
enum Part {
    /// Offers this price, in whole units, and answers an award so.
    Offers(i64, fn(&Delivery) -> Vec<Action>),
    Refuses,
    DoesNotUnderstand,
    IsSilent,
}

const PARTS: [Part; 10] = [
    Part::Offers(40, |_| Vec::new()),
    // Reports before it is bound, and fails only later, when the test has seen what became of that.
    Part::Offers(10, |delivery| vec![Action::reply(delivery, done())]),
    Part::Offers(30, confirms),
    Part::Offers(20, confirms),
    Part::Refuses,
    Part::DoesNotUnderstand,
    Part::IsSilent,
    Part::IsSilent,
    Part::IsSilent,
    Part::IsSilent,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jades_mixed_case_ends_completed_after_two_failures_and_two_re_awards() {
    let holding = policy("holding@1", |policy| (policy.standby, policy.hold_until) = (3, HoldUntil::Done));
    let rig = Rig::with_policies(vec![holding]).await;
    let journal = Journal::start();
    let responders = responders(&rig, &journal).await;
    let initiator = Initiator::spawn(BusTransport::new(&rig.exchange.bus), rig.identity("alice"), options(&journal));
    initiator.connected().await.unwrap();
    let (sender, mut events) = mpsc::channel(256);
    let negotiation = initiator.call(request(), sender).await.unwrap();

    let awarded = next_award(&mut events).await;
    assert_eq!((awarded.contractor.as_str(), awarded.offers, awarded.complete), ("r1", 4, false));
    // The other two out-of-turn messages, while r1 holds the award: a confirmation of it, and a refuser's report.
    speak(&responders[3], &negotiation, Payload::Confirm(Confirm { award_no: awarded.award_no, terms_digest: None }))
        .await;
    speak(&responders[4], &negotiation, done()).await;
    let misread = || journal.heard().iter().filter(|heard| heard.delivery.payload.act() == Act::NotUnderstood).count();
    until("three out-of-turn messages are answered", async || (misread() == 3).then_some(())).await;
    speak(&responders[1], &negotiation, failed()).await;

    let awarded = next_award(&mut events).await;
    assert_eq!((awarded.contractor.as_str(), awarded.award_no), ("r3", AwardNo(2)));
    let awarded = next_award(&mut events).await;
    assert_eq!((awarded.contractor.as_str(), awarded.award_no), ("r2", AwardNo(3)));
    let mut last = None;
    while let Some(event) = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap() {
        last = Some(event.report);
    }
    let Some(CallReport::Closed(closing)) = last else { panic!("it ended with {last:?}") };
    assert_eq!(closing.outcome, Outcome::Completed);

    // 4 offers, 1 refusal, 1 not-understood, 3 out of turn, 1 failure before and 1 after a commitment, 2 commitments, 1 inform.
    until("every message has its disposition", async || (dispositions(&journal) == expected()).then_some(())).await;
    until("nothing is owed any more", async || journal.recorder.is_settled().then_some(())).await;
    assert_eq!(rejects(&journal), BTreeMap::from([("r0".to_owned(), vec![RejectReason::Awarded])]));
    let (_, verdict) = journal.recorder.finish().unwrap();
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    assert!(verdict.by_name[&Invariant::FinalNotice].checked >= 4);
}

async fn responders(rig: &Rig, journal: &Arc<Journal>) -> Vec<AgentHandle<Scripted>> {
    let mut responders = Vec::new();
    for (number, part) in PARTS.into_iter().enumerate() {
        let name = format!("r{number}");
        rig.register(&name, &open_registration()).await;
        let transport = BusTransport::new(&rig.exchange.bus);
        let responder = Agent::new(transport, rig.identity(&name), Scripted(part)).with_options(options(journal));
        let handle = responder.spawn(CancellationToken::new());
        handle.connected().await.unwrap();
        responders.push(handle);
    }
    responders
}

struct Scripted(Part);

impl Strategy for Scripted {
    fn handle(&mut self, _now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        match (&delivery.payload, &self.0) {
            (Notification::Cfp(_), Part::Offers(price, _)) => vec![Action::reply(delivery, offer(*price))],
            (Notification::Cfp(_), Part::Refuses) => {
                vec![Action::reply(delivery, Payload::Refuse(Reasoned::default()))]
            }
            (Notification::Cfp(_), Part::DoesNotUnderstand) => {
                vec![Action::reply(delivery, Payload::NotUnderstood(Reasoned::default()))]
            }
            (Notification::Accept(_), Part::Offers(_, on_award)) => on_award(delivery),
            // r3 fails, r2 delivers.
            (Notification::Ack(receipt), Part::Offers(price, _)) if receipt.disposition == Disposition::Committed => {
                vec![Action::reply(delivery, if *price == 20 { failed() } else { done() })]
            }
            (_, _) => Vec::new(),
        }
    }
}

fn confirms(delivery: &Delivery) -> Vec<Action> {
    let Notification::Accept(award) = &delivery.payload else { return Vec::new() };
    vec![Action::reply(delivery, Payload::Confirm(Confirm { award_no: award.award_no, terms_digest: None }))]
}

fn offer(price: i64) -> Payload {
    let terms = serde_json::from_value(json!({ "price": price * UNIT, "delivery_ms": 1000 })).unwrap();
    Payload::Offer(Offer { terms, ..Offer::default() })
}

fn done() -> Payload {
    Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None })
}

fn failed() -> Payload {
    let code = "broken".to_owned();
    Payload::Failure(Failure { phase: FailurePhase::Perform, code, retryable: false, penalty: None })
}

/// Addressed by topic; collection is short because four stay silent.
fn request() -> CallRequest {
    let cfp = Cfp { policy: Some("holding".to_owned()), reply_within_ms: Some(500), ..Cfp::default() };
    CallRequest::new("mixed", vec![Address::try_new("topic://courier").unwrap()], cfp)
}

fn options(journal: &Arc<Journal>) -> AgentOptions {
    AgentOptions { observer: Some(Arc::clone(journal) as Arc<dyn Observer>), ..AgentOptions::default() }
}

async fn speak(responder: &AgentHandle<Scripted>, negotiation: &NegotiationId, payload: Payload) {
    let negotiation = negotiation.clone();
    responder.command(move |_, _| vec![Outgoing::new(negotiation, payload).into()]).await.unwrap();
}

async fn next_award(events: &mut mpsc::Receiver<agents::CallEvent>) -> schemas::delivery::AwardReport {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        if let CallReport::Awarded(news) = event.report {
            return *news;
        }
    }
}

fn dispositions(journal: &Journal) -> BTreeMap<String, Vec<Disposition>> {
    let mut by_agent: BTreeMap<String, Vec<Disposition>> = BTreeMap::new();
    for heard in journal.heard() {
        if let Notification::Ack(receipt) = heard.delivery.payload
            && heard.agent != agent("alice")
        {
            by_agent.entry(heard.agent.to_string()).or_default().push(receipt.disposition);
        }
    }
    by_agent
}

fn expected() -> BTreeMap<String, Vec<Disposition>> {
    use Disposition::{Committed, Ok, OutOfTurn};
    let by_agent = [
        ("r0", vec![Ok]),
        ("r1", vec![Ok, OutOfTurn, Ok]),
        ("r2", vec![Ok, Committed, Ok]),
        ("r3", vec![Ok, OutOfTurn, Committed, Ok]),
        ("r4", vec![Ok, OutOfTurn]),
        ("r5", vec![Ok]),
    ];
    by_agent.map(|(name, dispositions)| (name.to_owned(), dispositions)).into()
}

fn rejects(journal: &Journal) -> BTreeMap<String, Vec<RejectReason>> {
    let mut by_agent: BTreeMap<String, Vec<RejectReason>> = BTreeMap::new();
    for heard in journal.heard() {
        if let Notification::Reject(rejection) = heard.delivery.payload {
            by_agent.entry(heard.agent.to_string()).or_default().push(rejection.reason);
        }
    }
    by_agent
}
