use std::time::Duration;

use agora::registry::{PutResult, RegistryObserver, StoreOperation};
use bus::Bucket;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use prometheus::{Error, Registry};
use schemas::validate::{SCHEMA_BASE, published};
use schemas::{Code, Digest, Refusal};

use super::{GatewayMetrics, LATENCY_S, gauge_value};

/// Buckets in seconds for a write to the control plane's store: a disk, or a cluster that elects.
const STORE_S: [f64; 8] = [0.000_5, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// Buckets of the hits of a search: 8 texts find at most 100 each.
const HITS: [f64; 9] = [0.0, 1.0, 3.0, 10.0, 24.0, 50.0, 100.0, 300.0, 800.0];
/// Hexadecimal digits of a digest that tell revisions apart.
const REVISION_LEN: usize = 12;
/// The revision of a gateway that has read no policies.
const REVISION_NONE: &str = "none";

telemetry::metrics! {
    /// Documents: what they are checked against, what is in force, and how they are stored and found.
    struct DocumentMetrics {
        /// 1 for each published schema: its version and the digest of its text.
        schemas: Gauge[schema, version, digest; open] = "exchange_schema_info";
        /// Documents checked against their schema, by result.
        validations: Counter[schema: Document, result: Validity] = "exchange_schema_validations_total";
        /// Documents refused for their form, by the family of the keyword they broke first.
        errors: Counter[schema: Document, keyword: Keyword] = "exchange_schema_errors_total";
        /// Changes of the stored policies and of the default that this gateway followed, by result.
        reloads: Counter[result: Reload] = "exchange_policy_reloads_total";
        /// 1 for the revision of all policies and the default that is in force: equal on gateways that agree.
        bundle: Gauge[revision; open] = "exchange_policy_bundle_info";
        /// Agents that calls addressed, by the rule that decided and its effect.
        decisions: Counter[rule: Rule, effect: Invited; Rule::EFFECTS] = "exchange_policy_decisions_total";
        /// Searches for agents, by result.
        discoveries: Counter[result: Discovery] = "exchange_discovery_queries_total";
        /// Time of a search for agents.
        discovery_duration: Histogram(LATENCY_S) = "exchange_discovery_duration_seconds";
        /// Agents that a search by text found.
        search_hits: Histogram(HITS) = "exchange_search_hits";
        /// Agents that searches by text can find at this gateway.
        search_index_agents: Gauge = "exchange_search_index_agents";
        /// Protocol documents that the exchange holds.
        protocol_documents: Gauge = "exchange_protocol_documents";
        /// Protocol documents that agents put, by result.
        document_puts: Counter[result: PutResult] = "exchange_protocol_document_puts_total";
        /// Texts that were put, or found in the store, under the hash of another: SHA-1 collisions, or a store that something else writes to.
        document_collisions: Counter = "exchange_protocol_document_collisions_total";
        /// Supports of protocol documents that ended for want of room, because their agent held more than the one that needed it.
        document_supports_ended: Counter = "exchange_protocol_document_supports_ended_total";
        /// Operations on the control plane's buckets, by result.
        kv_operations: Counter[bucket: Bucket, op: StoreOperation, result: StoreResult] = "exchange_kv_operations_total";
        /// Time of an operation on the control plane's buckets.
        kv_durations: Histogram(STORE_S)[bucket: Bucket, op: StoreOperation; BUCKET_OPERATIONS] = "exchange_kv_operation_duration_seconds";
    }
}

/// [`DocumentMetrics`], and which policies they show.
pub(crate) struct ControlMetrics {
    documents: DocumentMetrics,
    /// The revision of the policies that is shown.
    revision: Mutex<String>,
}

impl ControlMetrics {
    pub(super) fn try_new(registry: &Registry) -> Result<Self, Error> {
        let documents = DocumentMetrics::try_new(registry)?;
        documents.bundle.with_label_values(&[REVISION_NONE]).set(1);
        // The version of the wire contract, and what stands in each schema.
        let version = SCHEMA_BASE.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        for (name, text) in published() {
            let digest = short(&Digest::of_bytes(text.as_bytes()));
            documents.schemas.with_label_values(&[*name, version, &digest]).set(1);
        }
        Ok(Self { documents, revision: Mutex::new(REVISION_NONE.to_owned()) })
    }

    /// A document was checked.
    pub(crate) fn checked<T>(&self, document: Document, outcome: Result<T, Refusal>) -> Result<T, Refusal> {
        let refused = outcome.as_ref().err();
        let validity = if refused.is_some() { Validity::Invalid } else { Validity::Valid };
        self.documents.validations.of(document, validity).inc();
        if let Some(keyword) = refused.and_then(|refusal| Keyword::of(refusal.code)) {
            self.documents.errors.of(document, keyword).inc();
        }
        outcome
    }

    /// A stored policy or the default changed.
    pub(crate) fn reloaded(&self, is_applied: bool) {
        let result = if is_applied { Reload::Applied } else { Reload::Unreadable };
        self.documents.reloads.of(result).inc();
    }

    /// This is in force now.
    pub(crate) fn in_force(&self, revision: &Digest) {
        let text = short(revision);
        let mut shown = self.revision.lock();
        if *shown != text {
            // What is shown is there to be removed.
            let _ = self.documents.bundle.remove_label_values(&[shown.as_str()]);
            self.documents.bundle.with_label_values(&[&text]).set(1);
            *shown = text;
        }
    }

    /// So many agents that a call addressed were decided on by this rule.
    pub(crate) fn addressed(&self, rule: Rule, effect: Invited, count: usize) {
        self.documents.decisions.of(rule, effect).inc_by(count as u64);
    }

    /// Agents were searched for; `found` is how many there are, nothing where the search was refused.
    pub(crate) fn discovered(&self, found: Option<usize>, time: Duration) {
        let result = match found {
            Some(0) => Discovery::Empty,
            Some(_) => Discovery::Found,
            None => Discovery::Refused,
        };
        self.documents.discoveries.of(result).inc();
        self.documents.discovery_duration.observe(time.as_secs_f64());
    }

    /// A search by text found so many agents.
    pub(crate) fn searched(&self, hits: usize) {
        self.documents.search_hits.observe(hits as f64);
    }

    /// Searches by text can find so many agents.
    pub(crate) fn searchable(&self, agents: usize) {
        self.documents.search_index_agents.set(gauge_value(agents));
    }

    /// The store answered, or did not.
    pub(crate) fn stored(&self, bucket: Bucket, operation: StoreOperation, is_done: bool, time: Duration) {
        let result = if is_done { StoreResult::Ok } else { StoreResult::Error };
        self.documents.kv_operations.of(bucket, operation, result).inc();
        self.documents.kv_durations.of(bucket, operation).observe(time.as_secs_f64());
    }
}

impl RegistryObserver for GatewayMetrics {
    fn operated(&self, operation: StoreOperation, is_done: bool, time: Duration) {
        self.control.stored(Bucket::Documents, operation, is_done, time);
    }

    fn put(&self, result: PutResult) {
        self.control.documents.document_puts.of(result).inc();
        if result == PutResult::Collision {
            self.collided();
        }
    }

    fn collided(&self) {
        self.control.documents.document_collisions.inc();
    }

    fn gave_up(&self) {
        self.control.documents.document_supports_ended.inc();
    }

    fn holds(&self, documents: usize) {
        self.control.documents.protocol_documents.set(gauge_value(documents));
    }
}

fn short(digest: &Digest) -> String {
    let mut text = HEXLOWER.encode(&digest.0);
    text.truncate(REVISION_LEN);
    text
}

/// What a document was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Document {
    /// A message of any act.
    Message,
    /// A registration.
    Registration,
    /// A group.
    Group,
    /// A policy.
    Policy,
}

