//! What a lane's owner counts for people who look.

use std::collections::VecDeque;

use policy_core::{Event, Protocol};
use schemas::delivery::{Disposition, Outcome};
use schemas::pulse::{EndedNegotiation, NAMED_MAX};
use schemas::{Act, NegotiationId, Timestamp};

use super::Counted;
use super::minute::Minute;

/// See the module. Survives the loss of the lane.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    started: u64,
    /// In the order of [`Outcome::ALL`].
    ended: [u64; Outcome::ALL.len()],
    awards: u64,
    offers: u64,
    lower_bound: bool,
    minute: Minute,
    /// The newest [`NAMED_MAX`] that ended, oldest first.
    latest: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    negotiation: NegotiationId,
    protocol: Protocol,
    outcome: Outcome,
    awards: u32,
    offers: u32,
    at: Timestamp,
    elapsed_us: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { .. } => self.started += 1,
            Event::Disposed { act: Act::Offer, disposition: Disposition::Ok, .. } => self.offers += 1,
            Event::Committed { .. } => self.awards += 1,
            Event::Ended { negotiation, protocol, outcome, offers, awards, elapsed_us, .. } => {
                self.ended[*outcome as usize] += 1;
                self.awards += u64::from(*outcome == Outcome::Agreement);
                self.minute.add(at, *elapsed_us);
                if self.latest.len() == NAMED_MAX {
                    self.latest.pop_front();
                }
                let (negotiation, protocol, outcome) = (negotiation.clone(), *protocol, *outcome);
                let (awards, offers, elapsed_us) = (*awards, *offers, *elapsed_us);
                self.latest.push_back(Ended { negotiation, protocol, outcome, awards, offers, at, elapsed_us });
            }
            Event::Disposed { .. }
            | Event::Transition { .. }
            | Event::Closed { .. }
            | Event::Decided(_)
            | Event::Excluded { .. }
            | Event::AwardLost { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => {}
        }
    }

    /// Another engine has counted more, and is gone.
    pub(crate) fn note_loss(&mut self) {
        self.lower_bound = true;
    }

    /// Everything counted, and what the minute before `now`, in log time, came to.
    pub(crate) fn counted(&mut self, now: Timestamp) -> Counted {
        Counted {
            started: self.started,
            ended: Outcome::ALL
                .map(Outcome::as_str)
                .into_iter()
                .zip(self.ended)
                .filter(|(_, times)| *times > 0)
                .collect(),
            awards: self.awards,
            offers: self.offers,
            lower_bound: self.lower_bound,
            round: self.minute.counts(now),
            latest: self.latest.iter().rev().map(Ended::told).collect(),
        }
    }
}

impl Ended {
    fn told(&self) -> EndedNegotiation {
        EndedNegotiation {
            negotiation: self.negotiation.clone(),
            protocol: self.protocol.as_str().to_owned(),
            outcome: self.outcome.as_str().to_owned(),
            awards: self.awards,
            offers: self.offers,
            at: self.at,
            elapsed_us: self.elapsed_us,
        }
    }
}
