//! The files of a cell: `rounds.jsonl`, and the same as tables, `rounds.csv` and `offers.csv`; and how files of experiments get into
//! their places.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::record::{BidRecord, CellRecord, RoundRecord};

/// The plan of an experiment, in its folder.
pub const PLAN: &str = "experiment.json";
/// The cells of an experiment, each a folder in this one.
pub const CELLS: &str = "cells";
/// The record of a cell, in its folder.
pub const CELL: &str = "cell.json";
/// The rounds of a cell, in its folder.
pub const ROUNDS: &str = "rounds.jsonl";
/// The columns of `rounds.csv`.
const OF_ROUNDS: &str = "cell,seed,policy,round,negotiation,is_warm_up,intended_us,sent_us,stored_us,decided_us,confirmed_us,\
                         ended_us,outcome,refusal,invited,offers,awards,winner,messages_sent,bytes_sent,\
                         messages_delivered,bytes_delivered,retries,duplicates";
/// The columns of `offers.csv`.
const OF_OFFERS: &str = "cell,seed,policy,round,from,cost,own_cost,delay_us,sent_us,stored_us,disposition,is_winner";

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; what was measured until then is kept", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Why a run may not write to a folder.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Another run does.
    #[error("another run writes to {}: wait for it, or choose another folder with --out", .0.display())]
    Busy(PathBuf),
    /// It holds something, and no plan.
    #[error("{} holds other files: choose an empty folder with --out", .0.display())]
    Foreign(PathBuf),
    /// It cannot be used.
    #[error("cannot use {}: {source}; choose another folder with --out", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes a folder a run's own, as long as what is returned lives: one that is empty, or holds a plan.
