//! Whatever order answers, receipts, time and connections come in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use schemas::payload::Reasoned;
use schemas::{Code, Payload, Refusal};

use super::*;
use crate::transport::Accepted;

#[derive(Debug, Clone)]
enum Operation {
    /// Writes a message in one of three negotiations.
    Write(u8),
    /// Lets the next message leave.
    Transmit,
    /// Answers one of those under way.
    Reply(usize, RefereeReply),
    /// A receipt for one that has left.
    Receipt(usize),
    /// Time passes, in milliseconds.
    Wait(u64),
    /// The connection is lost, with the answers to everything under way.
    Disconnect,
    /// A new connection.
    Connect,
}

#[derive(Debug, Clone, Copy)]
enum RefereeReply {
    Accepted,
    Refused,
    Busy,
    Nothing,
}

/// What the world outside knows.
#[derive(Default)]
struct World {
    now: Timestamp,
    written: Vec<(u8, Option<Sent>)>,
    under_way: VecDeque<Transmit>,
    left: Vec<Transmit>,
    settled: BTreeMap<MsgId, SendOutcome>,
    logged: BTreeSet<MsgId>,
}

proptest! {
    #[test]
    fn every_message_leaves_in_order_with_the_same_bytes_and_is_settled_once(steps in vec(step(), 1..120)) {
        let limits = SessionLimits { unanswered_max: 12, attempts_max: 6, retry_max_ms: 1000, ..SessionLimits::default() };
        let mut session = AgentSession::new(AgentId::try_new("bob").unwrap(), 1, limits);
        let mut world = World::default();
        for step in steps {
            take(&mut session, &mut world, step)?;
        }
        // Then the exchange answers everything.
        for _ in 0..1000 {
            take(&mut session, &mut world, Operation::Wait(2_000))?;
            take(&mut session, &mut world, Operation::Transmit)?;
            take(&mut session, &mut world, Operation::Reply(0, RefereeReply::Accepted))?;
        }
        prop_assert_eq!(session.unanswered_count(), 0);
        prop_assert_eq!(session.poll_timeout(), None);
        prop_assert!(session.queues_by_negotiation.is_empty() && session.ready.is_empty());
        let refused_here = world.written.iter().filter(|(_, refused)| refused.is_some()).count();
        prop_assert_eq!(world.settled.len() + refused_here, world.written.len());
    }
}

fn take(session: &mut AgentSession, world: &mut World, step: Operation) -> Result<(), TestCaseError> {
    match step {
        Operation::Write(own) => {
            let negotiation = NegotiationId::try_new(&format!("alice~{own}")).unwrap();
            let outgoing = Outgoing::new(negotiation, Payload::Refuse(Reasoned::default()));
            let refused = session.write(world.now, outgoing, None).err().map(|sent| *sent);
            world.written.push((own, refused));
        }
        Operation::Transmit => {
            if let Some(transmit) = session.poll_transmit() {
                check_transmit(world, &transmit)?;
                world.left.push(transmit.clone());
                world.under_way.push_back(transmit);
            }
        }
        Operation::Reply(index, reply) => {
            if let Some(transmit) = pick(&world.under_way, index).and_then(|index| world.under_way.remove(index)) {
                let sent = session.handle_answer(world.now, transmit.number, reply.answer(&transmit));
                note_settled(world, sent)?;
            }
        }
        Operation::Receipt(index) => {
            if let Some(index) = pick(&world.left, index) {
                let msg_id = world.left[index].msg_id.clone();
                let sent = session.handle_receipt(&msg_id);
                world.logged.insert(msg_id);
                note_settled(world, sent)?;
            }
        }
        Operation::Wait(ms) => {
            world.now = world.now.plus_ms(ms);
            session.handle_timeout(world.now);
        }
        Operation::Disconnect => {
            world.under_way.clear();
            for sent in session.handle_disconnected() {
                note_settled(world, Some(sent))?;
            }
        }
        Operation::Connect => session.handle_connected(),
    }
    Ok(())
}

/// A message leaves with the bytes it always had, and behind no unsettled message of its negotiation.
fn check_transmit(world: &World, transmit: &Transmit) -> Result<(), TestCaseError> {
    prop_assert!(!world.settled.contains_key(&transmit.msg_id), "already settled");
    prop_assert!(world.under_way.iter().all(|other| other.number != transmit.number), "twice at a time");
    for other in world.left.iter().filter(|other| other.negotiation == transmit.negotiation) {
        if other.msg_id == transmit.msg_id {
            prop_assert_eq!(&other.document, &transmit.document);
        } else if other.number < transmit.number {
            let is_done = world.settled.contains_key(&other.msg_id) || world.logged.contains(&other.msg_id);
            prop_assert!(is_done, "its predecessor may still be on its way");
        } else {
            prop_assert!(world.logged.contains(&transmit.msg_id), "overtaken by a later one");
        }
    }
    Ok(())
}

fn note_settled(world: &mut World, sent: Option<Sent>) -> Result<(), TestCaseError> {
    if let Some(sent) = sent {
        let first = world.settled.insert(sent.msg_id, sent.outcome);
        prop_assert!(first.is_none(), "settled twice");
    }
    Ok(())
}

impl RefereeReply {
    fn answer(self, transmit: &Transmit) -> SendReply {
        let Transmit { msg_id, negotiation, .. } = transmit.clone();
        match self {
            Self::Accepted => SendReply::Accepted(Accepted { seq: 1, msg_id, negotiation, policy: None }),
            Self::Refused => SendReply::Refused(Refusal::new(Code::NoConsent, "")),
            Self::Busy => SendReply::Refused(Refusal::new(Code::Overloaded, "")),
            Self::Nothing => SendReply::Unknown(String::new()),
        }
    }
}

fn pick<T>(among: impl IntoIterator<Item = T>, index: usize) -> Option<usize> {
    let count = among.into_iter().count();
    (count > 0).then(|| index % count)
}

fn step() -> impl Strategy<Value = Operation> {
    let reply = prop_oneof![
        Just(RefereeReply::Accepted),
        Just(RefereeReply::Refused),
        Just(RefereeReply::Busy),
        Just(RefereeReply::Nothing)
    ];
    prop_oneof![
        3 => (0..3_u8).prop_map(Operation::Write),
        5 => Just(Operation::Transmit),
        5 => (any::<usize>(), reply).prop_map(|(index, reply)| Operation::Reply(index, reply)),
        1 => any::<usize>().prop_map(Operation::Receipt),
        3 => (1..2000_u64).prop_map(Operation::Wait),
        1 => Just(Operation::Disconnect),
        1 => Just(Operation::Connect),
    ]
}
