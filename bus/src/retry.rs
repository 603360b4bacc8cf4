//! Waiting for a bus that does not answer yet.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::BusError;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

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
