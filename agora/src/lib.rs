//! Protocol documents of Agora: texts that say how two agents talk about one kind of task, named by their hash.
//!
//! | module | question it answers |
//! |---|---|
//! | [`front_matter`] | what does a document say of itself? |
//! | [`document`] | what is a document, and how large may it be? |
//! | [`source`] | where can a document be had; what does a `data:` source hold? |
//! | [`selection`] | which document does a request name, in any dialect? |
//! | [`transaction`] | what is asked in one request, and what is answered? |
//! | [`mod@reference`] | which other documents does a document rest on? |
//! | [`suitability`] | does a document suit a task, as far as is known? |
//! | [`schedule`] | after how many calls is a document looked for, negotiated, given a routine? |
//! | [`table`] | which documents does an exchange hold, who supports them, how many may there be? |
//! | `body` (feature `store`) | which bodies of transactions are kept beside their calls? |
//! | `registry` (feature `store`) | how are they stored on the bus, and followed? |
//! | `fetch` (feature `http`) | which addresses may a document be fetched from, and how? |
//! | `client` (feature `http`) | how is another responder asked? |
//! | `propagation` (feature `store`) | how do documents of one exchange come to another? |
//!
//! A document is read once, by [`ProtocolDocument::try_new`], and never changes. What cannot be read is a
//! [`schemas::Refusal`] with a stable code and a pointer to the member at fault.
//!
//! ```
//! use agora::{DocumentSource, Origin, ProtocolDocument};
//!
//! let text = "---\nname: Weather\ndescription: The temperature of a city.\nmultiround: false\n---\nSend `city`.\n";
//! let document = ProtocolDocument::try_new(text, Origin::Own)?;
//! assert_eq!(document.front_matter().name, "Weather");
//! assert!(!document.front_matter().multiround);
//! assert_eq!(document.hash().to_string(), "+hj+I3JX2NfNd/x3owtQyHBGnlM=");
//! assert_eq!(DocumentSource::try_new(&DocumentSource::of_text(text).to_string())?, DocumentSource::of_text(text));
//! # Ok::<(), schemas::Refusal>(())
//! ```
//!
//! Invariants, but for the features `store` and `http`: no input or output, no clock, no randomness; no text ends the process or makes it do work beyond a named
//! limit. The rules are in docs/spec/agora.md, a page for users is docs/agora.md.

#[cfg(feature = "store")]
pub mod body;
#[cfg(feature = "http")]
pub mod client;
pub mod document;
#[cfg(feature = "http")]
pub mod fetch;
pub mod front_matter;
#[cfg(feature = "store")]
pub mod propagation;
pub mod reference;
#[cfg(feature = "store")]
pub mod registry;
pub mod schedule;
pub mod selection;
pub mod source;
pub mod suitability;
pub mod table;
pub mod transaction;

pub use document::{DocumentSummary, Origin, ProtocolDocument};
pub use front_matter::FrontMatter;
pub use reference::Reference;
pub use schemas::DocumentHash;
pub use selection::Selection;
pub use source::DocumentSource;
pub use table::DocumentTable;
