//! JSON as RFC 8259 and RFC 7493 (I-JSON) mean it, and within bounds.
//!
//! `serde_json` parses; this visitor adds what it lets pass: members named twice, deep nesting, and doubles that stand for
//! another number than the one that was written.

mod number;

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::code::{Code, Refusal};

/// Deepest nesting of arrays and objects. The schemas need 6; 32 leaves room without a stack to fear for.
pub const DEPTH_MAX: usize = 32;
/// Most members of one object, or items of one array: as many as the largest group has members. It bounds how many
/// errors one body can make the validator report.
pub const MEMBERS_MAX: usize = crate::control::GROUP_MEMBERS_MAX;

/// Longest pointer that is repeated to the sender, in bytes; the schemas' own are under 80. A longer one, or one with
/// other than printable ASCII, can only come from the sender's own member names: it is cut at the container.
const POINTER_LEN_MAX: usize = 256;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Parses a document of at most this many bytes.
///
/// # Errors
/// [`Code::TooLarge`], [`Code::MalformedJson`], [`Code::DuplicateKey`], [`Code::TooDeep`], [`Code::OutOfRange`].
pub fn parse_within(bytes: &[u8], bytes_max: usize) -> Result<Value, Refusal> {
    if bytes.len() > bytes_max {
        return Err(
            Refusal::new(Code::TooLarge, "the document is too large").expecting(format!("at most {bytes_max} bytes"))
        );
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| malformed(format!("no UTF-8 from byte {} on", error.valid_up_to())))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err(malformed("it begins with a byte order mark".to_owned()));
    }
    let fault = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let numbers = RefCell::new(number::Texts::of(text));
    let parsed = Node { depth: 0, fault: &fault, numbers: &numbers }.deserialize(&mut deserializer);
    match parsed.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) => Err(fault.into_inner().map_or_else(|| malformed(error.to_string()), Fault::into_refusal)),
    }
}

/// `detail` comes from the parser, whose texts name positions and what it expected, never the document's content.
fn malformed(detail: String) -> Refusal {
    Refusal::new(Code::MalformedJson, format!("not a JSON text: {detail}"))
        .expecting("one JSON text (RFC 8259) in UTF-8")
}

/// What the visitor refuses beyond syntax.
#[derive(Clone, Copy)]
enum Breach {
    Duplicate,
    Depth,
    Members,
}

/// A breach and its place; the pointer grows from there to the root while the error passes up.
struct Fault {
    breach: Breach,
    pointer: Pointer,
}

impl Fault {
    fn into_refusal(self) -> Refusal {
        let refusal = match self.breach {
            Breach::Duplicate => {
                Refusal::new(Code::DuplicateKey, "an object names a member twice").expecting("every member once")
            }
            Breach::Depth => {
                Refusal::new(Code::TooDeep, "nested too deep").expecting(format!("at most {DEPTH_MAX} levels"))
            }
            Breach::Members => {
                Refusal::new(Code::OutOfRange, "too many members").expecting(format!("at most {MEMBERS_MAX} members"))
            }
        };
        refusal.at(self.pointer.into_text())
    }
}

#[derive(Clone, Copy)]
struct Node<'p> {
    depth: usize,
    fault: &'p RefCell<Option<Fault>>,
    numbers: &'p RefCell<number::Texts<'p>>,
}

impl Node<'_> {
    /// The error only ends the parse; what is told comes from the fault.
    fn fail<E: serde::de::Error>(self, breach: Breach) -> E {
        *self.fault.borrow_mut() = Some(Fault { breach, pointer: Pointer::default() });
        E::custom("refused")
    }

    fn enter<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(self.fail(Breach::Depth));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    /// On the way up from a fault: this is where in its container it lies.
    fn below<E>(self, token: impl fmt::Display, error: E) -> E {
        if let Some(fault) = self.fault.borrow_mut().as_mut() {
            fault.pointer.prepend(&token.to_string());
        }
        error
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        self.numbers.borrow_mut().pass();
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.numbers.borrow_mut().pass();
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let text = self.numbers.borrow_mut().current();
        let number = text.and_then(|text| number::of_double(value, text));
        number.map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(child).map_err(|error| self.below(array.len(), error))? {
            if array.len() == MEMBERS_MAX {
                return Err(self.fail(Breach::Members));
            }
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(child).map_err(|error| self.below(&name, error))?;
            if object.len() == MEMBERS_MAX {
                return Err(self.fail(Breach::Members));
            }
            match object.entry(name) {
                Entry::Vacant(vacant) => vacant.insert(value),
                Entry::Occupied(occupied) => {
                    let error = self.fail(Breach::Duplicate);
                    return Err(self.below(occupied.key(), error));
                }
            };
        }
        Ok(Value::Object(object))
    }
}

