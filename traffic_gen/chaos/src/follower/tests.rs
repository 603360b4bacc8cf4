use std::io::Write;
use std::sync::Arc;

use schemas::delivery::{Closing, DeliveryEnvelope, Disposition, EXCHANGE, Notification, Outcome, Receipt};
use schemas::{Digest, Lane, Timestamp, WireTime};
use traffic_gen::invariants::Invariant;
use traffic_gen::recorder::Recorder;

use super::*;
use crate::events::EventWriter;
use crate::journal::WallClock;

/// A file that two processes write and one reads.
struct Rig {
    folder: tempfile::TempDir,
    writers: [EventWriter; 2],
    follower: Follower,
    journal: AgentJournal,
    began: Instant,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, began) = (folder.path().join("events"), Instant::now());
        let writers = [0, 1].map(|_| EventWriter::open(&path, began).unwrap());
        let follower = Follower::open(&path, began).unwrap();
        let recorder = Recorder::start(began, true, None);
        let journal = AgentJournal::new(recorder, WallClock::for_test(began, Timestamp(0)));
        Self { folder, writers, follower, journal, began }
    }

    fn follow(&mut self) {
        self.follower.follow(&self.journal).unwrap();
    }

    fn write(&self, process: usize, name: &str, event: Observed<'_>) {
        self.writers[process].handle(&agent(name), self.began, event);
    }

    fn send(&self, process: usize, name: &str, act: Act) {
        let (negotiation, msg_id, document) = (negotiation(), msg_id(), Bytes::from_static(br#"{"payload":{}}"#));
        let sent =
            Observed::Transmitted { negotiation: &negotiation, msg_id: &msg_id, act, attempt: 1, document: &document };
        self.write(process, name, sent);
    }

    fn receive(&self, process: usize, name: &str, number: u8, payload: Notification) {
        let delivery = delivery(number, payload);
        self.write(process, name, Observed::Delivered { delivery: &delivery, is_repeat: false });
    }
}

#[test]
fn what_several_processes_wrote_is_one_story() {
    let mut rig = Rig::new();
    rig.writers[0].call_due(&negotiation(), rig.began);
    rig.send(0, "alice", Act::Cfp);
    rig.follow();
    assert_eq!((rig.journal.recorder.open(), rig.journal.recorder.is_settled()), (1, false), "it is under way");
    rig.write(
        0,
        "alice",
        Observed::Settled {
            sent: &answered(SendOutcome::Accepted { seq: Some(1), policy: None }),
            took: Duration::ZERO,
        },
    );
    rig.receive(0, "alice", 1, receipt());
    rig.receive(1, "bob", 2, closed());
    rig.receive(0, "alice", 3, closed());
    rig.follow();
    let counts = rig.journal.recorder.counts();
    assert_eq!((counts.cfps, counts.rounds, counts.unanswered, rig.follower.torn()), (1, 1, 0, 0));
    assert_eq!((rig.journal.recorder.open(), rig.journal.recorder.is_settled()), (0, true));
    let (_, verdict) = rig.journal.recorder.finish().unwrap();
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    assert!(verdict.by_name[&Invariant::NoLostAdmission].checked > 0);
    let notes = rig.journal.take();
    assert_eq!((notes.sent, notes.heard, notes.rounds[&negotiation()].outcome), (1, 3, Some(Outcome::Concluded)));
}

#[test]
fn what_a_killed_process_had_admitted_is_still_owed() {
    let mut rig = Rig::new();
    rig.send(0, "alice", Act::Cfp);
    rig.write(
        0,
        "alice",
        Observed::Settled {
            sent: &answered(SendOutcome::Accepted { seq: Some(1), policy: None }),
            took: Duration::ZERO,
        },
    );
    rig.writers[1].begin(&agent("alice"));
    rig.follow();
    assert!(!rig.journal.recorder.is_settled(), "its call has no receipt");
    let (_, verdict) = rig.journal.recorder.finish().unwrap();
    assert_eq!(verdict.violated_checks().collect::<Vec<_>>(), [Invariant::NoLostAdmission]);
}

#[test]
fn what_a_killed_process_had_under_way_is_over() {
    let mut rig = Rig::new();
    let other = NegotiationId::form(&agent("alice"), "due").unwrap();
    rig.writers[0].call_due(&negotiation(), rig.began);
    rig.writers[0].call_due(&other, rig.began);
    rig.send(0, "alice", Act::Cfp);
    rig.send(0, "bob", Act::Say);
    rig.follow();
    assert_eq!((rig.journal.recorder.open(), rig.journal.recorder.is_settled()), (2, false));
    rig.writers[1].begin(&agent("alice"));
    rig.follow();
    assert_eq!((rig.journal.recorder.open(), rig.journal.recorder.counts().unanswered), (0, 1));
    assert!(!rig.journal.recorder.is_settled(), "another agent's message is under way");
    rig.writers[1].begin(&agent("bob"));
    rig.follow();
    assert_eq!((rig.journal.recorder.is_settled(), rig.journal.recorder.counts().unanswered), (true, 2));
}

#[test]
fn what_was_heard_before_a_kill_is_a_repeat_after_it() {
    let mut rig = Rig::new();
    rig.receive(0, "alice", 1, closed());
    rig.writers[1].begin(&agent("alice"));
    rig.receive(1, "alice", 1, closed());
    rig.follow();
    let notes = rig.journal.take();
    assert_eq!((notes.heard, notes.repeats.len()), (1, 1));
}

#[test]
fn a_line_that_a_kill_cut_off_takes_no_other_along() {
    let mut rig = Rig::new();
    let path = rig.folder.path().join("events");
    let mut torn = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(b"\n{\"event\":\"rece").unwrap();
    rig.follow();
    rig.receive(1, "alice", 1, closed());
    rig.follow();
    assert_eq!((rig.follower.torn(), rig.journal.take().heard), (1, 1));
}

#[test]
fn agents_write_at_once_and_all_lines_are_whole() {
    let mut rig = Rig::new();
    let path = rig.folder.path().join("events");
    let writers: Vec<_> = (0..4).map(|_| Arc::new(EventWriter::open(&path, rig.began).unwrap())).collect();
    let threads: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(writer, events)| {
            std::thread::spawn(move || {
                for number in 0..50 {
                    let delivery = delivery(writer as u8 * 50 + number, closed());
                    events.handle(
                        &agent("alice"),
                        Instant::now(),
                        Observed::Delivered { delivery: &delivery, is_repeat: false },
                    );
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    rig.follow();
    assert_eq!((rig.journal.take().heard, rig.follower.torn()), (200, 0));
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn negotiation() -> NegotiationId {
    NegotiationId::form(&agent("alice"), "1").unwrap()
}

fn msg_id() -> MsgId {
    MsgId::try_new("7-1").unwrap()
}

fn answered(outcome: SendOutcome) -> Sent {
    Sent { negotiation: negotiation(), msg_id: msg_id(), act: Act::Cfp, outcome, way: Way::default() }
}

fn receipt() -> Notification {
    let mut receipt = Receipt::new(msg_id(), Disposition::Ok);
    receipt.invited = Some(1);
    Notification::Ack(receipt)
}

fn closed() -> Notification {
    Notification::Closed(Closing {
        outcome: Outcome::Concluded,
        digest: Digest([0; 32]),
        detail: None,
        agreement: None,
        conclusion: None,
        tasks: Vec::new(),
    })
}

fn delivery(number: u8, payload: Notification) -> Delivery {
    let envelope = DeliveryEnvelope {
        msg_id: DeliveryId::new(Lane(0), u128::from(number).to_be_bytes()),
        ts: WireTime(Timestamp(u64::from(number))),
        from: EXCHANGE.to_owned(),
        to: ["agent://alice".to_owned()],
        negotiation: negotiation(),
        in_reply_to: None,
        traceparent: None,
    };
    Delivery { envelope, payload, receipts: Vec::new() }
}
