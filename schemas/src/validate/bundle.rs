//! The published schemas and their validators.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::{Draft, PatternOptions, Registry, Validator};
use serde_json::{Value, json};

use super::fault;
use crate::code::{Code, Refusal};
use crate::payload::Act;
use crate::time::WireTime;

/// Every schema's `$id` is this, its name and `.json`. The number is the version of the wire contract.
pub const SCHEMA_BASE: &str = "https://llmx.dev/schemas/1/";

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A published schema a document can be checked against.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The schema's name: its file name without `.json`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        static PUBLISHED: &[(&str, &str)] = &[
            ("types", include_str!("../../json/types.json")),
            $(($name, include_str!(concat!("../../json/", $name, ".json"))),)*
        ];
    };
}

kinds! {
    /// What an agent sends.
    Message = "message",
    /// The envelope of a message.
    Envelope = "envelope",
    /// The payload of a call for proposals.
    Cfp = "cfp",
    /// The payload of an offer.
    Offer = "offer",
    /// The payload of a refusal.
    Refuse = "refuse",
    /// The payload of a not-understood.
    NotUnderstood = "not_understood",
    /// The payload of a withdrawal.
    Withdraw = "withdraw",
    /// The payload of an acceptance: the initiator's own choice, or in a bargain.
    Accept = "accept",
    /// The payload of a confirmation.
    Confirm = "confirm",
    /// The payload of a report.
    Inform = "inform",
    /// The payload of a failure.
    Failure = "failure",
    /// The payload of a cancellation.
    Cancel = "cancel",
    /// The payload of an invited party's joining.
    Join = "join",
    /// The payload of a party's end of a bargain.
    End = "end",
    /// The payload of what a member says to its team.
    Say = "say",
    /// The payload of an assignment of tasks.
    Assign = "assign",
    /// The payload of a pause.
    Pause = "pause",
    /// The payload of a conclusion.
    Conclude = "conclude",
    /// The payload of a rejection, which only the exchange sends.
    Reject = "reject",
    /// The payload of a closing, which only the exchange sends.
    Closed = "closed",
    /// The payload of an acknowledgement, which only the exchange sends.
    Ack = "ack",
    /// The payload of a bargain's turn, which only the exchange sends.
    Turn = "turn",
    /// The payload of a panel's ask, which only the exchange sends.
    Ask = "ask",
    /// The payload of an answer to an ask.
    Answer = "answer",
    /// The rules of a panel.
    Panel = "panel",
    /// The payload of how a team stands, which only the exchange sends.
    Floor = "floor",
    /// The payload of an offer of the alternating offers protocol.
    AlternatingOffer = "alternating_offer",
    /// The rules of a bargain.
    Bargain = "bargain",
    /// The mandate of a party of a bargain.
    Mandate = "mandate",
    /// The rules of a team.
    Team = "team",
    /// The rules of an English auction.
    EnglishAuction = "english_auction",
    /// What an agent receives.
    Delivery = "delivery",
    /// An acceptance policy.
    Policy = "policy",
    /// An agent's registration.
    Registration = "registration",
    /// A group.
    Group = "group",
    /// A search for agents.
    Search = "search",
    /// An act in a foreign protocol.
    Request = "request",
    /// What a participant may see of a negotiation.
    View = "view",
    /// The claims of a signed record.
    AwardRecord = "award_record",
}

impl Kind {
    /// The kind whose schema has this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Name and text of every published schema, as a gateway serves them at `/schemas/<name>.json`.
#[must_use]
pub fn published() -> &'static [(&'static str, &'static str)] {
    PUBLISHED
}

/// Checks a document against its schema.
pub(super) fn check(kind: Kind, document: &Value) -> Result<(), Refusal> {
    run(&VALIDATORS.documents[kind as usize], document)
}

/// Checks a whole message of a known act against that act's branch of `message.json`; without an act, against the
/// branch that says which acts there are.
pub(super) fn check_message(act: Option<Act>, document: &Value) -> Result<(), Refusal> {
    let index = act.and_then(|act| Act::FROM_AGENTS.iter().position(|known| *known == act));
    run(&VALIDATORS.messages[index.unwrap_or(Act::FROM_AGENTS.len())], document)
}

