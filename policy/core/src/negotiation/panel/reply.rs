//! What a seat replied, and which of the others' answers its own agrees with.

use std::borrow::Cow;
use std::sync::Arc;

use schemas::Digest;
use schemas::panel::{AnswerKind, SEATS_MAX};
use serde::{Deserialize, Serialize};

use super::round::MemberIndex;
use crate::panel::bleu::{self, Tokens};
use crate::panel::key::{BadAnswer, key_text};

/// What a seat replied.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SeatReply {
    /// None where it has no opinion, and once a later round can decide.
    pub(super) answer: Option<Arc<str>>,
    /// Kept until the next round has closed.
    pub(super) text: Option<Arc<str>>,
    /// Digest of the key of the answer. Answers agree where it is equal, unless they are compared by BLEU.
    pub(super) key_digest: Option<Digest>,
    /// Whom it was shown, and how it rated them.
    pub(super) ratings: Vec<GivenRating>,
    /// Of an answer that is compared by BLEU, as long as there is the answer.
    compared: Option<Box<ComparedText>>,
}

/// A rating of somebody shown; 0 where none was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenRating {
    pub(super) of: MemberIndex,
    pub(super) rating: u8,
}

/// An answer with its key.
pub(super) struct Opinion {
    answer: Arc<str>,
    key_digest: Digest,
    compared: Option<Box<ComparedText>>,
}

/// A text that is compared by BLEU with each of the others' once, by whichever comes later: a pair takes long
/// (docs/spec/panel-answers.md#pa-9).
#[derive(Debug, Serialize, Deserialize)]
struct ComparedText {
    /// The answers it agrees with, by their numbers in [`super::round::PanelRound::asked`]: a bit for each.
    agreeing: u32,
    /// Its n-grams, until its round has closed. Counted again after a restart, when another text comes.
    #[serde(skip)]
    tokens: Option<Tokens>,
}

const _: () = assert!(SEATS_MAX <= u32::BITS as usize);

/// Bit mask of an answer by its number; 0 from `SEATS_MAX` on.
fn bit(number: usize) -> u32 {
    u32::try_from(number).ok().and_then(|number| 1_u32.checked_shl(number)).unwrap_or_default()
}

impl Opinion {
    /// # Errors
    /// [`BadAnswer`] when the text is no answer of the kind.
    pub(super) fn try_new(kind: &AnswerKind, text: &str) -> Result<Self, BadAnswer> {
        let answer = Arc::from(text);
        if let AnswerKind::Bleu { .. } = kind {
            let tokens = Tokens::try_new(text)?;
            let key_digest = Digest::of_bytes(tokens.text().as_bytes());
            return Ok(Self {
                answer,
                key_digest,
                compared: Some(Box::new(ComparedText { agreeing: 0, tokens: Some(tokens) })),
            });
        }
        Ok(Self { answer, key_digest: Digest::of_bytes(key_text(kind, text)?.as_bytes()), compared: None })
    }
}

impl SeatReply {
    pub(super) fn new(opinion: Option<Opinion>, text: Option<&str>, ratings: Vec<GivenRating>) -> Self {
        let text = text.map(Arc::from);
        match opinion {
            Some(Opinion { answer, key_digest, compared }) => {
                Self { answer: Some(answer), text, key_digest: Some(key_digest), ratings, compared }
            }
            None => Self { answer: None, text, key_digest: None, ratings, compared: None },
        }
    }

    /// The key of its answer, as a text.
    pub(super) fn key_text<'a>(&'a self, kind: &'a AnswerKind) -> Option<Cow<'a, str>> {
        key_text(kind, self.answer.as_deref()?).ok()
    }

    /// Compares the texts of two answers by BLEU, each with its number, and notes with both whether they agree.
    pub(super) fn compare(
        (number, one): (usize, &mut Self),
        (other, theirs): (usize, &mut Self),
        at_least_permille: u32,
    ) {
        let (Some(one), Some(theirs)) = (one.recalled(), theirs.recalled()) else { return };
        let (Some(tokens), Some(their_tokens)) = (&one.tokens, &theirs.tokens) else { return };
        if bleu::is_alike(tokens, their_tokens, at_least_permille) {
            one.agreeing |= bit(other);
            theirs.agreeing |= bit(number);
        }
    }

    /// Its text with the n-grams.
    fn recalled(&mut self) -> Option<&mut ComparedText> {
        let (compared, answer) = (self.compared.as_deref_mut()?, self.answer.as_deref()?);
        if compared.tokens.is_none() {
            compared.tokens = Tokens::try_new(answer).ok();
        }
        Some(compared)
    }

    /// Whether its answer agrees with another, of which this is the number.
    pub(super) fn agrees(&self, theirs: &Self, other: usize) -> bool {
        match &self.compared {
            _ if self.answer.is_none() || theirs.answer.is_none() => false,
            Some(compared) => compared.agreeing & bit(other) != 0,
            None => self.key_digest == theirs.key_digest,
        }
    }

    /// The answer of this number is no longer there.
    pub(super) fn forget(&mut self, other: usize) {
        if let Some(compared) = &mut self.compared {
            compared.agreeing &= !bit(other);
        }
    }

    /// No other answer will be compared with it.
    pub(super) fn close(&mut self) {
        if let Some(compared) = &mut self.compared {
            compared.tokens = None;
        }
    }

    /// Drops what is shown to nobody any more; the answer, too, once a later round `decides`.
    pub(super) fn strip(&mut self, decides: bool) {
        self.text = None;
        if decides {
            (self.answer, self.compared) = (None, None);
        }
    }

    /// The answers it agrees with, where texts are compared by BLEU: a bit for each.
    pub(super) fn agreeing(&self) -> u32 {
        self.compared.as_ref().map_or(0, |compared| compared.agreeing)
    }

    /// Whether it is compared as the kind says, and an answer has a key.
    pub(super) fn is_sound(&self, kind: &AnswerKind) -> bool {
        let is_bleu = matches!(kind, AnswerKind::Bleu { .. });
        let has_answer = self.answer.is_some();
        self.compared.is_some() == (is_bleu && has_answer) && (self.key_digest.is_some() || !has_answer)
    }
}
