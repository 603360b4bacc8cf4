//! A function of this program as a routine.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::document::RoutineKind;
use tokio::sync::Semaphore;

use super::{Routine, RoutineFault, RoutineRequest};

/// Runs of one function at a time. One that was given up for its time keeps its place until it returns, because a thread
/// cannot be ended from outside.
pub const NATIVE_RUNS_MAX: usize = 16;
/// Grams that a parcel of [`parcel_price`] may weigh.
const GRAMS_MAX: u64 = 100_000;

/// A function of what is asked, run on a thread for blocking work: what a request comes to, or in words why nothing does.
pub struct BlockingFunction<R> {
    function: Arc<TextFunction<R>>,
    places: Arc<Semaphore>,
}

type TextFunction<R> = dyn Fn(&R) -> Result<String, String> + Send + Sync;

impl<R: Send + 'static> BlockingFunction<R> {
    /// This function, so many times at once.
    #[must_use]
    pub fn new(function: impl Fn(&R) -> Result<String, String> + Send + Sync + 'static, runs_max: usize) -> Self {
        Self { function: Arc::new(function), places: Arc::new(Semaphore::new(runs_max)) }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`RoutineFault::Busy`] while it runs as often as it may; [`RoutineFault::Failed`].
    pub fn run(&self, request: R) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let (function, place) = (Arc::clone(&self.function), Arc::clone(&self.places).try_acquire_owned());
        async move {
            let place = place.map_err(|_| RoutineFault::Busy)?;
            let running = tokio::task::spawn_blocking(move || {
                let _place = place;
                function(&request)
            });
            match running.await {
                Ok(result) => result.map_err(RoutineFault::Failed),
                Err(_) => Err(RoutineFault::Failed("it panicked".to_owned())),
            }
        }
        .boxed()
    }
}

impl<R> Clone for BlockingFunction<R> {
    fn clone(&self) -> Self {
        Self { function: Arc::clone(&self.function), places: Arc::clone(&self.places) }
    }
}

/// A function of the request's text as a routine.
#[derive(Clone)]
pub struct NativeRoutine(BlockingFunction<String>);

impl NativeRoutine {
    /// This function.
    #[must_use]
    pub fn new(function: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(BlockingFunction::new(move |text: &String| function(text), NATIVE_RUNS_MAX))
    }

    /// One of the functions that come with this crate ([`NATIVE_NAMES`]).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        (name == NATIVE_NAMES[0]).then(|| Self::new(parcel_price))
    }
}

/// Names of the functions that come with this crate.
pub const NATIVE_NAMES: [&str; 1] = ["parcel-price"];

/// The price of a parcel: the request is its weight in grams, the answer the price in cents, both as decimal digits. A
/// parcel of up to 100 kg costs 450 cents and one more for every 10 g.
///
/// # Errors
/// In words, where the request is no such weight.
pub fn parcel_price(request: &str) -> Result<String, String> {
    let is_number = !request.is_empty() && request.bytes().all(|digit| digit.is_ascii_digit());
    let grams = request.parse::<u64>().ok().filter(|grams| is_number && *grams <= GRAMS_MAX);
    let grams = grams.ok_or_else(|| format!("the request is a weight in grams, digits only, at most {GRAMS_MAX}"))?;
    Ok((450 + grams / 10).to_string())
}

impl Routine for NativeRoutine {
    fn kind(&self) -> RoutineKind {
        RoutineKind::Native
    }

    fn run(&self, request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        self.0.run(request.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_costs_450_cents_and_one_for_every_10_grams() {
        for (request, price) in [("0", "450"), ("1250", "575"), ("100000", "10450"), ("0019", "451")] {
            assert_eq!(parcel_price(request).as_deref(), Ok(price), "{request}");
        }
        for request in ["", "-1", "+1", "1.5", " 1", "100001", "99999999999999999999", "a parcel"] {
            assert!(parcel_price(request).is_err(), "{request}");
        }
    }
}