fn run(validator: &Validator, document: &Value) -> Result<(), Refusal> {
    if validator.is_valid(document) {
        return Ok(());
    }
    let fallback = || Refusal::new(Code::Internal, "the validator contradicts itself");
    Err(fault::first(validator.iter_errors(document)).unwrap_or_else(fallback))
}

/// A schema that is not published and refers to nothing outside of itself.
pub struct Schema(Validator);

impl Schema {
    /// Compiles it.
    ///
    /// # Errors
    /// Why it is no schema.
    pub fn try_new(schema: &Value) -> Result<Self, String> {
        let options = jsonschema::draft202012::options().offline().with_pattern_options(PatternOptions::regex());
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Checks a document.
    ///
    /// # Errors
    /// The first fault, with its pointer.
    pub fn check(&self, document: &Value) -> Result<(), Refusal> {
        run(&self.0, document)
    }
}

struct Validators {
    /// One for each of [`Kind::ALL`], in that order.
    documents: Vec<Validator>,
    /// One for each of [`Act::FROM_AGENTS`], in that order; then the one for other acts.
    messages: Vec<Validator>,
}

static VALIDATORS: LazyLock<Validators> = LazyLock::new(|| {
    let documents = SCHEMAS.iter().map(|(id, schema)| (id.clone(), schema.clone()));
    let builder = Registry::new().draft(Draft::Draft202012).extend(documents);
    let registry = builder.and_then(|builder| builder.prepare());
    let registry = registry.expect("the bundle refers only to itself: the tests compile it all");
    let url = |name: &str| format!("{SCHEMA_BASE}{name}.json");
    let branches = Act::FROM_AGENTS.iter().map(|act| act.as_str()).chain(["other"]);
    Validators {
        documents: Kind::ALL.iter().map(|kind| compile(&registry, &url(kind.name()))).collect(),
        messages: branches.map(|name| compile(&registry, &format!("{}#/$defs/{name}", url("message")))).collect(),
    }
});

/// The published schemas by `$id`.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let parse = |text| serde_json::from_str(text).expect("the bundled schemas are JSON: the tests compile them all");
    PUBLISHED.iter().map(|(name, text)| (format!("{SCHEMA_BASE}{name}.json"), parse(text))).collect()
});

/// The members that the object schema around a keyword knows. `keyword` is the keyword's absolute location.
pub(super) fn members_beside(keyword: &str) -> Option<String> {
    let (id, pointer) = keyword.split_once('#')?;
    let (object, _) = pointer.rsplit_once('/')?;
    let members = SCHEMAS.get(id)?.pointer(object)?.get("properties")?.as_object()?;
    Some(members.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn compile(registry: &Registry<'_>, url: &str) -> Validator {
    jsonschema::draft202012::options()
        .with_registry(registry)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false)
        // Linear-time matching, although every pattern here is ours.
        .with_pattern_options(PatternOptions::regex())
        .with_format("llmx-time", |text: &str| WireTime::try_new(text).is_ok())
        .build(&json!({ "$ref": url }))
        .expect("the bundled schemas are valid: the tests compile them all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_valid_and_carries_its_own_address() {
        for (name, text) in published() {
            let schema: Value = serde_json::from_str(text).unwrap();
            assert!(jsonschema::meta::is_valid(&schema), "{name}");
            assert_eq!(schema["$id"], format!("{SCHEMA_BASE}{name}.json"));
            assert!(schema["title"].is_string() && schema["description"].is_string(), "{name}");
        }
        LazyLock::force(&VALIDATORS);
    }

    #[test]
    fn every_object_of_the_bundle_refuses_unknown_members() {
        for (name, text) in published() {
            assert_closed(name, &serde_json::from_str(text).unwrap());
        }
    }

    #[test]
    fn a_kind_is_found_by_its_name_only() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("types"), None);
    }

    /// An object that lists members either closes itself or only adds conditions to one that does.
    fn assert_closed(path: &str, schema: &Value) {
        let Some(object) = schema.as_object() else { return };
        let lists_described_members = object
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|members| members.values().any(|member| member.get("description").is_some()));
        assert!(!lists_described_members || object.contains_key("additionalProperties"), "{path} is open");
        for (name, child) in object {
            assert_closed(&format!("{path}/{name}"), child);
        }
    }
}
