//! Checkpoints, trims, and logs that are not what they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{Bus, BusError, LogRecord};
use bytes::Bytes;
use policy_engine::{Engine, EngineConfig, EngineError, EngineHandle, EngineMetrics, FoldObserver, StopReason, Trim};
use prometheus::Registry;
use schemas::delivery::{Notification, Outcome};
use schemas::record::{Entry, Qos};
use schemas::{Act, AwardNo, Lot, RegisterKey};

use crate::exchange::{
    LANE, Probe, append, award_no, call, config, confirm, done, message, metrics, negotiation, offer, open_bus, policy,
    records, sample,
};
use crate::many::owners;
use crate::switched::SwitchedLog;

#[tokio::test(start_paused = true)]
async fn a_restart_reads_the_checkpoint_and_what_came_after_it_and_the_round_goes_on() {
    let bus = open_bus();
    let first = start(&bus, checkpointing("engine-1", Trim::Never)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    pass_time(&bus, 40).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let accept = bob.until(Act::Accept).await;
    first.abort();

    let read = Arc::new(FirstRead::default());
    let observer = Arc::clone(&read) as Arc<dyn FoldObserver>;
    let config = checkpointing("engine-2", Trim::Never);
    let second = Engine::start(bus.clone(), config, metrics(), Some(observer)).await.unwrap();
    assert!(read.0.load(Ordering::Relaxed) > 30, "the first record read is one behind the checkpoint");
    append(&bus, vec![message("bob", "job", "b2", confirm(award_no(&accept)))]).await;
    append(&bus, vec![message("bob", "job", "b3", done())]).await;
    let closed = bob.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::Completed));
    bob.drain(Duration::from_secs(60)).await;
    assert_eq!((second.status().lanes[0].open, second.status().lanes[0].register_pending), (0, 0));
    assert!(bus.register.value(RegisterKey::Closed(negotiation("job"))).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_before_the_checkpoint_is_sent_again_after_it() {
    let bus = open_bus();
    let first = start(&bus, checkpointing("engine-1", Trim::AfterCheckpoint)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let sent = bob.next_message().await;
    pass_time(&bus, 40).await;
    first.abort();
    assert!(bus.log.trimmed(LANE).await.unwrap() > 10, "the call itself is gone from the log");
    let _second = start(&bus, checkpointing("engine-2", Trim::AfterCheckpoint)).await;
    while bob.next_message().await != sent {}
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_keeps_the_keys_the_register_has_refused() {
    let bus = open_bus();
    let key = refuse(&bus, "job").await;
    let engine = start(&bus, checkpointing("engine-1", Trim::Never)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    bob.drain(Duration::from_secs(60)).await;
    assert_eq!(engine.status().lanes[0].outbox, 0, "nothing else in a checkpoint names the key");
    pass_time(&bus, 40).await;
    let checkpoint = bus.blobs.value("checkpoint-0".to_owned()).await.unwrap().unwrap();
    assert!(policy_engine::refused_keys(&checkpoint).unwrap().contains(&key), "{key} is not in the checkpoint");
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_leaves_the_checkpoint_once_its_negotiation_is_forgotten() {
    let bus = open_bus();
    let key = refuse(&bus, "job").await;
    let _engine = start(&bus, checkpointing("engine-1", Trim::Never)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    bob.drain(Duration::from_secs(60)).await;
    let refused = async || {
        pass_time(&bus, 40).await;
        let checkpoint = bus.blobs.value("checkpoint-0".to_owned()).await.unwrap().unwrap();
        policy_engine::refused_keys(&checkpoint).unwrap()
    };
    assert!(refused().await.contains(&key));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(refused().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_register_that_refuses_more_keys_than_are_remembered_stops_the_lane() {
    let bus = open_bus();
    let engine = start(&bus, config("engine-1")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    for hundred in 0..41 {
        for number in 0..100 {
            let own = format!("job-{hundred}-{number}");
            refuse(&bus, &own).await;
            append(&bus, vec![call(&own, policy("low"), &["bob"], Qos::BestEffort)]).await;
            append(&bus, vec![message("bob", &own, "b1", offer(10))]).await;
        }
        // Their aborts are logged meanwhile.
        let told = bob.drain(Duration::from_millis(100)).await;
        assert!(told.iter().all(|delivery| delivery.payload.act() != Act::Accept));
    }
    let faults = engine.status().faults;
    assert!(faults.iter().any(|fault| fault.contains("the register contradicts the log in 41")), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn the_log_is_trimmed_below_the_checkpoint_only_once_the_archive_has_it() {
    let bus = open_bus();
    let engine = start(&bus, checkpointing("engine-1", Trim::AfterArchive)).await;
    pass_time(&bus, 50).await;
    assert_eq!(bus.log.trimmed(LANE).await.unwrap(), 0, "nothing is archived");
    bus.blobs.put("archived-0".to_owned(), 30, Bytes::from_static(b"{\"position\":30}")).await.unwrap();
    pass_time(&bus, 40).await;
    assert_eq!(bus.log.trimmed(LANE).await.unwrap(), 29);
    assert_eq!(bus.log.record(LANE, 30).await.unwrap().map(|record| record.seq), Some(30));
    engine.shutdown().await;
    let again = start(&bus, checkpointing("engine-1", Trim::AfterArchive)).await;
    assert!(again.is_ready());
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_made_by_an_engine_that_stands_by_if_there_is_one() {
    let bus = open_bus();
    let registries = [Registry::new(), Registry::new()];
    let engine = |number: usize| {
        let metrics = Arc::new(EngineMetrics::new(&registries[number]).unwrap());
        let config = checkpointing(&format!("engine-{number}"), Trim::Never);
        Engine::start(bus.clone(), config, metrics, None)
    };
    let (one, two) = tokio::join!(engine(0), engine(1));
    let (one, two) = (one.unwrap(), two.unwrap());
    pass_time(&bus, 50).await;
    let owner = owners(&[&one, &two])[0];
    let stored = |number: usize| sample(&registries[number], "exchange_checkpoints_total", "stored");
    assert!(stored(1 - owner) >= 3.0, "{}", stored(1 - owner));
    assert_eq!(stored(owner), 0.0);
    let position = bus.blobs.version("checkpoint-0".to_owned()).await.unwrap().unwrap();
    assert!(bus.log.last_seq(LANE).await.unwrap() - position <= 20, "{position}");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_cannot_be_used_costs_only_time_as_long_as_the_log_is_whole() {
    let bus = open_bus();
    let first = start(&bus, checkpointing("engine-1", Trim::Never)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    pass_time(&bus, 40).await;
    first.abort();
    let version = bus.blobs.version("checkpoint-0".to_owned()).await.unwrap().unwrap();
    bus.blobs.put("checkpoint-0".to_owned(), version, Bytes::from_static(b"altered")).await.unwrap();
    let second = start(&bus, checkpointing("engine-2", Trim::Never)).await;
    assert_eq!(second.status().lanes[0].open, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_log_is_trimmed_and_whose_checkpoint_cannot_be_used_is_given_up_with_the_remedy() {
    let bus = open_bus();
    let first = start(&bus, checkpointing("engine-1", Trim::AfterCheckpoint)).await;
    pass_time(&bus, 60).await;
    first.abort();
    assert!(bus.log.trimmed(LANE).await.unwrap() > 0);
    bus.blobs.put("checkpoint-0".to_owned(), 1000, Bytes::from_static(b"altered")).await.unwrap();
    let refused = Engine::start(bus.clone(), config("engine-2"), metrics(), None).await;
    let Err(EngineError::LaneStopped { lane: LANE, reason }) = refused else { panic!("{refused:?}") };
    assert!(matches!(reason, StopReason::Unrecoverable { .. }), "{reason:?}");
    assert!(reason.to_string().contains("restore the blob"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_behind_what_was_trimmed_goes_on_from_the_checkpoint() {
    let mut bus = open_bus();
    let log = SwitchedLog::install(&mut bus);
    let one = start(&bus, checkpointing("engine-1", Trim::AfterCheckpoint)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    pass_time(&bus, 40).await;
    log.interrupt(BusError::Trimmed(bus.log.trimmed(LANE).await.unwrap()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = one.status();
    assert!(status.is_ready(), "{status:?}");
    assert_eq!((status.lanes[0].open, status.lanes[0].epoch), (1, 2), "claimed anew");
    append(&bus, vec![call("new", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_end_is_folded_anew_and_the_loss_is_counted() {
    // Noticed by the log itself, and by the reader that has to open it again.
    lose_the_end(BusError::Diverged("another log stands here".to_owned())).await;
    lose_the_end(BusError::Unknown("the server went away".to_owned())).await;
}

async fn lose_the_end(noticed_by: BusError) {
    let mut bus = open_bus();
    let log = SwitchedLog::install(&mut bus);
    let registry = Registry::new();
    let counted = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut config = config("engine-1");
    config.checkpoint.every_records = 0;
    let engine = Engine::start(bus.clone(), config, counted, None).await.unwrap();
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("kept", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let kept = bus.log.last_seq(LANE).await.unwrap();
    append(&bus, vec![call("lost", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    bob.until(Act::Cfp).await;
    assert_eq!(engine.status().lanes[0].open, 2);

    log.switch(open_copy(&bus, kept).await);
    log.interrupt(noticed_by);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = engine.status();
    assert!(status.is_ready(), "{status:?}");
    assert_eq!((status.lanes[0].open, status.lanes[0].epoch), (1, 2), "claimed anew");
    let families = registry.gather();
    let divergences = families.iter().find(|family| family.name() == "llmx_engine_log_divergences_total").unwrap();
    assert!((divergences.get_metric()[0].get_counter().get_value() - 1.0).abs() < f64::EPSILON);
    append(&bus, vec![call("new", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    while bob.until(Act::Cfp).await.envelope.negotiation != negotiation("new") {}
}

/// Hears the sequence of the first record that is read.
#[derive(Default)]
struct FirstRead(AtomicU64);

impl FoldObserver for FirstRead {
    fn on_record(&self, record: &LogRecord) {
        let _ = self.0.compare_exchange(0, record.seq, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A checkpoint every ten records, or every five seconds.
fn checkpointing(id: &str, trim: Trim) -> EngineConfig {
    let mut config = config(id);
    config.checkpoint.every_records = 10;
    config.checkpoint.every_ms = 5000;
    config.trim = trim;
    config
}

async fn start(bus: &Bus, config: EngineConfig) -> EngineHandle {
    Engine::start(bus.clone(), config, metrics(), None).await.unwrap()
}

/// Appends a tick every 200 ms.
async fn pass_time(bus: &Bus, ticks: usize) {
    for _ in 0..ticks {
        append(bus, vec![Entry::Tick]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Writes another value under the key of a negotiation's first award.
async fn refuse(bus: &Bus, own: &str) -> RegisterKey {
    let key = RegisterKey::Award(negotiation(own), Lot(0), AwardNo(1));
    bus.register.write(key.clone(), Bytes::from_static(b"{\"another\":\"history\"}")).await.unwrap();
    key
}

/// A log that holds the records up to a sequence.
async fn open_copy(bus: &Bus, through: u64) -> Arc<dyn bus::Log> {
    let copy = open_bus().log;
    for (record, _) in records(bus).await.into_iter().take_while(|(record, _)| record.seq <= through) {
        copy.append(LANE, record.bytes).await.unwrap();
    }
    copy
}
