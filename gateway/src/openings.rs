//! Which opening acts are taken in: no more than the exchange can bring to their ends, and of each caller no more than its share.
//!
//! The owner of each lane says how many openings a second it can take ([`schemas::admission`]). A gateway takes its part of them
//! by a token bucket. Its lower half is for callers that have opened less than others: a caller needs the more tokens to be
//! there the more it has opened lately, so whoever calls little finds one while others flood, and those who flood come to
//! equal shares. Words that come later than they did say that this gateway, or the bus before it, does not keep up; then it
//! takes a smaller part. Where a lane's owner is silent, its last rate holds for a while, and then nothing is taken in.
//!
//! An act that is refused is told when to come back: when those of its caller that were refused before it have had their turn.
//! Reads no clock; bounds are named below.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use ahash::HashMap;
use parking_lot::Mutex;
use schemas::admission::{LaneAdmission, LaneQueue, RATE_FIRST};
use schemas::{AgentId, Lane};
use tokio::time::Instant;

/// Words are looked at together for so long.
const PERIOD: Duration = Duration::from_millis(100);
/// The delay of words above which this gateway does not keep up.
const TARGET: Duration = Duration::from_millis(20);
/// The delay of a word when nothing is asked for is the least of so long, at least.
const BASE_PERIOD: Duration = Duration::from_secs(30);
/// Periods in which words must be late, and no less than before: one makes a hiccup of the machine.
const STANDS_FOR: u32 = 2;
/// What is left of the gateway's part after a period in which words are late, and by how much it rises in any other.
const SHARE_FALL: f64 = 0.85;
const SHARE_RISE: f64 = 1.05;
/// The least part: what is refused costs as well, and taking less in would not mend that.
const SHARE_MIN: f64 = 0.3;
/// For so long behind a refusal acts are judged before they are read whole.
const REFUSING: Duration = Duration::from_secs(2);
/// A bucket holds what comes in so many seconds, and at least [`DEPTH_MIN`]: enough for the arrivals of one period in which
/// the rate is not known yet, little beside what a lane does in a second.
const DEPTH_S: f64 = 0.2;
/// See [`DEPTH_S`].
const DEPTH_MIN: f64 = 150.0;
/// A word that is so late is of another clock.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// The part of a bucket that is for callers that have opened less than others.
const RESERVED: f64 = 0.5;
/// What a caller has opened counts half after so long: about what it has under way.
const HALF_LIFE_S: f64 = 1.0;
/// Callers whose openings are known; of further ones nothing is known, so they count as calling as much as the mean.
const CALLERS_MAX: usize = 16_384;
/// A caller is forgotten below so many openings, which is looked for once in [`SWEEP_PERIOD`].
const FORGOTTEN: f64 = 0.01;
/// See [`FORGOTTEN`].
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// Longest and shortest that an act is asked to wait, before that is spread: the SDKs wait ten seconds at most.
const RETRY_MAX: Duration = Duration::from_secs(8);
const RETRY_MIN: Duration = Duration::from_millis(50);
/// The same where a lane is silent: an engine takes it over within about a second.
const SILENCE_RETRY: Duration = Duration::from_secs(1);
/// What the time to come back varies by, so that those refused together do not come back together.
const SPREAD: f64 = 0.5;

/// Why an opening act is not taken in, and when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Declined {
    /// The queue that stands; absent where the lane is silent, or none stands and the rate is being found.
    pub(crate) queue: Option<LaneQueue>,
    /// No owner of the lane is heard.
    pub(crate) is_silent: bool,
    /// When to come back.
    pub(crate) retry_after: Duration,
}

/// The openings of a gateway.
pub(crate) struct Openings(Mutex<OpeningState>);

struct OpeningState {
    /// A rate holds for so long without a further word; absent where it holds for ever.
    silence_max: Option<Duration>,
    lanes: HashMap<Lane, LaneBudget>,
    /// Since when lanes are listened to.
    began: Instant,
    callers: HashMap<AgentId, CallerShare>,
    swept_at: Instant,
    /// Callers to whom something was refused that has not had its turn, at the last sweep.
    waiting: usize,
    /// Openings of all callers as of `decayed_at`.
    opened: f64,
    decayed_at: Instant,
    refused: u64,
    /// When something was refused last, and whether because its lane was silent.
    refused_at: Option<(Instant, bool)>,
    path: PathDelay,
}

