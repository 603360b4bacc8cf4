//! How many negotiations per second a lane may be asked to open, so that each that is opened can be brought to its end.
//!
//! The owner measures, in periods of [`PERIOD`], how long work waits for its turn in each of its queues ([`LaneQueue`]), and how many
//! negotiations end. While no queue stands ([`TARGET`]) the rate rises as it is used. One that stands and does not shrink says
//! that what ends now is all that can end: the rate falls to that, less a part that lets the queue empty. From there it rises
//! slowly, until a queue stands again. A queue that shrinks is left alone: a pause of the machine, or another engine's death,
//! has made it, and no call need be refused for that. So is a rate that is not used up while the lane keeps up with what is opened,
//! or in a stall: fewer openings would change nothing.
//!
//! Gateways are told on [`schemas::subject::admission`] and judge each opening act before it is appended: no decision and no
//! replay depends on any of this. Compare Nichols and Jacobson, Controlling queue delay (2012), for what stands and what does
//! not, and RFC 7661 for a rate that is not used.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::admission::{LaneAdmission, LaneQueue};
use tokio::time::Instant;

/// How long is measured before the rate is set anew, and told.
const PERIOD: Duration = Duration::from_millis(100);
/// A rate that stays as it is, of a lane that nothing is asked of, is told again after so long: gateways believe it for two
/// seconds, and a word may be lost.
const QUIET_PERIOD: Duration = Duration::from_millis(800);
/// The wait in one queue, beyond what it takes when nothing is asked for, above which the queue stands. A round passes five
/// queues, so they add a fortieth of a second to it. A larger one lets queues share more work, a smaller one makes them wait less.
const TARGET: Duration = Duration::from_millis(5);
/// What a queue takes when nothing is asked for is the least of so long, at least: a slow disk is no overload.
const BASE_PERIOD: Duration = Duration::from_secs(30);
/// It takes this at most: a queue that stands for minutes is not what it takes.
const BASE_MAX: Duration = Duration::from_millis(100);
/// The rate before anything is known.
const RATE_FIRST: f64 = schemas::admission::RATE_FIRST as f64;
/// The least: a probe every second says when more is possible again.
const RATE_MIN: f64 = 1.0;
/// The rate rises by this factor a period while nothing says what is possible, and more is not opened than ends.
const RISE_FIRST: f64 = 1.2;
/// The same where more is opened: it may be that negotiations take long, or that queues grow which are not seen yet.
const RISE_UNENDED: f64 = 1.05;
/// The part of what is opened that must end for the former.
const ENDS: f64 = 0.8;
/// What is possible is less than it was, or than what is opened where that is not known, by this factor a period at most: a
/// stall says little, and negotiations that take long do not end yet.
const POSSIBLE_FALL: f64 = 0.9;
/// What was possible when a queue stood so long ago says nothing any more: it may have been a pause at night.
const POSSIBLE_MAX: Duration = Duration::from_secs(60);
/// It rises at once to this part of what was possible when a queue stood last, and then by so many openings per second and
/// this factor a period. The same number for each brings lanes with unequal rates together.
const NEAR: f64 = 0.9;
/// See [`NEAR`].
const RISE_NEAR: f64 = 0.005;
/// See [`NEAR`].
const RISE_NEAR_PER_S: f64 = 6.0;
/// Both grow with the square of the periods without a queue (as CUBIC's window, RFC 9438): nearly flat while queues come and go, and
/// within two seconds at twice the rate where a burst is over. They are doubled after so many.
const STEEPER: f64 = 4.0;
/// Of what ends, this part at least may still be opened while a queue stands.
const BRAKE_MAX: f64 = 0.7;
/// A wait of so many times [`TARGET`] takes all that [`BRAKE_MAX`] leaves.
const BRAKE_FULL: f64 = 12.0;
/// A queue whose wait falls by this part of the time that has passed shrinks.
const SHRINKS_BY: f64 = 0.1;
/// So does one where this many times as many negotiations end as are opened.
const DRAINS_BY: f64 = 1.05;
/// Periods in which a queue must stand and not shrink where the rate is not used up: one makes a hiccup of the machine.
const STANDS_FOR: u32 = 3;
/// The rate is used up where this part of it is opened. One that is not falls to [`SPARE`] times what is opened where a queue stands,
/// is held there while [`ENDS`] holds, and falls to what is opened then.
const USED_UP: f64 = 0.85;
/// See [`USED_UP`]. Enough for what varies, too little for a burst in a stall.
const SPARE: f64 = 1.4;
/// It is held up to this wait. While nats-server collects its garbage, for up to three seconds, a write waits 10 to 30 ms.
const HELD_MAX: Duration = Duration::from_millis(50);
/// Of what is opened, less than this part ends in a stall of the machine or of nats-server.
const STALLED: f64 = 0.25;
/// Beyond it is an overload.
const STALL_MAX: Duration = Duration::from_millis(1_500);
/// The rate is at most so many times what is used, one more for each further gateway: callers may be spread unevenly among them.
const UNUSED_MAX: f64 = 2.0;
/// How much of the rate of openings that was measured before is kept a period.
const SMOOTHING: f64 = 0.8;
/// A gateway that appended no opening for so long shares in the rate no more.
const GATEWAY_SILENCE_MAX: Duration = Duration::from_secs(2);
/// Gateways that share in a rate at most.
const GATEWAYS_MAX: usize = 64;