///
/// # Errors
/// [`HoldError`].
pub fn hold(folder: &Path) -> Result<File, HoldError> {
    let unusable = |source| HoldError::Unusable { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(unusable)?;
    let held = File::open(folder).map_err(unusable)?;
    match held.try_lock() {
        // Not every file system locks folders: there nothing keeps two runs apart.
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => return Err(HoldError::Busy(folder.to_owned())),
    }
    let mut entries = fs::read_dir(folder).map_err(unusable)?.filter_map(Result::ok);
    // Cells whose plan was lost, a plan that was not written whole, and a new volume are nobody's.
    let is_none = |name: &OsStr| {
        name == CELLS || name == "lost+found" || name.to_str().is_some_and(|name| name == format!("{PLAN}.new"))
    };
    let is_own = folder.join(PLAN).exists() || entries.all(|entry| is_none(&entry.file_name()));
    if is_own { Ok(held) } else { Err(HoldError::Foreign(folder.to_owned())) }
}

/// The open files of a cell that runs.
pub struct CellFiles {
    folder: PathBuf,
    rounds: BufWriter<File>,
    table: csv::Writer<File>,
    offers: csv::Writer<File>,
    /// Of the tables, until they have a line.
    heads: [Option<&'static str>; 2],
    written: u64,
    /// What each line of the tables begins with: the cell, its seed and its policy.
    begins: [String; 3],
}

impl CellFiles {
    /// Creates the folder, and empties the files, of a cell of this seed and policy.
    pub fn create(folder: &Path, id: &str, seed: u64, policy: &str) -> Result<Self, FileError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let create = |name: &str| {
            let path = folder.join(name);
            File::create(&path).map_err(at(&path))
        };
        let earlier = folder.join(CELL);
        if earlier.exists() {
            fs::remove_file(&earlier).map_err(at(&earlier))?;
        }
        Ok(Self {
            rounds: BufWriter::new(create(ROUNDS)?),
            table: csv::Writer::from_writer(create("rounds.csv")?),
            offers: csv::Writer::from_writer(create("offers.csv")?),
            heads: [OF_ROUNDS, OF_OFFERS].map(Some),
            folder: folder.to_owned(),
            written: 0,
            begins: [id.to_owned(), seed.to_string(), policy.to_owned()],
        })
    }

    /// Writes rounds, through to the files.
    pub fn write(&mut self, rounds: &[RoundRecord]) -> Result<(), FileError> {
        for round in rounds {
            let path = || self.folder.join(ROUNDS);
            let line = serde_json::to_string(round).map_err(|error| at(&path())(error.into()))?;
            writeln!(self.rounds, "{line}").map_err(at(&path()))?;
            self.written += 1;
        }
        if !rounds.is_empty() {
            self.rounds.flush().map_err(at(&self.folder.join(ROUNDS)))?;
        }
        let [of_rounds, of_offers] = &mut self.heads;
        for round in rounds {
            let row = round_row(&self.begins, round);
            write_row(&mut self.table, of_rounds, row).map_err(at(&self.folder.join("rounds.csv")))?;
            for offer in &round.offers {
                let row = offer_row(&self.begins, round, offer);
                write_row(&mut self.offers, of_offers, row).map_err(at(&self.folder.join("offers.csv")))?;
            }
        }
        self.table.flush().map_err(at(&self.folder.join("rounds.csv")))?;
        self.offers.flush().map_err(at(&self.folder.join("offers.csv")))
    }

    /// Rounds written.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Writes the record, whole or not at all, after everything else is on the disk.
    pub fn finish(self, record: &CellRecord) -> Result<(), FileError> {
        self.rounds.get_ref().sync_all().map_err(at(&self.folder.join(ROUNDS)))?;
        write_whole(&self.folder.join(CELL), record)
    }
}

/// The plan in a folder, if it is one of this kind.
pub fn plan<P: DeserializeOwned>(folder: &Path) -> Option<P> {
    serde_json::from_slice(&fs::read(folder.join(PLAN)).ok()?).ok()
}

/// A document as its file holds it.
pub fn pretty(path: &Path, document: &impl Serialize) -> Result<String, FileError> {
    let text = serde_json::to_string_pretty(document).map_err(|error| at(path)(error.into()))?;
    Ok(text + "\n")
}

/// Writes a document beside its place, and puts it there when it is on the disk.
pub fn write_whole(path: &Path, document: &impl Serialize) -> Result<(), FileError> {
    replace_all(&[(path, pretty(path, document)?)])
}

/// Writes files beside their places, and puts them there when all are on the disk: one that is full leaves the earlier ones.
pub fn replace_all<P: AsRef<Path>>(files: &[(P, String)]) -> Result<(), FileError> {
    let beside = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        PathBuf::from(name)
    };
    let stage = |path: &Path, text: &str| {
        let mut file = File::create(beside(path))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let files = || files.iter().map(|(path, text)| (path.as_ref(), text));
    let staged = files().try_for_each(|(path, text)| stage(path, text).map_err(at(path)));
    let placed =
        staged.and_then(|()| files().try_for_each(|(path, _)| fs::rename(beside(path), path).map_err(at(path))));
    placed.inspect_err(|_| {
        // What is left of them takes room on a full disk.
        files().for_each(|(path, _)| drop(fs::remove_file(beside(path))));
    })
}

/// Rows as CSV, behind the names of their columns.
pub fn csv_text(columns: &str, rows: impl IntoIterator<Item = impl Serialize>) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.split(','))?;
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// A fault of this file.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError { path, source }
}

/// Writes a line of a table, behind its head where it is the first.
fn write_row(table: &mut csv::Writer<File>, head: &mut Option<&str>, row: impl Serialize) -> io::Result<()> {
    if let Some(head) = head.take() {
        table.write_record(head.split(','))?;
    }
    Ok(table.serialize(row)?)
}

/// A line of `rounds.csv`.
fn round_row(begins: &[String; 3], round: &RoundRecord) -> impl Serialize {
    let [sent, delivered] = [&round.sent, &round.delivered].map(|counts| {
        let messages = counts.values().map(|count| count.messages).sum::<u64>();
        (messages, counts.values().map(|count| count.bytes).sum::<u64>())
    });
    let winner = round.awards.last().map(|award| &award.to);
    (
        begins,
        (round.round, &round.negotiation, round.is_warm_up, round.intended_us, round.sent_us),
        (round.stored_us, round.decided_us, round.confirmed_us, round.ended_us),
        (&round.outcome, &round.refusal, round.invited, round.offers.len(), round.awards.len(), winner),
        (sent, delivered, round.retries, round.duplicates),
    )
}

/// A line of `offers.csv`.
fn offer_row(begins: &[String; 3], round: &RoundRecord, offer: &BidRecord) -> impl Serialize {
    let cost = (offer.cost < f64::MAX).then_some(offer.cost);
    let is_winner = round.awards.last().is_some_and(|award| award.to == offer.from);
    (
        (begins, round.round, &offer.from, cost, offer.own_cost),
        (offer.delay_us, offer.sent_us, offer.stored_us, &offer.disposition, is_winner),
    )
}