/// How late words come.
#[derive(Debug)]
struct PathDelay {
    /// Of this period: their sum and number.
    sum: Duration,
    number: u32,
    began: Instant,
    /// The mean of the last one.
    mean: Duration,
    standing: u32,
    /// The part of the rate that this gateway takes.
    share: f64,
}

impl PathDelay {
    fn new(now: Instant) -> Self {
        Self { sum: Duration::ZERO, number: 0, began: now, mean: Duration::ZERO, standing: 0, share: 1.0 }
    }

    fn note(&mut self, delay: Duration, now: Instant) {
        self.sum += delay;
        self.number += 1;
        if now.saturating_duration_since(self.began) < PERIOD {
            return;
        }
        self.began = now;
        let mean = std::mem::take(&mut self.sum) / std::mem::take(&mut self.number).max(1);
        let before = std::mem::replace(&mut self.mean, mean);
        if mean <= TARGET {
            (self.standing, self.share) = (0, (SHARE_RISE * self.share).min(1.0));
            return;
        }
        self.standing = if mean < before { 0 } else { self.standing + 1 };
        if self.standing >= STANDS_FOR {
            self.share = (SHARE_FALL * self.share).max(SHARE_MIN);
        }
    }
}

#[derive(Debug)]
struct LaneBudget {
    word: LaneAdmission,
    /// The least that an arrival by this gateway's clock was behind the sending by the owner's, in microseconds, in this time
    /// and the one before, and since when.
    least: [Option<i64>; 2],
    least_since: Instant,
    heard_at: Instant,
    tokens: f64,
    filled_at: Instant,
}

#[derive(Debug)]
struct CallerShare {
    /// What it has opened, as of `at`.
    opened: f64,
    at: Instant,
    /// When what was refused to it has had its turn.
    turn: Instant,
}

impl LaneBudget {
    /// Of a lane of which no word has come yet: owners speak every 800 ms where nothing is asked of them, and by then a flood would
    /// have filled the log.
    fn unheard(began: Instant, now: Instant) -> Self {
        let word = LaneAdmission { rate_per_s: RATE_FIRST, gateways: 1, wait_ms: 0, epoch: 0, sent_us: 0, queue: None };
        Self { word, least: [None, None], least_since: now, heard_at: began, tokens: DEPTH_MIN, filled_at: now }
    }

    fn per_s(&self) -> f64 {
        f64::from(self.word.rate_per_s) / f64::from(self.word.gateways.max(1))
    }

    /// How much later a word that arrives at `arrived_us` came than the quickest lately.
    fn delay(&mut self, word: &LaneAdmission, arrived_us: i64, now: Instant) -> Duration {
        let behind = arrived_us.saturating_sub_unsigned(word.sent_us);
        let is_of_another_clock = self.least[0]
            .is_some_and(|least| Duration::from_micros(behind.saturating_sub(least).unsigned_abs()) > DELAY_MAX);
        if word.epoch != self.word.epoch || is_of_another_clock {
            (self.least, self.least_since) = ([None, None], now);
        } else if now.saturating_duration_since(self.least_since) > BASE_PERIOD {
            (self.least, self.least_since) = ([None, self.least[0]], now);
        }
        let least = self.least[0].map_or(behind, |least| least.min(behind));
        self.least[0] = Some(least);
        let base = self.least[1].map_or(least, |before| before.min(least));
        Duration::from_micros(behind.saturating_sub(base).unsigned_abs())
    }

    fn depth(&self) -> f64 {
        (DEPTH_S * self.per_s()).max(DEPTH_MIN)
    }

    /// Lets tokens come in at this part of the rate.
    fn fill(&mut self, share: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * share * self.per_s()).min(self.depth());
        self.filled_at = now;
    }
}

/// What is left after so long of what counts half after a half-life.
fn decay(passed: Duration) -> f64 {
    (-passed.as_secs_f64() / HALF_LIFE_S).exp2()
}

impl Openings {
    /// Knows no lane yet. A lane of which nothing is heard for so many milliseconds takes nothing in; 0: for ever.
    pub(crate) fn new(silence_ms_max: u64, now: Instant) -> Self {
        Self(Mutex::new(OpeningState {
            silence_max: (silence_ms_max > 0).then(|| Duration::from_millis(silence_ms_max)),
            lanes: HashMap::default(),
            began: now,
            callers: HashMap::default(),
            swept_at: now,
            waiting: 0,
            opened: 0.0,
            decayed_at: now,
            refused: 0,
            refused_at: None,
            path: PathDelay::new(now),
        }))
    }