/// The waits in one queue.
#[derive(Debug, Default)]
struct QueueWait {
    /// Sum and number in this period.
    sum: Duration,
    number: u32,
    /// The least mean of a period, in this time and the one before.
    least: [Option<Duration>; 2],
    since: Option<Instant>,
}

impl QueueWait {
    /// The mean of the period, beyond what the queue takes when nothing is asked for.
    fn end_period(&mut self, now: Instant) -> Duration {
        let (sum, number) = (std::mem::take(&mut self.sum), std::mem::take(&mut self.number));
        let Some(mean) = sum.checked_div(number) else { return Duration::ZERO };
        if now.saturating_duration_since(*self.since.get_or_insert(now)) > BASE_PERIOD {
            self.since = Some(now);
            self.least = [None, self.least[0]];
        }
        let least = self.least[0].map_or(mean, |least| least.min(mean));
        self.least[0] = Some(least);
        mean.saturating_sub(self.least[1].map_or(least, |before| before.min(least)).min(BASE_MAX))
    }
}

/// The rate of one lane.
#[derive(Debug)]
pub(super) struct AdmissionRate {
    per_s: f64,
    /// What ended per second when a queue stood last, and when that was.
    possible: Option<(f64, Instant)>,
    waits: [QueueWait; LaneQueue::ALL.len()],
    /// The longest of the mean waits of the last one.
    wait: Duration,
    /// Periods in which a queue has stood and did not shrink.
    standing: u32,
    /// Periods in which none has.
    clear: u32,
    /// How long a stall has lasted.
    stalled: Duration,
    /// Whether the rate is used up, in a stall whether it was before.
    is_used_up: bool,
    /// Negotiations opened in this period: by opening acts, and tasks of teams.
    opened: u32,
    tasks: u32,
    /// Openings per second that might have been folded, those that were, and negotiations ended, all smoothed.
    allowed_per_s: f64,
    opened_per_s: f64,
    ended_per_s: f64,
    /// What was opened per second when no queue stood last.
    opened_clear_per_s: f64,
    /// Negotiations that were open at its beginning.
    open: usize,
    gateways: BTreeMap<String, Instant>,
    /// Where the clock of words begins.
    created: Instant,
    epoch: u64,
    began: Instant,
    told: LaneAdmission,
    told_at: Option<Instant>,
}

impl AdmissionRate {
    /// Begins with so many negotiations open, under the epoch of the lane's owner.
    pub(super) fn new(open: usize, epoch: u64, now: Instant) -> Self {
        Self {
            per_s: RATE_FIRST,
            possible: None,
            waits: Default::default(),
            wait: Duration::ZERO,
            standing: 0,
            clear: 0,
            stalled: Duration::ZERO,
            is_used_up: false,
            opened: 0,
            tasks: 0,
            allowed_per_s: RATE_FIRST,
            opened_per_s: 0.0,
            ended_per_s: 0.0,
            opened_clear_per_s: 0.0,
            open,
            gateways: BTreeMap::new(),
            created: now,
            epoch,
            began: now,
            told_at: None,
            told: LaneAdmission {
                rate_per_s: RATE_FIRST as u32,
                gateways: 1,
                wait_ms: 0,
                epoch,
                sent_us: 0,
                queue: None,
            },
        }
    }

    /// So many tasks of teams were opened.
    pub(super) fn handle_tasks(&mut self, tasks: u32) {
        self.tasks = self.tasks.saturating_add(tasks);
    }

