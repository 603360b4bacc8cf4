//! Configuration of agents that ask a model: one document, read by `llmx contractors --model FILE`.

use std::collections::BTreeMap;

use schemas::ids::AttrName;
use schemas::payload::{ATTR_TEXT_LEN_MAX, AttrValue, INTEGER_MAX, TERMS_MAX, Terms};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shape::{AnswerShape, DECIMALS_MAX, decimal};
use crate::contractor::ContractorConfig;

/// Longest instructions of an owner, in bytes: two pages.
const INSTRUCTIONS_BYTES_MAX: usize = 8192;
/// The attribute that is money, and its digits after the point: an offer's price is in micro-units.
const PRICE: &str = "price";
/// Digits after the point of a price, unless the owner says otherwise.
pub const PRICE_DECIMALS: u32 = 6;
/// Most attempts and repairs: more would be a storm of requests, not patience.
const TRIES_MAX: u32 = 10;

/// The document: the model, and the agents that ask it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAgentConfig {
    /// The model.
    pub model: ModelConfig,
    /// What contractors are told and may offer.
    #[serde(default)]
    pub contractor: ModelContractorConfig,
    /// What initiators are told, and may choose.
    #[serde(default)]
    pub initiator: ModelDeciderConfig,
    /// What parties of bargains are told.
    #[serde(default)]
    pub party: ModelInstructions,
    /// What a model that carries awards out is told. It is shown the task of each award, quoted, whatever `words` says.
    #[serde(default)]
    pub routine: ModelInstructions,
    /// What a model that forms teams, and speaks and works in them, is told. It is shown goals, tasks and what members say, quoted,
    /// whatever `words` says; profiles of candidates only where that says so.
    #[serde(default)]
    pub team: ModelInstructions,
    /// What a model that answers, ranks and reviews on panels is told. It is shown the question and what others answer and say,
    /// quoted, whatever `words` says.
    #[serde(default)]
    pub panel: ModelInstructions,
}

/// An endpoint and the limits of using it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Address of the endpoint; `/chat/completions` is added.
    pub url: String,
    /// The model's name there.
    pub name: String,
    /// Environment variable that holds the key. Empty: no `Authorization` header is sent.
    pub key_env: String,
    /// Longest wait for one answer, in milliseconds.
    pub timeout_ms: u64,
    /// Most attempts of one question: 429, 5xx, no connection, no answer in time.
    pub attempts: u32,
    /// Most repairs of one question: answers that do not fit.
    pub repairs: u32,
    /// Most tokens of one answer.
    pub answer_tokens: u32,
    /// Most calls of one agent in one negotiation.
    pub calls_per_negotiation: u32,
    /// Most tokens of one agent in one negotiation.
    pub tokens_per_negotiation: u64,
    /// Micro-units that all agents together may spend in a day (UTC).
    pub budget: u64,
    /// Micro-units per million tokens.
    pub price: TokenPrice,
    /// What an agent does without an answer.
    pub fallback: ModelFallback,
    /// What a prompt says of others' words.
    pub words: QuotedWords,
}

/// Prices in micro-units per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    /// Of what is sent.
    pub input: u64,
    /// Of what is answered.
    pub output: u64,
}

/// What an agent does when its model gives no usable answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFallback {
    /// It refuses, and says why by a code.
    #[default]
    Refuse,
    /// It does what the scripted agent does.
    Scripted,
}

/// Whether a model is shown the words of others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotedWords {
    /// Typed terms only.
    #[default]
    Never,
    /// Quoted, marked and bounded (see [`super::prompt`]).
    Quoted,
}

/// What a model contractor is told, may offer, and does besides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelContractorConfig {
    /// The owner's words to the model: what the agent is, how it should price. Limits do not belong here.
    pub instructions: String,
    /// What it offers, by attribute.
    pub terms: BTreeMap<AttrName, TermConfig>,
    /// The rest of its behaviour, and all of it with `fallback = "scripted"`.
    pub script: ContractorConfig,
}

/// What the decider of an initiator is told, and may choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelDeciderConfig {
    /// The owner's words to the model: what matters. Limits do not belong here.
    pub instructions: String,
    /// What it is shown of offers, by attribute.
    pub terms: BTreeMap<AttrName, TermConfig>,
    /// In which order it is shown them.
    pub order: OfferOrder,
}

