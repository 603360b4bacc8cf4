//! Metrics as Prometheus reads them.

use prometheus::{Error, Registry, TextEncoder};

/// Media type of [`to_text`]: Prometheus 3 refuses to guess.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything a registry holds, in Prometheus's text format.
///
/// # Errors
/// [`Error`] when a collector gives what cannot be written, which is a programmer's fault.
pub fn to_text(registry: &Registry) -> Result<String, Error> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
mod tests {
    use prometheus::IntCounter;

    use super::*;

    #[test]
    fn every_metric_is_written_with_its_help_and_type() {
        let registry = Registry::new();
        let counter = IntCounter::new("things_total", "Things.").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(3);
        let text = to_text(&registry).unwrap();
        assert_eq!(text, "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 3\n");
    }
}
