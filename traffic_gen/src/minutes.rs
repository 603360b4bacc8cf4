//! The table of minutes (LLM-X paper 4.2, claim L15): calls, offers, confirms and decision latency per minute.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use schemas::Act;

use crate::latency::Latency;

#[derive(Debug, Default)]
struct Minute {
    cfps: u64,
    offers: u64,
    confirms: u64,
    decision: Latency,
}

/// Counts per minute since the start of the run.
#[derive(Debug, Default)]
pub struct Minutes {
    by_minute: BTreeMap<u64, Minute>,
}

impl Minutes {
    fn at(&mut self, since_start: Duration) -> &mut Minute {
        self.by_minute.entry(since_start.as_secs() / 60).or_default()
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
        self.at(since_start).decision.record(latency);
    }

    /// Writes the table as CSV with a header.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "minute,cfps,offers,decisions,confirms,decision_ms_p50,decision_ms_p95")?;
        for (number, minute) in &self.by_minute {
            let decision = minute.decision.quantiles();
            writeln!(
                out,
                "{number},{},{},{},{},{:.3},{:.3}",
                minute.cfps, minute.offers, decision.count, minute.confirms, decision.p50, decision.p95
            )?;
        }
        Ok(())
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
        let mut out = Vec::new();
        minutes.write(&mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        assert_eq!(table.lines().nth(1), Some("0,1,1,0,0,0.000,0.000"));
        assert!(table.lines().nth(2).unwrap().starts_with("1,0,1,1,0,2.0"), "{table}");
    }
}
