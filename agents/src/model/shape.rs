//! What an answer must look like. One description is written as JSON Schema for the endpoint and read here, so that the
//! two cannot differ; a property test holds it against a JSON Schema validator.

use std::collections::BTreeMap;

use schemas::payload::{AttrValue, INTEGER_MAX};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::AnswerForm;

/// Most digits after the point of a [`AnswerShape::Decimal`].
pub const DECIMALS_MAX: u32 = 6;
/// Longest reason that a model is asked for, in characters: one sentence. It goes nowhere.
const REASON_CHARS_MAX: usize = 120;
/// The member that an act stands in.
const ENVELOPE: &str = "answer";

/// Members of an object, in the order in which a model says them.
pub type ShapeMembers = Vec<(String, AnswerShape)>;

/// The form of a value. It covers what endpoints accept in strict structured output: members are all required, and none
/// besides them is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerShape {
    /// One of these objects, one for each act that is legal now; their first member tells them apart.
    Acts(Vec<ShapeMembers>),
    /// An object with exactly these members.
    Object(ShapeMembers),
    /// A list.
    List {
        /// Form of its items.
        item: Box<Self>,
        /// Most items.
        len_max: usize,
    },
    /// An integer.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number of at least 0. It is read as the integer of its smallest units: `1.5` with two decimals is 150.
    Decimal {
        /// Digits after the point, at most.
        decimals: u32,
    },
    /// A text.
    Text {
        /// Minimum length, in characters.
        len_min: usize,
        /// Most characters.
        len_max: usize,
    },
    /// A text or null for the model's own reasoning: whatever it is, or none at all, the rest of the answer counts.
    Remark {
        /// Most characters it is asked for.
        len_max: usize,
    },
    /// One of these, integers or texts.
    OneOf(Vec<AttrValue>),
    /// The same, or null.
    Nullable(Box<Self>),
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum InvalidReason {
    /// Nothing was said.
    Empty,
    /// No JSON, or a member twice.
    NotJson,
    /// It departs from the schema.
    Schema,
    /// What it chooses is not legal now.
    Illegal,
    /// The owner's limits do not allow it.
    Limits,
    /// It was cut at the token limit.
    Truncated,
    /// The model refused to answer.
    Refusal,
    /// It is too large to be read.
    TooLarge,
}

/// Where an answer does not fit, and what would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The kind of fault.
    pub reason: InvalidReason,
    /// JSON Pointer (RFC 6901) into the answer.
    pub pointer: String,
    /// What would fit there.
    pub expected: String,
}

impl Misfit {
    /// A misfit at a pointer.
    #[must_use]
    pub fn new(reason: InvalidReason, pointer: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { reason, pointer: pointer.into(), expected: expected.into() }
    }

    fn schema(pointer: &str, expected: impl Into<String>) -> Self {
        Self::new(InvalidReason::Schema, pointer, expected)
    }
}

