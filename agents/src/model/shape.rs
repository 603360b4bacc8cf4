//! What an answer must look like. One description is written as JSON Schema for the endpoint and checked here, so that the
//! two cannot differ; a property test holds it against a JSON Schema validator.

use schemas::payload::INTEGER_MAX;
use serde_json::{Map, Value, json};

/// The form of a value. It covers what endpoints accept in strict structured output: members are all required, and none
/// besides them is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerShape {
    /// An object with exactly these members.
    Object(Vec<(String, Self)>),
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
    /// A text.
    Text {
        /// Most characters.
        len_max: usize,
    },
    /// A text or null for the model's own reasoning: whatever it is, or none at all, the rest of the answer counts.
    Remark {
        /// Most characters it is asked for.
        len_max: usize,
    },
    /// One of these texts.
    OneOf(Vec<String>),
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
    /// As JSON Schema.
    #[must_use]
    pub fn to_schema(&self) -> Value {
        match self {
            Self::Object(members) => {
                let properties: Map<String, Value> =
                    members.iter().map(|(name, shape)| (name.clone(), shape.to_schema())).collect();
                let required: Vec<&String> = members.iter().map(|(name, _)| name).collect();
                json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
            }
            Self::List { item, len_max } => {
                json!({ "type": "array", "items": item.to_schema(), "maxItems": len_max })
            }
            Self::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Self::Text { len_max } => json!({ "type": "string", "maxLength": len_max }),
            Self::Remark { len_max } => Self::Nullable(Box::new(Self::Text { len_max: *len_max })).to_schema(),
            Self::OneOf(texts) => json!({ "type": "string", "enum": texts }),
            Self::Nullable(shape) => json!({ "anyOf": [shape.to_schema(), { "type": "null" }] }),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first place that does not fit.
    pub fn check(&self, value: &Value) -> Result<(), Misfit> {
        self.check_at("", value)
    }

    fn check_at(&self, pointer: &str, value: &Value) -> Result<(), Misfit> {
        let is_fit = match self {
            Self::Object(members) => return check_object(members, pointer, value),
            Self::List { item, len_max } => return check_list(item, *len_max, pointer, value),
            Self::Nullable(_) if value.is_null() => true,
            Self::Nullable(shape) => {
                return shape.check_at(pointer, value).map_err(|misfit| {
                    let is_here = misfit.pointer == pointer;
                    if is_here {
                        Misfit { expected: format!("{}, or null", misfit.expected), ..misfit }
                    } else {
                        misfit
                    }
                });
            }
            Self::Integer { min, max } => integer(value).is_some_and(|value| (*min..=*max).contains(&value)),
            Self::Text { len_max } => value.as_str().is_some_and(|text| text.chars().count() <= *len_max),
            Self::Remark { .. } => true,
            Self::OneOf(texts) => value.as_str().is_some_and(|text| texts.iter().any(|known| known == text)),
        };
        if is_fit { Ok(()) } else { Err(Misfit::schema(pointer, self.in_words())) }
    }

    /// What would fit, in words.
    fn in_words(&self) -> String {
        match self {
            Self::Object(members) => {
                let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
                format!("an object with the members {}", names.join(", "))
            }
            Self::List { len_max, .. } => format!("a list of at most {len_max} items"),
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Text { len_max } => format!("a text of at most {len_max} characters"),
            Self::Remark { len_max } => format!("a text of at most {len_max} characters, or null"),
            Self::OneOf(texts) => format!("one of: {}", texts.join(", ")),
            Self::Nullable(shape) => format!("{}, or null", shape.in_words()),
        }
    }
}

/// An integer however it is written: `5`, `5.0`, `5e0`.
#[must_use]
pub fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let double = value.as_f64()?;
        #[allow(clippy::cast_precision_loss, reason = "the bound is exact in a double")]
        let is_exact = double.fract() == 0.0 && double.abs() <= INTEGER_MAX as f64;
        #[allow(clippy::cast_possible_truncation, reason = "a whole number within ± 2^53")]
        is_exact.then_some(double as i64)
    })
}

fn check_object(members: &[(String, AnswerShape)], pointer: &str, value: &Value) -> Result<(), Misfit> {
    let whole = || AnswerShape::Object(members.to_vec()).in_words();
    let Some(object) = value.as_object() else { return Err(Misfit::schema(pointer, whole())) };
    if object.keys().any(|name| members.iter().all(|(known, _)| known != name)) {
        // What is too much is not repeated: the model would see its own words as ours.
        return Err(Misfit::schema(pointer, format!("{} and no other", whole())));
    }
    for (name, shape) in members {
        let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        match (object.get(name), shape) {
            (Some(member), _) => shape.check_at(&below, member)?,
            (None, AnswerShape::Remark { .. }) => {}
            (None, _) => return Err(Misfit::schema(&below, shape.in_words())),
        }
    }
    Ok(())
}

