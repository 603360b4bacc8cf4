//! Reads the folder of an experiment.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::figures::tally::Tally;
use crate::plan::Hypothesis;
use crate::plan::hypothesis::HypothesisTest;
use crate::record::{CellRecord, RoundRecord};
use crate::run::files::{self, CELL, CELLS, ROUNDS};

/// What an experiment left.
#[derive(Debug)]
pub struct ReadFolder {
    /// Name of the experiment: of its plan, else of its folder.
    pub name: String,
    /// The bounds its plan claims.
    pub bounds: Vec<Hypothesis>,
    /// Its complete cells.
    pub tallies: Vec<Tally>,
    /// Cells without a record.
    pub unfinished: Vec<String>,
}

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There is no complete cell.
    #[error("{} holds no complete cell (cells/<id>/cell.json); give the folder that `llmx-lab experiment` wrote to", .0.display())]
    NoCells(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no record.
    #[error(
        "{}:{line}: {reason}; nothing was written. Take the folder {} away and run the experiment again into the same \
         folder: it repeats only that cell", path.display(), cell.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
        /// Folder of the cell.
        cell: PathBuf,
    },
}

/// Reads every complete cell of a folder.
///
/// # Errors
/// [`FolderError`].
pub fn read(folder: &Path) -> Result<ReadFolder, FolderError> {
    let cells = folder.join(CELLS);
    let mut folders = Vec::new();
    match fs::read_dir(&cells) {
        Ok(entries) => {
            for entry in entries {
                folders.push(entry.map_err(unreadable(&cells))?.path());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FolderError::NoCells(folder.to_owned())),
        Err(error) => return Err(unreadable(&cells)(error)),
    }
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    let (mut tallies, mut unfinished) = (Vec::new(), Vec::new());
    for cell in &folders {
        match read_cell(cell)? {
            Some(tally) => tallies.push(tally),
            None => unfinished.push(name_of(cell)),
        }
    }
    if tallies.is_empty() {
        return Err(FolderError::NoCells(folder.to_owned()));
    }
    // A report does not need it: without it the name is the folder's, and no bound is judged.
    let plan: Option<serde_json::Value> = files::plan(folder);
    let bounds = plan.as_ref().map(bounds).unwrap_or_default();
    let name = plan.and_then(|plan| plan.get("name")?.as_str().map(str::to_owned));
    let name = name.unwrap_or_else(|| name_of(&folder.canonicalize().unwrap_or_else(|_| folder.to_owned())));
    Ok(ReadFolder { name, bounds, tallies, unfinished })
}

fn read_cell(folder: &Path) -> Result<Option<Tally>, FolderError> {
    let path = folder.join(CELL);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&path)(error)),
    };
    let cell: CellRecord =
        serde_json::from_str(&text).map_err(|error| damaged(&path, error.line() as u64, error.to_string()))?;
    let rounds_path = folder.join(ROUNDS);
    let announced = cell.rounds;
    let mut tally = Tally::new(cell);
    let read = read_lines(&rounds_path, |round: RoundRecord| tally.add(&round))?;
    if read != announced {
        let reason = format!("ends after {read} rounds, where cell.json says {announced}");
        return Err(damaged(&rounds_path, read, reason));
    }
    Ok(Some(tally))
}

/// Gives each record of a file of a cell to `take`, and says how many there are.
///
/// # Errors
/// [`FolderError::Unreadable`], [`FolderError::Damaged`].
pub fn read_lines<T: DeserializeOwned>(path: &Path, mut take: impl FnMut(T)) -> Result<u64, FolderError> {
    let mut read = 0;
    for line in BufReader::new(File::open(path).map_err(unreadable(path))?).lines() {
        let record = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        take(record.map_err(|error| damaged(path, read + 1, error.to_string()))?);
        read += 1;
    }
    Ok(read)
}

/// What is wrong with a line of a file of a cell.
pub fn damaged(path: &Path, line: u64, reason: String) -> FolderError {
    let cell = path.parent().unwrap_or(path).to_owned();
    FolderError::Damaged { path: path.to_owned(), line, reason, cell }
}

/// A file that cannot be read.
pub fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Unreadable { path, source }
}

/// The bounds that a plan claims; the hypotheses of the literature are judged whatever a plan says.
fn bounds(plan: &serde_json::Value) -> Vec<Hypothesis> {
    let claims = plan.get("hypotheses").and_then(serde_json::Value::as_array).into_iter().flatten();
    let read = claims.filter_map(|claim| serde_json::from_value::<Hypothesis>(claim.clone()).ok());
    read.filter(|claim| matches!(claim.test, HypothesisTest::Bound { .. })).collect()
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MessageCount;

    #[test]
    fn a_line_that_is_no_record_is_named_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ROUNDS);
        let damaged_line = |text: &str| {
            fs::write(&path, text).unwrap();
            match read_lines(&path, |_: MessageCount| ()) {
                Err(FolderError::Damaged { line, .. }) => Some(line),
                Ok(_) | Err(FolderError::NoCells(_) | FolderError::Unreadable { .. }) => None,
            }
        };
        let good = "{\"messages\": 1, \"bytes\": 2}\n";
        assert_eq!(damaged_line("{}\n"), Some(1));
        assert_eq!(damaged_line(&format!("{good}not json\n")), Some(2));
        assert_eq!(damaged_line(good), None);
    }
}
