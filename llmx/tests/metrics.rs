//! The catalogue of metrics, compared with what describes and uses it: docs/metrics.md, dashboards, rules, sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Around the table of docs/metrics.md.
const TABLE: [&str; 2] = ["<!-- begin: llmx metrics --markdown -->\n", "<!-- end -->"];
/// What Prometheus makes itself.
const OF_PROMETHEUS: [&str; 5] =
    ["up", "ALERTS", "ALERTS_FOR_STATE", "scrape_duration_seconds", "scrape_samples_scraped"];
/// Beginnings of our names.
const PREFIXES: [&str; 6] = ["exchange_", "llmx_", "trafficgen_", "agent_", "gen_ai_client_", "http_server_"];
/// Where metrics are registered.
const SOURCES: [&str; 7] = [
    "gateway/src",
    "policy/engine/src",
    "agents/src",
    "traffic_gen/src",
    "traffic_gen/studies/src",
    "telemetry/src/metrics",
    "llmx/src/ops",
];

#[test]
fn the_documentation_holds_the_table_of_the_program() {
    let text = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let [begin, end] = TABLE;
    let (_, rest) = text.split_once(begin).unwrap();
    let (table, _) = rest.split_once(end).unwrap();
    let expected = llmx(&["metrics", "--markdown"]);
    assert!(
        table == expected,
        "docs/metrics.md is not what `llmx metrics --markdown` prints; put this there:\n{expected}"
    );
}

#[test]
fn every_metric_is_named_and_explained_as_prometheus_asks() {
    let metrics = catalogue();
    assert!(metrics.len() > 60, "{} metrics", metrics.len());
    for metric in &metrics {
        let (name, kind) = (metric["name"].as_str().unwrap(), metric["type"].as_str().unwrap());
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        let help = metric["help"].as_str().unwrap();
        assert!(help.len() > 10 && help.ends_with('.'), "{name}: {help:?}");
        let is_known = PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name.starts_with("process_");
        assert!(is_known, "{name}");
        let is_info = name.ends_with("_info");
        for unit in ["_ms", "_us", "_milliseconds", "_microseconds", "_kilobytes"] {
            assert!(is_info || !name.ends_with(unit), "{name}: base units are seconds and bytes");
        }
    }
}

#[test]
fn dashboards_and_rules_ask_for_nothing_that_nobody_sets() {
    let known = names();
    let exporter = std::fs::read_to_string(repository().join("dashboards/nats_exporter.py")).unwrap();
    let rules = rules();
    let recorded: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- record:")).map(str::trim).collect();
    let is_known = |name: &str| {
        known.contains(name)
            || OF_PROMETHEUS.contains(&name)
            || name.starts_with("prometheus_")
            || recorded.contains(name)
            || exporter.contains(&format!("\"{name}\""))
    };
    let asked: BTreeSet<String> = expressions(&rules).iter().flat_map(|expression| metrics_of(expression)).collect();
    assert!(asked.len() > 40, "{} metrics are asked for", asked.len());
    let unknown: Vec<&String> = asked.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "no process sets {unknown:?}");
}

#[test]
fn what_the_sources_name_is_in_the_catalogue() {
    let known = names();
    let files: Vec<PathBuf> = SOURCES.iter().flat_map(|source| sources(&repository().join(source))).collect();
    let named: BTreeSet<String> = files.iter().flat_map(|file| registered(file)).collect();
    assert!(named.len() > 40, "{} names in the sources", named.len());
    let missing: Vec<&String> = named.iter().filter(|name| !known.contains(*name)).collect();
    assert!(missing.is_empty(), "`llmx metrics` does not know {missing:?}: is each initialised with its labels?");
}

#[test]
fn the_names_in_an_expression_are_found() {
    let found = |expression: &str| metrics_of(expression).into_iter().collect::<Vec<_>>();
    assert_eq!(
        found("sum by (job) (rate(a_total{b=\"c_total{\"}[5m])) / on (x) group_left (y) d:e:f > 1e3"),
        ["a_total", "d:e:f"]
    );
    assert_eq!(found("histogram_quantile(0.99, sum by (le) (rate(a_bucket[$__rate_interval])))"), ["a_bucket"]);
    assert_eq!(found("label_values(up{job=~\"$job\"}, instance)"), ["up"]);
    assert_eq!(found("time() - a offset 5m and b or vector(0) == bool 1"), ["a", "b"]);
}