/// Whether a document is as its schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Validity {
    Valid,
    Invalid,
}

/// Which kind of rule a document broke: the families of JSON Schema's keywords, and what no schema is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Keyword {
    /// No JSON, a member twice, too deep.
    Syntax,
    /// `required`.
    Required,
    /// `additionalProperties`.
    #[strum(serialize = "additionalProperties")]
    AdditionalProperties,
    /// `type`.
    Type,
    /// `minimum`, `maxLength` and their like.
    Range,
    /// `pattern`, `format`.
    Format,
    /// `enum`, `const`, `not`.
    Enum,
}

/// The codes that speak of a document's form.
const FAMILIES: [(Code, Keyword); 9] = [
    (Code::MalformedJson, Keyword::Syntax),
    (Code::DuplicateKey, Keyword::Syntax),
    (Code::TooDeep, Keyword::Syntax),
    (Code::MissingField, Keyword::Required),
    (Code::UnknownField, Keyword::AdditionalProperties),
    (Code::WrongType, Keyword::Type),
    (Code::OutOfRange, Keyword::Range),
    (Code::BadFormat, Keyword::Format),
    (Code::NotAllowed, Keyword::Enum),
];

impl Keyword {
    /// The family a code speaks of; none for codes that speak of no document's form.
    fn of(code: Code) -> Option<Self> {
        FAMILIES.iter().find(|(of, _)| *of == code).map(|(_, family)| *family)
    }
}

