//! The shape of a load: when calls are due.
//!
//! Open loads are sequences of absolute times from a seed. A closed load ([`Load::Closed`]) has none: each call waits for
//! the end of another, so a slow exchange is asked less. Its latencies hide what its callers waited.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Exp};
use serde::{Deserialize, Serialize};

use super::{PoissonArrivals, RATE_MAX, RateError};

/// Most calls of a burst, and most open at once in a closed load.
const CALLS_MAX: u32 = 100_000;
/// Most calls of a trace that is replayed: 80 MB of times.
const TRACE_CALLS_MAX: usize = 10_000_000;
/// How far a diurnal load swings unless said otherwise.
const SWING_DEFAULT: f64 = 0.8;
/// What a load may be.
const EXPECTED: &str = "give poisson, uniform, burst:CALLS, ramp:TO_RATE, diurnal:PERIOD_S[:SWING], \
                        closed:CALLS[:THINK_S] or replay:FILE";

/// When calls are due. Written as `kind` or `kind:number`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Load {
    /// Independently of each other, at the rate.
    #[default]
    Poisson,
    /// At equal distances.
    Uniform,
    /// So many at once, at equal distances that keep the rate.
    Burst(u32),
    /// Poisson, from the rate to this one at the end.
    Ramp(f64),
    /// Poisson, around the rate as a sine.
    Diurnal {
        /// Length of a day, in seconds.
        period_s: f64,
        /// Greatest deviation, as a share of the rate: 0 to 1.
        swing: f64,
    },
    /// So many callers, each of which calls again after its call has ended. The rate has no part in it.
    Closed {
        /// Calls open at once.
        calls: u32,
        /// Between an end and the next call, in seconds.
        think_s: f64,
    },
    /// The times of calls that were made before: `rounds.jsonl` of a cell, or the trace of a run.
    Replay {
        /// The file.
        file: PathBuf,
        /// How many times faster.
        speed: f64,
    },
}

/// A load that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// Its text.
    #[error("`{found}` is no load: {reason}; {EXPECTED}")]
    Text {
        /// What was given.
        found: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The trace it replays.
    #[error("the trace {} cannot be replayed: {reason}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}

/// Absolute offsets from the start of a run, never falling.
pub type Arrivals = Box<dyn Iterator<Item = Duration> + Send>;

impl Load {
    /// The times of an open load, from its seed. A closed load has none.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn arrivals(&self, rate: f64, duration: Duration, seed: u64) -> Result<Arrivals, LoadError> {
        check_rate(rate)?;
        let every = |interval_s: f64, calls: u32| -> Arrivals {
            let times = (0_u64..).map(move |number| offset(number as f64 * interval_s));
            Box::new(times.flat_map(move |time| std::iter::repeat_n(time, calls as usize)))
        };
        let until_s = duration.as_secs_f64();
        Ok(match *self {
            Self::Poisson => Box::new(PoissonArrivals::try_new(rate, seed)?),
            Self::Uniform => every(1.0 / rate, 1),
            Self::Burst(calls) => every(f64::from(calls) / rate, calls),
            Self::Ramp(to) => {
                let slope = (to - rate) / until_s.max(f64::MIN_POSITIVE);
                Box::new(Varying::try_new(rate.max(to), seed, until_s, move |time_s| rate + slope * time_s)?)
            }
            Self::Diurnal { period_s, swing } => {
                let rate_at =
                    move |time_s: f64| rate * (1.0 + swing * (std::f64::consts::TAU * time_s / period_s).sin());
                Box::new(Varying::try_new(rate * (1.0 + swing), seed, until_s, rate_at)?)
            }
            Self::Closed { .. } => Box::new(std::iter::empty()),
            Self::Replay { ref file, speed } => {
                Box::new(times_of(file)?.into_iter().map(move |time| time.div_f64(speed)))
            }
        })
    }

    /// The same shape in a time that passes so many times faster.
    pub fn scaled(self, time_scale: f64) -> Self {
        match self {
            Self::Poisson | Self::Uniform | Self::Burst(_) => self,
            Self::Ramp(to) => Self::Ramp(to * time_scale),
            Self::Diurnal { period_s, swing } => Self::Diurnal { period_s: period_s / time_scale, swing },
            Self::Closed { calls, think_s } => Self::Closed { calls, think_s: think_s / time_scale },
            Self::Replay { file, speed } => Self::Replay { file, speed: speed * time_scale },
        }
    }
}

fn check_rate(rate: f64) -> Result<(), RateError> {
    if rate > 0.0 && rate <= RATE_MAX { Ok(()) } else { Err(RateError { found: rate }) }
}

/// An offset; beyond what a duration holds it is never reached.
fn offset(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Poisson arrivals at a rate that changes: candidates at the highest rate, each kept by the share of it that holds then
/// (thinning).
struct Varying<R> {
    interval_s: Exp<f64>,
    rate_max: f64,
    rate_at: R,
    until_s: f64,
    elapsed_s: f64,
    rng: ChaCha12Rng,
}

impl<R: Fn(f64) -> f64> Varying<R> {
    fn try_new(rate_max: f64, seed: u64, until_s: f64, rate_at: R) -> Result<Self, RateError> {
        check_rate(rate_max)?;
        let interval_s = Exp::new(rate_max).map_err(|_| RateError { found: rate_max })?;
        Ok(Self { interval_s, rate_max, rate_at, until_s, elapsed_s: 0.0, rng: ChaCha12Rng::seed_from_u64(seed) })
    }
}

impl<R: Fn(f64) -> f64> Iterator for Varying<R> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        loop {
            self.elapsed_s += self.interval_s.sample(&mut self.rng);
            if self.elapsed_s >= self.until_s {
                return None;
            }
            if self.rng.random::<f64>() * self.rate_max < (self.rate_at)(self.elapsed_s) {
                return Some(offset(self.elapsed_s));
            }
        }
    }
}

