//! Asking the register what it holds for negotiations that ended.

use std::sync::Arc;

use bus::BusError;
use futures_util::{StreamExt, stream};
use schemas::{NegotiationId, RegisterKey};

use super::super::history::Expected;
use super::{ArchiveError, LaneArchiver, Media};

/// Negotiations the register is asked about at a time.
const ASKED_MAX: usize = 2048;
/// Keys asked for at once.
const ASKED_AT_ONCE: usize = 64;
/// Closed negotiations that may wait for their register entries; beyond, the oldest are written without. An hour of ten per
/// second in one lane.
const AWAITING_MAX: usize = 36_000;

impl<M: Media> LaneArchiver<M> {
    /// Asks about every closed negotiation that waits.
    pub(super) async fn ask_all(&mut self) -> Result<(), ArchiveError> {
        self.asked = None;
        loop {
            self.ask_register().await?;
            if self.asked.is_none() {
                return Ok(());
            }
        }
    }

    /// Asks about all of them when too many wait; the oldest of those the register has no answer for then wait no longer.
    pub(super) async fn bound_awaiting(&mut self) -> Result<(), ArchiveError> {
        if self.writer().walk().awaiting.len() > AWAITING_MAX { self.ask_all().await } else { Ok(()) }
    }

    /// Asks the register about closed negotiations, going round among those that wait, and writes down what is complete.
    pub(super) async fn ask_register(&mut self) -> Result<(), ArchiveError> {
        let asked = self.asked.clone();
        let awaiting = &self.writer().walk().awaiting;
        let behind = awaiting.iter().filter(|(id, _)| asked.as_ref().is_none_or(|asked| *id > asked));
        let keys =
            |expected: &Expected| expected.entries.iter().filter_map(|entry| RegisterKey::parse(&entry.key)).collect();
        let chosen: Vec<((u64, NegotiationId), Vec<RegisterKey>)> =
            behind.take(ASKED_MAX).map(|(id, expected)| (id.clone(), keys(expected))).collect();
        let too_many = awaiting.len().saturating_sub(AWAITING_MAX);
        self.asked = chosen.last().filter(|_| chosen.len() == ASKED_MAX).map(|(id, _)| id.clone());
        let register = Arc::clone(&self.bus.register);
        let mut answers = stream::iter(chosen)
            .map(|(id, keys)| {
                let register = Arc::clone(&register);
                async move {
                    let mut values = Vec::with_capacity(keys.len());
                    for key in keys {
                        values.push(register.value(key).await?);
                    }
                    Ok::<_, BusError>((id, values))
                }
            })
            .buffered(ASKED_AT_ONCE);
        let mut given_up = 0;
        while let Some(answer) = answers.next().await {
            let (id, values) = match answer {
                Ok(found) => found,
                Err(error) if self.until.is_some() => return Err(error.into()),
                Err(error) => {
                    self.status.update(self.lane, |lane| lane.fault = Some(error.to_string()));
                    break;
                }
            };
            let is_complete = values.iter().all(Option::is_some);
            given_up += usize::from(!is_complete);
            if is_complete || given_up <= too_many {
                self.writer().handle_registered(&id, &values);
            }
        }
        drop(answers);
        self.commit().await
    }
}