/// A JSON pointer (RFC 6901), built from the fault up to the root.
#[derive(Default)]
struct Pointer(Vec<String>);

impl Pointer {
    fn prepend(&mut self, token: &str) {
        self.0.push(escape(token));
    }

    fn into_text(self) -> String {
        cut(self.0.iter().rev().map(String::as_str))
    }
}

pub(crate) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// Joins a pointer's tokens, up to the first that is not repeated to the sender.
pub(crate) fn cut<'t>(tokens: impl Iterator<Item = &'t str>) -> String {
    let mut text = String::new();
    for token in tokens {
        let is_printable = token.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_printable || text.len() + token.len() >= POINTER_LEN_MAX {
            break;
        }
        text.push('/');
        text.push_str(token);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::payload::INTEGER_MAX;

    const BODY_BYTES_MAX: usize = 64 * 1024;

    #[test]
    fn a_fault_is_pointed_at_from_the_root() {
        let refused = refuse(br#"{"a": [0, {"b/c": 1, "d~": {"x": 1, "x": 2}}]}"#);
        assert_eq!((refused.code, refused.pointer.as_deref()), (Code::DuplicateKey, Some("/a/1/d~0/x")));
        let refused = refuse(br#"{"b/c": {"x": 1, "\u0078": 2}}"#);
        assert_eq!((refused.code, refused.pointer.as_deref()), (Code::DuplicateKey, Some("/b~1c/x")));
    }

    #[test]
    fn nesting_is_counted_in_containers() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse_within(nested(DEPTH_MAX).as_bytes(), BODY_BYTES_MAX).is_ok());
        let refused = refuse(nested(DEPTH_MAX + 1).as_bytes());
        assert_eq!((refused.code, refused.pointer), (Code::TooDeep, Some("/0".repeat(DEPTH_MAX))));
    }

    #[test]
    fn a_number_is_an_integer_when_its_text_is_one() {
        for (text, value) in
            [("5.0", 5), ("5e0", 5), ("-0", 0), ("-0.0", 0), ("1E2", 100), ("-9007199254740991.0", -INTEGER_MAX)]
        {
            assert_eq!(parse_within(text.as_bytes(), 64).unwrap(), Value::from(value), "{text}");
        }
        for text in ["0.5", "9007199254740992.0", "1e300", "1e-400", "0.99999999999999999999", "9007199254740990.9"] {
            assert!(parse_within(text.as_bytes(), 64).unwrap().is_f64(), "{text}");
        }
        let mixed =
            parse_within(br#"{"1.5":[1,-2,"3.5\"",4.0],"b":-5,"c":1e-400,"d":99999999.999999999999,"e":6e0}"#, 99);
        let mixed = mixed.unwrap();
        assert_eq!(mixed["1.5"], json!([1, -2, "3.5\"", 4]));
        assert_eq!((&mixed["b"], &mixed["e"]), (&json!(-5), &json!(6)));
        assert!(mixed["c"].is_f64() && mixed["d"].is_f64(), "{mixed}");
        assert_eq!(refuse(b"1e400").code, Code::MalformedJson);
    }

    #[test]
    fn one_more_member_than_allowed_is_refused_at_its_container() {
        let array = |items: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(items - 1));
        assert!(parse_within(array(MEMBERS_MAX).as_bytes(), BODY_BYTES_MAX).is_ok());
        let refused = refuse(array(MEMBERS_MAX + 1).as_bytes());
        assert_eq!((refused.code, refused.pointer.as_deref()), (Code::OutOfRange, Some("/a")));
    }

    #[test]
    fn the_size_is_looked_at_before_anything_else() {
        assert!(parse_within(b"     1", 6).is_ok());
        assert_eq!(parse_within(b"\xff     1", 6).unwrap_err().code, Code::TooLarge);
    }

    fn refuse(bytes: &[u8]) -> Refusal {
        parse_within(bytes, BODY_BYTES_MAX).unwrap_err()
    }
}
