use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::Bucket;
use prometheus::{Error, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};
use schemas::validate::{SCHEMA_BASE, published};
use schemas::{Digest, Refusal};
use telemetry::metrics::Maker;

use super::LATENCY_S;
use super::labels::{Discovery, Document, Invited, Keyword, KvOperation, Reload};

/// Buckets in seconds for a write to the control plane's store: a disk, or a cluster that elects.
const STORE_S: [f64; 8] = [0.000_5, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// Hexadecimal digits of a digest that tell revisions apart.
const REVISION_LEN: usize = 12;
/// The revision of a gateway that has read no policies.
const REVISION_NONE: &str = "none";

/// Documents: what they are checked against, what is in force, and how they are stored and found.
pub(crate) struct ControlMetrics {
    validations: Vec<[IntCounter; 2]>,
    schema_errors: Vec<[IntCounter; Keyword::ALL.len()]>,
    reloads: Vec<IntCounter>,
    bundle: IntGaugeVec,
    /// The revision that `bundle` shows.
    revision: Mutex<String>,
    consents: [IntCounter; Invited::ALL.len()],
    incapable: IntCounter,
    absent: IntCounter,
    unresponsive: IntCounter,
    discoveries: Vec<IntCounter>,
    discovery_duration: Histogram,
    kv_operations: Vec<[[IntCounter; 2]; KvOperation::ALL.len()]>,
    kv_durations: Vec<[Histogram; KvOperation::ALL.len()]>,
}

impl ControlMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        describe_schemas(make)?;
        let validations = make.counter_vec(
            "exchange_schema_validations_total",
            "Documents checked against their schema, by result.",
            &["schema", "result"],
        )?;
        let errors = make.counter_vec(
            "exchange_schema_errors_total",
            "Documents refused for their form, by the family of the keyword they broke first.",
            &["schema", "keyword"],
        )?;
        let decisions = make.counter_vec(
            "exchange_policy_decisions_total",
            "Agents that calls addressed, by the rule that decided and its effect.",
            &["rule", "effect"],
        )?;
        let (kv_operations, kv_durations) = key_value(make)?;
        let bundle = make.gauge_vec(
            "exchange_policy_bundle_info",
            "1 for the revision of all policies and the default that is in force: equal on gateways that agree.",
            &["revision"],
        )?;
        bundle.with_label_values(&[REVISION_NONE]).set(1);
        let results = |document: Document| {
            ["valid", "invalid"].map(|result| validations.with_label_values(&[document.as_str(), result]))
        };
        let keywords = |document: Document| {
            Keyword::ALL.map(|keyword| errors.with_label_values(&[document.as_str(), keyword.as_str()]))
        };
        Ok(Self {
            validations: Document::ALL.into_iter().map(results).collect(),
            schema_errors: Document::ALL.into_iter().map(keywords).collect(),
            reloads: make.counters(
                "exchange_policy_reloads_total",
                "Changes of the stored policies and of the default that this gateway followed, by result.",
                "result",
                &Reload::ALL.map(Reload::as_str),
            )?,
            bundle,
            revision: Mutex::new(REVISION_NONE.to_owned()),
            consents: Invited::ALL.map(|effect| decisions.with_label_values(&["consent", effect.as_str()])),
            incapable: decisions.with_label_values(&["capability", Invited::Denied.as_str()]),
            absent: decisions.with_label_values(&["presence", Invited::Denied.as_str()]),
            unresponsive: decisions.with_label_values(&["backlog", Invited::Denied.as_str()]),
            discoveries: make.counters(
                "exchange_discovery_queries_total",
                "Searches for agents, by result.",
                "result",
                &Discovery::ALL.map(Discovery::as_str),
            )?,
            discovery_duration: make.histogram(
                "exchange_discovery_duration_seconds",
                "Time of a search for agents.",
                &LATENCY_S,
            )?,
            kv_operations: Bucket::ALL.map(|bucket| per_operation(&kv_operations, bucket)).into(),
            kv_durations: Bucket::ALL
                .map(|bucket| {
                    KvOperation::ALL.map(|one| kv_durations.with_label_values(&[bucket.as_str(), one.as_str()]))
                })
                .into(),
        })
    }

    /// A document was checked.
    pub(crate) fn checked<T>(&self, document: Document, outcome: &Result<T, Refusal>) {
        let refused = outcome.as_ref().err();
        self.validations[document as usize][usize::from(refused.is_some())].inc();
        if let Some(keyword) = refused.and_then(|refusal| Keyword::of(refusal.code)) {
            self.schema_errors[document as usize][keyword as usize].inc();
        }
    }

    /// A stored policy or the default changed.
    pub(crate) fn reloaded(&self, result: Reload) {
        self.reloads[result as usize].inc();
    }

    /// This is in force now.
    pub(crate) fn in_force(&self, revision: &Digest) {
        let text = short(revision);
        let mut shown = self.revision.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != text {
            // What is shown is there to be removed.
            let _ = self.bundle.remove_label_values(&[shown.as_str()]);
            self.bundle.with_label_values(&[&text]).set(1);
            *shown = text;
        }
    }

    /// So many agents that a call addressed got this answer from their rules.
    pub(crate) fn consented(&self, effect: Invited, count: usize) {
        self.consents[effect as usize].inc_by(count as u64);
    }

    /// So many agents that a call addressed cannot do what it asks for.
    pub(crate) fn incapable(&self, count: usize) {
        self.incapable.inc_by(count as u64);
    }

    /// So many agents that a call addressed by a topic or group are absent.
    pub(crate) fn absent(&self, count: usize) {
        self.absent.inc_by(count as u64);
    }

    /// So many agents that a call addressed acknowledge too little.
    pub(crate) fn unresponsive(&self, count: usize) {
        self.unresponsive.inc_by(count as u64);
    }

    /// Agents were searched for.
    pub(crate) fn discovered(&self, result: Discovery, time: Duration) {
        self.discoveries[result as usize].inc();
        self.discovery_duration.observe(time.as_secs_f64());
    }

    /// The store answered, or did not.
    pub(crate) fn stored(&self, bucket: Bucket, operation: KvOperation, is_done: bool, time: Duration) {
        self.kv_operations[bucket as usize][operation as usize][usize::from(!is_done)].inc();
        self.kv_durations[bucket as usize][operation as usize].observe(time.as_secs_f64());
    }
}

