//! What engines append (docs/spec/log.md#lg-12); and that the same log gives the same effects.

use policy_core::replay::Replay;
use policy_core::{LaneState, Limits};
use schemas::digest::canonical;
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{Act, Lane, RegisterKey, Timestamp};
use serde_json::json;
use std::collections::BTreeMap;

use crate::script::{START_MS, Script, pinned, policy};

#[test]
fn a_claim_with_a_higher_epoch_takes_the_lane() {
    let mut script = Script::empty();
    let claim = |engine: &str| EngineEvent::Claim { engine: engine.to_owned() };
    script.engine(0, 2, claim("first"));
    script.engine(1, 2, claim("second"));
    script.engine(2, 1, claim("third"));
    assert!(script.lane_state.is_owner("first") && script.lane_state.epoch() == 2);
    script.engine(3, 3, claim("second"));
    assert!(script.lane_state.is_owner("second") && !script.lane_state.is_owner("first"));
}

#[test]
fn a_claim_that_is_not_higher_changes_nothing_whoever_makes_it() {
    let mut script = Script::empty();
    let claim = |engine: &str| EngineEvent::Claim { engine: engine.to_owned() };
    script.engine(0, 2, claim("first"));
    let claimed = script.events.len();
    for (epoch, engine) in [(2, "first"), (2, "second"), (1, "first"), (0, "second")] {
        script.engine(1, epoch, claim(engine));
        assert!(script.lane_state.is_owner("first") && script.lane_state.epoch() == 2, "{engine} claims {epoch}");
    }
    assert_eq!(script.events.len(), claimed, "nobody is told of a claim that does not count");
    script.engine(2, 3, claim("first"));
    assert!(script.lane_state.is_owner("first") && script.lane_state.epoch() == 3, "an owner may claim again");
}

#[test]
fn a_delivery_failure_counts_from_the_lanes_epoch_on() {
    for (epoch, counts) in [(3, false), (4, false), (5, true), (6, true)] {
        let mut script = Script::open(policy(|_| {}), &["a", "b"]);
        script.engine(0, 5, EngineEvent::Claim { engine: "e".to_owned() });
        script.offer(1, "b", 10);
        let (negotiation, id) = (script.negotiation.clone(), script.last("a", Act::Cfp).id);
        let to = script.last("a", Act::Cfp).to.clone();
        let before = script.lane_state.digest();
        let effects =
            script.engine(2, epoch, EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 5, may_answer: true });
        assert_eq!(effects.contains(&"b<accept:1@award.0.1".to_owned()), counts, "epoch {epoch}: {effects:?}");
        assert_eq!(effects.is_empty(), !counts, "epoch {epoch}");
        assert_ne!(script.lane_state.digest(), before, "the record itself is in the digest");
        assert_eq!(script.lane_state.epoch(), 5, "only a claim raises the epoch");
    }
}

#[test]
fn acknowledgements_change_nothing_whatever_their_epoch() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    script.engine(1, 5, EngineEvent::Claim { engine: "e".to_owned() });
    let (ids, deadline) = (vec![script.last("a", Act::Cfp).id], script.lane_state.poll_deadline());
    for epoch in [0, 5, 9] {
        let delivered = EngineEvent::Delivered { ids: ids.clone(), registered: 3 };
        assert_eq!(script.engine(2, epoch, delivered), [""; 0]);
    }
    assert_eq!((script.lane_state.epoch(), script.lane_state.poll_deadline()), (5, deadline));
}

#[test]
fn engine_records_of_an_older_epoch_change_nothing() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    script.engine(1, 5, EngineEvent::Claim { engine: "e".to_owned() });
    let negotiation = script.negotiation.clone();
    let abort = EngineEvent::Abort { negotiation, code: "internal".to_owned() };
    assert_eq!(script.engine(2, 4, abort.clone()), [""; 0]);
    script.engine(3, 4, EngineEvent::Rules { version: 9 });
    assert_eq!(script.lane_state.rules(), policy_core::lane::RULES_FIRST);
    script.engine(4, 5, EngineEvent::Rules { version: 9 });
    assert_eq!(script.lane_state.rules(), 9);
    assert_eq!(script.engine(5, 5, abort)[0], "closed=aborted");
}

