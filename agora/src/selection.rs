//! Which document a request is under. Four dialects of Agora write it down differently; all of them are read, one is
//! written.
//!
//! | meaning | `protocolHash` | `protocolSources` that are read | written |
//! |---|---|---|---|
//! | natural language | null or absent | absent, null, `[]`, `[null]` | `[]` |
//! | to negotiate a document | `"negotiation"` | absent, null, `[]`, `[null]` | null |
//! | a document | base64, base64url, hexadecimal | absent, a list of texts | the list |

use schemas::{Code, Refusal};
use serde_json::Value;

use crate::source::SOURCES_MAX;
use crate::{DocumentHash, DocumentSource};

/// The word that stands in the place of a hash while a document is negotiated.
const NEGOTIATION: &str = "negotiation";

/// Which document a request is under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// None: natural language.
    Language,
    /// None yet: the two are about to agree on one.
    Negotiation,
    /// This one.
    Document {
        /// Its name.
        hash: DocumentHash,
        /// Where it can be had, if the sender says so.
        sources: Vec<DocumentSource>,
    },
}

impl Selection {
    /// Reads the two members of a request.
    ///
    /// # Errors
    /// [`Refusal`] at `/protocolHash` or `/protocolSources`: a hash or a source that is not readable, a list that is too
    /// long, sources without a hash, or null sources with one.
    pub fn try_new(hash: Option<&Value>, sources: Option<&Value>) -> Result<Self, Refusal> {
        let at_hash = "/protocolHash";
        match hash {
            None | Some(Value::Null) => without_sources(sources).map(|()| Self::Language),
            Some(Value::String(word)) if word == NEGOTIATION => without_sources(sources).map(|()| Self::Negotiation),
            Some(Value::String(text)) => {
                let hash = DocumentHash::try_new(text).map_err(|refusal| refusal.at(at_hash))?;
                Ok(Self::Document { hash, sources: sources.map_or(Ok(Vec::new()), read_sources)? })
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(Refusal::new(Code::WrongType, "the hash of a document is a text")
                    .at(at_hash)
                    .expecting("a text or null"))
            }
        }
    }

    /// The members as the package `agora-protocol` reads them.
    #[must_use]
    pub fn members(&self) -> (Value, Value) {
        match self {
            Self::Language => (Value::Null, Value::Array(Vec::new())),
            Self::Negotiation => (NEGOTIATION.into(), Value::Null),
            Self::Document { hash, sources } => {
                (hash.to_string().into(), sources.iter().map(|source| source.to_string()).collect())
            }
        }
    }
}

/// Nothing, in any of its spellings.
fn without_sources(sources: Option<&Value>) -> Result<(), Refusal> {
    let is_nothing = match sources {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => matches!(items.as_slice(), [] | [Value::Null]),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => false,
    };
    if is_nothing {
        return Ok(());
    }
    Err(Refusal::new(Code::NotAllowed, "sources without the hash of a document")
        .at("/protocolSources")
        .expecting("[] where protocolHash names no document"))
}

fn read_sources(sources: &Value) -> Result<Vec<DocumentSource>, Refusal> {
    let at = "/protocolSources";
    let Value::Array(items) = sources else {
        return Err(Refusal::new(Code::WrongType, "the sources are no list").at(at).expecting("a list of texts"));
    };
    if items.len() > SOURCES_MAX {
        return Err(Refusal::new(Code::OutOfRange, "too many sources")
            .at(at)
            .expecting(format!("at most {SOURCES_MAX}")));
    }
    let read = |(index, item): (usize, &Value)| match item {
        Value::String(text) => DocumentSource::try_new(text).map_err(|refusal| refusal.at(format!("{at}/{index}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(Refusal::new(Code::WrongType, "a source is a text").at(format!("{at}/{index}")).expecting("a text"))
        }
    };
    items.iter().enumerate().map(read).collect()
}
