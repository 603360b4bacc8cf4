//! The answer that a panel wants of a seat: how a model is told its form, and how it is found in what the model says.

use schemas::panel::AnswerKind;
use serde_json::{Value, json};

use crate::model::AnswerShape;
use crate::panel::parse::{ReadingMode, answer};

/// Longest answer of a model, in characters.
const ANSWER_CHARS_MAX: usize = 4000;
/// Longest option that stands in a prompt as it is, in characters: a letter, a word, a number.
const PLAIN_CHARS_MAX: usize = 16;

/// The form of an answer.
#[derive(Debug, Clone)]
pub struct WantedAnswer {
    /// Of a choice the labels are its options.
    kind: AnswerKind,
    /// Of a choice: what each label stands for.
    options: Vec<String>,
}

impl WantedAnswer {
    /// An answer of this kind. Options that are more than a word have numbers for labels: they are words of others.
    #[must_use]
    pub fn new(kind: &AnswerKind) -> Self {
        let AnswerKind::Choice { options } = kind else { return Self { kind: kind.clone(), options: Vec::new() } };
        let labels = if options.iter().all(|option| is_plain(option)) {
            options.clone()
        } else {
            (1..=options.len()).map(|number| number.to_string()).collect()
        };
        Self { kind: AnswerKind::Choice { options: labels }, options: options.clone() }
    }

    /// The answer in the member of an answer that has the form, or nearly so.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<String> {
        let found = answer(ReadingMode::Panel, &self.kind, text)?;
        let Some(options) = self.kind.options() else { return Some(found) };
        let place = options.iter().position(|label| *label == found)?;
        self.options.get(place).cloned()
    }

    /// The answer in a text of many words; none of a kind whose answers are texts themselves.
    #[must_use]
    pub fn find_in_prose(&self, text: &str) -> Option<String> {
        match self.kind {
            AnswerKind::Choice { .. } | AnswerKind::Number | AnswerKind::Math => self.find(text),
            AnswerKind::Exact { .. } | AnswerKind::Set { .. } | AnswerKind::Json | AnswerKind::Bleu { .. } => None,
        }
    }

    /// Whether an answer stands out in a text: an option in parentheses does, a number may be any.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.kind.options().is_some()
    }

    /// What the model is told of its form.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match &self.kind {
            AnswerKind::Choice { options } if *options == self.options => "`answer` is one of `options`.",
            AnswerKind::Choice { .. } => "`answer` is the number of one of the quoted options.",
            AnswerKind::Number => "`answer` is one number and nothing else.",
            AnswerKind::Math => "`answer` is the value alone, as a number or in LaTeX.",
            AnswerKind::Exact { ignore_case: false } => {
                "`answer` is as short as it can be: answers agree where they are the same, white space aside."
            }
            AnswerKind::Exact { ignore_case: true } => {
                "`answer` is as short as it can be: answers agree where they are the same, white space and case aside."
            }
            AnswerKind::Set { .. } => {
                "`answer` names the elements of a set, the quoted separator between them; their order does not matter."
            }
            AnswerKind::Json => "`answer` is one JSON document, written as a text; its numbers are integers.",
            AnswerKind::Bleu { .. } => {
                "`answer` is the whole text asked for: answers agree where they are nearly the same, word for word."
            }
        }
    }

    /// The same in a few words, for an answer that is not found.
    #[must_use]
    pub fn in_words(&self) -> &'static str {
        match &self.kind {
            AnswerKind::Choice { options } if *options == self.options => "one of `options`",
            AnswerKind::Choice { .. } => "the number of one of the quoted options",
            AnswerKind::Number => "one number",
            AnswerKind::Math => "one value",
            AnswerKind::Exact { .. } | AnswerKind::Set { .. } | AnswerKind::Json | AnswerKind::Bleu { .. } => {
                "a text that is not empty, or null"
            }
        }
    }

    /// What stands in the prompt as typed data.
    #[must_use]
    pub fn data(&self) -> Vec<(String, Value)> {
        self.kind.options().map(|options| ("options".to_owned(), json!(options))).into_iter().collect()
    }

    /// What is to be quoted, each with its name.
    #[must_use]
    pub fn quotes(&self) -> Vec<(String, &str)> {
        if let AnswerKind::Set { separator, .. } = &self.kind {
            return vec![("separator".to_owned(), separator.as_str())];
        }
        let labels = self.kind.options().filter(|options| *options != self.options).unwrap_or_default();
        let labelled = labels.iter().zip(&self.options);
        labelled.map(|(label, option)| (format!("option {label}"), option.as_str())).collect()
    }

    /// The form of the member.
    #[must_use]
    pub fn shape(&self) -> AnswerShape {
        let text = AnswerShape::Text { len_min: 1, len_max: ANSWER_CHARS_MAX };
        self.kind.options().map_or(text, AnswerShape::one_of)
    }
}

/// Whether an option is one short word, which can say nothing but itself.
fn is_plain(option: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '+' | '-' | '/' | '%');
    !option.is_empty() && option.len() <= PLAIN_CHARS_MAX && option.chars().all(is_part)
}
