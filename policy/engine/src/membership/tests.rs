use super::*;

const LANE: Lane = Lane(0);
const DEAD_AFTER: Duration = Duration::from_secs(1);

#[test]
fn an_engine_is_alive_for_a_while_after_its_last_heartbeat() {
    let (mut membership, start) = alone();
    assert_eq!(membership.handle_heartbeat(&heartbeat("b"), start), HeartbeatOrigin::Newcomer);
    assert_eq!(membership.wake_at(start), Some(start + DEAD_AFTER));
    assert_eq!(membership.handle_heartbeat(&heartbeat("b"), at(start, 999)), HeartbeatOrigin::Known);
    assert_eq!(others(&mut membership, at(start, 1998)), ["b"]);
    assert_eq!(others(&mut membership, at(start, 1999)), [""; 0]);
    assert_eq!(membership.wake_at(at(start, 1999)), None);
    assert_eq!(membership.handle_heartbeat(&heartbeat("b"), at(start, 2500)), HeartbeatOrigin::Newcomer);
}

#[test]
fn only_engines_that_are_caught_up_and_stay_are_ranked() {
    let (mut membership, start) = alone();
    let catching_up = Heartbeat { lanes: vec![LaneHeartbeat { is_fit: false, ..lane_heartbeat() }], ..heartbeat("b") };
    let leaving = Heartbeat { is_leaving: true, ..heartbeat("c") };
    for heartbeat in [&catching_up, &leaving, &heartbeat("d")] {
        membership.handle_heartbeat(heartbeat, start);
    }
    let live = membership.live(start);
    assert_eq!(live.others.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
    assert_eq!(sorted(live.ranked(LANE)), ["a", "d"]);
    membership.leave();
    assert_eq!(membership.live(start).ranked(LANE), ["d"]);
    assert_eq!(membership.live(at(start, 1000)).ranked(LANE), [""; 0], "nobody is left");
}

#[test]
fn a_claim_is_a_sign_of_life_that_lasts_longer_each_time_no_heartbeat_comes() {
    let (mut membership, start) = alone();
    let mut now = start;
    for doublings in 1..=8 {
        membership.handle_claim("b", LANE, now);
        let lasts = DEAD_AFTER * (1 << doublings.min(DOUBLINGS_MAX));
        let almost = now + lasts - Duration::from_millis(1);
        assert_eq!(membership.live(almost).ranked(LANE), ["b", "a"], "its lane is left to it, whatever its rank");
        now += lasts;
        assert_eq!(membership.live(now).ranked(LANE), ["a"], "{doublings}");
    }
    membership.handle_heartbeat(&heartbeat("b"), now);
    membership.handle_claim("b", LANE, now);
    assert_eq!(membership.live(now + DEAD_AFTER).ranked(LANE), ["a"], "an engine that is heard dies as usual");
}

#[test]
fn a_claim_of_this_engine_itself_says_nothing() {
    let (mut membership, start) = alone();
    membership.handle_claim("a", LANE, start);
    assert_eq!(others(&mut membership, start), [""; 0]);
}

#[test]
fn an_engine_that_was_held_up_listens_again_before_it_calls_others_dead() {
    let (mut membership, start) = alone();
    membership.handle_heartbeat(&heartbeat("b"), start);
    membership.handle_pause(at(start, 30_000));
    assert_eq!(others(&mut membership, at(start, 30_999)), ["b"]);
    assert_eq!(others(&mut membership, at(start, 31_000)), [""; 0]);
}

#[test]
fn another_engine_of_the_same_name_is_noticed() {
    let (mut membership, start) = alone();
    assert_eq!(membership.handle_heartbeat(&heartbeat("a"), start), HeartbeatOrigin::Own);
    assert!(!membership.has_duplicate_id(start));
    assert_eq!(
        membership.handle_heartbeat(&Heartbeat { started: 2, ..heartbeat("a") }, start),
        HeartbeatOrigin::DuplicateId
    );
    assert!(membership.has_duplicate_id(start));
    assert!(!membership.has_duplicate_id(start + DEAD_AFTER));
}

#[test]
fn engines_beyond_the_bound_are_ignored_until_others_are_forgotten() {
    let (mut membership, start) = alone();
    for number in 0..PEERS_MAX {
        assert_eq!(membership.handle_heartbeat(&heartbeat(&format!("b{number}")), start), HeartbeatOrigin::Newcomer);
    }
    assert_eq!(membership.handle_heartbeat(&heartbeat("c"), start), HeartbeatOrigin::Ignored);
    membership.handle_claim("c", LANE, start);
    assert_eq!(membership.live(start).others.len(), PEERS_MAX);
    membership.live(at(start, 1000));
    assert_eq!(membership.handle_heartbeat(&heartbeat("c"), at(start, 1000)), HeartbeatOrigin::Newcomer);
}

fn alone() -> (Membership, Instant) {
    (Membership::new("a".to_owned(), 1, vec![LANE], DEAD_AFTER), Instant::now())
}

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

fn others(membership: &mut Membership, now: Instant) -> Vec<String> {
    membership.live(now).others.keys().cloned().collect()
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

fn heartbeat(engine: &str) -> Heartbeat {
    Heartbeat {
        engine: engine.to_owned(),
        started: 1,
        is_leaving: false,
        rules_newest: 1,
        lanes: vec![lane_heartbeat()],
    }
}

fn lane_heartbeat() -> LaneHeartbeat {
    let status = crate::status::LaneStatus::new(LANE);
    LaneHeartbeat { is_fit: true, ..LaneHeartbeat::of(&status) }
}

#[test]
fn a_heartbeat_reads_back_as_it_was_written() {
    let heartbeat = of_engine_1();
    let written = serde_json::to_vec(&heartbeat).unwrap();
    assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &written), Some(heartbeat));
}

#[test]
fn what_is_no_heartbeat_of_its_subjects_engine_is_ignored() {
    let written = serde_json::to_vec(&of_engine_1()).unwrap();
    assert_eq!(Heartbeat::read("engine.engine-2.heartbeat", &written), None, "another engine's subject");
    assert_eq!(Heartbeat::read("engine.engine-1.other", &written), None, "another subject");
    assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &written[1..]), None, "not JSON");
    let padded = [written, vec![b' '; HEARTBEAT_BYTES_MAX]].concat();
    assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &padded), None, "too large");
}

fn of_engine_1() -> Heartbeat {
    Heartbeat {
        engine: "engine-1".to_owned(),
        started: 17,
        is_leaving: false,
        rules_newest: 1,
        lanes: vec![LaneHeartbeat::of(&LaneStatus::new(Lane(3)))],
    }
}