    /// A gateway's record was folded that has opened so many negotiations.
    pub(super) fn handle_opened(&mut self, gateway: &str, openings: u32, now: Instant) {
        self.opened = self.opened.saturating_add(openings);
        if let Some(heard) = self.gateways.get_mut(gateway) {
            *heard = now;
        } else if self.gateways.len() < GATEWAYS_MAX {
            self.gateways.insert(gateway.to_owned(), now);
        }
    }

    /// Work has waited in a queue for so long.
    pub(super) fn note_wait(&mut self, queue: LaneQueue, wait: Duration) {
        let QueueWait { sum, number, .. } = &mut self.waits[queue as usize];
        *sum = sum.saturating_add(wait);
        *number = number.saturating_add(1);
    }

    /// Work waits in a queue for so long and has not had its turn: counts where nothing else says how long that takes.
    pub(super) fn note_unanswered(&mut self, queue: LaneQueue, wait: Duration) {
        if wait >= PERIOD && self.waits[queue as usize].number == 0 {
            self.note_wait(queue, wait);
        }
    }

    /// What to tell gateways of a lane in which so many negotiations are open; nothing where they know it.
    pub(super) fn poll_word(&mut self, open: usize, now: Instant) -> Option<LaneAdmission> {
        let passed = now.saturating_duration_since(self.began);
        if passed < PERIOD {
            return None;
        }
        self.began = now;
        let (openings, tasks) = (std::mem::take(&mut self.opened), std::mem::take(&mut self.tasks));
        // Tasks end about as they are opened: what is left are those that opening acts have opened.
        let ended = (std::mem::replace(&mut self.open, open) + (openings + tasks) as usize).saturating_sub(open);
        let ended = ended.saturating_sub(tasks as usize);
        let per_s = |count: f64| count / passed.as_secs_f64();
        let smoothed = |before: f64, per_s: f64| SMOOTHING * before + (1.0 - SMOOTHING) * per_s;
        self.allowed_per_s = smoothed(self.allowed_per_s, self.per_s);
        self.opened_per_s = smoothed(self.opened_per_s, per_s(f64::from(openings)));
        self.ended_per_s = smoothed(self.ended_per_s, per_s(ended as f64));
        self.gateways.retain(|_, heard| now.saturating_duration_since(*heard) < GATEWAY_SILENCE_MAX);
        let is_stalled = per_s(ended as f64) < STALLED * self.opened_per_s;
        self.stalled = if is_stalled { self.stalled + passed } else { Duration::ZERO };
        let queue = self.adjust(passed, per_s(f64::from(openings)), now);
        let word = LaneAdmission {
            rate_per_s: self.per_s.round() as u32,
            gateways: u32::try_from(self.gateways.len().max(1)).unwrap_or(u32::MAX),
            wait_ms: u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX),
            epoch: self.epoch,
            sent_us: u64::try_from(now.saturating_duration_since(self.created).as_micros()).unwrap_or(u64::MAX),
            queue,
        };
        let is_quiet = openings == 0 && word.rate_per_s == self.told.rate_per_s && queue.is_none();
        self.told = word;
        let is_known = |told_at: Instant| is_quiet && now.saturating_duration_since(told_at) < QUIET_PERIOD;
        if self.told_at.is_some_and(is_known) {
            return None;
        }
        self.told_at = Some(now);
        Some(word)
    }

    /// Sets the rate by the waits of the period that has passed. Gives the queue that stands.
    fn adjust(&mut self, passed: Duration, opened_per_s: f64, now: Instant) -> Option<LaneQueue> {
        let waits = self.waits.iter_mut().map(|wait| wait.end_period(now));
        let longest = waits.zip(LaneQueue::ALL).max();
        let (wait, queue) = longest.unwrap_or((Duration::ZERO, LaneQueue::Records));
        let before = std::mem::replace(&mut self.wait, wait);
        // A stall explains no longer wait than itself.
        let is_stall = !self.stalled.is_zero() && self.stalled <= STALL_MAX && wait <= self.stalled + PERIOD;
        if !is_stall {
            self.is_used_up = self.opened_per_s >= USED_UP * self.allowed_per_s.min(self.per_s);
        }
        if wait <= TARGET {
            // Nothing was folded, so nothing was measured.
            if is_stall && !self.is_used_up && opened_per_s <= 0.0 {
                return None;
            }
            self.standing = 0;
            self.clear = self.clear.saturating_add(1);
            self.opened_clear_per_s = self.opened_per_s;
            self.rise(opened_per_s, now);
            return None;
        }
        self.clear = 0;
        let is_draining = self.ended_per_s >= DRAINS_BY * self.opened_per_s;
        let is_shrinking = is_draining || wait + passed.mul_f64(SHRINKS_BY) <= before;
        let keeps_up = wait <= HELD_MAX && self.ended_per_s >= ENDS * self.opened_per_s;
        let is_held = !self.is_used_up && (is_stall || keeps_up);
        if !self.is_used_up {
            self.per_s = self.per_s.min(self.useful(SPARE, self.opened_clear_per_s));
        }
        self.standing = if is_shrinking || is_held { 0 } else { self.standing + 1 };
        if self.standing >= if self.is_used_up { 1 } else { STANDS_FOR } {
            let before = self.possible.map_or(self.opened_per_s.min(self.per_s), |(possible, _)| possible);
            let possible = self.ended_per_s.max(POSSIBLE_FALL * before);
            let over = wait.as_secs_f64() / TARGET.as_secs_f64() - 1.0;
            let brake = 1.0 - (1.0 - BRAKE_MAX) * (over / BRAKE_FULL).min(1.0);
            self.possible = Some((possible, now));
            let least = if self.is_used_up { RATE_MIN } else { self.opened_per_s.max(RATE_MIN) };
            self.per_s = (brake * NEAR * possible).max(least).min(self.per_s);
        }
        Some(queue)
    }

    fn rise(&mut self, opened_per_s: f64, now: Instant) {
        self.possible = self.possible.filter(|(_, stood_at)| now.saturating_duration_since(*stood_at) < POSSIBLE_MAX);
        let risen = match &mut self.possible {
            None => {
                let keeps_up = self.ended_per_s >= ENDS * self.opened_per_s;
                self.per_s * if keeps_up { RISE_FIRST } else { RISE_UNENDED }
            }
            Some((possible, _)) => {
                *possible = possible.max(self.ended_per_s);
                let steep = 1.0 + (f64::from(self.clear) / STEEPER).powi(2);
                let rise = (steep * RISE_NEAR * self.per_s).min((RISE_FIRST - 1.0) * self.per_s);
                (NEAR * *possible).max(self.per_s + rise + steep * RISE_NEAR_PER_S)
            }
        };
        self.per_s = risen.min(self.useful(UNUSED_MAX, self.opened_per_s.max(opened_per_s))).max(RATE_MIN);
    }

    /// So many times what is opened, one more for each further gateway, and [`RATE_FIRST`] at least.
    fn useful(&self, times: f64, opened_per_s: f64) -> f64 {
        RATE_FIRST.max((times + self.gateways.len().max(1) as f64 - 1.0) * opened_per_s)
    }

    /// What gateways were told last.
    pub(super) fn told(&self) -> LaneAdmission {
        self.told
    }

    /// When the rate is set anew, or told again, whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let is_busy = self.told.queue.is_some() || self.opened > 0;
        let told_again_at = self.told_at.filter(|_| !is_busy).map(|told_at| told_at + QUIET_PERIOD);
        // Not within a period: nothing is told then, and whoever waits for no time at all never waits.
        Some(told_again_at.into_iter().fold(self.began + PERIOD, Instant::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lane under a load, in periods.
    struct Rig {
        rate: AdmissionRate,
        now: Instant,
        open: usize,
        told: Vec<LaneAdmission>,
    }

    impl Rig {
        fn new() -> Self {
            let now = Instant::now();
            Self { rate: AdmissionRate::new(0, 1, now), now, open: 0, told: Vec::new() }
        }

        /// Periods in which so many openings a second are asked for of one gateway, as many as may are opened, so many end,
        /// and records wait for so long.
        fn pass(&mut self, periods: u32, asked_per_s: u32, ended_per_s: u32, wait_ms: u64) {
            for _ in 0..periods {
                let opened = asked_per_s.min(self.rate.told().rate_per_s).div_ceil(10);
                self.rate.handle_opened("gateway-1", opened, self.now);
                self.rate.note_wait(LaneQueue::Records, Duration::from_millis(wait_ms));
                self.open = (self.open + opened as usize).saturating_sub(ended_per_s.div_ceil(10) as usize);
                self.now += PERIOD;
                self.told.extend(self.rate.poll_word(self.open, self.now));
            }
        }

        fn per_s(&self) -> u32 {
            self.rate.told().rate_per_s
        }
    }

    #[test]
    fn a_rate_that_is_used_rises_and_one_that_is_not_starts_over() {
        let mut rig = Rig::new();
        rig.pass(50, 1_000, 1_000, 1);
        assert!((1_500..=2_000).contains(&rig.per_s()), "twice what is used: {}", rig.per_s());
        rig.pass(100, 0, 1_000, 0);
        assert_eq!(rig.per_s(), 250);
    }

    #[test]
    fn a_queue_that_stands_lowers_the_rate_below_what_ends() {
        let mut rig = Rig::new();
        rig.pass(20, 10_000, 1_000, 1);
        assert!(rig.per_s() > 300, "nothing stands: {}", rig.per_s());
        rig.pass(20, 10_000, 400, 60);
        let told = rig.rate.told();
        assert!(told.rate_per_s < 400 && told.queue == Some(LaneQueue::Records) && told.wait_ms >= 59, "{told:?}");
        rig.pass(20, 10_000, 400, 60);
        assert!(rig.per_s() >= 1, "never nothing: {}", rig.per_s());
    }

    #[test]
    fn the_rate_comes_back_once_nothing_stands() {
        let mut rig = Rig::new();
        rig.pass(30, 10_000, 10_000, 1);
        rig.pass(40, 10_000, 800, 60);
        let fallen = rig.per_s();
        rig.pass(20, 10_000, 10_000, 1);
        assert!(fallen < 800 && rig.per_s() > fallen + 80, "{fallen}, {}", rig.per_s());
    }

    #[test]
    fn two_seconds_behind_a_burst_nothing_is_held_back() {
        let mut rig = Rig::new();
        rig.pass(50, 1_900, 1_900, 1);
        for _ in 0..50 {
            rig.pass(1, 12_000, 1_300, if rig.open > 0 { 60 } else { 1 });
        }
        assert!(rig.per_s() < 1_300, "{}", rig.per_s());
        rig.pass(20, 2_400, 2_400, 1);
        assert!(rig.per_s() >= 2_400, "{}", rig.per_s());
    }

    #[test]
    fn a_hiccup_refuses_nothing() {
        let mut rig = Rig::new();
        rig.pass(50, 700, 700, 1);
        // Nothing ends for a fifth of a second; then the queue empties at what the lane can do.
        rig.pass(2, 700, 0, 150);
        for wait_ms in [130, 100, 70, 40, 10, 1] {
            rig.pass(1, 700, 1_000, wait_ms);
        }
        assert!(rig.per_s() >= 980, "1.4 times what was opened: {}", rig.per_s());
    }

    #[test]
    fn a_collector_of_garbage_lowers_nothing_where_the_lane_keeps_up() {
        let mut rig = Rig::new();
        rig.pass(50, 420, 420, 1);
        let before = rig.per_s();
        for (ended_per_s, wait_ms) in
            [(200, 8), (300, 16), (430, 26), (180, 43), (360, 31), (410, 27), (520, 29), (470, 29)]
        {
            rig.pass(1, 420, ended_per_s, wait_ms);
        }
        rig.pass(12, 420, 420, 30);
        assert!(before >= 800 && rig.per_s() == 588, "{before}, then {}", rig.per_s());
    }

    #[test]
    fn a_stall_lowers_nothing_for_a_second_and_a_half_unless_the_rate_was_used_up() {
        // Calls per second asked for, periods in which next to nothing ends, whether the rate falls below what was opened.
        for (asked_per_s, periods, falls) in [(700, 12, false), (700, 25, true), (100_000, 3, true)] {
            let mut rig = Rig::new();
            rig.pass(50, asked_per_s, asked_per_s.min(1_500), 1);
            let before = rig.per_s();
            for period in 0..periods {
                rig.pass(1, asked_per_s, 70, 100 + 50 * period);
            }
            let most = before.min(asked_per_s);
            assert_eq!(rig.per_s() < most, falls, "{asked_per_s}, {periods} periods: {before}, then {}", rig.per_s());
        }
    }

    #[test]
    fn stalls_that_come_again_and_again_are_an_overload() {
        let mut rig = Rig::new();
        rig.pass(50, 1_000, 1_000, 1);
        for stall in 0..40 {
            rig.pass(4, 1_000, 0, 200 * stall);
            rig.pass(2, 1_000, 1_500, 200 * stall);
        }
        assert!(rig.per_s() < 600, "half of it ends: {}", rig.per_s());
    }

    #[test]
    fn a_gateway_among_several_may_open_more_than_its_part_while_a_queue_comes_and_goes() {
        let mut rig = Rig::new();
        for period in 0..100_u32 {
            rig.rate.handle_opened("gateway-2", 1, rig.now);
            rig.pass(1, 1_000, 1_000, if period < 50 || period.is_multiple_of(2) { 1 } else { 8 });
        }
        let told = rig.rate.told();
        assert!(told.gateways == 2 && told.rate_per_s / 2 >= 1_000, "{told:?}");
    }

    #[test]
    fn a_log_that_stands_lowers_nothing_for_a_second_and_a_half() {
        let mut rig = Rig::new();
        rig.pass(50, 1_000, 1_000, 1);
        let before = rig.per_s();
        for _ in 0..12 {
            rig.now += PERIOD;
            rig.told.extend(rig.rate.poll_word(rig.open, rig.now));
        }
        assert_eq!(rig.per_s(), before);
    }

    #[test]
    fn a_rate_that_is_not_used_up_falls_to_what_is_opened_at_first() {
        let mut rig = Rig::new();
        rig.pass(50, 700, 700, 1);
        rig.pass(STANDS_FOR, 700, 400, 200);
        let fallen = rig.per_s();
        assert!((650..=750).contains(&fallen), "{fallen}");
        rig.pass(2, 700, 400, 200);
        assert!(rig.per_s() < 600, "{}", rig.per_s());
    }

    #[test]
    fn a_slow_register_is_no_overload() {
        let mut rig = Rig::new();
        for _ in 0..50 {
            rig.rate.note_wait(LaneQueue::Register, Duration::from_millis(25));
            rig.pass(1, 700, 700, 1);
        }
        assert!(rig.per_s() >= 1_300 && rig.rate.told().queue.is_none(), "{:?}", rig.rate.told());
    }

    #[test]
    fn a_lane_that_is_quiet_is_told_again_every_800_ms() {
        let mut rig = Rig::new();
        rig.pass(10, 100, 100, 0);
        assert_eq!(rig.told.len(), 10, "told every time while anything is opened");
        rig.pass(10, 0, 0, 0);
        rig.told.clear();
        // It wakes for nothing else.
        rig.now += PERIOD * 3 / 2;
        rig.told.extend(rig.rate.poll_word(0, rig.now));
        rig.told.clear();
        let began = rig.now;
        for _ in 0..5 {
            let wake = rig.rate.wake_at().unwrap();
            assert!(wake > rig.now, "it never wakes at once");
            rig.now = wake;
            rig.told.extend(rig.rate.poll_word(0, rig.now));
        }
        assert_eq!(rig.told.len(), 5, "a word each time");
        let took = rig.now.duration_since(began);
        assert!(took <= 5 * QUIET_PERIOD && took > 3 * QUIET_PERIOD, "{took:?}");
    }

    #[test]
    fn long_negotiations_that_have_not_ended_yet_are_no_sign_that_nothing_is_possible() {
        let mut rig = Rig::new();
        rig.pass(15, 600, 0, 1);
        let before = rig.per_s();
        rig.pass(1, 600, 0, 15);
        rig.pass(20, 600, 0, 1);
        assert!(rig.per_s() > before / 2, "{} of {before}", rig.per_s());
    }

    #[test]
    fn a_pause_at_night_is_forgotten() {
        let mut rig = Rig::new();
        rig.pass(20, 5, 5, 1);
        rig.pass(6, 5, 5, 60);
        rig.pass(700, 5, 5, 1);
        rig.pass(12, 600, 600, 1);
        assert!(rig.per_s() >= 600, "{}", rig.per_s());
    }

    #[test]
    fn a_queue_that_stands_for_minutes_is_not_what_the_queue_takes() {
        let mut rig = Rig::new();
        rig.pass(20, 600, 600, 1);
        rig.pass(900, 600, 300, 900);
        assert!(rig.rate.told().queue.is_some() && rig.per_s() < 300, "{:?}", rig.rate.told());
    }

    #[test]
    fn gateways_count_while_they_append() {
        let mut rig = Rig::new();
        rig.rate.handle_opened("gateway-2", 1, rig.now);
        rig.pass(1, 100, 100, 0);
        assert_eq!(rig.rate.told().gateways, 2);
        rig.pass(30, 100, 100, 0);
        assert_eq!(rig.rate.told().gateways, 1);
        for number in 0..2 * GATEWAYS_MAX {
            rig.rate.handle_opened(&format!("gateway-{number}"), 1, rig.now);
        }
        assert_eq!(rig.rate.gateways.len(), GATEWAYS_MAX);
    }
}
