//! Signed records (docs/spec/records.md): what the exchange decided and how it ended, for somebody who trusts a key and nothing
//! else.
//!
//! A record is a compact JWS (RFC 7515; EdDSA with Ed25519) over the RFC 8785 form of an [`AwardRecord`]. It is made from an
//! archive that verifies, and from nothing else: it says nothing that the archive does not prove.
//!
//! | module | does |
//! |---|---|
//! | `claims` | a negotiation that ended → its records; pure |
//! | `key` | the key that signs, and the key set that verifies |
//! | `verification` | a text → a record, or the first [`RecordFault`] |
//! | `export` | an archive → files; nothing unless all of it verifies |

mod claims;
mod export;
mod key;
mod verification;

use std::io;
use std::path::PathBuf;

use archive::{ArchiveError, Difference};

pub use claims::{AwardRecord, RecordKind, RecordState, RecordsOfOne, records_of};
pub use export::{ExportOptions, Exported, export};
pub use key::{RecordKey, RecordKeySet};
pub use verification::{RecordFault, RecordRefusal, compare, verify};

/// `typ` of a record's header.
pub const RECORD_TYPE: &str = "llmx-award+jwt";
/// Version of the claims, `v`.
pub const RECORD_VERSION: u32 = 1;
/// Longest record that is read, in bytes: terms take at most 32 attributes of 256 characters.
pub const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Why records are not made, or not compared with an archive. A record that is refused is no error: [`RecordRefusal`].
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The archive cannot be read. Name the folder that `llmx archive` writes.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The archive does not verify. Nothing is exported; put back a copy.
    #[error("the archive does not verify, so nothing is exported: {0}")]
    Unverified(Difference),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
    /// The key, or the key set, is none for records. Make one with `llmx keys --purpose records`.
    #[error("no key for records: {0}")]
    Key(String),
    /// The file of positions is none. Name another, or remove it: then the whole archive is read.
    #[error("no positions of an export: {0}")]
    Positions(String),
    /// Another record stands under this name: of another key, issuer or archive. Nothing is overwritten; choose another
    /// folder.
    #[error("{} holds another record, which stays: choose another folder", .0.display())]
    Taken(PathBuf),
}

impl RecordsError {
    /// Whether what was asked for makes no sense as it stands, rather than failing.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Archive(error) => matches!(error, ArchiveError::File { .. } | ArchiveError::Unfit { .. }),
            Self::File { .. } | Self::Key(_) | Self::Positions(_) | Self::Taken(_) => true,
            Self::Unverified(_) => false,
        }
    }
}
