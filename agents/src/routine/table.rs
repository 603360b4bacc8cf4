//! Routines by the document they follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::delivery::Call;
use schemas::document::{DOCUMENTS_MAX, DocumentHash};

use super::{PinnedRoutine, Routine};

/// Most documents that one contractor has routines for: as many as an exchange lets an agent support.
pub const ROUTINES_MAX: usize = 32;

/// A routine that has no place in a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutineTableError {
    /// Another routine follows the document already.
    #[error("the document {0} has a routine already; name each document once")]
    Duplicate(DocumentHash),
    /// The table is full.
    #[error("a contractor has routines for at most {ROUTINES_MAX} documents")]
    Full,
}

/// Routines by the document they follow: at most [`ROUTINES_MAX`].
#[derive(Clone, Default)]
pub struct RoutineTable {
    by_document: BTreeMap<DocumentHash, Arc<dyn Routine>>,
}

impl RoutineTable {
    /// Adds a routine for a document.
    ///
    /// # Errors
    /// [`RoutineTableError`].
    pub fn add(&mut self, document: DocumentHash, routine: Arc<dyn Routine>) -> Result<(), RoutineTableError> {
        if self.by_document.contains_key(&document) {
            return Err(RoutineTableError::Duplicate(document));
        }
        if self.by_document.len() >= ROUTINES_MAX {
            return Err(RoutineTableError::Full);
        }
        self.by_document.insert(document, routine);
        Ok(())
    }

    /// The routine that follows a document.
    #[must_use]
    pub fn routine(&self, document: DocumentHash) -> Option<&Arc<dyn Routine>> {
        self.by_document.get(&document)
    }

    /// What there is for the document that an award pins.
    #[must_use]
    pub fn pinned(&self, document: Option<DocumentHash>) -> PinnedRoutine {
        let Some(document) = document else { return PinnedRoutine::NoDocument };
        let known = |routine: &Arc<dyn Routine>| PinnedRoutine::Known(document, routine.kind());
        self.routine(document).map_or(PinnedRoutine::Unknown(document), known)
    }

    /// Those of a call's documents that have a routine, in the call's order: what an offer names.
    #[must_use]
    pub fn offered(&self, call: &Call) -> Vec<DocumentHash> {
        let asked = call.documents.iter().flat_map(|documents| &documents.hashes);
        asked.filter(|hash| self.by_document.contains_key(hash)).take(DOCUMENTS_MAX).copied().collect()
    }

    /// Documents with a routine.
    pub fn documents(&self) -> impl Iterator<Item = DocumentHash> {
        self.by_document.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use schemas::document::RoutineKind;

    use super::*;
    use crate::routine::NativeRoutine;

    #[test]
    fn a_document_has_one_routine_and_a_table_room_for_32() {
        let hash = |number: usize| DocumentHash::of_bytes(number.to_string().as_bytes());
        let routine = || Arc::new(NativeRoutine::new(|text| Ok(text.to_owned())));
        let mut table = RoutineTable::default();
        for number in 0..ROUTINES_MAX {
            table.add(hash(number), routine()).unwrap();
        }
        assert_eq!(table.add(hash(0), routine()), Err(RoutineTableError::Duplicate(hash(0))));
        assert_eq!(table.add(hash(ROUTINES_MAX), routine()), Err(RoutineTableError::Full));
        assert_eq!(table.documents().count(), ROUTINES_MAX);
        assert_eq!(table.pinned(Some(hash(3))), PinnedRoutine::Known(hash(3), RoutineKind::Native));
        assert_eq!(table.pinned(Some(hash(ROUTINES_MAX))), PinnedRoutine::Unknown(hash(ROUTINES_MAX)));
        assert_eq!(table.pinned(None), PinnedRoutine::NoDocument);
    }
}