/// What an agent of one kind is told that has no other limits here: a party has those of its domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelInstructions {
    /// The owner's words to the model: what the agent is, knows and does, and how. Neither limits nor secrets belong here.
    pub instructions: String,
}

/// In which order a model is shown offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferOrder {
    /// Drawn anew for every prompt, so that no place in the list can be had by whoever offers.
    #[default]
    Drawn,
    /// As they arrived: for experiments about what that leads to.
    Arrival,
}

/// One attribute of an offer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TermConfig {
    /// What it is and in which unit, for the model.
    pub about: String,
    /// The owner's limit: never less. No prompt contains it.
    pub min: Option<i64>,
    /// The owner's limit: never more. No prompt contains it.
    pub max: Option<i64>,
    /// Texts to choose from; empty: a number.
    pub values: Vec<String>,
    /// Digits after the point in which a model reads and says it; limits and offers are whole units of the last of them.
    /// Absent: [`PRICE_DECIMALS`] of a price, none of anything else.
    pub decimals: Option<u32>,
    /// What an example of an offer says of it, as limits are written. With one of every term a prompt shows the example.
    pub example: Option<AttrValue>,
}

impl TermConfig {
    /// Whether a value is no words of others: an integer, or a text that the owner has listed.
    #[must_use]
    pub fn is_typed(&self, value: &AttrValue) -> bool {
        match value {
            AttrValue::Int(_) => true,
            AttrValue::Text(text) => self.values.contains(text),
        }
    }

    /// Digits after the point, for a term of this name.
    fn decimals(&self, name: &AttrName) -> u32 {
        self.decimals.unwrap_or(if name.as_str() == PRICE { PRICE_DECIMALS } else { 0 })
    }

    /// What an answer may say of it.
    #[must_use]
    pub fn shape(&self, name: &AttrName) -> AnswerShape {
        match self.decimals(name) {
            _ if !self.values.is_empty() => AnswerShape::one_of(&self.values),
            0 => AnswerShape::Integer { min: 0, max: INTEGER_MAX },
            decimals => AnswerShape::Decimal { decimals },
        }
    }

    /// Whether the owner's limits allow a value.
    #[must_use]
    pub fn allows(&self, value: &AttrValue) -> bool {
        match value {
            AttrValue::Int(_) if !self.values.is_empty() => false,
            AttrValue::Int(number) => {
                self.min.is_none_or(|min| *number >= min) && self.max.is_none_or(|max| *number <= max)
            }
            AttrValue::Text(text) => self.values.contains(text) || !self.is_limited(),
        }
    }

    /// Whether the owner has limits.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.min.is_some() || self.max.is_some() || !self.values.is_empty()
    }
}

/// Of what others say, the terms that the owner has named and that are no words of theirs: a JSON object, whose numbers a model
/// reads in the units in which it answers.
#[must_use]
pub fn shown_terms(known: &BTreeMap<AttrName, TermConfig>, said: &Terms) -> String {
    let shown = said.iter().filter_map(|(name, value)| {
        let term = known.get(name).filter(|term| term.is_typed(value))?;
        let value = match value {
            AttrValue::Int(units) => decimal(*units, term.decimals(name)),
            AttrValue::Text(text) => Value::from(text.as_str()).to_string(),
        };
        Some(format!("\"{name}\":{value}"))
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

/// What terms are, in the owner's words.
#[must_use]
pub fn meanings(known: &BTreeMap<AttrName, TermConfig>) -> Value {
    known.iter().map(|(name, term)| (name.to_string(), Value::from(term.about.as_str()))).collect()
}

/// A parameter that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{parameter}`: {fault}")]
pub struct ModelConfigError {
    /// Its name.
    pub parameter: String,
    /// What is wrong, and what would be right.
    pub fault: String,
}

/// An environment variable that should hold a key, and is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not set: it should hold the model's key")]
pub struct MissingKey(pub String);

/// The key in an environment variable.
///
/// # Errors
/// [`MissingKey`], also where the variable is empty.
pub fn read_key(variable: &str) -> Result<String, MissingKey> {
    let key = std::env::var(variable).ok().filter(|key| !key.trim().is_empty());
    key.ok_or_else(|| MissingKey(variable.to_owned()))
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:9090/v1".to_owned(),
            name: "stub".to_owned(),
            key_env: String::new(),
            timeout_ms: 20_000,
            attempts: 3,
            repairs: 2,
            answer_tokens: 1024,
            calls_per_negotiation: 8,
            tokens_per_negotiation: 20_000,
            budget: 5_000_000,
            price: TokenPrice::default(),
            fallback: ModelFallback::default(),
            words: QuotedWords::default(),
        }
    }
}

impl ModelAgentConfig {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`ModelConfigError`] names the first that does not.
    pub fn check(&self) -> Result<(), ModelConfigError> {
        self.model.check()?;
        self.contractor.check()
    }

    /// Whether the parameters of an agent that is told instructions alone make sense: a party, a routine, a member of teams
    /// or panels.
    ///
    /// # Errors
    /// [`ModelConfigError`] names the first that does not.
    pub fn check_instructed(&self) -> Result<(), ModelConfigError> {
        self.model.check()?;
        let Self { party, routine, team, panel, .. } = self;
        let mut sections = [("party", party), ("routine", routine), ("team", team), ("panel", panel)].into_iter();
        sections.try_for_each(|(section, told)| check_instructions(section, &told.instructions))
    }

    /// Whether the parameters of a deciding initiator make sense.
    ///
    /// # Errors
    /// [`ModelConfigError`] names the first that does not.
    pub fn check_initiator(&self) -> Result<(), ModelConfigError> {
        self.model.check()?;
        let ModelDeciderConfig { instructions, terms, order: _ } = &self.initiator;
        check_section("initiator", instructions, terms)
    }
}

