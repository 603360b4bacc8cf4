//! What a process says of itself in Prometheus's text format, as values of series.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::drift::Quantity;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Counters of what must never happen, and what they are called in reports.
const VIOLATIONS: [(&str, &str); 4] = [
    ("exchange_invariant_violations_total", "invariants"),
    ("exchange_register_conflicts_total", "register_conflicts"),
    ("llmx_engine_digest_mismatches_total", "digest_mismatches"),
    ("llmx_engine_log_divergences_total", "log_divergences"),
];

/// The samples of one scrape: values by metric and labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape {
    values: Vec<(String, String, f64)>,
}

impl Scrape {
    /// Reads a scrape; lines that are no samples are left out.
    pub fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let line = line.trim();
            if line.starts_with('#') {
                return None;
            }
            // Values of labels may hold blanks; behind the labels stands the value, and then perhaps a time.
            let (name, labels, rest) = match line.split_once('{') {
                Some((name, behind)) => {
                    let (labels, rest) = behind.rsplit_once('}')?;
                    (name, labels, rest)
                }
                None => {
                    let (name, rest) = line.split_once(' ')?;
                    (name, "", rest)
                }
            };
            let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
            Some((name.to_owned(), labels.to_owned(), value))
        };
        Self { values: text.lines().filter_map(sample).collect() }
    }

    /// The sum of a metric over all labels; absent where there is none of it.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let mut found =
            self.values.iter().filter(|(metric, _, _)| metric == name).map(|(_, _, value)| *value).peekable();
        found.peek()?;
        Some(found.sum())
    }

    /// The values of a metric by one of its labels.
    fn by_label(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let of = |labels: &str| {
            let (_, behind) = labels.split_once(&format!("{label}=\""))?;
            behind.split_once('"').map(|(value, _)| value.to_owned())
        };
        let values = self.values.iter().filter(|(metric, _, _)| metric == name);
        values.filter_map(|(_, labels, value)| Some((of(labels)?, *value))).collect()
    }
}

/// What is known of a process between two scrapes.
#[derive(Debug, Default)]
struct Last {
    started: f64,
    elapsed_s: f64,
    cpu_s: Option<f64>,
    dead_letters: Option<f64>,
    violations: BTreeMap<&'static str, f64>,
}

/// Turns scrapes of one process after another into values of series.
#[derive(Debug, Default)]
pub struct ScrapeReader {
    last_by_process: BTreeMap<String, Last>,
}

/// What one scrape comes to.
#[derive(Debug, Default, PartialEq)]
pub struct ScrapedValues {
    /// By series.
    pub values: BTreeMap<String, f64>,
    /// When the process began, in seconds since 1970, where it says so.
    pub started: Option<f64>,
    /// Violations since the last scrape, by name.
    pub violations: BTreeMap<String, u64>,
}

impl ScrapeReader {
    /// The values of a process, scraped so many seconds after the part began.
    pub fn read(&mut self, process: &str, scrape: &Scrape, elapsed_s: f64) -> ScrapedValues {
        let mut found = ScrapedValues { started: scrape.sum("process_start_time_seconds"), ..ScrapedValues::default() };
        let gauges = [
            (Quantity::Memory, scrape.sum("process_resident_memory_bytes").or(scrape.sum("gnatsd_varz_mem"))),
            (Quantity::Handles, scrape.sum("process_open_fds")),
            (Quantity::Threads, scrape.sum("process_threads")),
            (Quantity::Tasks, scrape.sum("exchange_tokio_alive_tasks")),
            (Quantity::Open, scrape.sum("exchange_negotiations_open")),
            (Quantity::Outbox, scrape.sum("exchange_outbox_deliveries")),
            (Quantity::Unchecked, unchecked(scrape)),
        ];
        for (quantity, value) in gauges {
            if let Some(value) = value {
                found.values.insert(series(process, quantity), value);
            }
        }
        for (metric, quantity) in
            [("jetstream_stream_total_messages", Quantity::Entries), ("jetstream_stream_total_bytes", Quantity::Stored)]
        {
            for (stream, value) in scrape.by_label(metric, "stream_name") {
                found.values.insert(series(&stream, quantity), value);
            }
        }
        for (metric, quantity) in
            [("exchange_register_entries", Quantity::Entries), ("exchange_register_bytes", Quantity::Stored)]
        {
            if let Some(value) = scrape.sum(metric) {
                found.values.insert(series("register", quantity), value);
            }
        }
        self.rates(process, scrape, elapsed_s, &mut found);
        found
    }

