//! JSON answers in the canonical form of RFC 8785 (docs/spec/panel-answers.md#pa-8).

use std::fmt;

use schemas::digest;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::BadAnswer;

/// Arrays and objects within each other.
pub const DEPTH_MAX: usize = 16;
/// The largest integer of I-JSON, either way: 2^53 - 1.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The canonical form of a JSON text.
pub(super) fn key(text: &str) -> Result<String, BadAnswer> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = ValueSeed { depth: 0 }.deserialize(&mut deserializer).map_err(|_| BadAnswer::Json)?;
    deserializer.end().map_err(|_| BadAnswer::Json)?;
    let canonical = digest::canonical(&value).map_err(|_| BadAnswer::Json)?;
    String::from_utf8(canonical).map_err(|_| BadAnswer::Json)
}

/// A value `depth` arrays and objects deep.
#[derive(Clone, Copy)]
struct ValueSeed {
    depth: usize,
}

impl ValueSeed {
    fn inner<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX { Err(E::custom("too deep")) } else { Ok(Self { depth: self.depth + 1 }) }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Numbers with a fraction or an exponent, and `-0`, are doubles to the parser: no method here takes them.
impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON whose numbers are integers")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > INTEGER_MAX { Err(E::custom("too large")) } else { Ok(Value::from(value)) }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        if value > INTEGER_MAX { Err(E::custom("too large")) } else { Ok(Value::from(value)) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let (inner, mut array) = (self.inner()?, Vec::new());
        while let Some(element) = elements.next_element_seed(inner)? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (inner, mut object) = (self.inner()?, Map::new());
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_compared_in_its_canonical_form() {
        let cases = [
            (r#" {"b": [1, 2], "a": "\u0041\n"} "#, r#"{"a":"A\n","b":[1,2]}"#),
            ("null", "null"),
            ("\"\\u00e9\"", "\"é\""),
            (r#"{"\ud83d\ude00":1,"\uffee":2}"#, "{\"😀\":1,\"\u{ffee}\":2}"),
            ("[-9007199254740991,9007199254740991]", "[-9007199254740991,9007199254740991]"),
            (r#""\u001f\u007f\/""#, "\"\\u001f\u{7f}/\""),
        ];
        for (text, canonical) in cases {
            assert_eq!(key(text).as_deref(), Ok(canonical), "{text}");
        }
        let deepest = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert_eq!(key(&deepest).as_deref(), Ok(deepest.as_str()));
    }

    #[test]
    fn json_that_is_not_strict_or_beyond_its_limits_is_refused() {
        let deep = [format!("[{}{}]", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX)), "[".repeat(1 << 16)];
        let texts = [
            "",
            "{",
            "1 2",
            "[1,]",
            "{'a':1}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"\\u0061\":2}",
            "1.0",
            "0.5",
            "1e3",
            "-0",
            "NaN",
            "9007199254740992",
            "-9007199254740992",
            "99999999999999999999",
            "01",
            "\"\u{1}\"",
            "\"\\ud800\"",
            "// a\n1",
            "\u{feff}1",
            "\u{a0}1",
        ];
        for text in texts.into_iter().chain(deep.iter().map(String::as_str)) {
            assert_eq!(key(text), Err(BadAnswer::Json), "{text:.40}");
        }
    }
}
