//! From what the validator found to one refusal: stable code, JSON pointer, what was expected. Never the value.

use std::borrow::Cow;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ErrorIterator, ValidationError};
use serde_json::Value;

use super::bundle;
use crate::code::{Code, Refusal};
use crate::strict_json::{cut, escape};

/// The error with the smallest pointer, then the smallest code and keyword: the same document is always refused alike.
/// Only the one that is told is written out, because a hostile body can cause thousands.
pub(super) fn first(errors: ErrorIterator<'_>) -> Option<Refusal> {
    let errors = errors.into_errors();
    let placed = errors.iter().map(|error| (place(error), error));
    let first = placed.min_by(|(place, error), (other_place, other)| {
        place
            .cmp(other_place)
            .then_with(|| classify(error.kind()).cmp(&classify(other.kind())))
            .then_with(|| error.kind().keyword().cmp(other.kind().keyword()))
    });
    first.map(|(place, error)| describe(error, cut(place.split('/').skip(1))))
}

fn place<'e>(error: &'e ValidationError<'_>) -> Cow<'e, str> {
    let around = error.instance_path().as_str();
    match member(error.kind()) {
        Some(name) => Cow::Owned(format!("{around}/{}", escape(name))),
        None => Cow::Borrowed(around),
    }
}

/// A document passed its schema and then failed the typed decode. A fault of ours; no document is known to do it.
pub(super) fn disagreement(pointer: &str) -> Refusal {
    Refusal::new(Code::Internal, "the document satisfies its schema but cannot be read").at(pointer)
}

fn describe(error: &ValidationError<'_>, pointer: String) -> Refusal {
    let (code, detail) = classify(error.kind());
    let refusal = Refusal::new(code, detail).at(pointer);
    match known_members(error).or_else(|| expected(error.kind())) {
        Some(text) => refusal.expecting(text),
        None => refusal,
    }
}

/// What could stand there instead of an unknown member: most often it is a slip of the pen.
fn known_members(error: &ValidationError<'_>) -> Option<String> {
    let is_unknown = matches!(error.kind(), Kind::AdditionalProperties { .. });
    let location = error.absolute_keyword_location().filter(|_| is_unknown)?;
    bundle::members_beside(location.as_str()).map(|members| format!("only {members}"))
}

/// The member at fault, where the validator only points at the object around it.
fn member(kind: &Kind) -> Option<&str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other keyword points at the value itself")]
    match kind {
        Kind::Required { property } => property.as_str(),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().min().map(String::as_str)
        }
        Kind::PropertyNames { error } => error.instance().as_str(),
        _ => None,
    }
}

fn classify(kind: &Kind) -> (Code, &'static str) {
    match kind {
        Kind::Required { .. } => (Code::MissingField, "a required member is missing"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            (Code::UnknownField, "the schema knows no such member")
        }
        Kind::Type { .. } => (Code::WrongType, "the value has another type"),
        Kind::Minimum { .. } | Kind::ExclusiveMinimum { .. } | Kind::Maximum { .. } | Kind::ExclusiveMaximum { .. } => {
            (Code::OutOfRange, "the number is outside its range")
        }
        Kind::MinLength { .. } | Kind::MaxLength { .. } => (Code::OutOfRange, "the text has another length"),
        Kind::MinItems { .. }
        | Kind::MaxItems { .. }
        | Kind::AdditionalItems { .. }
        | Kind::UnevaluatedItems { .. } => (Code::OutOfRange, "the array has another length"),
        Kind::MinProperties { .. } | Kind::MaxProperties { .. } => (Code::OutOfRange, "the object has another size"),
        Kind::MultipleOf { .. } => (Code::OutOfRange, "the number is no multiple of the step"),
        Kind::Pattern { .. } | Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            (Code::BadFormat, "the text does not match its pattern")
        }
        Kind::Format { .. } | Kind::ContentEncoding { .. } | Kind::ContentMediaType { .. } | Kind::FromUtf8 { .. } => {
            (Code::BadFormat, "the text does not have its format")
        }
        Kind::PropertyNames { error } => (classify(error.kind()).0, "the member's name is not allowed"),
        Kind::FalseSchema | Kind::Not { .. } => (Code::NotAllowed, "not allowed beside the other members"),
        Kind::Enum { .. } | Kind::Constant { .. } => (Code::NotAllowed, "none of the values allowed"),
        Kind::AnyOf { .. }
        | Kind::OneOfMultipleValid { .. }
        | Kind::OneOfNotValid { .. }
        | Kind::Contains
        | Kind::UniqueItems
        | Kind::Custom { .. } => (Code::NotAllowed, "not what the schema allows"),
        Kind::Referencing(_) => (Code::Internal, "the schema cannot be resolved"),
    }
}

fn expected(kind: &Kind) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keywords do not occur in the bundle")]
    match kind {
        Kind::Required { .. } => Some("this member".to_owned()),
        Kind::Type { kind: TypeKind::Single(one) } => Some(one.to_string()),
        Kind::Type { kind: TypeKind::Multiple(set) } => Some(list(set.iter().map(|one| one.to_string()))),
        Kind::Minimum { limit } => Some(format!("at least {limit}")),
        Kind::Maximum { limit } => Some(format!("at most {limit}")),
        Kind::MinLength { limit } => Some(format!("at least {limit} characters")),
        Kind::MaxLength { limit } => Some(format!("at most {limit} characters")),
        Kind::MinItems { limit } => Some(format!("at least {limit} items")),
        Kind::MaxItems { limit } => Some(format!("at most {limit} items")),
        Kind::MaxProperties { limit } => Some(format!("at most {limit} members")),
        Kind::Pattern { pattern } => Some(format!("text that matches {pattern}")),
        Kind::Format { .. } => Some("an existing RFC 3339 time between 1970 and 9998".to_owned()),
        Kind::Enum { options } => options.as_array().map(|all| list(all.iter().map(Value::to_string))),
        Kind::Constant { expected_value } => Some(expected_value.to_string()),
        Kind::Not { schema } => {
            schema.get("enum")?.as_array().map(|all| format!("not {}", list(all.iter().map(Value::to_string))))
        }
        Kind::UniqueItems => Some("every item once".to_owned()),
        Kind::FalseSchema => Some("no such member here".to_owned()),
        Kind::PropertyNames { error } => expected(error.kind()),
        _ => None,
    }
}

fn list(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(" or ")
}
