//! Where two documents differ, in words.

use serde_json::Value;

/// Longest text of a difference that is shown.
const SHOWN_LEN_MAX: usize = 200;

/// Bytes as text, cut to what a person reads.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(SHOWN_LEN_MAX).collect()
}

/// The first place where two JSON documents differ: its path, and what stands there in each.
#[must_use]
pub fn first_difference(recomputed: &str, recorded: &str) -> String {
    let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let (mut left, mut right): (Value, Value) = (read(recomputed), read(recorded));
    let mut path = String::new();
    while let Some((name, inner_left, inner_right)) = inner_difference(&left, &right) {
        path = format!("{path}{name}");
        (left, right) = (inner_left, inner_right);
    }
    let path = path.trim_start_matches('.');
    format!(
        "{path}\n  recomputed {}\n  recorded   {}",
        shown(left.to_string().as_bytes()),
        shown(right.to_string().as_bytes())
    )
}

/// The first member or element that differs, when both are objects or both lists.
fn inner_difference(left: &Value, right: &Value) -> Option<(String, Value, Value)> {
    let or_nothing = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let name = left.keys().chain(right.keys()).find(|name| left.get(*name) != right.get(*name))?;
            Some((format!(".{name}"), or_nothing(left.get(name)), or_nothing(right.get(name))))
        }
        (Value::Array(left), Value::Array(right)) => {
            let at = (0..left.len().max(right.len())).find(|&at| left.get(at) != right.get(at))?;
            Some((format!("[{at}]"), or_nothing(left.get(at)), or_nothing(right.get(at))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_differs_is_named() {
        let recomputed = r#"{"a":[{"b":1},{"b":2}],"c":3}"#;
        let told = |recorded| first_difference(recomputed, recorded);
        assert_eq!(told(r#"{"a":[{"b":1},{"b":5}],"c":4}"#), "a[1].b\n  recomputed 2\n  recorded   5");
        assert_eq!(told(r#"{"a":[{"b":1}],"c":3}"#), "a[1]\n  recomputed {\"b\":2}\n  recorded   null");
    }
}
