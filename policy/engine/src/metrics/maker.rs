//! Makes metrics and registers them with every known label.

use policy_core::{Phase, Protocol};
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use schemas::Act;
use schemas::delivery::Disposition;

use super::labels::{OPEN_PHASES, PROTOCOLS};

/// Makes and registers metrics with every known label.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

impl Maker<'_> {
    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        let counter = IntCounter::new(name, help)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        let gauge = IntGauge::new(name, help)?;
        self.0.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    }

    fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counters.clone()))?;
        Ok(counters)
    }

    pub(super) fn counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[&str],
    ) -> Result<Vec<IntCounter>, Error> {
        let counters = self.counter_vec(name, help, &[label])?;
        Ok(values.iter().map(|value| counters.with_label_values(&[value])).collect())
    }

    pub(super) fn protocol_counters(
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

    /// One counter for each protocol, in the order of [`PROTOCOLS`].
    pub(super) fn by_protocol(&self, name: &str, help: &str) -> Result<Vec<IntCounter>, Error> {
        let counters = self.counter_vec(name, help, &["protocol"])?;
        Ok(PROTOCOLS.iter().map(|protocol| counters.with_label_values(&[protocol.as_str()])).collect())
    }

    pub(super) fn protocol_gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(Protocol, &str)],
    ) -> Result<Vec<IntGauge>, Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &["protocol", label])?;
        self.0.register(Box::new(gauges.clone()))?;
        let gauge = |(protocol, value): &(Protocol, &str)| gauges.with_label_values(&[protocol.as_str(), value]);
        Ok(values.iter().map(gauge).collect())
    }

    pub(super) fn lane_gauges(&self, name: &str, help: &str) -> Result<IntGaugeVec, Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &["lane"])?;
        self.0.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.0.register(Box::new(histogram.clone()))?;
        Ok(histogram)
    }

    fn histogram_vec(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec, Error> {
        let histograms = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.0.register(Box::new(histograms.clone()))?;
        Ok(histograms)
    }

    pub(super) fn protocol_histograms(
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

    pub(super) fn protocol_histogram(
        &self,
        name: &str,
        help: &str,
        protocol: Protocol,
        buckets: &[f64],
    ) -> Result<Histogram, Error> {
        Ok(self.histogram_vec(name, help, &["protocol"], buckets)?.with_label_values(&[protocol.as_str()]))
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        (label, values): (&str, &[&str]),
        buckets: &[f64],
    ) -> Result<Vec<Histogram>, Error> {
        let histograms = self.histogram_vec(name, help, &[label], buckets)?;
        Ok(values.iter().map(|value| histograms.with_label_values(&[value])).collect())
    }

    pub(super) fn transitions(&self) -> Result<IntCounterVec, Error> {
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

    /// By act, then by disposition. Acts that agents do not send cannot be logged; their counters stay unregistered.
    pub(super) fn dispositions(&self) -> Result<Vec<Vec<IntCounter>>, Error> {
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
        Ok(Act::ALL.iter().map(|act| Disposition::ALL.map(|disposition| counter(*act, disposition)).to_vec()).collect())
    }
}