    /// The owner of a lane says how much it may be asked to open.
    pub(crate) fn handle_word(&self, lane: Lane, word: LaneAdmission, now: Instant) {
        let mut state = self.0.lock();
        let OpeningState { lanes, began, path, .. } = &mut *state;
        let budget = lanes.entry(lane).or_insert_with(|| LaneBudget {
            word,
            heard_at: now,
            tokens: f64::INFINITY,
            ..LaneBudget::unheard(*began, now)
        });
        // An owner that was outbid and wakes up says nothing of the lane, as long as its successor is heard.
        if word.epoch < budget.word.epoch && now.saturating_duration_since(budget.heard_at) <= REFUSING {
            return;
        }
        let arrived_us = i64::try_from(now.saturating_duration_since(*began).as_micros()).unwrap_or(i64::MAX);
        path.note(budget.delay(&word, arrived_us, now), now);
        budget.fill(path.share, now);
        (budget.word, budget.heard_at) = (word, now);
    }

    /// Whether anything was refused in the last moments: then acts are judged before they are read whole.
    pub(crate) fn is_refusing(&self, now: Instant) -> bool {
        self.0.lock().refused_at.is_some_and(|(at, _)| now.saturating_duration_since(at) < REFUSING)
    }

    /// Takes an opening act of a caller in, if there is room for it.
    ///
    /// # Errors
    /// [`Declined`]: nothing was taken.
    pub(crate) fn take(&self, caller: &AgentId, lane: Lane, now: Instant) -> Result<(), Declined> {
        let mut state = self.0.lock();
        let outcome = state.take(caller, lane, now);
        if let Err(declined) = outcome {
            state.refused += 1;
            state.refused_at = Some((now, declined.is_silent));
        }
        outcome
    }

    /// An opening act that was taken has opened nothing: its place is another's.
    pub(crate) fn give_back(&self, caller: &AgentId, lane: Lane, now: Instant) {
        let mut state = self.0.lock();
        if let Some(budget) = state.lanes.get_mut(&lane) {
            budget.tokens += 1.0;
        }
        let opened = state.opened_by(caller, now);
        if let Some(known) = state.callers.get_mut(caller) {
            (known.opened, known.at) = ((opened - 1.0).max(0.0), now);
            state.opened = (state.opened - 1.0).max(0.0);
        }
    }

    /// Why openings of so many lanes are refused, each with its remedy.
    pub(crate) fn faults(&self, lanes: u8, now: Instant) -> Vec<String> {
        let state = self.0.lock();
        let (silent, heard): (Vec<_>, Vec<_>) = (0..lanes).map(Lane).partition(|lane| state.is_silent(*lane, now));
        let unowned = (!silent.is_empty()).then(|| {
            let lanes = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!("no owner is heard of lanes {lanes}: start an engine, or see why none owns them (its /readyz)")
        });
        let is_overloaded =
            state.refused_at.is_some_and(|(at, is_silent)| !is_silent && now.saturating_duration_since(at) < REFUSING);
        unowned.into_iter().chain(is_overloaded.then(|| state.overload(&heard))).collect()
    }
}

impl OpeningState {
    fn take(&mut self, caller: &AgentId, lane: Lane, now: Instant) -> Result<(), Declined> {
        self.opened *= decay(now.saturating_duration_since(self.decayed_at));
        self.decayed_at = now;
        if self.is_silent(lane, now) {
            let retry_after = self.spread(caller, SILENCE_RETRY);
            return Err(Declined { queue: None, is_silent: true, retry_after });
        }
        self.sweep(now);
        let is_unknown = self.callers.len() >= CALLERS_MAX && !self.callers.contains_key(caller);
        let (opened, mean) = (self.opened_by(caller, now), self.opened / self.callers.len().max(1) as f64);
        if self.silence_max.is_none() && !self.lanes.contains_key(&lane) {
            return Ok(());
        }
        let budget = self.lanes.entry(lane).or_insert_with(|| LaneBudget::unheard(self.began, now));
        budget.fill(self.path.share, now);
        let part = if is_unknown { 0.5 } else { opened / (opened + mean).max(f64::MIN_POSITIVE) };
        let needed = 1.0 + RESERVED * budget.depth() * part;
        if budget.tokens >= needed {
            budget.tokens -= 1.0;
            self.note_opened(caller, now);
            return Ok(());
        }
        let queue = budget.word.queue;
        Err(Declined { queue, is_silent: false, retry_after: self.turn_of(caller, now) })
    }

