//! Negotiations that must be stopped, until the log says so.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::NegotiationId;
use tokio::time::Instant;

use super::AbortCode;

/// Most negotiations that wait for their abort. More means that the register or the fold is broken as a whole.
pub(crate) const ABORTS_MAX: usize = 4096;
/// Gap after an abort that could not be appended.
const REFUSED_GAP: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Aborts {
    wanted: BTreeMap<NegotiationId, WantedAbort>,
    not_before: Instant,
}

#[derive(Debug)]
struct WantedAbort {
    code: AbortCode,
    is_outstanding: bool,
}

impl Aborts {
    pub(crate) fn new(now: Instant) -> Self {
        Self { wanted: BTreeMap::new(), not_before: now }
    }

    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(crate) fn want(&mut self, negotiation: NegotiationId, code: AbortCode) {
        self.wanted.entry(negotiation).or_insert(WantedAbort { code, is_outstanding: false });
    }

    /// The log holds the abort.
    pub(crate) fn handle_logged(&mut self, negotiation: &NegotiationId) {
        self.wanted.remove(negotiation);
    }

    /// The next abort to append.
    pub(crate) fn poll_abort(&mut self, now: Instant) -> Option<(NegotiationId, AbortCode)> {
        if now < self.not_before {
            return None;
        }
        let (negotiation, wanted) = self.wanted.iter_mut().find(|(_, wanted)| !wanted.is_outstanding)?;
        wanted.is_outstanding = true;
        Some((negotiation.clone(), wanted.code))
    }

    /// The append was answered; once appended it is outstanding until it is folded.
    pub(crate) fn handle_append(&mut self, negotiation: &NegotiationId, is_appended: bool, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(negotiation).filter(|_| !is_appended) {
            wanted.is_outstanding = false;
            self.not_before = now + REFUSED_GAP;
        }
    }

    /// The negotiations whose abort is not in the log, in order: for a checkpoint.
    pub(crate) fn wanted(&self) -> Vec<(NegotiationId, AbortCode)> {
        self.wanted.iter().map(|(negotiation, wanted)| (negotiation.clone(), wanted.code)).collect()
    }

    /// The lane is owned anew: what was appended under an earlier epoch may have been ignored.
    pub(crate) fn handle_takeover(&mut self, now: Instant) {
        self.not_before = now;
        self.wanted.values_mut().for_each(|wanted| wanted.is_outstanding = false);
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.wanted.values().any(|wanted| !wanted.is_outstanding).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_is_appended_once_and_again_only_when_that_failed() {
        let now = Instant::now();
        let mut aborts = Aborts::new(now);
        let negotiation = NegotiationId::try_new("alice~job").unwrap();
        aborts.want(negotiation.clone(), AbortCode::RegisterConflict);
        aborts.want(negotiation.clone(), AbortCode::Internal);
        let expected = Some((negotiation.clone(), AbortCode::RegisterConflict));
        assert_eq!(aborts.poll_abort(now), expected);
        assert_eq!((aborts.poll_abort(now), aborts.wake_at()), (None, None));
        aborts.handle_append(&negotiation, false, now);
        assert_eq!((aborts.poll_abort(now), aborts.wake_at()), (None, Some(now + REFUSED_GAP)));
        assert_eq!(aborts.poll_abort(now + REFUSED_GAP), expected);
        aborts.handle_append(&negotiation, true, now);
        assert_eq!(aborts.wake_at(), None);
        aborts.handle_logged(&negotiation);
        assert_eq!(aborts.len(), 0);
    }
}