#[test]
fn an_undelivered_call_is_an_answer_of_a_contractor_that_failed() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let call = script.last("a", Act::Cfp).id;
    script.offer(1, "b", 10);
    assert_eq!(script.undelivered(2, call, "a")[1], "b<accept:1@award.0.1");
}

#[test]
fn an_undelivered_call_counts_not_once_the_contractor_has_answered() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let call = script.last("a", Act::Cfp).id;
    script.offer(1, "a", 10);
    assert_eq!(script.undelivered(2, call, "a"), [""; 0]);
    assert_eq!(script.offer(3, "b", 20)[2], "a<accept:1@award.0.1");
}

#[test]
fn an_answer_of_a_contractor_that_could_not_be_reached_is_taken_until_the_close() {
    for (act, receipt, winner) in
        [(Act::Offer, "ok", "a"), (Act::Refuse, "ok", "b"), (Act::Withdraw, "out_of_turn", "b")]
    {
        let mut script = Script::open(policy(|_| {}), &["a", "b"]);
        let call = script.last("a", Act::Cfp).id;
        assert_eq!(script.undelivered(1, call, "a"), [""; 0], "b has not answered");
        assert_eq!(script.undelivered(2, call, "a"), [""; 0], "once");
        let effects = match act {
            Act::Offer => script.offer(3, "a", 10),
            _ => script.say(3, "a", act, json!({})),
        };
        assert!(effects.contains(&format!("a<ack:{receipt}")), "{act}: {effects:?}");
        let effects = script.offer(4, "b", 20);
        let accept = format!("{winner}<accept:1@award.0.1");
        assert!(effects.contains(&accept), "{act}: everybody counts as having answered: {effects:?}");
    }
}

#[test]
fn nobody_waits_long_for_a_contractor_unless_it_is_durable() {
    let mut durable = pinned(policy(|_| {}), &["a", "b", "c"]);
    durable.invited[1].durable = true;
    durable.invited[2].qos = schemas::record::Qos::BestEffort;
    let mut script = Script::empty();
    script.call_pinned(0, durable);
    let attempts = |script: &Script| ["a", "b", "c"].map(|name| script.last(name, Act::Cfp).attempts_max);
    assert_eq!(attempts(&script), [Some(3), None, None]);
    script.offer(1, "a", 10);
    assert_eq!(script.last("a", Act::Ack).attempts_max, None, "of everything else the outbox decides");
}

#[test]
fn only_the_call_itself_counts_as_undelivered() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.say(1, "a", Act::Withdraw, json!({}));
    let receipt = script.last("a", Act::Ack).id;
    assert_eq!(script.undelivered(2, receipt, "a"), [""; 0]);
    assert_eq!(script.offer(3, "a", 10), ["a<ack:ok"]);
}

#[test]
fn an_undelivered_accept_is_a_lost_award() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    let accept = script.last("a", Act::Accept).id;
    let effects = script.undelivered(3, accept, "a");
    assert_eq!(
        effects[..3],
        [
            "award.0.1.end=revoked@award.0.1",
            "a<cancel:1:revoked@award.0.1.end",
            "alice<failure:a:1:undelivered@award.0.1.end",
        ]
    );
    assert_eq!(effects[4], "b<accept:2@award.0.2");
}

#[test]
fn an_undelivered_accept_counts_not_once_its_contractor_was_heard_again() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    let accept = script.last("a", Act::Accept).id;
    script.done(3, "a");
    assert_eq!(script.undelivered(4, accept, "a"), [""; 0]);
    assert_eq!(script.confirm(5, "a", 1)[1], "a<ack:committed@award.0.1.end");
}

#[test]
fn an_abort_takes_every_award_back_and_waits_for_no_register_entry() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    script.offer(3, "c", 30);
    let negotiation = script.negotiation.clone();
    let abort = EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() };
    let end = [
        "a<cancel:1:aborted",
        "b<reject:expired",
        "closed=aborted",
        "alice<closed:aborted:register_conflict",
        "a<closed:aborted:register_conflict",
        "b<closed:aborted:register_conflict",
        "c<closed:aborted:register_conflict",
    ];
    assert_eq!(script.engine(4, 0, abort.clone()), end);
    assert_eq!(script.engine(5, 0, abort), [""; 0], "terminal is absorbing");
    script.assert_sound();
}

