//! Waits for something that runs elsewhere, and may not run at all.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What comes at once is not announced.
const ANNOUNCED_AFTER: Duration = Duration::from_millis(500);
/// How often a wait is announced again.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(5);

/// Waits, and logs a warning at once and every 5 seconds as long as `what` names something that is missing. `limit` is
/// how long the caller waits; it is only shown.
pub async fn announced<T>(what: impl Fn() -> Option<String>, limit: Duration, wait: impl Future<Output = T>) -> T {
    // Boxed: waits are rare, and what awaits them should stay small.
    let mut wait = Box::pin(wait);
    let began = Instant::now();
    let mut next = ANNOUNCED_AFTER;
    loop {
        tokio::select! {
            biased;
            outcome = &mut wait => return outcome,
            () = sleep_until(began + next) => {}
        }
        if let Some(what) = what() {
            let (waited_s, limit_s) = (began.elapsed().as_secs(), limit.as_secs());
            tracing::warn!("waiting for {what} since {waited_s} s, at most {limit_s} s");
        }
        next += ANNOUNCED_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_announced_at_once_and_every_five_seconds() {
        let announced_times = Cell::new(0);
        let what = || {
            announced_times.set(announced_times.get() + 1);
            Some("a friend".to_owned())
        };
        let limit = Duration::from_secs(20);
        announced(what, limit, tokio::time::sleep(Duration::from_millis(400))).await;
        assert_eq!(announced_times.get(), 0, "it came at once");
        announced(what, limit, tokio::time::sleep(Duration::from_millis(600))).await;
        assert_eq!(announced_times.get(), 1);
        announced(what, limit, tokio::time::sleep(Duration::from_secs(11))).await;
        assert_eq!(announced_times.get(), 4, "after 0.5, 5.5 and 10.5 seconds");
    }
}