/// Which schemas this build checks against: the version of the wire contract, and what stands in each.
fn describe_schemas(make: &Maker<'_>) -> Result<(), Error> {
    let info = make.gauge_vec(
        "exchange_schema_info",
        "1 for each published schema: its version and the digest of its text.",
        &["schema", "version", "digest"],
    )?;
    let version = SCHEMA_BASE.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    for (name, text) in published() {
        info.with_label_values(&[*name, version, &short(&Digest::of_bytes(text.as_bytes()))]).set(1);
    }
    Ok(())
}

fn key_value(make: &Maker<'_>) -> Result<(IntCounterVec, HistogramVec), Error> {
    let operations = make.counter_vec(
        "exchange_kv_operations_total",
        "Operations on the control plane's buckets, by result.",
        &["bucket", "op", "result"],
    )?;
    let durations = make.histogram_vec(
        "exchange_kv_operation_duration_seconds",
        "Time of an operation on the control plane's buckets.",
        &["bucket", "op"],
        &STORE_S,
    )?;
    Ok((operations, durations))
}

fn per_operation(operations: &IntCounterVec, bucket: Bucket) -> [[IntCounter; 2]; KvOperation::ALL.len()] {
    KvOperation::ALL
        .map(|one| ["ok", "error"].map(|result| operations.with_label_values(&[bucket.as_str(), one.as_str(), result])))
}

fn short(digest: &Digest) -> String {
    let mut text = hex::encode(digest.0);
    text.truncate(REVISION_LEN);
    text
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use schemas::Code;

    use super::*;

    fn value(registry: &Registry, name: &str, labels: &[&str]) -> f64 {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let is_it = |metric: &&prometheus::proto::Metric| {
            labels.iter().all(|label| metric.get_label().iter().any(|pair| pair.value() == *label))
        };
        let metrics = family.get_metric().iter().filter(is_it);
        metrics.map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value()).sum()
    }

    #[test]
    fn a_document_counts_as_valid_or_under_the_kind_of_rule_it_broke() {
        let registry = Registry::new();
        let metrics = ControlMetrics::new(&Maker(&registry)).unwrap();
        metrics.checked(Document::Group, &Ok(()));
        metrics.checked::<()>(Document::Group, &Err(Refusal::new(Code::MissingField, "")));
        metrics.checked::<()>(Document::Group, &Err(Refusal::new(Code::TooLarge, "")));
        assert_eq!(value(&registry, "exchange_schema_validations_total", &["group", "valid"]), 1.0);
        assert_eq!(value(&registry, "exchange_schema_validations_total", &["group", "invalid"]), 2.0);
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["group", "required"]), 1.0);
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["group"]), 1.0, "a size is no keyword");
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["policy"]), 0.0);
    }

    #[test]
    fn only_the_revision_in_force_is_shown() {
        let registry = Registry::new();
        let metrics = ControlMetrics::new(&Maker(&registry)).unwrap();
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &["none"]), 1.0, "nothing was read");
        let [one, other] = ["one", "other"].map(|text| Digest::of_bytes(text.as_bytes()));
        for revision in [&one, &one, &other] {
            metrics.in_force(revision);
        }
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &[]), 1.0);
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &[&short(&other)]), 1.0);
    }

    #[test]
    fn buckets_are_found_by_declaration_order() {
        assert!(Bucket::ALL.into_iter().enumerate().all(|(index, bucket)| bucket as usize == index));
    }
}
