//! How far a lane's log may be trimmed (docs/spec/log.md#lg-33).

use crate::config::Trim;

/// Fewest sequences worth a trim: each costs the bus a request, and its store a rewrite.
pub(crate) const TRIM_STEP: u64 = 1024;

/// The trims of one lane.
#[derive(Debug)]
pub(crate) struct Retention {
    trim: Trim,
    step: u64,
    below_seq: u64,
}

impl Retention {
    /// `step`: fewest sequences worth a trim, [`TRIM_STEP`] or less; `trimmed`: what the log says is gone.
    pub(crate) fn new(trim: Trim, step: u64, trimmed: u64) -> Self {
        Self { trim, step: step.max(1), below_seq: trimmed.saturating_add(1) }
    }

    /// The sequence below which records may go now, if that is worth it. Both positions must have been read back from
    /// where they are durable. The records they name stay: they prove that checkpoint and archive are of this log.
    pub(crate) fn poll_trim(&self, checkpoint: Option<u64>, archived: Option<u64>) -> Option<u64> {
        let below_seq = match self.trim {
            Trim::Never => return None,
            Trim::AfterCheckpoint => checkpoint?,
            Trim::AfterArchive => checkpoint?.min(archived?),
        };
        below_seq.checked_sub(self.below_seq).filter(|gone| *gone >= self.step).map(|_| below_seq)
    }

    /// The log has trimmed.
    pub(crate) fn handle_trimmed(&mut self, below_seq: u64) {
        self.below_seq = self.below_seq.max(below_seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_trimmed_below_the_lower_of_what_must_be_durable() {
        use Trim::{AfterArchive, AfterCheckpoint, Never};
        for (trim, checkpoint, archived, expected) in [
            (Never, Some(9_000), Some(9_000), None),
            (AfterCheckpoint, Some(9_000), None, Some(9_000)),
            (AfterCheckpoint, Some(9_000), Some(5_000), Some(9_000)),
            (AfterCheckpoint, None, Some(9_000), None),
            (AfterArchive, Some(9_000), None, None),
            (AfterArchive, None, Some(9_000), None),
            (AfterArchive, Some(9_000), Some(5_000), Some(5_000)),
            (AfterArchive, Some(5_000), Some(9_000), Some(5_000)),
        ] {
            let retention = Retention::new(trim, TRIM_STEP, 0);
            assert_eq!(retention.poll_trim(checkpoint, archived), expected, "{trim:?} {checkpoint:?} {archived:?}");
        }
    }

    #[test]
    fn a_trim_waits_until_it_is_worth_it_and_never_goes_back() {
        let mut retention = Retention::new(Trim::AfterCheckpoint, 100, 50);
        let due = |retention: &Retention, at| retention.poll_trim(Some(at), None);
        assert_eq!(due(&retention, 150), None, "51 to 149 are 99 records");
        assert_eq!(due(&retention, 151), Some(151));
        assert_eq!(due(&retention, 151), Some(151), "again, until the log has done it");
        retention.handle_trimmed(151);
        retention.handle_trimmed(20);
        assert_eq!((due(&retention, 151), due(&retention, 250), due(&retention, 251)), (None, None, Some(251)));
        assert_eq!(due(&Retention::new(Trim::AfterCheckpoint, 0, u64::MAX), u64::MAX), None);
    }
}