/// What became of a document of the control plane that was followed from the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Reload {
    /// In force.
    Applied,
    /// Left out.
    Unreadable,
}

/// The rule that decided whether an agent is invited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Rule {
    /// Its own rules.
    Consent,
    /// What it can do.
    Capability,
    /// Whether it is present.
    Presence,
    /// What it has not acknowledged.
    Backlog,
}

impl Rule {
    /// What each can decide.
    const EFFECTS: [(Self, Invited); 6] = [
        (Self::Consent, Invited::Allowed),
        (Self::Consent, Invited::Denied),
        (Self::Consent, Invited::Asked),
        (Self::Capability, Invited::Denied),
        (Self::Presence, Invited::Denied),
        (Self::Backlog, Invited::Denied),
    ];
}

/// What the gateway decided about an agent that a call addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Invited {
    /// It is invited.
    #[strum(serialize = "allow")]
    Allowed,
    /// Its rules do not consent.
    #[strum(serialize = "deny")]
    Denied,
    /// Its owner is to be asked.
    #[strum(serialize = "escalate")]
    Asked,
}

/// What a search for agents came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Discovery {
    /// At least one agent.
    Found,
    /// None.
    Empty,
    /// The question was refused.
    Refused,
}

/// What is done to each bucket of the control plane.
const BUCKET_OPERATIONS: [(Bucket, StoreOperation); 11] = [
    (Bucket::Agents, StoreOperation::Put),
    (Bucket::Agents, StoreOperation::Delete),
    (Bucket::Groups, StoreOperation::Put),
    (Bucket::Groups, StoreOperation::Delete),
    (Bucket::Policies, StoreOperation::Put),
    (Bucket::Policies, StoreOperation::Create),
    (Bucket::Policies, StoreOperation::Value),
    (Bucket::Documents, StoreOperation::Put),
    (Bucket::Documents, StoreOperation::Create),
    (Bucket::Documents, StoreOperation::Value),
    (Bucket::Documents, StoreOperation::Delete),
];

/// Whether the store did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum StoreResult {
    Ok,
    Error,
}

#[cfg(test)]
mod tests {
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
        let metrics = ControlMetrics::try_new(&registry).unwrap();
        assert!(metrics.checked(Document::Group, Ok(())).is_ok());
        for code in [Code::MissingField, Code::TooLarge] {
            assert!(metrics.checked::<()>(Document::Group, Err(Refusal::new(code, ""))).is_err());
        }
        assert_eq!(value(&registry, "exchange_schema_validations_total", &["group", "valid"]), 1.0);
        assert_eq!(value(&registry, "exchange_schema_validations_total", &["group", "invalid"]), 2.0);
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["group", "required"]), 1.0);
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["group"]), 1.0, "a size is no keyword");
        assert_eq!(value(&registry, "exchange_schema_errors_total", &["policy"]), 0.0);
    }

    #[test]
    fn only_the_revision_in_force_is_shown() {
        let registry = Registry::new();
        let metrics = ControlMetrics::try_new(&registry).unwrap();
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &["none"]), 1.0, "nothing was read");
        let [one, other] = ["one", "other"].map(|text| Digest::of_bytes(text.as_bytes()));
        for revision in [&one, &one, &other] {
            metrics.in_force(revision);
        }
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &[]), 1.0);
        assert_eq!(value(&registry, "exchange_policy_bundle_info", &[&short(&other)]), 1.0);
    }

    #[test]
    fn every_kind_of_rule_has_a_code_that_speaks_of_it() {
        for keyword in <Keyword as strum::VariantArray>::VARIANTS {
            assert!(Code::ALL.iter().any(|code| Keyword::of(*code) == Some(*keyword)), "{keyword:?}");
        }
    }
}