#[test]
fn a_record_folded_twice_counts_once() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let before = script.lane_state.digest();
    let (seq, time, record) = script.log()[0].clone();
    script.lane_state.handle_record(seq, time, &record);
    assert!(script.lane_state.poll_effect().is_none());
    assert_eq!(script.lane_state.digest(), before);
}

#[test]
fn the_same_log_gives_the_same_effects_and_state_however_it_reaches_the_fold() {
    let script = busy_script();
    let mut again = LaneState::new(Lane(0), Limits::default());
    for (seq, time, record) in script.log() {
        let bytes = record.encode().expect("encodes");
        again.handle_record(*seq, *time, &Record::decode(&bytes).expect("decodes"));
    }
    let effects: Vec<String> = std::iter::from_fn(|| again.poll_effect()).map(|effect| format!("{effect:?}")).collect();
    assert_eq!(effects, script.effects.iter().map(|effect| format!("{effect:?}")).collect::<Vec<_>>());
    assert_eq!(again.digest(), script.lane_state.digest());
    let ids: std::collections::BTreeSet<_> = script.deliveries.iter().map(|deliver| deliver.id).collect();
    assert_eq!(ids.len(), script.deliveries.len(), "every delivery has an id of its own");
}

#[test]
fn the_state_digest_tells_different_logs_apart() {
    let (one, other) = (busy_script(), {
        let mut script = busy_script();
        script.offer(2000, "a", 7);
        script
    });
    assert_ne!(one.lane_state.digest(), other.lane_state.digest());
}

#[test]
fn replay_recomputes_every_register_entry_and_names_the_first_that_differs() {
    let script = busy_script();
    let mut replay = Replay::new(Limits::default());
    for (seq, time, record) in script.log() {
        replay.handle_record(Lane(0), *seq, *time, record);
    }
    let mut registered: BTreeMap<RegisterKey, Vec<u8>> = script
        .effects
        .iter()
        .filter_map(|effect| match effect {
            policy_core::Effect::Register(write) => Some((write.key.clone(), canonical(&write.value).unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(replay.first_difference(&registered, true), None);
    let closed = RegisterKey::Closed(script.negotiation.clone());
    let value = registered.insert(closed.clone(), b"{}".to_vec()).expect("registered");
    let difference = replay.first_difference(&registered, true).expect("tampered");
    assert_eq!((difference.key, difference.registered.as_deref()), (closed.clone(), Some("{}")));
    assert_eq!(difference.recomputed.map(String::into_bytes), Some(value));
    registered.remove(&closed);
    assert_eq!(replay.first_difference(&registered, true).expect("missing").registered, None);
    assert_eq!(replay.first_difference(&registered, false), None, "the engine may not have come to it");
}

#[test]
fn replay_names_a_message_whose_body_was_altered() {
    let script = busy_script();
    let mut replay = Replay::new(Limits::default());
    for (seq, time, record) in script.log() {
        let tampered = String::from_utf8(record.encode().unwrap()).unwrap().replace("\"price\":20}", "\"price\":21}");
        replay.handle_record(Lane(0), *seq, *time, &Record::decode(tampered.as_bytes()).unwrap());
    }
    assert_eq!(replay.forgeries().iter().map(|forgery| forgery.seq).collect::<Vec<_>>(), [3]);
}

#[test]
fn many_entries_in_one_record_are_folded_in_their_order() {
    let mut script = Script::open(policy(|policy| policy.close.k_valid = Some(1)), &["a", "b"]);
    let offer = |script: &mut Script, from: &str| {
        Entry::Message(script.message(from, Act::Offer, json!({"terms": {"price": 10}}), json!({})))
    };
    let entries = vec![Entry::Tick, offer(&mut script, "b"), offer(&mut script, "a")];
    let effects = script.fold_at(Timestamp::from_ms(START_MS + 1), entries);
    assert_eq!((effects[0].as_str(), effects[4].as_str()), ("b<ack:ok", "a<ack:late"));
}

/// A negotiation with a re-award, a duplicate confirm and an end.
fn busy_script() -> Script {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    script.offer(3, "c", 2000);
    script.tick(104);
    script.confirm(105, "b", 2);
    script.done(106, "b");
    script
}
