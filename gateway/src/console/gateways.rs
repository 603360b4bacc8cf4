//! The gateways that are there, as far as they report whom they heard (`presence.<gateway>`).

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::subject::gateway_of;

/// Gateways remembered; further ones are not counted.
const GATEWAYS_MAX: usize = 64;
/// A gateway that has reported nobody for this long is not counted: three of its reports.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The others, by id, and when each reported last.
#[derive(Default)]
pub(super) struct Gateways(BTreeMap<String, Duration>);

impl Gateways {
    /// Takes note of a report on a subject.
    pub(super) fn handle_report(&mut self, on: &str, now: Duration) {
        let Some(gateway) = gateway_of(on).filter(|gateway| super::statistics::is_token(gateway)) else { return };
        self.0.retain(|_, at| now.saturating_sub(*at) <= SILENCE_MAX);
        if self.0.contains_key(gateway) || self.0.len() < GATEWAYS_MAX {
            self.0.insert(gateway.to_owned(), now);
        }
    }

    /// How many there are, the one called `own` included whether it reports or not.
    pub(super) fn count(&self, own: &str, now: Duration) -> usize {
        let is_other =
            |(gateway, at): &(&String, &Duration)| *gateway != own && now.saturating_sub(**at) <= SILENCE_MAX;
        1 + self.0.iter().filter(is_other).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_that_reported_of_late_are_counted_each_once_and_this_one_always() {
        let mut gateways = Gateways::default();
        assert_eq!(gateways.count("a", Duration::ZERO), 1);
        for (on, at) in [("presence.a", 0), ("presence.b", 1), ("presence.b", 2), ("presence.<img>", 2), ("other.c", 2)]
        {
            gateways.handle_report(on, Duration::from_secs(at));
        }
        let counts = [2, 17, 18].map(|at| gateways.count("a", Duration::from_secs(at)));
        assert_eq!(counts, [2, 2, 1]);
        (0..1000).for_each(|number| gateways.handle_report(&format!("presence.g{number}"), Duration::from_secs(20)));
        assert_eq!(gateways.count("a", Duration::from_secs(20)), 1 + GATEWAYS_MAX);
    }
}
