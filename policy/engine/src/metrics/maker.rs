//! Metrics whose labels are those of negotiations and lanes, with every known value from the start.

use policy_core::{Phase, Protocol};
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use schemas::Act;
use schemas::delivery::Disposition;
use telemetry::metrics::Maker;

use super::labels::{OPEN_PHASES, PROTOCOLS};

/// What an engine makes beside what [`Maker`] does.
pub(super) trait MakeLabelled {
    /// One counter for each protocol, in the order of [`PROTOCOLS`].
    fn by_protocol(&self, name: &str, help: &str) -> Result<Vec<IntCounter>, Error>;

    /// A counter for each protocol and value of a second label that occur together.
    fn protocol_counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(Protocol, &str)],
    ) -> Result<Vec<IntCounter>, Error>;

    /// A gauge for each.
    fn protocol_gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(Protocol, &str)],
    ) -> Result<Vec<IntGauge>, Error>;

    /// A histogram for each.
    fn protocol_histograms(
        &self,
        name: &str,
        help: &str,
        labels: (&str, &[(Protocol, &str)]),
        buckets: &[f64],
    ) -> Result<Vec<Histogram>, Error>;

    /// Gauges by lane, none of them there yet.
    fn lane_gauges(&self, name: &str, help: &str) -> Result<IntGaugeVec, Error>;

    /// Changes of state, by every two states of one protocol.
    fn transitions(&self) -> Result<IntCounterVec, Error>;

    /// By act, then by disposition. Acts that agents do not send cannot be logged; their counters stay unregistered.
    fn dispositions(&self) -> Result<Vec<Vec<IntCounter>>, Error>;
}

impl MakeLabelled for Maker<'_> {
    fn by_protocol(&self, name: &str, help: &str) -> Result<Vec<IntCounter>, Error> {
        self.counters(name, help, "protocol", &PROTOCOLS.map(Protocol::as_str))
    }

    fn protocol_counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(Protocol, &str)],
    ) -> Result<Vec<IntCounter>, Error> {
        let counters = self.counter_vec(name, help, &["protocol", label])?;
        let counter = |(protocol, value): &(Protocol, &str)| counters.with_label_values(&[protocol.as_str(), value]);
        Ok(values.iter().map(counter).collect())
    }

    fn protocol_gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(Protocol, &str)],
    ) -> Result<Vec<IntGauge>, Error> {
        let gauges = self.gauge_vec(name, help, &["protocol", label])?;
        let gauge = |(protocol, value): &(Protocol, &str)| gauges.with_label_values(&[protocol.as_str(), value]);
        Ok(values.iter().map(gauge).collect())
    }

    fn protocol_histograms(
        &self,
        name: &str,
        help: &str,
        (label, values): (&str, &[(Protocol, &str)]),
        buckets: &[f64],
    ) -> Result<Vec<Histogram>, Error> {
        let histograms = self.histogram_vec(name, help, &["protocol", label], buckets)?;
        let one = |(protocol, value): &(Protocol, &str)| histograms.with_label_values(&[protocol.as_str(), value]);
        Ok(values.iter().map(one).collect())
    }

    fn lane_gauges(&self, name: &str, help: &str) -> Result<IntGaugeVec, Error> {
        self.gauge_vec(name, help, &["lane"])
    }

    fn transitions(&self) -> Result<IntCounterVec, Error> {
        let name = "exchange_state_transitions_total";
        let transitions = self.counter_vec(name, "Changes of a negotiation's state.", &["protocol", "from", "to"])?;
        for (protocol, from) in OPEN_PHASES {
            let open = OPEN_PHASES.into_iter().filter(|(of, _)| *of == protocol).map(|(_, to)| to);
            for to in open.chain([Phase::Ended]).filter(|to| *to != from) {
                transitions.with_label_values(&[protocol.as_str(), from.as_str(), to.as_str()]);
            }
        }
        Ok(transitions)
    }

    fn dispositions(&self) -> Result<Vec<Vec<IntCounter>>, Error> {
        let name = "exchange_dispositions_total";
        let counters = self.counter_vec(name, "Logged messages by what became of them.", &["kind", "disposition"])?;
        let unregistered = IntCounter::new("unregistered", "Never exposed.")?;
        let counter = |act: Act, disposition: Disposition| {
            if Act::FROM_AGENTS.contains(&act) {
                counters.with_label_values(&[act.as_str(), disposition.as_str()])
            } else {
                unregistered.clone()
            }
        };
        Ok(Act::ALL
            .iter()
            .map(|act| Disposition::ALL.iter().map(|disposition| counter(*act, *disposition)).collect())
            .collect())
    }
}
