//! What goes wrong between the exchange and its bus, and what is tried again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// What can go wrong between the exchange and its bus.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// The log has no room; nothing was stored. Free space or raise the limit.
    #[error("the store is full: {0}")]
    Full(String),
    /// The record is larger than the bus takes; nothing was stored.
    #[error("the message has {bytes} bytes, the bus takes {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Nobody listens on the subject.
    #[error("nobody answers on `{0}`")]
    NoResponder(String),
    /// The outcome is unknown: it may or may not have happened. Safe to try again.
    #[error("no answer from the bus: {0}")]
    Unknown(String),
    /// The bus cannot be reached.
    #[error("the bus cannot be reached: {0}")]
    Unreachable(String),
    /// The bus is not what the exchange needs (version, stream settings). The text names each difference and the remedy.
    #[error("the bus does not fit: {0}")]
    Mismatch(String),
    /// It cannot be opened as it is configured: a URL that is none, credentials that cannot be read. Correct them.
    #[error("{0}")]
    Unusable(String),
    /// The log no longer holds what a reader has read from it: acknowledged records were lost, or another log stands in
    /// its place. Whoever folded them must start over.
    #[error("the log has lost what it acknowledged: {0}")]
    Diverged(String),
    /// The records asked for were trimmed: read a checkpoint, or the archive.
    #[error("the log begins behind sequence {0}: the records before it were trimmed")]
    Trimmed(u64),
    /// A key, lane or subject that no bus takes: a fault of the caller, who should have checked it. Nothing happened.
    #[error("not a valid key, lane or subject: `{0}`")]
    Invalid(String),
    /// The bus was shut down.
    #[error("the bus is closed")]
    Closed,
}

impl BusError {
    /// Whether what was asked for may have been done already, or may be when it is asked for again.
    #[must_use]
    pub fn is_worth_repeating(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Unreachable(_) | Self::NoResponder(_))
    }
}

/// Repeats what is worth repeating until it is done or `deadline` has passed, and returns the last outcome: a cluster
/// that has just started answers before all its streams have a leader. At least one attempt is made.
///
/// # Errors
/// The [`BusError`] of the last attempt.
pub async fn retry_until<T, F>(deadline: Instant, mut attempt: impl FnMut() -> F) -> Result<T, BusError>
where
    F: Future<Output = Result<T, BusError>>,
{
    let mut is_first = true;
    loop {
        // Boxed: attempts are rare, and what awaits them should stay small.
        let error = match Box::pin(attempt()).await {
            Err(error) if error.is_worth_repeating() && Instant::now() + PAUSE < deadline => error,
            outcome => return outcome,
        };
        if is_first {
            tracing::info!(%error, "the bus does not answer yet; waiting");
        }
        is_first = false;
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn in_a_second() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_answered_is_repeated_until_it_is() {
        let mut left = 3;
        let outcome = retry_until(in_a_second(), || {
            left -= 1;
            ready(if left == 0 { Ok("done") } else { Err(BusError::Unknown("no leader".to_owned())) })
        });
        assert_eq!(outcome.await.ok(), Some("done"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_returned_at_the_deadline() {
        let (begin, mut attempts) = (Instant::now(), 0);
        let outcome: Result<(), BusError> = retry_until(in_a_second(), || {
            attempts += 1;
            ready(Err(BusError::Unreachable(attempts.to_string())))
        })
        .await;
        assert!(matches!(outcome, Err(BusError::Unreachable(last)) if last == "5"), "{attempts} attempts");
        assert!(begin.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_fail_again_is_not_repeated() {
        let mut attempts = 0;
        let outcome: Result<(), BusError> = retry_until(in_a_second(), || {
            attempts += 1;
            ready(Err(BusError::Closed))
        })
        .await;
        assert!(matches!(outcome, Err(BusError::Closed)));
        assert_eq!(attempts, 1);
    }
}