/// Every name of the catalogue, with those of histograms' series.
fn names() -> BTreeSet<String> {
    let series = |metric: &Value| {
        let name = metric["name"].as_str().unwrap().to_owned();
        let parts: &[&str] = if metric["type"] == "histogram" { &["", "_bucket", "_sum", "_count"] } else { &[""] };
        parts.iter().map(|part| format!("{name}{part}")).collect::<Vec<_>>()
    };
    catalogue().iter().flat_map(series).collect()
}

fn catalogue() -> Vec<Value> {
    let document: Value = serde_json::from_str(&llmx(&["metrics", "--json"])).unwrap();
    document["metrics"].as_array().unwrap().clone()
}

fn llmx(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_llmx")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rules() -> String {
    let files = std::fs::read_dir(repository().join("dashboards/prometheus/rules")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap() + "\n").collect()
}

/// Every expression of rules and dashboards.
fn expressions(rules: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut lines = rules.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("expr:") else { continue };
        let indent = line.len() - line.trim_start().len();
        let mut expression = rest.trim().trim_matches(['|', '>', '-']).to_owned();
        while let Some(more) = lines.next_if(|next| next.len() - next.trim_start().len() > indent) {
            expression.push(' ');
            expression.push_str(more.trim());
        }
        all.push(expression);
    }
    let dashboards = repository().join("dashboards/grafana/dashboards");
    for entry in std::fs::read_dir(dashboards).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        asked(&serde_json::from_str(&text).unwrap(), &mut all);
    }
    all
}

/// Collects `expr`, and queries of variables, wherever they stand.
fn asked(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| match (name.as_str(), member) {
            ("expr", Value::String(text)) => all.push(text.clone()),
            ("query", Value::String(text)) if text.starts_with("label_values(") => all.push(text.clone()),
            (_, member) => asked(member, all),
        }),
        Value::Array(members) => members.iter().for_each(|member| asked(member, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names of metrics in a PromQL expression: what is neither a function, a keyword, a label nor a number.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    // Operators, and aggregations, whose bracket may come after a grouping.
    const WORDS: [&str; 19] = [
        "and", "or", "unless", "bool", "offset", "inf", "nan", "atan2", "sum", "min", "max", "avg", "count", "group",
        "stddev", "stdvar", "topk", "bottomk", "quantile",
    ];
    const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let mut found = BTreeSet::new();
    let mut rest = expression;
    let mut takes_labels = false;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        match first {
            '{' => rest = &rest[closing(rest, '}')..],
            '[' => rest = &rest[closing(rest, ']')..],
            '"' => rest = &rest[quoted(rest)..],
            // A variable of the dashboard stands for a value.
            '$' => rest = rest[1..].trim_start_matches(is_word),
            // What follows the metric of `label_values` is a label.
            ',' if takes_labels => return found,
            _ if word.is_empty() => rest = &rest[first.len_utf8()..],
            _ => {
                rest = rest[word.len()..].trim_start();
                let is_grouping = GROUPINGS.contains(&word);
                takes_labels |= word == "label_values";
                if is_grouping && rest.starts_with('(') {
                    rest = &rest[closing(rest, ')')..];
                } else if !first.is_ascii_digit() && !is_grouping && !WORDS.contains(&word) && !rest.starts_with('(') {
                    found.insert(word.to_owned());
                }
            }
        }
    }
    found
}

/// Bytes up to and with the closing bracket; what stands in quotes does not close.
fn closing(text: &str, bracket: char) -> usize {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        at += if c == '"' { quoted(&text[at..]) } else { c.len_utf8() };
        if c == bracket {
            break;
        }
    }
    at
}

/// Bytes of the quoted text at the beginning.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            c => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// Files below a folder where metrics are registered.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && (path.to_string_lossy().contains("metrics") || path.to_string_lossy().contains("ops"))
        {
            files.push(path);
        }
    }
    files
}

/// Names in quotes that look like those of metrics; tests stand at the end of a file and are left out.
fn registered(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let is_name = |text: &&str| {
        PREFIXES.iter().any(|prefix| text.starts_with(prefix))
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    code.split('"').skip(1).step_by(2).filter(is_name).map(str::to_owned).collect()
}