    /// Says of these lanes which queue is the longest, and how many openings they take.
    fn overload(&self, lanes: &[Lane]) -> String {
        let words = || lanes.iter().filter_map(|lane| Some((lane, self.lanes.get(lane)?.word)));
        let standing = words().filter_map(|(lane, word)| Some((word.wait_ms, lane, word.queue?))).max();
        let queue = standing.map_or_else(String::new, |(wait_ms, lane, queue)| match queue {
            LaneQueue::Records => format!("records of lane {lane} wait {wait_ms} ms, "),
            LaneQueue::Register => format!("the register of lane {lane} waits {wait_ms} ms, "),
        });
        let per_s: u64 = words().map(|(_, word)| u64::from(word.rate_per_s)).sum();
        format!("overloaded: {queue}{per_s} openings/s, the others are refused (docs/operations.md#overload)")
    }

    fn is_silent(&self, lane: Lane, now: Instant) -> bool {
        let heard_at = self.lanes.get(&lane).map_or(self.began, |budget| budget.heard_at);
        self.silence_max.is_some_and(|longest| now.saturating_duration_since(heard_at) > longest)
    }

    /// What a caller has opened lately.
    fn opened_by(&self, caller: &AgentId, now: Instant) -> f64 {
        let known = self.callers.get(caller);
        known.map_or(0.0, |known| known.opened * decay(now.saturating_duration_since(known.at)))
    }

    fn note_opened(&mut self, caller: &AgentId, now: Instant) {
        let before = self.opened_by(caller, now);
        if let Some(known) = self.known(caller, now) {
            (known.opened, known.at) = (before + 1.0, now);
            self.opened += 1.0;
        }
    }

    /// When an act of a caller that is refused now has its turn: the caller's share of all lanes serves those that were refused
    /// to it before.
    fn turn_of(&mut self, caller: &AgentId, now: Instant) -> Duration {
        let all_per_s: f64 = self.lanes.values().map(LaneBudget::per_s).sum();
        let gap = self.waiting.max(1) as f64 / (self.path.share * all_per_s).max(1.0);
        let wait = self.known(caller, now).map_or(RETRY_MAX, |known| {
            known.turn = (known.turn.max(now) + Duration::from_secs_f64(gap)).min(now + RETRY_MAX);
            known.turn.saturating_duration_since(now)
        });
        self.spread(caller, wait).max(RETRY_MIN)
    }

    /// A time that differs from refusal to refusal: the same history gives the same.
    fn spread(&self, caller: &AgentId, wait: Duration) -> Duration {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((caller, self.refused));
        let part = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        wait.mul_f64(1.0 + SPREAD * (part - 0.5))
    }

