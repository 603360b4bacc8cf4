//! Hard limits: predicates on the terms.

use std::cmp::Ordering;

use schemas::bargain::{Comparison, PREDICATES_MAX, Predicate};
use schemas::payload::AttrValue;

use super::DocumentFault;
use super::space::Space;

/// Whether there are few enough, each on an issue.
pub(super) fn check_limits(limits: &[Predicate], space: &Space) -> Result<(), DocumentFault> {
    if limits.len() > PREDICATES_MAX {
        return Err(DocumentFault::at("", format!("at most {PREDICATES_MAX} limits")));
    }
    for (index, limit) in limits.iter().enumerate() {
        if !space.issues().iter().any(|issue| issue.name == limit.attr) {
            return Err(DocumentFault::at(format!("/{index}/attr"), format!("there is no issue `{}`", limit.attr)));
        }
    }
    Ok(())
}

/// Whether a predicate holds of a value, by the rule of [`Predicate`].
pub(super) fn holds(predicate: &Predicate, value: Option<&AttrValue>) -> bool {
    let order = match (value, &predicate.value) {
        (Some(AttrValue::Int(value)), AttrValue::Int(constant)) => Some(value.cmp(constant)),
        (Some(AttrValue::Text(value)), AttrValue::Text(constant)) if value == constant => Some(Ordering::Equal),
        (Some(AttrValue::Int(_) | AttrValue::Text(_)) | None, _) => None,
    };
    match predicate.op {
        Comparison::Eq => order == Some(Ordering::Equal),
        Comparison::Ne => order != Some(Ordering::Equal),
        Comparison::Lt => order == Some(Ordering::Less),
        // Equal texts are at most, and at least, nothing: texts are only equal or not.
        Comparison::Le => is_int(value) && order.is_some_and(Ordering::is_le),
        Comparison::Gt => order == Some(Ordering::Greater),
        Comparison::Ge => is_int(value) && order.is_some_and(Ordering::is_ge),
    }
}

fn is_int(value: Option<&AttrValue>) -> bool {
    matches!(value, Some(AttrValue::Int(_)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn integers_are_compared_texts_are_equal_or_not_and_of_the_rest_only_ne_holds() {
        for (value, constant, holding) in [
            (json!(1), json!(2), vec!["ne", "lt", "le"]),
            (json!(2), json!(2), vec!["eq", "le", "ge"]),
            (json!(3), json!(2), vec!["ne", "gt", "ge"]),
            (json!("a"), json!("a"), vec!["eq"]),
            (json!("a"), json!("b"), vec!["ne"]),
            (json!("2"), json!(2), vec!["ne"]),
            (json!(2), json!("2"), vec!["ne"]),
            (Value::Null, json!(2), vec!["ne"]),
        ] {
            let found = ["eq", "ne", "lt", "le", "gt", "ge"].into_iter().filter(|op| {
                let predicate = serde_json::from_value(json!({"attr": "a", "op": op, "value": constant})).unwrap();
                let value: Option<AttrValue> = serde_json::from_value(value.clone()).unwrap();
                holds(&predicate, value.as_ref())
            });
            assert_eq!(found.collect::<Vec<_>>(), holding, "{value} {constant}");
        }
    }
}
