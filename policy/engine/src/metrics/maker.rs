//! Makes metrics and registers them with every known label.

use policy_core::Phase;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use schemas::Act;
use schemas::delivery::Disposition;

use super::labels::{OPEN_PHASES, PROTOCOL};

/// Makes and registers metrics with every known label.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

impl Maker<'_> {
    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        let counter = IntCounter::new(name, help)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
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
        values: &[&str],
    ) -> Result<Vec<IntCounter>, Error> {
        let counters = self.counter_vec(name, help, &["protocol", label])?;
        Ok(values.iter().map(|value| counters.with_label_values(&[PROTOCOL, value])).collect())
    }

    pub(super) fn protocol_counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        Ok(self.counter_vec(name, help, &["protocol"])?.with_label_values(&[PROTOCOL]))
    }

    pub(super) fn protocol_gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[&str],
    ) -> Result<Vec<IntGauge>, Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &["protocol", label])?;
        self.0.register(Box::new(gauges.clone()))?;
        Ok(values.iter().map(|value| gauges.with_label_values(&[PROTOCOL, value])).collect())
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
        (label, values): (&str, &[&str]),
        buckets: &[f64],
    ) -> Result<Vec<Histogram>, Error> {
        let histograms = self.histogram_vec(name, help, &["protocol", label], buckets)?;
        Ok(values.iter().map(|value| histograms.with_label_values(&[PROTOCOL, value])).collect())
    }

    pub(super) fn protocol_histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        Ok(self.histogram_vec(name, help, &["protocol"], buckets)?.with_label_values(&[PROTOCOL]))
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
        for from in OPEN_PHASES {
            for to in OPEN_PHASES.into_iter().chain([Phase::Ended]).filter(|to| *to != from) {
                transitions.with_label_values(&[PROTOCOL, from.as_str(), to.as_str()]);
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