    /// Forgets who has opened nothing for long and is not about to come back.
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept_at) >= SWEEP_PERIOD {
            self.swept_at = now;
            self.waiting = self.callers.values().filter(|known| known.turn > now).count();
            self.callers.retain(|_, known| {
                known.turn > now || known.opened * decay(now.saturating_duration_since(known.at)) > FORGOTTEN
            });
        }
    }

    /// What is known of a caller; nothing where too many are known.
    fn known(&mut self, caller: &AgentId, now: Instant) -> Option<&mut CallerShare> {
        if !self.callers.contains_key(caller) {
            if self.callers.len() >= CALLERS_MAX {
                return None;
            }
            self.callers.insert(caller.clone(), CallerShare { opened: 0.0, at: now, turn: now });
        }
        self.callers.get_mut(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane(0);

    /// A gateway that hears so many openings a second of one lane, in words of one owner, every 100 ms.
    struct Rig {
        openings: Openings,
        began: Instant,
        now: Instant,
        rate_per_s: u32,
        gateways: u32,
        delay: Duration,
    }

    impl Rig {
        fn new(rate_per_s: u32) -> Self {
            let now = Instant::now();
            let openings = Openings::new(2_000, now);
            let rig = Self { openings, began: now, now, rate_per_s, gateways: 1, delay: Duration::ZERO };
            rig.speak();
            rig
        }

        fn speak(&self) {
            let sent = self.now.duration_since(self.began);
            let sent_us = u64::try_from(sent.as_micros()).unwrap();
            let Self { rate_per_s, gateways, .. } = *self;
            let word = LaneAdmission { rate_per_s, gateways, wait_ms: 0, epoch: 1, sent_us, queue: None };
            self.openings.handle_word(LANE, word, self.now + self.delay);
        }

        /// So many seconds in which each caller makes so many calls a second, evenly: how many of each are taken in.
        fn pass(&mut self, seconds: u32, calls_per_s: &[u32]) -> Vec<u32> {
            let callers: Vec<AgentId> = (0..calls_per_s.len()).map(agent).collect();
            let mut taken = vec![0; callers.len()];
            for ms in 0..seconds * 1000 {
                if ms % 100 == 0 {
                    self.speak();
                }
                self.now += Duration::from_millis(1);
                for (caller, calls_per_s) in calls_per_s.iter().enumerate() {
                    let due = |ms: u32| u64::from(ms) * u64::from(*calls_per_s) / 1000;
                    for _ in due(ms)..due(ms + 1) {
                        taken[caller] +=
                            u32::from(self.openings.take(&callers[caller], LANE, self.now + self.delay).is_ok());
                    }
                }
            }
            taken
        }
    }

    fn agent(number: usize) -> AgentId {
        AgentId::try_new(&format!("caller-{number}")).unwrap()
    }

    #[test]
    fn openings_are_taken_at_the_rate_of_the_lane() {
        let mut rig = Rig::new(500);
        assert_eq!(rig.pass(3, &[400]), [1_200], "nothing is refused below it");
        let taken = rig.pass(10, &[5_000])[0];
        assert!((4_900..=5_200).contains(&taken), "{taken}");
    }

    #[test]
    fn a_burst_of_one_agent_is_taken_beside_many_that_call_once() {
        let mut rig = Rig::new(250);
        for number in 10..60 {
            rig.openings.take(&agent(number), LANE, rig.now).unwrap();
            rig.now += Duration::from_millis(50);
            rig.speak();
        }
        let taken = (0..50).filter(|_| rig.openings.take(&agent(0), LANE, rig.now).is_ok()).count();
        assert_eq!(taken, 50);
    }

    #[test]
    fn what_opened_nothing_takes_no_place() {
        let mut rig = Rig::new(500);
        for _ in 0..10_000 {
            rig.openings.take(&agent(0), LANE, rig.now).unwrap();
            rig.openings.give_back(&agent(0), LANE, rig.now);
        }
        assert_eq!(rig.pass(1, &[100]), [100]);
    }

    #[test]
    fn an_owner_that_was_outbid_and_a_clock_that_jumps_change_nothing() {
        let mut rig = Rig::new(500);
        let word = |epoch, rate_per_s, sent_us| LaneAdmission {
            rate_per_s,
            gateways: 1,
            wait_ms: 0,
            epoch,
            sent_us,
            queue: None,
        };
        rig.openings.handle_word(LANE, word(0, 1, 0), rig.now);
        rig.openings.handle_word(LANE, word(1, 500, u64::MAX), rig.now);
        let taken = rig.pass(5, &[5_000])[0];
        assert!((2_300..=2_800).contains(&taken), "{taken}");
    }

    #[test]
    fn gateways_have_equal_parts() {
        let mut rig = Rig::new(500);
        rig.gateways = 2;
        let taken = rig.pass(10, &[5_000])[0];
        assert!((2_400..=2_700).contains(&taken), "{taken}");
    }

    #[test]
    fn who_calls_little_is_served_while_others_flood() {
        let mut rig = Rig::new(300);
        rig.pass(3, &[0, 2_000, 2_000]);
        let taken = rig.pass(20, &[5, 2_000, 2_000]);
        assert_eq!(taken[0], 100, "{taken:?}");
    }

    #[test]
    fn callers_that_flood_come_to_equal_shares() {
        let mut rig = Rig::new(400);
        rig.pass(5, &[4_000, 0, 0]);
        rig.pass(5, &[4_000, 1_000, 2_000]);
        let taken = rig.pass(20, &[4_000, 1_000, 2_000]);
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(f64::from(*least) > 0.7 * f64::from(*most), "{taken:?}");
    }

    #[test]
    fn who_repeats_at_once_is_told_to_wait_longer() {
        let mut rig = Rig::new(100);
        rig.pass(3, &[1_000, 1]);
        let refused = |caller| rig.openings.take(&agent(caller), LANE, rig.now).unwrap_err().retry_after;
        let flooding = refused(0);
        assert!(flooding > Duration::from_secs(5) && flooding <= Duration::from_secs(10), "{flooding:?}");
        let first = std::iter::from_fn(|| rig.openings.take(&agent(1), LANE, rig.now).err()).next();
        let first = first.map_or(Duration::ZERO, |declined| declined.retry_after);
        assert!(first < Duration::from_millis(500), "{first:?}");
    }

    #[test]
    fn a_lane_that_is_silent_takes_nothing_in_and_one_that_speaks_again_does() {
        let mut rig = Rig::new(500);
        let take = |rig: &Rig| rig.openings.take(&agent(0), LANE, rig.now);
        rig.now += Duration::from_secs(2);
        assert_eq!(take(&rig), Ok(()), "the last rate holds for two seconds");
        rig.now += Duration::from_millis(1);
        let declined = take(&rig).unwrap_err();
        let about = SILENCE_RETRY.mul_f64(1.0 - SPREAD / 2.0)..=SILENCE_RETRY.mul_f64(1.0 + SPREAD / 2.0);
        assert!(declined.is_silent && about.contains(&declined.retry_after), "{declined:?}");
        assert!(rig.openings.is_refusing(rig.now));
        let silent = |lanes: &str| {
            format!("no owner is heard of lanes {lanes}: start an engine, or see why none owns them (its /readyz)")
        };
        assert_eq!(rig.openings.faults(2, rig.now), [silent("0, 1")]);
        rig.speak();
        assert_eq!(take(&rig), Ok(()));
        assert_eq!(rig.openings.faults(2, rig.now), [silent("1")]);
        let never = Openings::new(0, rig.now);
        assert_eq!(never.take(&agent(0), LANE, rig.now + Duration::from_secs(3600)), Ok(()));
    }

    #[test]
    fn a_lane_of_which_no_word_has_come_yet_takes_what_one_takes_at_first() {
        let now = Instant::now();
        let openings = Openings::new(2_000, now);
        let taken = |of: std::ops::Range<u64>| {
            let at = of.clone().map(|ms| now + Duration::from_millis(ms));
            at.flat_map(|at| (0..100).map(move |caller| (caller, at)))
                .filter(|(caller, at)| openings.take(&agent(*caller), LANE, *at).is_ok())
                .count()
        };
        let at_once = taken(0..1);
        assert!((50..=200).contains(&at_once), "{at_once}");
        let of_a_second = at_once + taken(1..1_000);
        assert!((300..=450).contains(&of_a_second), "{of_a_second}");
        // It is silent all the same: nobody has spoken.
        assert!(openings.take(&agent(0), LANE, now + Duration::from_millis(2_001)).unwrap_err().is_silent);
    }

    #[test]
    fn calls_beyond_the_rate_are_told_as_overload_with_the_queue_that_stands_until_none_is_refused() {
        let mut rig = Rig::new(500);
        rig.pass(1, &[400]);
        assert_eq!(rig.openings.faults(1, rig.now), [""; 0]);
        rig.pass(2, &[5_000]);
        let told = |queue: &str| {
            format!("overloaded: {queue}500 openings/s, the others are refused (docs/operations.md#overload)")
        };
        assert_eq!(rig.openings.faults(1, rig.now), [told("")]);
        let word = LaneAdmission {
            rate_per_s: 500,
            gateways: 1,
            wait_ms: 31,
            epoch: 1,
            sent_us: 3_000_000,
            queue: Some(LaneQueue::Register),
        };
        rig.openings.handle_word(LANE, word, rig.now);
        assert_eq!(rig.openings.faults(1, rig.now), [told("the register of lane 0 waits 31 ms, ")]);
        rig.pass(3, &[400]);
        assert_eq!(rig.openings.faults(1, rig.now), [""; 0]);
    }

    #[test]
    fn late_words_make_a_gateway_take_less() {
        let mut rig = Rig::new(500);
        rig.pass(3, &[5_000]);
        for ms in [30, 40, 50, 60, 70, 80, 90, 100, 110, 120] {
            rig.delay = Duration::from_millis(ms);
            rig.pass(1, &[5_000]);
        }
        let late = rig.pass(1, &[5_000])[0];
        assert!(late < 350, "{late}");
        rig.delay = Duration::ZERO;
        rig.pass(5, &[5_000]);
        let taken = rig.pass(5, &[5_000])[0];
        assert!((2_300..=2_700).contains(&taken), "{taken}");
    }

    #[test]
    fn callers_are_bounded_and_forgotten() {
        let mut rig = Rig::new(1_000_000);
        for number in 0..2 * CALLERS_MAX {
            let _ = rig.openings.take(&agent(number), LANE, rig.now);
        }
        assert_eq!(rig.openings.0.lock().callers.len(), CALLERS_MAX);
        rig.now += Duration::from_secs(60);
        rig.speak();
        rig.openings.take(&agent(0), LANE, rig.now).unwrap();
        assert_eq!(rig.openings.0.lock().callers.len(), 1);
    }
}
