//! Documents come from one exchange to another: what one registry holds and the other does not is stored there, so many in a
//! round. Registries in a chain pass documents on, a link a round.
//!
//! Texts travel, and nothing else: agents of one exchange are not those of the other, so nobody supports a document there
//! until an agent says so.

use std::sync::Arc;

use schemas::{Code, Refusal};
use serde::Serialize;

use crate::registry::{DocumentRegistry, PutResult};
use crate::{DocumentHash, ProtocolDocument};

/// Documents that are stored in one round: 2 MiB of text at most.
pub const ROUND_DOCUMENTS_MAX: usize = 64;

/// What a round came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PropagationRound {
    /// Documents that were stored.
    pub stored: usize,
    /// Documents that somebody else stored meanwhile.
    pub known: usize,
    /// Documents whose hash stands for another text there. They are left as they are, and raise an alarm there.
    pub collisions: usize,
    /// Documents for which there was no room.
    pub refused: usize,
    /// Whether the last document was reached: nothing is left but what came meanwhile.
    pub is_complete: bool,
}

impl PropagationRound {
    /// Adds what another round came to.
    pub fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.known += other.known;
        self.collisions += other.collisions;
        self.refused += other.refused;
        self.is_complete = other.is_complete;
    }
}

/// Where the rounds between two registries stand.
#[derive(Debug, Default)]
pub struct Propagation {
    /// The document that was looked at last; none: the next round begins with the first.
    after: Option<DocumentHash>,
}

impl Propagation {
    /// One round: stores up to [`ROUND_DOCUMENTS_MAX`] documents that `to` does not hold, in the order of hashes, and the next
    /// round goes on behind them. So what cannot be stored does not keep others from it.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store of `to` does not answer, or has not been read yet; the next round begins with the
    /// same document.
    pub async fn synchronise(
        &mut self,
        from: &DocumentRegistry,
        to: &DocumentRegistry,
    ) -> Result<PropagationRound, Refusal> {
        let mut round = PropagationRound::default();
        let missing = self.missing(from, to);
        round.is_complete = missing.len() < ROUND_DOCUMENTS_MAX;
        for document in missing {
            match to.adopt(&document).await {
                Ok(PutResult::New) => round.stored += 1,
                Ok(PutResult::Known | PutResult::Collision | PutResult::Refused) => round.known += 1,
                Err(refusal) if refusal.code == Code::Conflict => round.collisions += 1,
                Err(refusal) if refusal.code == Code::Overloaded => round.refused += 1,
                Err(refusal) => return Err(refusal),
            }
            self.after = Some(document.hash());
        }
        if round.is_complete {
            self.after = None;
        }
        Ok(round)
    }

    /// The next documents of `from` that `to` does not hold.
    fn missing(&self, from: &DocumentRegistry, to: &DocumentRegistry) -> Vec<Arc<ProtocolDocument>> {
        // One lock at a time: two propagations may run against each other.
        let candidates: Vec<_> = from.read().following(self.after).cloned().collect();
        let held = to.read();
        let is_missing = |document: &Arc<ProtocolDocument>| {
            held.document(document.hash()).is_none_or(|standing| standing.sha256() != document.sha256())
        };
        candidates.into_iter().filter(is_missing).take(ROUND_DOCUMENTS_MAX).collect()
    }
}
