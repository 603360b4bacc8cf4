//! What carries an award out, and what is tried when that fails.
//!
//! | the award pins | first | then | at last |
//! |---|---|---|---|
//! | a document with a routine | the routine | the model, unless the routine was one | the sentence |
//! | a document without one | the model | - | the sentence |
//! | nothing | the model, in natural language | - | the sentence |
//!
//! Where there is no model it is left out. The sentence is the owner's and cannot fail; without one the award has failed.

use schemas::document::{DocumentHash, RoutineKind, RoutineReport};

/// What the contractor has for the document that an award pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinnedRoutine {
    /// The award pins no document.
    NoDocument,
    /// It pins one that the contractor has no routine for, as after a start with another table.
    Unknown(DocumentHash),
    /// It has a routine of this kind.
    Known(DocumentHash, RoutineKind),
}

/// One way to carry an award out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The routine of the table.
    Routine,
    /// The model, under the pinned document.
    Model,
    /// The model, in natural language.
    Conversation,
    /// The sentence of the contractor's owner.
    Sentence,
}

impl Attempt {
    /// What is tried after `failed`, or first. Nothing comes after the sentence.
    #[must_use]
    pub const fn next(failed: Option<Self>, pinned: PinnedRoutine, has_model: bool) -> Option<Self> {
        match (failed, pinned) {
            (Some(Self::Sentence), _) => None,
            (None, PinnedRoutine::Known(..)) => Some(Self::Routine),
            (None, PinnedRoutine::Unknown(_)) if has_model => Some(Self::Model),
            (None, PinnedRoutine::NoDocument) if has_model => Some(Self::Conversation),
            // Nothing is asked of a model twice.
            (Some(Self::Routine), PinnedRoutine::Known(_, kind))
                if has_model && !matches!(kind, RoutineKind::Model) =>
            {
                Some(Self::Model)
            }
            (None | Some(Self::Routine | Self::Model | Self::Conversation), _) => Some(Self::Sentence),
        }
    }

    /// What an INFORM says of a result that came about this way.
    #[must_use]
    pub const fn report(self, pinned: PinnedRoutine) -> RoutineReport {
        match (self, pinned) {
            (Self::Routine, PinnedRoutine::Known(hash, kind)) => RoutineReport { hash: Some(hash), kind },
            (Self::Model, PinnedRoutine::Known(hash, _) | PinnedRoutine::Unknown(hash)) => {
                RoutineReport { hash: Some(hash), kind: RoutineKind::Model }
            }
            (Self::Routine | Self::Model | Self::Conversation | Self::Sentence, _) => {
                RoutineReport { hash: None, kind: RoutineKind::Language }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(pinned: PinnedRoutine, has_model: bool) -> Vec<(Attempt, RoutineKind, bool)> {
        let mut order = Vec::new();
        let mut failed = None;
        while let Some(attempt) = Attempt::next(failed, pinned, has_model) {
            let report = attempt.report(pinned);
            order.push((attempt, report.kind, report.hash.is_some()));
            failed = Some(attempt);
        }
        order
    }

    #[test]
    fn a_routine_gives_way_once_to_the_model_and_that_to_the_sentence() {
        use Attempt::{Conversation, Model, Routine, Sentence};
        let hash = DocumentHash::of_bytes(b"a document");
        let known = |kind| PinnedRoutine::Known(hash, kind);
        let sentence = (Sentence, RoutineKind::Language, false);
        let model = (Model, RoutineKind::Model, true);
        for kind in [RoutineKind::Native, RoutineKind::Http, RoutineKind::Wasm] {
            assert_eq!(order(known(kind), true), [(Routine, kind, true), model, sentence]);
            assert_eq!(order(known(kind), false), [(Routine, kind, true), sentence]);
        }
        let by_model = (Routine, RoutineKind::Model, true);
        for has_model in [true, false] {
            assert_eq!(order(known(RoutineKind::Model), has_model), [by_model, sentence]);
        }
        assert_eq!(order(PinnedRoutine::Unknown(hash), true), [model, sentence]);
        assert_eq!(order(PinnedRoutine::Unknown(hash), false), [sentence]);
        let conversation = (Conversation, RoutineKind::Language, false);
        assert_eq!(order(PinnedRoutine::NoDocument, true), [conversation, sentence]);
        assert_eq!(order(PinnedRoutine::NoDocument, false), [sentence]);
    }
}