fn check_list(item: &AnswerShape, len_max: usize, pointer: &str, value: &Value) -> Result<(), Misfit> {
    let items = value.as_array().filter(|items| items.len() <= len_max);
    let Some(items) = items else {
        return Err(Misfit::schema(pointer, format!("a list of at most {len_max} items")));
    };
    items.iter().enumerate().try_for_each(|(index, value)| item.check_at(&format!("{pointer}/{index}"), value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer() -> AnswerShape {
        let terms = AnswerShape::Object(vec![
            ("price".to_owned(), AnswerShape::Integer { min: 0, max: 1000 }),
            ("handover".to_owned(), AnswerShape::OneOf(vec!["pickup".to_owned(), "courier".to_owned()])),
        ]);
        AnswerShape::Object(vec![
            ("act".to_owned(), AnswerShape::OneOf(vec!["offer".to_owned(), "refuse".to_owned()])),
            ("terms".to_owned(), AnswerShape::Nullable(Box::new(terms))),
            (
                "list".to_owned(),
                AnswerShape::List {
                    item: Box::new(AnswerShape::Integer { min: -INTEGER_MAX, max: INTEGER_MAX }),
                    len_max: 2,
                },
            ),
            ("reason".to_owned(), AnswerShape::Nullable(Box::new(AnswerShape::Text { len_max: 3 }))),
        ])
    }

    #[test]
    fn a_misfit_is_named_by_pointer_and_by_what_would_fit() {
        let good = json!({"act": "offer", "terms": {"price": 5.0, "handover": "pickup"}, "list": [], "reason": null});
        assert_eq!(answer().check(&good), Ok(()));
        for (pointer, value, at, expected) in [
            ("/act", json!("award"), "/act", "one of: offer, refuse"),
            ("/terms/price", json!("5"), "/terms/price", "an integer from 0 to 1000"),
            ("/terms/price", json!(1001), "/terms/price", "an integer from 0 to 1000"),
            ("/terms/price", json!(5.5), "/terms/price", "an integer from 0 to 1000"),
            ("/terms", json!([]), "/terms", "an object with the members price, handover, or null"),
            ("/reason", json!("long"), "/reason", "a text of at most 3 characters, or null"),
            ("/list", json!([1, 2, 3]), "/list", "a list of at most 2 items"),
            ("/list", json!([1, "2"]), "/list/1", "an integer from -9007199254740991 to 9007199254740991"),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            assert_eq!(answer().check(&bad), Err(Misfit::schema(at, expected)), "{bad}");
        }
        let mut missing = good.clone();
        missing.as_object_mut().unwrap().remove("terms");
        assert_eq!(answer().check(&missing).unwrap_err().pointer, "/terms");
        let mut more = good;
        more["canary"] = json!(1);
        let misfit = answer().check(&more).unwrap_err();
        assert!(misfit.expected.ends_with("and no other") && !misfit.expected.contains("canary"), "{misfit:?}");
    }

    #[test]
    fn a_remark_that_is_missing_or_too_long_costs_no_answer() {
        let act = ("act".to_owned(), AnswerShape::OneOf(vec!["offer".to_owned()]));
        let shape = AnswerShape::Object(vec![act, ("reason".to_owned(), AnswerShape::Remark { len_max: 3 })]);
        for said in [json!({}), json!({"reason": null}), json!({"reason": "long"}), json!({"reason": ["a", 1]})] {
            let mut answer = said;
            assert_eq!(shape.check(&answer).unwrap_err().pointer, "/act");
            answer["act"] = json!("offer");
            assert_eq!(shape.check(&answer), Ok(()), "{answer}");
        }
        let reason = json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]});
        assert_eq!(shape.to_schema()["properties"]["reason"], reason);
        assert_eq!(shape.to_schema()["required"], json!(["act", "reason"]));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (-5_i64..2000).prop_map(Value::from),
            (-5_i32..2000).prop_map(|half| json!(f64::from(half) / 2.0)),
            "[a-z]{0,4}".prop_map(Value::from),
            prop_oneof![Just("offer"), Just("refuse"), Just("pickup")].prop_map(Value::from),
            prop::collection::vec(0_i64..3, 0..4).prop_map(Value::from),
        ];
        let terms =
            (leaf.clone(), leaf.clone()).prop_map(|(price, handover)| json!({"price": price, "handover": handover}));
        let any = prop_oneof![leaf.clone(), terms];
        let members = [("act", leaf.clone().boxed()), ("terms", any.boxed()), ("list", leaf.clone().boxed())];
        let [act, terms, list] = members.map(|(_, strategy)| strategy);
        (act, terms, list, leaf, 0..6).prop_map(|(act, terms, list, reason, drop)| {
            let mut whole = json!({"act": act, "terms": terms, "list": list, "reason": reason});
            match drop {
                0 => drop_member(&mut whole, "reason"),
                1 => whole["more"] = json!(1),
                _ => {}
            }
            whole
        })
    }

    fn drop_member(value: &mut Value, name: &str) {
        value.as_object_mut().unwrap().remove(name);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_check_accepts_what_a_validator_of_json_schema_accepts(value in value()) {
            let validator = jsonschema::draft202012::new(&answer().to_schema()).unwrap();
            prop_assert_eq!(answer().check(&value).is_ok(), validator.is_valid(&value), "{}", value);
        }
    }
}
