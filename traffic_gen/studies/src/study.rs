//! What studies without an exchange have in common: a folder that no other plan may use, cells of records that follow from seeds, and
//! a report that is computed from these.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use schemas::Refusal;
use schemas::ids::IdError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::FileError;
use crate::run::files::{CELLS, HoldError, PLAN, at, hold, plan, replace_all, write_whole};

/// Why a study ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder is another run's, or nobody's.
    #[error(transparent)]
    Held(#[from] HoldError),
    /// The folder holds something else.
    #[error("{} holds another experiment; choose another folder with --out, or remove it", .0.display())]
    OtherExperiment(PathBuf),
    /// A registry refused a document, or a record names none.
    #[error("a document was refused: {0}")]
    Registry(#[from] Refusal),
    /// An agent's name is none.
    #[error("an agent's name cannot be: {0}")]
    Name(#[from] IdError),
    /// A part of it, or the exchange of its calls or searches.
    #[error("{what}: {reason}")]
    Unplayed {
        /// What was played.
        what: &'static str,
        /// What went wrong.
        reason: String,
    },
}

impl StudyError {
    /// Of what was played.
    pub fn unplayed(what: &'static str, reason: impl ToString) -> Self {
        Self::Unplayed { what, reason: reason.to_string() }
    }
}

/// So many seeds from the first on.
pub fn seeds(first: u64, count: u64) -> Range<u64> {
    first..first.saturating_add(count)
}

/// Takes a folder for a plan, unless it holds another, as long as what is returned lives.
///
/// # Errors
/// [`StudyError::OtherExperiment`], [`StudyError::Held`], [`StudyError::File`].
pub fn claim<P: Serialize + DeserializeOwned + PartialEq>(folder: &Path, wanted: &P) -> Result<File, StudyError> {
    let held = hold(folder)?;
    let path = folder.join(PLAN);
    if path.exists() && plan::<P>(folder).as_ref() != Some(wanted) {
        return Err(StudyError::OtherExperiment(folder.to_owned()));
    }
    write_whole(&path, wanted)?;
    Ok(held)
}

/// The folder of a cell, made where there is none.
///
/// # Errors
/// [`FileError`].
pub fn cell_folder(folder: &Path, cell: &str) -> Result<PathBuf, FileError> {
    let folder = folder.join(CELLS).join(cell);
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    Ok(folder)
}

/// Writes records as lines of a file, which is there whole or not at all.
///
/// # Errors
/// [`FileError`].
pub fn write_lines<T: Serialize>(path: &Path, records: &[T]) -> Result<(), FileError> {
    let lines = records.iter().map(|record| serde_json::to_string(record).map(|line| line + "\n"));
    let lines = lines.collect::<Result<String, _>>().map_err(|error| at(path)(error.into()))?;
    replace_all(&[(path, lines)])
}
