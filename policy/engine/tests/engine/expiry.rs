//! Entries of the register go once nothing needs them any more, and what was removed binds all the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::Bus;
use bytes::Bytes;
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics, Trim};
use prometheus::Registry;
use schemas::record::{Entry, Qos};
use schemas::{Act, AwardNo, Lot, RegisterKey};

use crate::exchange::{
    LANE, Probe, append, award_no, call, config, confirm, done, engine_events, message, metrics, negotiation, offer,
    open_bus, policy, sample,
};
use crate::register::GatedRegister;

/// How long entries stay at least.
const KEEP: Duration = Duration::from_secs(120);
/// Much longer than a turn at the register takes, and than a checkpoint waits.
const TURNS: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn entries_go_once_their_negotiation_has_ended_is_archived_and_old_and_not_before() {
    let bus = open_bus();
    let registry = Registry::new();
    let metrics = std::sync::Arc::new(EngineMetrics::new(&registry).unwrap());
    let engine = Engine::start(bus.clone(), expiring("engine-1"), metrics, None).await.unwrap();
    let mut bob = Probe::connect(&bus, "bob").await;
    negotiate(&bus, &mut bob, "ended").await;
    begin(&bus, &mut bob, "open").await;
    bob.drain(Duration::from_secs(30)).await;
    let all = keys(&bus).await;
    assert_eq!(
        all.len(),
        5,
        "of what is open the award and its commitment, and of the other the closing, too: {all:?}"
    );

    pass_archived(&bus, KEEP - Duration::from_secs(90)).await;
    assert_eq!(keys(&bus).await, all, "archived, and too young");
    tell_archived(&bus, "{\"position\":9,\"registered\":9}").await;
    pass(&bus, KEEP).await;
    assert_eq!(keys(&bus).await, all, "old, and the archive is behind");
    let seq = bus.log.last_seq(LANE).await.unwrap();
    tell_archived(&bus, &format!("{{\"position\":{seq},\"registered\":9}}")).await;
    pass(&bus, TURNS).await;
    assert_eq!(keys(&bus).await, all, "the archive has the records, and not the entries");

    pass_archived(&bus, TURNS).await;
    assert_eq!(keys(&bus).await, [award("open"), end("open")], "what is open keeps its entry, however old");
    let mut lookup = registry.gather().into_iter();
    let expired = lookup.find(|family| family.name() == "exchange_register_expired_total").unwrap();
    assert_eq!(expired.get_metric()[0].get_counter().get_value(), 3.0);

    append(&bus, vec![message("bob", "open", "done", done())]).await;
    bob.drain(Duration::from_secs(30)).await;
    pass(&bus, KEEP + TURNS).await;
    assert_eq!(keys(&bus).await.len(), 3, "ended, old, and not archived yet");
    pass_archived(&bus, TURNS).await;
    assert_eq!(keys(&bus).await, []);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_without_an_archive_or_where_entries_are_to_stay() {
    for (trim, keep_ms) in [(Trim::Never, 1000), (Trim::AfterCheckpoint, 1000), (Trim::AfterArchive, 0)] {
        let bus = open_bus();
        let config = EngineConfig { trim, register_keep_ms: keep_ms, ..expiring("engine-1") };
        let engine = start(&bus, config).await;
        let mut bob = Probe::connect(&bus, "bob").await;
        negotiate(&bus, &mut bob, "job").await;
        pass_archived(&bus, KEEP + TURNS).await;
        assert_eq!(keys(&bus).await.len(), 3, "{trim:?}, {keep_ms}");
        engine.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_killed_in_the_midst_of_removing_is_followed_by_one_that_goes_on() {
    let bus = open_bus();
    let mut handle = bus.clone();
    let gated = GatedRegister::install(&mut handle, usize::MAX >> 4, 0);
    let first = start(&handle, expiring("engine-1")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    for own in ["one", "two", "three"] {
        negotiate(&bus, &mut bob, own).await;
    }
    gated.removals.store(4, Ordering::Relaxed);
    pass_archived(&bus, KEEP + TURNS).await;
    assert_eq!(keys(&bus).await.len(), 5, "four of nine went before the register answered no more");
    first.abort();
    let second = start(&bus, expiring("engine-2")).await;
    pass_archived(&bus, TURNS).await;
    assert_eq!(keys(&bus).await, []);
    negotiate(&bus, &mut bob, "next").await;
    assert_eq!(keys(&bus).await.len(), 3, "and the exchange goes on");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_engines_one_removes_and_the_other_takes_over_without_writing_again() {
    let bus = open_bus();
    let one = start(&bus, expiring("engine-1")).await;
    let two = start(&bus, expiring("engine-2")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    negotiate(&bus, &mut bob, "job").await;
    pass_archived(&bus, KEEP + TURNS).await;
    assert_eq!(keys(&bus).await, []);
    let (owner, other) = if crate::many::owners(&[&one, &two])[0] == 0 { (one, two) } else { (two, one) };
    owner.abort();
    pass(&bus, TURNS).await;
    assert_eq!(keys(&bus).await, [], "what is removed stays so");
    assert_eq!(bob.drain(Duration::from_secs(60)).await, [], "and nobody is told anything again");
    negotiate(&bus, &mut bob, "next").await;
    assert_eq!(keys(&bus).await.len(), 3);
    let aborts = |event: &schemas::record::EngineEvent| matches!(event, schemas::record::EngineEvent::Abort { .. });
    assert!(!engine_events(&bus).await.iter().any(aborts));
    other.shutdown().await;
}

/// A log that lost its end, and an engine that still holds what was lost: it was about to register an award when it was
/// stopped, and wakes long after another engine awarded somebody else, and the entry was removed.
#[tokio::test(start_paused = true)]
async fn a_zombie_that_wakes_after_the_entry_was_removed_binds_nobody() {
    let (bus, lost) = (open_bus(), open_bus());
    let mut handle = Bus { blobs: bus.blobs.clone(), register: bus.register.clone(), ..lost.clone() };
    let gated = GatedRegister::install(&mut handle, 0, 0);
    let registry = Registry::new();
    let metrics = std::sync::Arc::new(EngineMetrics::new(&registry).unwrap());
    let config = EngineConfig { trim: Trim::Never, ..config("zombie") };
    let _zombie = Engine::start(handle, config, metrics, None).await.unwrap();
    let mut eve = Probe::connect(&lost, "eve").await;
    append(&lost, vec![call("job", policy("low"), &["eve"], Qos::AtLeastOnce)]).await;
    append(&lost, vec![message("eve", "job", "e1", offer(10))]).await;
    eve.drain(Duration::from_secs(5)).await;
    assert_eq!(gated.asked.load(Ordering::Relaxed), 1, "it waits with the award");

    let engine = start(&bus, expiring("engine-1")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    negotiate(&bus, &mut bob, "job").await;
    pass_archived(&bus, KEEP + TURNS).await;
    assert_eq!(keys(&bus).await, []);

    gated.gate.add_permits(1000);
    let told = eve.drain(Duration::from_secs(60)).await;
    assert!(told.iter().all(|delivery| delivery.payload.act() != Act::Accept), "{told:?}");
    assert_eq!(sample(&registry, "exchange_register_writes_total", "expired"), 1.0);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_held_up_for_long_is_made_as_long_as_nothing_of_its_time_was_removed() {
    let bus = open_bus();
    let mut handle = bus.clone();
    let gated = GatedRegister::install(&mut handle, 0, 0);
    let engine = start(&handle, expiring("engine-1")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    bus.blobs.put("expired-0".to_owned(), 1, Bytes::from_static(b"{\"time\":1}")).await.unwrap();
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    gated.gate.add_permits(1000);
    bob.until(Act::Accept).await;
    assert_eq!(keys(&bus).await, [award("job")]);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_register_stays_as_large_as_what_is_young_however_many_negotiations_there_were() {
    let bus = open_bus();
    let engine = start(&bus, expiring("engine-1")).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let (mut sizes, mut written) = (Vec::new(), 0);
    for number in 0..1500 {
        negotiate(&bus, &mut bob, &format!("job-{number}")).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        if number % 25 == 0 {
            archive(&bus).await;
        }
        written += 3;
        sizes.push(bus.register.size().await.unwrap().entries);
    }
    let (first, last) = (sizes[500..1000].iter().max().unwrap(), sizes[1000..].iter().max().unwrap());
    assert!(last * 3 < written, "{last} of {written}");
    assert!(*last <= first + first / 10, "flat: at most {first} before, {last} after");
    engine.shutdown().await;
}

fn expiring(id: &str) -> EngineConfig {
    let mut config = config(id);
    config.checkpoint.every_ms = 5000;
    config.register_keep_ms = u64::try_from(KEEP.as_millis()).unwrap();
    config
}

async fn start(bus: &Bus, config: EngineConfig) -> EngineHandle {
    Engine::start(bus.clone(), config, metrics(), None).await.unwrap()
}

/// The archive has everything that is in the log now, and what the register holds.
async fn archive(bus: &Bus) {
    let seq = bus.log.last_seq(LANE).await.unwrap();
    tell_archived(bus, &format!("{{\"position\":{seq},\"registered\":{seq}}}")).await;
}

async fn tell_archived(bus: &Bus, document: &str) {
    // Of one version, so that a test can take it back.
    assert!(bus.blobs.put("archived-0".to_owned(), 1, Bytes::from(document.to_owned())).await.unwrap());
}

/// Lets time pass, in which something is appended now and then, and archived.
async fn pass_archived(bus: &Bus, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        pass(bus, Duration::from_secs(2)).await;
        archive(bus).await;
    }
}

/// Lets time pass, in which something is appended now and then.
async fn pass(bus: &Bus, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        append(bus, vec![Entry::Tick]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// A negotiation up to its award, which is confirmed.
async fn begin(bus: &Bus, bob: &mut Probe, own: &str) {
    let mut policy = policy("low");
    // Nobody is hurried: what is open stays so.
    (policy.timers_ms.perform, policy.timers_ms.hard) = (3_600_000, 3_600_000);
    append(bus, vec![call(own, policy, &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(bus, vec![message("bob", own, "offer", offer(10))]).await;
    let accept = bob.until(Act::Accept).await;
    append(bus, vec![message("bob", own, "confirm", confirm(award_no(&accept)))]).await;
}

/// A negotiation from its call to its end.
async fn negotiate(bus: &Bus, bob: &mut Probe, own: &str) {
    begin(bus, bob, own).await;
    append(bus, vec![message("bob", own, "done", done())]).await;
    bob.until(Act::Closed).await;
}

fn award(own: &str) -> RegisterKey {
    RegisterKey::Award(negotiation(own), Lot(0), AwardNo(1))
}

fn end(own: &str) -> RegisterKey {
    RegisterKey::AwardEnd(negotiation(own), Lot(0), AwardNo(1))
}

async fn keys(bus: &Bus) -> Vec<RegisterKey> {
    bus.register.entries().await.unwrap().into_iter().map(|(key, _)| key).collect()
}