impl ModelConfig {
    /// The key that `key_env` names; none where it names none.
    ///
    /// # Errors
    /// As [`read_key`].
    pub fn key(&self) -> Result<Option<String>, MissingKey> {
        (!self.key_env.is_empty()).then(|| read_key(&self.key_env)).transpose()
    }

    fn check(&self) -> Result<(), ModelConfigError> {
        let is_web = self.url.starts_with("http://") || self.url.starts_with("https://");
        let authority = self.url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
        if !is_web || authority.is_empty() || authority.contains('@') || self.url.contains(['?', '#']) {
            return Err(fault("model.url", "an http or https address without a name, a key or a query in it"));
        }
        if self.name.is_empty() {
            return Err(fault("model.name", "the model's name at its endpoint"));
        }
        if !(1..=TRIES_MAX).contains(&self.attempts) {
            return Err(fault("model.attempts", "1 to 10"));
        }
        if self.repairs > TRIES_MAX {
            return Err(fault("model.repairs", "0 to 10"));
        }
        if self.timeout_ms == 0 || self.answer_tokens == 0 || self.calls_per_negotiation == 0 {
            return Err(fault("model.timeout_ms", "it, answer_tokens and calls_per_negotiation are at least 1"));
        }
        Ok(())
    }
}

impl ModelContractorConfig {
    /// The owner's words, and an example of an offer where every term has one: small models follow what they see.
    #[must_use]
    pub fn shown_instructions(&self) -> String {
        let example = |(name, term): (&AttrName, &TermConfig)| Some((name.clone(), term.example.clone()?));
        let Some(example) = self.terms.iter().map(example).collect::<Option<Terms>>() else {
            return self.instructions.clone();
        };
        let (terms, words) = (shown_terms(&self.terms, &example), &self.instructions);
        format!(
            "{words}\nAn example of an offer:\n{{\"answer\":{{\"act\":\"offer\",\"terms\":{terms},\"reason\":\"It covers the costs.\"}}}}"
        )
    }

    fn check(&self) -> Result<(), ModelConfigError> {
        check_section("contractor", &self.instructions, &self.terms)?;
        self.script.check().map_err(|error| fault(&format!("contractor.script.{}", error.parameter), error.fault))
    }
}

fn check_instructions(section: &str, instructions: &str) -> Result<(), ModelConfigError> {
    if instructions.len() <= INSTRUCTIONS_BYTES_MAX {
        return Ok(());
    }
    Err(fault(&format!("{section}.instructions"), format!("at most {INSTRUCTIONS_BYTES_MAX} bytes")))
}