impl AnswerShape {
    /// An act: its name in the first member, then what it has.
    #[must_use]
    pub fn act(member: &'static str, name: &str, more: impl IntoIterator<Item = (&'static str, Self)>) -> ShapeMembers {
        Self::members(std::iter::once((member, Self::one_of(&[name.to_owned()]))).chain(more))
    }

    /// One of these texts.
    #[must_use]
    pub fn one_of(texts: &[String]) -> Self {
        Self::OneOf(texts.iter().cloned().map(AttrValue::Text).collect())
    }

    /// Members in their order.
    pub fn members<'n>(members: impl IntoIterator<Item = (&'n str, Self)>) -> ShapeMembers {
        members.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect()
    }

    /// The last member of most answers.
    #[must_use]
    pub const fn reason() -> (&'static str, Self) {
        ("reason", Self::Remark { len_max: REASON_CHARS_MAX })
    }

    /// As JSON Schema, its members in their order. `json_schema` is for endpoints that refuse more: without alternatives of
    /// acts and without bounds of numbers and lengths, which are checked here in any case.
    #[must_use]
    pub fn to_schema(&self, form: AnswerForm) -> String {
        let bounds = |bounds: String| if form == AnswerForm::JsonSchema { String::new() } else { bounds };
        match self {
            Self::Acts(acts) if form == AnswerForm::Alternatives => {
                let acts: Vec<String> = acts.iter().map(|act| closed(act, form)).collect();
                let answer = if let [sole] = &*acts { sole.clone() } else { any_of(&acts) };
                closed_with([(ENVELOPE, answer)])
            }
            Self::Acts(acts) => closed(&flat(acts), form),
            Self::Object(members) => closed(members, form),
            Self::List { item, len_max } => {
                let most = bounds(format!(r#","maxItems":{len_max}"#));
                format!(r#"{{"type":"array","items":{}{most}}}"#, item.to_schema(form))
            }
            Self::Integer { min, max } => {
                let range = bounds(format!(r#","minimum":{min},"maximum":{max}"#));
                format!(r#"{{"type":"integer"{range}}}"#)
            }
            Self::Decimal { decimals } => {
                let range = bounds(format!(r#","minimum":0,"maximum":{}"#, decimal(INTEGER_MAX, *decimals)));
                format!(r#"{{"type":"number"{range}}}"#)
            }
            Self::Text { len_min, len_max } => {
                let least = if *len_min == 0 { String::new() } else { format!(r#","minLength":{len_min}"#) };
                format!(r#"{{"type":"string"{}}}"#, bounds(format!(r#"{least},"maxLength":{len_max}"#)))
            }
            Self::Remark { len_max } => {
                Self::Nullable(Box::new(Self::Text { len_min: 0, len_max: *len_max })).to_schema(form)
            }
            Self::OneOf(values) => {
                let texts = values.iter().filter(|value| matches!(value, AttrValue::Text(_))).count();
                let kinds = json!(["integer", "string"]);
                let kind = match texts {
                    0 => &kinds[0],
                    _ if texts == values.len() => &kinds[1],
                    _ => &kinds,
                };
                format!(r#"{{"type":{kind},"enum":{}}}"#, json!(values))
            }
            Self::Nullable(shape) => any_of(&[shape.to_schema(form), r#"{"type":"null"}"#.to_owned()]),
        }
    }

    /// Reads an answer, of which `text` is the JSON text: numbers by their digits. An act counts inside of its envelope and
    /// without it; what it does not have may be null.
    ///
    /// # Errors
    /// The first place that does not fit; in an act, below its own object.
    pub fn read(&self, said: &Value, text: &str) -> Result<Value, Misfit> {
        let is_sole = said.as_object().is_some_and(|members| members.len() == 1);
        match self.inside(said).filter(|_| is_sole) {
            Some(act) => self.read_at("", act, texts_of(text).get(ENVELOPE).map_or("", |text| text.get())),
            None => self.read_at("", said, text),
        }
    }

    /// What stands in the envelope of an act, where there is one.
    #[must_use]
    pub fn inside<'v>(&self, said: &'v Value) -> Option<&'v Value> {
        said.get(ENVELOPE).filter(|act| act.is_object() && matches!(self, Self::Acts(_)))
    }

    /// Where a misfit lies in an answer of this form.
    #[must_use]
    pub fn placed(&self, form: AnswerForm, misfit: Misfit) -> Misfit {
        let is_inside = form == AnswerForm::Alternatives && matches!(self, Self::Acts(_));
        if is_inside { Misfit { pointer: format!("/{ENVELOPE}{}", misfit.pointer), ..misfit } } else { misfit }
    }

    fn read_at(&self, pointer: &str, value: &Value, text: &str) -> Result<Value, Misfit> {
        // However it is written: `5`, `5.0`, `5e0`.
        let integer = || units(text, 0).filter(|_| value.is_number());
        let read = match self {
            Self::Acts(acts) => return read_act(acts, pointer, value, text),
            Self::Object(members) => return read_object(members, pointer, value, text),
            Self::List { item, len_max } => return read_list(item, *len_max, pointer, value, text),
            Self::Nullable(shape) if !value.is_null() => {
                return shape.read_at(pointer, value, text).map_err(|misfit| {
                    let is_here = misfit.pointer == pointer;
                    if is_here { Misfit::schema(pointer, format!("{}, or null", misfit.expected)) } else { misfit }
                });
            }
            Self::Nullable(_) | Self::Remark { .. } => Some(value.clone()),
            Self::Integer { min, max } => integer().filter(|said| (*min..=*max).contains(said)).map(Value::from),
            Self::Decimal { decimals } => {
                units(text, *decimals).filter(|units| value.is_number() && *units >= 0).map(Value::from)
            }
            Self::Text { len_min, len_max } => {
                let is_fit = |text: &&str| (*len_min..=*len_max).contains(&text.chars().count());
                value.as_str().filter(is_fit).map(Value::from)
            }
            Self::OneOf(values) => {
                let text = || value.as_str().map(|text| AttrValue::Text(text.to_owned()));
                let said = integer().map(AttrValue::Int).or_else(text);
                said.filter(|said| values.contains(said)).map(|said| json!(said))
            }
        };
        read.ok_or_else(|| Misfit::schema(pointer, self.in_words()))
    }

    /// What would fit, in words.
    fn in_words(&self) -> String {
        match self {
            Self::Acts(acts) => Self::Object(flat(acts)).in_words(),
            Self::Object(members) => {
                let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
                format!("an object with the members {}", names.join(", "))
            }
            Self::List { len_max, .. } => format!("a list of at most {len_max} items"),
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Decimal { decimals } => format!("a number with at most {decimals} digits after the point"),
            Self::Text { len_min: 0, len_max } => format!("a text of at most {len_max} characters"),
            Self::Text { len_min, len_max } => format!("a text of {len_min} to {len_max} characters"),
            Self::Remark { len_max } => format!("a text of at most {len_max} characters, or null"),
            Self::OneOf(values) => format!("one of: {}", values.iter().map(text).collect::<Vec<_>>().join(", ")),
            Self::Nullable(shape) => format!("{}, or null", shape.in_words()),
        }
    }
}

fn closed(members: &[(String, AnswerShape)], form: AnswerForm) -> String {
    closed_with(members.iter().map(|(name, shape)| (name.as_str(), shape.to_schema(form))))
}

fn closed_with<'n>(members: impl IntoIterator<Item = (&'n str, String)>) -> String {
    let named = |(name, schema)| (Value::from(name), format!("{}:{schema}", Value::from(name)));
    let (required, properties): (Vec<Value>, Vec<String>) = members.into_iter().map(named).unzip();
    let (properties, required) = (properties.join(","), Value::from(required));
    format!(r#"{{"type":"object","properties":{{{properties}}},"required":{required},"additionalProperties":false}}"#)
}

fn any_of(schemas: &[String]) -> String {
    format!(r#"{{"anyOf":[{}]}}"#, schemas.join(","))
}

/// One object for all acts: what only some of them have may be null.
fn flat(acts: &[ShapeMembers]) -> ShapeMembers {
    let mut whole: ShapeMembers = Vec::new();
    for (name, shape) in acts.iter().flatten() {
        match (whole.iter_mut().find(|(known, _)| known == name), shape) {
            (Some((_, AnswerShape::OneOf(values))), AnswerShape::OneOf(more)) => {
                let new: Vec<AttrValue> = more.iter().filter(|value| !values.contains(value)).cloned().collect();
                values.extend(new);
            }
            (Some(_), _) => {}
            (None, _) => whole.push((name.clone(), shape.clone())),
        }
    }
    for (name, shape) in &mut whole {
        let is_everywhere = acts.iter().all(|act| act.iter().any(|(known, _)| known == name));
        if !is_everywhere && !matches!(shape, AnswerShape::Nullable(_) | AnswerShape::Remark { .. }) {
            *shape = AnswerShape::Nullable(Box::new(shape.clone()));
        }
    }
    whole
}

/// The smallest units that the text of a number comes to, by its digits: none where it has more decimals, or is too large.
#[must_use]
pub fn units(number: &str, decimals: u32) -> Option<i64> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() || significant == "-" {
        return (!digits.is_empty()).then_some(0);
    }
    let cut = i64::try_from(digits.len() - significant.len()).ok()?;
    let moved = exponent.parse::<i64>().ok()?.checked_add(cut)?;
    let zeros = moved.checked_add(i64::from(decimals))?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let scale = 10_i64.checked_pow(u32::try_from(zeros).ok()?)?;
    significant.parse::<i64>().ok()?.checked_mul(scale).filter(|units| (-INTEGER_MAX..=INTEGER_MAX).contains(units))
}

/// The text of a number of smallest units, without zeros at its end: of 1500000 and 6 decimals `1.5`.
#[must_use]
pub fn decimal(units: i64, decimals: u32) -> String {
    let scale = 10_u64.pow(decimals.min(DECIMALS_MAX));
    let (whole, rest) = (units.unsigned_abs() / scale, units.unsigned_abs() % scale);
    let sign = if units < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{rest:0width$}", width = decimals as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value in words.
#[must_use]
pub fn text(value: &AttrValue) -> String {
    match value {
        AttrValue::Int(number) => number.to_string(),
        AttrValue::Text(text) => text.clone(),
    }
}

/// The texts of an object's members.
fn texts_of(object: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(object).unwrap_or_default()
}

fn read_act(acts: &[ShapeMembers], pointer: &str, value: &Value, text: &str) -> Result<Value, Misfit> {
    let is_told = |act: &&ShapeMembers| {
        act.first().is_some_and(|(name, shape)| shape.read_at("", &value[name], "").is_ok()) || acts.len() == 1
    };
    let (Some(act), Some(said)) = (acts.iter().find(is_told), value.as_object()) else {
        return read_object(&flat(acts), pointer, value, text);
    };
    let whole = flat(acts);
    let is_in = |members: &ShapeMembers, name: &str| members.iter().any(|(known, _)| known == name);
    let mut own = said.clone();
    let is_none = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    own.retain(|name, value| !is_none(value) || is_in(act, name) || !is_in(&whole, name));
    if let Some(name) = own.keys().find(|name| is_in(&whole, name) && !is_in(act, name)) {
        return Err(Misfit::schema(&format!("{pointer}/{name}"), "null, or nothing: this act has none"));
    }
    read_object(act, pointer, &own.into(), text)
}

fn read_object(members: &[(String, AnswerShape)], pointer: &str, value: &Value, text: &str) -> Result<Value, Misfit> {
    let whole = || AnswerShape::Object(members.to_vec()).in_words();
    let Some(object) = value.as_object() else { return Err(Misfit::schema(pointer, whole())) };
    if object.keys().any(|name| members.iter().all(|(known, _)| known != name)) {
        // What is too much is not repeated: the model would see its own words as ours.
        return Err(Misfit::schema(pointer, format!("{} and no other", whole())));
    }
    let texts = texts_of(text);
    let mut read = Map::new();
    for (name, shape) in members {
        let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        match (object.get(name), shape) {
            (Some(member), _) => {
                let text = texts.get(name).map_or("", |text| text.get());
                read.insert(name.clone(), shape.read_at(&below, member, text)?);
            }
            (None, AnswerShape::Remark { .. }) => {}
            (None, _) => return Err(Misfit::schema(&below, shape.in_words())),
        }
    }
    Ok(read.into())
}

fn read_list(item: &AnswerShape, len_max: usize, pointer: &str, value: &Value, text: &str) -> Result<Value, Misfit> {
    let items = value.as_array().filter(|items| items.len() <= len_max);
    let Some(items) = items else {
        return Err(Misfit::schema(pointer, format!("a list of at most {len_max} items")));
    };
    let texts: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let read = |(index, value): (usize, &Value)| {
        item.read_at(&format!("{pointer}/{index}"), value, texts.get(index).map_or("", |text| text.get()))
    };
    items.iter().enumerate().map(read).collect()
}

#[cfg(test)]
pub mod drawn;
#[cfg(test)]
mod tests;