    /// What grows for as long as a process lives, as what it grew by.
    fn rates(&mut self, process: &str, scrape: &Scrape, elapsed_s: f64, found: &mut ScrapedValues) {
        let started = found.started.unwrap_or(0.0);
        let last = self.last_by_process.entry(process.to_owned()).or_default();
        // A process that began anew counts from 0 again.
        if (last.started - started).abs() > 1.0 {
            let is_first = last.started == 0.0 && last.elapsed_s == 0.0;
            *last = Last { started, elapsed_s: if is_first { 0.0 } else { elapsed_s }, ..Last::default() };
        }
        let cpu_s = scrape.sum("process_cpu_seconds_total");
        if let (Some(before), Some(now)) = (last.cpu_s, cpu_s)
            && elapsed_s > last.elapsed_s
        {
            found.values.insert(series(process, Quantity::Cpu), (now - before).max(0.0) / (elapsed_s - last.elapsed_s));
        }
        let dead_letters = scrape.sum("exchange_dead_letters_total");
        if let Some(now) = dead_letters {
            let grown = (now - last.dead_letters.unwrap_or(now)).max(0.0);
            found.values.insert(series(process, Quantity::DeadLetters), grown);
        }
        for (metric, name) in VIOLATIONS {
            let now = scrape.sum(metric).unwrap_or(0.0);
            let before = last.violations.insert(name, now).unwrap_or(0.0);
            if now > before {
                found.violations.insert(format!("{process}/{name}"), (now - before).round() as u64);
            }
        }
        (last.elapsed_s, last.cpu_s, last.dead_letters) = (elapsed_s, cpu_s, dead_letters);
    }
}

/// The name of a series.
pub fn series(of: &str, quantity: Quantity) -> String {
    format!("{of}/{}", <&str>::from(quantity))
}

/// Records behind the checkpoint, of the lane that has most.
fn unchecked(scrape: &Scrape) -> Option<f64> {
    let checked: BTreeMap<String, f64> =
        scrape.by_label("exchange_lane_checkpoint_position", "lane").into_iter().collect();
    let positions = scrape.by_label("exchange_lane_position", "lane").into_iter();
    let behind = positions.map(|(lane, position)| position - checked.get(&lane).copied().unwrap_or(0.0));
    behind.max_by(f64::total_cmp).map(|behind| behind.max(0.0))
}

/// Asks processes for their metrics.
#[derive(Debug, Clone)]
pub struct Scraper {
    client: reqwest::Client,
}

impl Scraper {
    /// A client that waits a bounded time, follows no redirect and uses no proxy.
    ///
    /// # Errors
    /// The library's.
    pub fn try_new() -> reqwest::Result<Self> {
        let client = reqwest::Client::builder().timeout(ANSWER_MAX).redirect(reqwest::redirect::Policy::none());
        Ok(Self { client: client.no_proxy().build()? })
    }

    /// What stands at an address.
    ///
    /// # Errors
    /// The library's, an answer other than 200 included.
    pub async fn scrape(&self, url: &str) -> reqwest::Result<Scrape> {
        let answer = self.client.get(url).send().await?.error_for_status()?;
        Ok(Scrape::parse(&answer.text().await?))
    }

    /// What a nats-server says on its monitoring port, under the names of prometheus-nats-exporter.
    ///
    /// # Errors
    /// The library's.
    pub async fn server(&self, monitor: &str) -> reqwest::Result<Scrape> {
        let varz: Value = self.json(&format!("{monitor}/varz")).await?;
        let jsz: Value = self.json(&format!("{monitor}/jsz?streams=true")).await?;
        Ok(Scrape { values: server_values(&varz, &jsz) })
    }

    async fn json(&self, url: &str) -> reqwest::Result<Value> {
        self.client.get(url).send().await?.error_for_status()?.json().await
    }
}

