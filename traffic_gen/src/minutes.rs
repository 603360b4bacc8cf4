//! The table of minutes (LLM-X paper, section 4.2): calls, offers, confirms and decision latency per minute.
//!
//! A run may last for months: only the latest minutes keep their histograms, the others a row each.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::time::Duration;

use schemas::Act;

use crate::latency::{Latency, Quantiles};

/// Minutes that are still counted: events of different agents come a little out of order.
const COUNTED_MAX: usize = 3;
/// Rows kept, the oldest go first: a year, some 40 MB.
const ROWS_MAX: usize = 60 * 24 * 366;

#[derive(Debug, Default)]
struct Minute {
    cfps: u64,
    offers: u64,
    confirms: u64,
    /// Absent until the first one: a histogram takes some 190 KB.
    decision: Option<Latency>,
}

#[derive(Debug)]
struct MinuteRow {
    number: u64,
    cfps: u64,
    offers: u64,
    confirms: u64,
    decision: Quantiles,
}

/// Counts per minute since the start of the run.
#[derive(Debug, Default)]
pub struct Minutes {
    rows: VecDeque<MinuteRow>,
    counted: BTreeMap<u64, Minute>,
}

impl Minutes {
    fn at(&mut self, since_start: Duration) -> &mut Minute {
        // What comes later than its minute was counted counts in the next one that is.
        let next = self.rows.back().map_or(0, |row| row.number + 1);
        let number = (since_start.as_secs() / 60).max(next);
        if !self.counted.contains_key(&number) && self.counted.len() >= COUNTED_MAX {
            if let Some((number, minute)) = self.counted.pop_first() {
                self.rows.push_back(MinuteRow::new(number, &minute));
            }
            if self.rows.len() > ROWS_MAX {
                self.rows.pop_front();
            }
        }
        let next = self.rows.back().map_or(0, |row| row.number + 1);
        self.counted.entry(number.max(next)).or_default()
    }

    /// A message was admitted.
    pub fn admitted(&mut self, since_start: Duration, act: Act) {
        let minute = self.at(since_start);
        minute.cfps += u64::from(act == Act::Cfp);
        minute.offers += u64::from(act == Act::Offer);
    }

    /// An award became binding.
    pub fn confirmed(&mut self, since_start: Duration) {
        self.at(since_start).confirms += 1;
    }

    /// A decision became known.
    pub fn decided(&mut self, since_start: Duration, latency: Duration) {
        self.at(since_start).decision.get_or_insert_default().record(latency);
    }

    /// Writes the table as CSV with a header.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "minute,cfps,offers,decisions,confirms,decision_ms_p50,decision_ms_p95")?;
        for row in &self.rows {
            row.write(out)?;
        }
        for (number, minute) in &self.counted {
            MinuteRow::new(*number, minute).write(out)?;
        }
        Ok(())
    }
}

impl MinuteRow {
    fn new(number: u64, minute: &Minute) -> Self {
        let Minute { cfps, offers, confirms, ref decision } = *minute;
        let decision = decision.as_ref().map(Latency::quantiles).unwrap_or_default();
        Self { number, cfps, offers, confirms, decision }
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { number, cfps, offers, confirms, decision } = self;
        let Quantiles { p50, p95, count, .. } = decision;
        writeln!(out, "{number},{cfps},{offers},{count},{confirms},{p50:.3},{p95:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_in_their_minute() {
        let mut minutes = Minutes::default();
        minutes.admitted(Duration::from_secs(3), Act::Cfp);
        minutes.admitted(Duration::from_secs(4), Act::Offer);
        minutes.admitted(Duration::from_secs(61), Act::Offer);
        minutes.decided(Duration::from_secs(61), Duration::from_millis(2));
        let table = table(&minutes);
        assert_eq!(table.lines().nth(1), Some("0,1,1,0,0,0.000,0.000"));
        assert!(table.lines().nth(2).unwrap().starts_with("1,0,1,1,0,2.0"), "{table}");
    }

    #[test]
    fn a_run_of_years_keeps_a_year_of_rows_and_few_histograms() {
        let mut minutes = Minutes::default();
        for minute in 0..2 * ROWS_MAX as u64 {
            minutes.confirmed(Duration::from_secs(60 * minute));
            assert!(minutes.counted.len() <= COUNTED_MAX && minutes.rows.len() <= ROWS_MAX);
        }
        // What comes late is counted, and no minute appears twice.
        minutes.confirmed(Duration::ZERO);
        let table = table(&minutes);
        let numbers: Vec<u64> =
            table.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
        assert_eq!(numbers.len(), ROWS_MAX + COUNTED_MAX);
        let confirms: u64 =
            table.lines().skip(1).map(|line| line.split(',').nth(4).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(confirms, numbers.len() as u64 + 1);
    }

    fn table(minutes: &Minutes) -> String {
        let mut out = Vec::new();
        minutes.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}
