//! What the cell that runs shows to Prometheus: which one it is, and all that its exchange measures.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, Registry};

telemetry::metrics! {
    /// Which cell runs.
    struct CellMetrics {
        /// The cell of an experiment that runs, as 1; an empty name as 0 between cells.
        cell: Gauge[cell; open] = "trafficgen_cell_info";
    }
}

/// The metrics of the cell that runs, in the registry of the process.
#[derive(Clone)]
pub struct RunningCell {
    metrics: Arc<CellMetrics>,
    shown: Registry,
    exchange: Arc<Mutex<Option<Registry>>>,
}

impl RunningCell {
    /// Registers what is shown; no cell runs yet.
    ///
    /// # Errors
    /// The library's, where it is registered already.
    pub fn try_new(registry: &Registry) -> Result<Self, Error> {
        let shown = Registry::new();
        let metrics = Arc::new(CellMetrics::try_new(&shown)?);
        let running = Self { metrics, shown, exchange: Arc::default() };
        registry.register(Box::new(running.clone()))?;
        running.show("", 0);
        Ok(running)
    }

    /// Shows a cell and its exchange until the result is dropped.
    pub fn begin(&self, cell: &str, exchange: &Registry) -> ShownCell {
        self.show(cell, 1);
        *self.exchange.lock() = Some(exchange.clone());
        ShownCell(self.clone())
    }

    fn show(&self, cell: &str, value: i64) {
        self.metrics.cell.reset();
        self.metrics.cell.with_label_values(&[cell]).set(value);
    }
}

impl Collector for RunningCell {
    /// One stands for all: those of exchanges change with the cells.
    fn desc(&self) -> Vec<&Desc> {
        self.metrics.cell.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let exchange = self.exchange.lock().clone();
        let of_exchange = exchange.iter().flat_map(Registry::gather);
        self.shown.gather().into_iter().chain(of_exchange).collect()
    }
}

/// A cell that is shown as the one that runs.
pub struct ShownCell(RunningCell);

impl Drop for ShownCell {
    fn drop(&mut self) {
        *self.0.exchange.lock() = None;
        self.0.show("", 0);
    }
}

#[cfg(test)]
mod tests {
    use telemetry::metrics::to_text;

    use super::*;

    #[test]
    fn a_cell_and_its_exchange_are_shown_for_as_long_as_it_runs() {
        let (registry, exchange) = (Registry::new(), Registry::new());
        let running = RunningCell::try_new(&registry).unwrap();
        let rounds = prometheus::IntCounter::new("exchange_rounds_total", "Rounds.").unwrap();
        exchange.register(Box::new(rounds)).unwrap();
        let text = || to_text(&registry).unwrap();
        assert!(text().contains("trafficgen_cell_info{cell=\"\"} 0"), "{}", text());
        let shown = running.begin("calm-1", &exchange);
        let during = text();
        drop(shown);
        let after = text();
        let names = ["trafficgen_cell_info{cell=\"calm-1\"} 1", "exchange_rounds_total 0"];
        for name in names {
            assert!(during.contains(name) && !after.contains(name), "{name}: {during}{after}");
        }
        assert!(RunningCell::try_new(&registry).is_err(), "one for each process");
    }
}
