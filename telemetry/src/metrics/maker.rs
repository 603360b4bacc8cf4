//! Makes metrics and registers them, with every value of their labels from the start.

use prometheus::{
    Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

/// Makes and registers in one go. Every error is [`Error::AlreadyReg`] or a name that is none.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a>(pub &'a Registry);

#[expect(clippy::missing_errors_doc, reason = "said once, at the type")]
impl Maker<'_> {
    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        let metric = IntCounter::new(name, help)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        let metric = IntGauge::new(name, help)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// A gauge of what is no whole number.
    pub fn ratio(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        let metric = Gauge::new(name, help)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// One for each value of one label, in their order, from 0.
    pub fn ratios(&self, name: &str, help: &str, label: &str, values: &[&str]) -> Result<Vec<Gauge>, Error> {
        let metric = GaugeVec::new(Opts::new(name, help), &[label])?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(values.iter().map(|value| metric.with_label_values(&[value])).collect())
    }

    /// A histogram.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Counters by labels, none of them there yet.
    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Gauges by labels, none of them there yet.
    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Histograms by labels, none of them there yet.
    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// A counter for each value of one label, in their order, from 0.
    pub fn counters(&self, name: &str, help: &str, label: &str, values: &[&str]) -> Result<Vec<IntCounter>, Error> {
        let metric = self.counter_vec(name, help, &[label])?;
        Ok(values.iter().map(|value| metric.with_label_values(&[value])).collect())
    }

    /// A gauge for each value of one label, in their order, from 0.
    pub fn gauges(&self, name: &str, help: &str, label: &str, values: &[&str]) -> Result<Vec<IntGauge>, Error> {
        let metric = self.gauge_vec(name, help, &[label])?;
        Ok(values.iter().map(|value| metric.with_label_values(&[value])).collect())
    }

    /// A histogram for each value of one label, in their order.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        (label, values): (&str, &[&str]),
        buckets: &[f64],
    ) -> Result<Vec<Histogram>, Error> {
        let metric = self.histogram_vec(name, help, &[label], buckets)?;
        Ok(values.iter().map(|value| metric.with_label_values(&[value])).collect())
    }

    /// A gauge that is 1, and says what it says in its labels.
    pub fn info(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Result<(), Error> {
        let (names, values): (Vec<&str>, Vec<&str>) = labels.iter().copied().unzip();
        self.gauge_vec(name, help, &names)?.with_label_values(&values).set(1);
        Ok(())
    }
}