fn server_values(varz: &Value, jsz: &Value) -> Vec<(String, String, f64)> {
    let mut values = Vec::new();
    if let Some(memory) = varz["mem"].as_f64() {
        values.push(("gnatsd_varz_mem".to_owned(), String::new(), memory));
    }
    let accounts = jsz["account_details"].as_array().into_iter().flatten();
    let streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
    for stream in streams {
        let labels = format!("stream_name=\"{}\"", stream["name"].as_str().unwrap_or_default());
        for (metric, member) in
            [("jetstream_stream_total_messages", "messages"), ("jetstream_stream_total_bytes", "bytes")]
        {
            if let Some(value) = stream["state"][member].as_f64() {
                values.push((metric.to_owned(), labels.clone(), value));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "# HELP process_open_fds Number.\n# TYPE process_open_fds gauge\nprocess_open_fds 17\n\
        process_resident_memory_bytes 1.048576e+06\nprocess_start_time_seconds 1000\nprocess_cpu_seconds_total 2\n\
        exchange_negotiations_open{protocol=\"a\",state=\"b } c\"} 3\nexchange_negotiations_open{protocol=\"a\",state=\"d\"} 4\n\
        exchange_lane_position{lane=\"0\"} 90\nexchange_lane_position{lane=\"1\"} 50\n\
        exchange_lane_checkpoint_position{lane=\"0\"} 80\nexchange_lane_checkpoint_position{lane=\"1\"} 10\n\
        exchange_invariant_violations_total{invariant=\"sealed\"} 0\nexchange_dead_letters_total 5\n";

    fn value(values: &ScrapedValues, name: &str) -> Option<f64> {
        values.values.get(name).copied()
    }

    #[test]
    fn a_scrape_becomes_values_by_series() {
        let mut reader = ScrapeReader::default();
        let first = reader.read("engine", &Scrape::parse(TEXT), 2.0);
        let expected =
            [("memory", 1_048_576.0), ("handles", 17.0), ("open", 7.0), ("unchecked", 40.0), ("dead_letters", 0.0)];
        for (name, expected) in expected {
            assert_eq!(value(&first, &format!("engine/{name}")), Some(expected), "{name}");
        }
        assert_eq!((value(&first, "engine/cpu"), first.started), (None, Some(1000.0)));
        let later = TEXT
            .replace("cpu_seconds_total 2", "cpu_seconds_total 3")
            .replace("sealed\"} 0", "sealed\"} 2")
            .replace("dead_letters_total 5", "dead_letters_total 6");
        let second = reader.read("engine", &Scrape::parse(&later), 4.0);
        assert_eq!((value(&second, "engine/cpu"), value(&second, "engine/dead_letters")), (Some(0.5), Some(1.0)));
        assert_eq!(second.violations, BTreeMap::from([("engine/invariants".to_owned(), 2)]));
    }

    #[test]
    fn a_process_that_began_anew_counts_from_nothing() {
        let mut reader = ScrapeReader::default();
        let busy = TEXT.replace("cpu_seconds_total 2", "cpu_seconds_total 200").replace("sealed\"} 0", "sealed\"} 1");
        reader.read("engine", &Scrape::parse(&busy), 2.0);
        let fresh = TEXT.replace("time_seconds 1000", "time_seconds 2000").replace("sealed\"} 0", "sealed\"} 1");
        let found = reader.read("engine", &Scrape::parse(&fresh), 4.0);
        assert_eq!(value(&found, "engine/cpu"), None);
        assert_eq!(found.violations.values().sum::<u64>(), 1, "a violation of the new life counts");
    }

    #[test]
    fn a_server_and_its_streams_are_read_from_its_monitoring_port() {
        let jsz = json!({"account_details": [{"stream_detail": [{"name": "LLMX_LOG", "state": {"messages": 7, "bytes": 900}}]}]});
        let scrape = Scrape { values: server_values(&json!({"mem": 5000}), &jsz) };
        let found = ScrapeReader::default().read("nats", &scrape, 1.0);
        assert_eq!(value(&found, "nats/memory"), Some(5000.0));
        assert_eq!((value(&found, "LLMX_LOG/entries"), value(&found, "LLMX_LOG/stored")), (Some(7.0), Some(900.0)));
    }
}
