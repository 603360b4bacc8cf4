use super::*;

const LANE: Lane = Lane(0);
const DEAD_AFTER: Duration = Duration::from_secs(1);

#[test]
fn an_engine_is_alive_for_a_while_after_its_last_heartbeat() {
    let (mut membership, start) = alone();
    assert_eq!(membership.handle_beat(&beat("b"), start), Heard::Newcomer);
    assert_eq!(membership.wake_at(start), Some(start + DEAD_AFTER));
    assert_eq!(membership.handle_beat(&beat("b"), at(start, 999)), Heard::Known);
    assert_eq!(others(&mut membership, at(start, 1998)), ["b"]);
    assert_eq!(others(&mut membership, at(start, 1999)), [""; 0]);
    assert_eq!(membership.wake_at(at(start, 1999)), None);
    assert_eq!(membership.handle_beat(&beat("b"), at(start, 2500)), Heard::Newcomer);
}

#[test]
fn only_engines_that_are_caught_up_and_stay_are_ranked() {
    let (mut membership, start) = alone();
    let catching_up = Beat { lanes: vec![LaneBeat { is_fit: false, ..lane_beat() }], ..beat("b") };
    let leaving = Beat { is_leaving: true, ..beat("c") };
    for beat in [&catching_up, &leaving, &beat("d")] {
        membership.handle_beat(beat, start);
    }
    let view = membership.view(start);
    assert_eq!(view.others.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
    assert_eq!(sorted(view.ranked(LANE)), ["a", "d"]);
    membership.leave();
    assert_eq!(membership.view(start).ranked(LANE), ["d"]);
    assert_eq!(membership.view(at(start, 1000)).first(LANE), None, "nobody is left");
}

#[test]
fn a_claim_is_a_sign_of_life_that_lasts_longer_each_time_no_heartbeat_comes() {
    let (mut membership, start) = alone();
    let mut now = start;
    for doublings in 1..=8 {
        membership.handle_claim("b", LANE, now);
        let lasts = DEAD_AFTER * (1 << doublings.min(DOUBLINGS_MAX));
        let almost = now + lasts - Duration::from_millis(1);
        assert_eq!(membership.view(almost).ranked(LANE), ["b", "a"], "its lane is left to it, whatever its rank");
        now += lasts;
        assert_eq!(membership.view(now).ranked(LANE), ["a"], "{doublings}");
    }
    membership.handle_beat(&beat("b"), now);
    membership.handle_claim("b", LANE, now);
    assert_eq!(membership.view(now + DEAD_AFTER).ranked(LANE), ["a"], "an engine that is heard dies as usual");
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
    membership.handle_beat(&beat("b"), start);
    membership.handle_pause(at(start, 30_000));
    assert_eq!(others(&mut membership, at(start, 30_999)), ["b"]);
    assert_eq!(others(&mut membership, at(start, 31_000)), [""; 0]);
}

#[test]
fn another_engine_of_the_same_name_is_noticed() {
    let (mut membership, start) = alone();
    assert_eq!(membership.handle_beat(&beat("a"), start), Heard::Own);
    assert!(!membership.view(start).has_twin);
    assert_eq!(membership.handle_beat(&Beat { started: 2, ..beat("a") }, start), Heard::Twin);
    assert!(membership.view(start).has_twin);
    assert!(!membership.view(start + DEAD_AFTER).has_twin);
}

#[test]
fn engines_beyond_the_bound_are_ignored_until_others_are_forgotten() {
    let (mut membership, start) = alone();
    for number in 0..PEERS_MAX {
        assert_eq!(membership.handle_beat(&beat(&format!("b{number}")), start), Heard::Newcomer);
    }
    assert_eq!(membership.handle_beat(&beat("c"), start), Heard::Ignored);
    membership.handle_claim("c", LANE, start);
    assert_eq!(membership.view(start).others.len(), PEERS_MAX);
    membership.view(at(start, 1000));
    assert_eq!(membership.handle_beat(&beat("c"), at(start, 1000)), Heard::Newcomer);
}

fn alone() -> (Membership, Instant) {
    (Membership::new("a".to_owned(), 1, vec![LANE], DEAD_AFTER), Instant::now())
}

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

fn others(membership: &mut Membership, now: Instant) -> Vec<String> {
    membership.view(now).others.keys().cloned().collect()
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

fn beat(engine: &str) -> Beat {
    Beat { engine: engine.to_owned(), started: 1, is_leaving: false, rules_newest: 1, lanes: vec![lane_beat()] }
}

fn lane_beat() -> LaneBeat {
    let status = crate::status::LaneStatus::new(LANE);
    LaneBeat { is_fit: true, ..LaneBeat::of(&status) }
}
