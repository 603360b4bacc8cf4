//! The terms that stand in documents, by number.

use std::collections::HashMap;
use std::sync::Arc;

use super::lists::TermLists;

/// The number of a term.
pub(super) type TermId = u32;

/// Terms with their lists. A number whose term is forgotten is used again.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    id_by_text: HashMap<Arc<str>, TermId>,
    terms: Vec<Term>,
    free: Vec<TermId>,
}

#[derive(Debug)]
struct Term {
    text: Arc<str>,
    lists: TermLists,
}

impl Vocabulary {
    /// A term, if it stands in a document.
    pub(super) fn find(&self, text: &str) -> Option<(TermId, &TermLists)> {
        let id = *self.id_by_text.get(text)?;
        self.terms.get(id as usize).map(|term| (id, &term.lists))
    }

    /// The number of a term, which has one from now on.
    pub(super) fn intern(&mut self, text: &str) -> TermId {
        if let Some(id) = self.id_by_text.get(text) {
            return *id;
        }
        let text: Arc<str> = Arc::from(text);
        let term = Term { text: text.clone(), lists: TermLists::default() };
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(place) = self.terms.get_mut(id as usize) {
                    *place = term;
                }
                id
            }
            None => {
                self.terms.push(term);
                // 2^30 terms do not fit in memory.
                u32::try_from(self.terms.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.id_by_text.insert(text, id);
        id
    }

    /// The lists of a term that [`Vocabulary::intern`] numbered.
    pub(super) fn lists(&mut self, id: TermId) -> Option<&mut TermLists> {
        self.terms.get_mut(id as usize).map(|term| &mut term.lists)
    }

    /// Forgets a term that stands in no document.
    pub(super) fn forget(&mut self, id: TermId) {
        if let Some(term) = self.terms.get(id as usize)
            && self.id_by_text.remove(&term.text).is_some()
        {
            self.free.push(id);
        }
    }
}
