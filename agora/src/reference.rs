//! Documents that rest on others: the front matter names them by hash, and says where they can be had.

use std::collections::BTreeMap;

use schemas::{Code, Refusal};
use serde::Serialize;

use crate::{DocumentHash, DocumentSource};

/// References of one document.
pub const REFERENCES_MAX: usize = 8;
/// Documents between the first and the last of a chain, both included.
pub const DEPTH_MAX: usize = 4;
/// Documents that one rests on altogether.
pub const RESOLVED_MAX: usize = 16;

/// A document that another rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// Its name.
    pub hash: DocumentHash,
    /// Where it can be had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<DocumentSource>,
}

/// Everything a document rests on, each once, whatever a document rests on before itself; the first document comes last.
/// `references_of` obtains a document, keeps it, and answers what it refers to.
///
/// # Errors
/// [`Code::TooDeep`] for a chain of more than [`DEPTH_MAX`], [`Code::OutOfRange`] for more than [`RESOLVED_MAX`] documents,
/// [`Code::NotAllowed`] for a circle; what `references_of` refuses.
pub fn resolve(
    first: Reference,
    mut references_of: impl FnMut(&Reference) -> Result<Vec<Reference>, Refusal>,
) -> Result<Vec<DocumentHash>, Refusal> {
    let mut resolved = Vec::new();
    let mut is_resolved: BTreeMap<DocumentHash, bool> = BTreeMap::from([(first.hash, false)]);
    let mut chain = vec![Step { pending: references_of(&first)?.into_iter(), hash: first.hash }];
    while let Some(step) = chain.last_mut() {
        let Some(next) = step.pending.next() else {
            is_resolved.insert(step.hash, true);
            resolved.push(step.hash);
            chain.pop();
            continue;
        };
        match is_resolved.get(&next.hash) {
            Some(true) => continue,
            Some(false) => {
                return Err(Refusal::new(Code::NotAllowed, "the references of the document lead back to it"));
            }
            None => {}
        }
        if chain.len() >= DEPTH_MAX {
            return Err(Refusal::new(Code::TooDeep, "the document rests on others over too many steps")
                .expecting(format!("a chain of at most {DEPTH_MAX} documents")));
        }
        if is_resolved.len() >= RESOLVED_MAX {
            return Err(Refusal::new(Code::OutOfRange, "the document rests on too many others")
                .expecting(format!("at most {RESOLVED_MAX} documents, itself included")));
        }
        is_resolved.insert(next.hash, false);
        chain.push(Step { pending: references_of(&next)?.into_iter(), hash: next.hash });
    }
    Ok(resolved)
}

/// A document of the chain under way.
struct Step {
    hash: DocumentHash,
    /// References not yet looked at.
    pending: std::vec::IntoIter<Reference>,
}