/// One line of what was recorded: a round of a cell, or an event of a trace.
#[derive(Deserialize)]
struct RecordedCall {
    intended_us: Option<u64>,
    #[serde(default)]
    is_warm_up: bool,
    event: Option<String>,
    act: Option<String>,
    attempt: Option<u32>,
    t_us: Option<u64>,
}

impl RecordedCall {
    /// When it was made, in microseconds; absent where the line is of something else.
    fn time_us(&self) -> Option<u64> {
        let is_call = self.event.as_deref() == Some("sent") && self.act.as_deref() == Some("cfp");
        let sent = self.t_us.filter(|_| is_call && self.attempt == Some(1));
        self.intended_us.filter(|_| !self.is_warm_up).or(sent)
    }
}

/// The times of a file's calls, from the first.
fn times_of(path: &Path) -> Result<Vec<Duration>, LoadError> {
    let fault = |reason: String| LoadError::Trace { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut times = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| fault(format!("line {number}: {error}")))?;
        let call: RecordedCall = serde_json::from_str(&line)
            .map_err(|error| fault(format!("line {number} is neither a round nor an event of a trace: {error}")))?;
        times.extend(call.time_us().map(Duration::from_micros));
        if times.len() > TRACE_CALLS_MAX {
            return Err(fault(format!("it has more than {TRACE_CALLS_MAX} calls; cut it into parts")));
        }
    }
    times.sort_unstable();
    let first =
        *times.first().ok_or_else(|| fault("it has no call; give rounds.jsonl or the file of --trace".into()))?;
    times.iter_mut().for_each(|time| *time -= first);
    Ok(times)
}

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let fault = |reason| LoadError::Text { found: text.to_owned(), reason };
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let number = |text: &str, lowest: f64, highest: f64, reason| {
            let number = text.parse::<f64>().ok().filter(|number| (lowest..=highest).contains(number));
            number.ok_or_else(|| fault(reason))
        };
        let calls = |text: &str| {
            let calls = text.parse::<u32>().ok().filter(|calls| (1..=CALLS_MAX).contains(calls));
            calls.ok_or_else(|| fault("calls are a whole number from 1 to 100000"))
        };
        let pair = |rest: Option<&str>| -> Option<(String, Option<String>)> {
            let rest = rest?;
            let (first, second) = rest.split_once(':').map_or((rest, None), |(first, second)| (first, Some(second)));
            Some((first.to_owned(), second.map(str::to_owned)))
        };
        let seconds = "seconds are a number above 0, up to 2592000 (30 days)";
        match (kind, rest) {
            ("poisson", None) => Ok(Self::Poisson),
            ("uniform", None) => Ok(Self::Uniform),
            ("burst", Some(rest)) => Ok(Self::Burst(calls(rest)?)),
            ("ramp", Some(rest)) => {
                Ok(Self::Ramp(number(rest, 0.0, RATE_MAX, "a rate is a number from 0 to 1000000")?))
            }
            ("diurnal", rest @ Some(_)) => {
                let (period, swing) = pair(rest).ok_or_else(|| fault(seconds))?;
                let period_s = number(&period, 0.001, 2_592_000.0, seconds)?;
                let swing =
                    swing.map(|swing| number(&swing, 0.0, 1.0, "a swing is a number from 0 to 1")).transpose()?;
                Ok(Self::Diurnal { period_s, swing: swing.unwrap_or(SWING_DEFAULT) })
            }
            ("closed", rest @ Some(_)) => {
                let (open, think) = pair(rest).ok_or_else(|| fault("calls are missing"))?;
                let think_s = think.map(|think| number(&think, 0.0, 86_400.0, "seconds to think are from 0 to 86400"));
                Ok(Self::Closed { calls: calls(&open)?, think_s: think_s.transpose()?.unwrap_or(0.0) })
            }
            ("replay", Some(file)) if !file.is_empty() => Ok(Self::Replay { file: PathBuf::from(file), speed: 1.0 }),
            ("poisson" | "uniform", Some(_)) => Err(fault("it takes no number")),
            ("burst" | "ramp" | "diurnal" | "closed" | "replay", _) => Err(fault("something is missing behind it")),
            (_, _) => Err(fault("there is no such kind")),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Uniform => f.write_str("uniform"),
            Self::Burst(calls) => write!(f, "burst:{calls}"),
            Self::Ramp(to) => write!(f, "ramp:{to}"),
            Self::Diurnal { period_s, swing } => write!(f, "diurnal:{period_s}:{swing}"),
            Self::Closed { calls, think_s } => write!(f, "closed:{calls}:{think_s}"),
            // How fast is the run's.
            Self::Replay { file, speed: _ } => write!(f, "replay:{}", file.display()),
        }
    }
}

impl TryFrom<String> for Load {
    type Error = LoadError;

    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Load> for String {
    fn from(load: Load) -> Self {
        load.to_string()
    }
}

#[cfg(test)]
mod tests;