/// The words and limits of one kind of agent.
fn check_section(
    section: &str,
    instructions: &str,
    terms: &BTreeMap<AttrName, TermConfig>,
) -> Result<(), ModelConfigError> {
    check_instructions(section, instructions)?;
    if terms.is_empty() || terms.len() > TERMS_MAX {
        return Err(fault(
            &format!("{section}.terms"),
            format!("1 to {TERMS_MAX} attributes, each a table of its own"),
        ));
    }
    for (name, term) in terms {
        let name = format!("{section}.terms.{name}");
        let limits = [term.min, term.max].into_iter().flatten();
        if limits.clone().any(|limit| limit.abs() > INTEGER_MAX) || term.min > term.max.or(term.min) {
            return Err(fault(&name, "min and max lie within ± (2^53 - 1), min first"));
        }
        if term.decimals.is_some_and(|decimals| decimals > DECIMALS_MAX || !term.values.is_empty()) {
            return Err(fault(&name, format!("decimals are 0 to {DECIMALS_MAX}, and of numbers")));
        }
        if !term.values.is_empty() && limits.count() > 0 {
            return Err(fault(&name, "either values, or min and max"));
        }
        if term.example.as_ref().is_some_and(|example| !term.allows(example) || !term.is_typed(example)) {
            return Err(fault(&name, "the example lies within the limits, or is one of values"));
        }
        if term.values.iter().any(|value| value.chars().count() > ATTR_TEXT_LEN_MAX) {
            return Err(fault(&name, format!("a value has at most {ATTR_TEXT_LEN_MAX} characters")));
        }
    }
    Ok(())
}

fn fault(parameter: &str, fault: impl Into<String>) -> ModelConfigError {
    ModelConfigError { parameter: parameter.to_owned(), fault: fault.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(model: Value, contractor: Value) -> Result<(), String> {
        let config: ModelAgentConfig = serde_json::from_value(json!({"model": model, "contractor": contractor}))
            .map_err(|error| error.to_string())?;
        config.check().map_err(|error| error.parameter)
    }

    #[test]
    fn parameters_that_make_no_sense_are_named() {
        let terms = json!({"terms": {"price": {"min": 5}}});
        assert_eq!(read(json!({}), terms.clone()), Ok(()));
        for (model, parameter) in [
            (json!({"url": "ftp://x"}), "model.url"),
            (json!({"url": "https://key@host/v1"}), "model.url"),
            (json!({"url": "https://host/v1?key=1"}), "model.url"),
            (json!({"url": "https://"}), "model.url"),
            (json!({"name": ""}), "model.name"),
            (json!({"attempts": 0}), "model.attempts"),
            (json!({"repairs": 11}), "model.repairs"),
            (json!({"timeout_ms": 0}), "model.timeout_ms"),
        ] {
            assert_eq!(read(model, terms.clone()), Err(parameter.to_owned()));
        }
        for (contractor, parameter) in [
            (json!({}), "contractor.terms"),
            (json!({"terms": {"price": {"min": 5, "max": 4}}}), "contractor.terms.price"),
            (json!({"terms": {"price": {"min": 5, "values": ["a"]}}}), "contractor.terms.price"),
            (json!({"terms": {"price": {"min": 5, "example": 4}}}), "contractor.terms.price"),
            (json!({"terms": {"price": {"values": ["a"], "example": "b"}}}), "contractor.terms.price"),
            (json!({"terms": {"price": {"example": "b"}}}), "contractor.terms.price"),
            (json!({"terms": {"price": {}}, "instructions": "x".repeat(9000)}), "contractor.instructions"),
            (json!({"terms": {"price": {}}, "script": {"refuse": 2.0}}), "contractor.script.refuse"),
        ] {
            assert_eq!(read(json!({}), contractor), Err(parameter.to_owned()));
        }
        assert!(
            read(json!({"key": "sk-1"}), terms).unwrap_err().contains("unknown field `key`"),
            "keys are in no file"
        );
    }

    #[test]
    fn an_example_of_an_offer_is_shown_where_every_term_has_one_in_the_units_of_the_model() {
        let shown = |terms: Value| {
            let config = json!({"instructions": "Carry.", "terms": terms});
            serde_json::from_value::<ModelContractorConfig>(config).unwrap().shown_instructions()
        };
        let handover = json!({"values": ["door"], "example": "door"});
        assert_eq!(
            shown(json!({"price": {"example": 60_500_000}, "handover": handover})),
            "Carry.\nAn example of an offer:\n\
             {\"answer\":{\"act\":\"offer\",\"terms\":{\"handover\":\"door\",\"price\":60.5},\"reason\":\"It covers the costs.\"}}"
        );
        assert_eq!(shown(json!({"price": {}, "handover": handover})), "Carry.");
    }
}
