//! The files of a cell: `rounds.jsonl`, and the same as tables, `rounds.csv` and `offers.csv`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::record::{CellRecord, MessageCount, RoundRecord};

/// The record of a cell, in its folder.
pub const CELL: &str = "cell.json";
/// The rounds of a cell, in its folder.
const ROUNDS: &str = "rounds.jsonl";

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; what was measured until then is kept", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The open files of a cell that runs.
pub struct CellFiles {
    folder: PathBuf,
    rounds: BufWriter<File>,
    table: csv::Writer<File>,
    offers: csv::Writer<File>,
    written: u64,
}

impl CellFiles {
    /// Creates the folder, and empties the files.
    pub fn create(folder: &Path) -> Result<Self, FileError> {
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
            folder: folder.to_owned(),
            written: 0,
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
        for round in rounds {
            self.table.serialize(RoundRow::of(round)).map_err(table_at(&self.folder.join("rounds.csv")))?;
            for row in OfferRow::all_of(round) {
                self.offers.serialize(row).map_err(table_at(&self.folder.join("offers.csv")))?;
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

/// Writes a document beside its place, and puts it there when it is on the disk.
pub fn write_whole(path: &Path, document: &impl Serialize) -> Result<(), FileError> {
    let beside = path.with_extension("json.partial");
    let write = || {
        let mut file = File::create(&beside)?;
        serde_json::to_writer_pretty(&mut file, document)?;
        writeln!(file)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError { path, source }
}

fn table_at(path: &Path) -> impl FnOnce(csv::Error) -> FileError + use<> {
    let at = at(path);
    move |error| at(error.into())
}

/// A line of `rounds.csv`.
#[derive(Debug, Serialize)]
struct RoundRow<'a> {
    round: u64,
    negotiation: Option<&'a str>,
    is_warm_up: bool,
    intended_us: u64,
    sent_us: u64,
    stored_us: Option<u64>,
    decided_us: Option<u64>,
    confirmed_us: Option<u64>,
    ended_us: Option<u64>,
    outcome: Option<&'a str>,
    refusal: Option<&'a str>,
    invited: u32,
    offers: usize,
    awards: usize,
    winner: Option<&'a str>,
    messages_sent: u64,
    bytes_sent: u64,
    messages_delivered: u64,
    bytes_delivered: u64,
    retries: u64,
    duplicates: u64,
}

impl<'a> RoundRow<'a> {
    fn of(round: &'a RoundRecord) -> Self {
        let sum = |of: fn(&MessageCount) -> u64, counts: &'a std::collections::BTreeMap<String, MessageCount>| -> u64 {
            counts.values().map(of).sum()
        };
        let messages = |count: &MessageCount| count.messages;
        let bytes = |count: &MessageCount| count.bytes;
        Self {
            round: round.round,
            negotiation: round.negotiation.as_deref(),
            is_warm_up: round.is_warm_up,
            intended_us: round.intended_us,
            sent_us: round.sent_us,
            stored_us: round.stored_us,
            decided_us: round.decided_us,
            confirmed_us: round.confirmed_us,
            ended_us: round.ended_us,
            outcome: round.outcome.as_deref(),
            refusal: round.refusal.as_deref(),
            invited: round.invited,
            offers: round.offers.len(),
            awards: round.awards.len(),
            winner: round.awards.last().map(|award| award.to.as_str()),
            messages_sent: sum(messages, &round.sent),
            bytes_sent: sum(bytes, &round.sent),
            messages_delivered: sum(messages, &round.delivered),
            bytes_delivered: sum(bytes, &round.delivered),
            retries: round.retries,
            duplicates: round.duplicates,
        }
    }
}

/// A line of `offers.csv`.
#[derive(Debug, Serialize)]
struct OfferRow<'a> {
    round: u64,
    from: &'a str,
    cost: Option<f64>,
    own_cost: Option<f64>,
    delay_us: Option<u64>,
    sent_us: u64,
    stored_us: Option<u64>,
    disposition: &'a str,
    is_winner: bool,
}

impl<'a> OfferRow<'a> {
    fn all_of(round: &'a RoundRecord) -> impl Iterator<Item = Self> {
        let winner = round.awards.last().map(|award| award.to.as_str());
        round.offers.iter().map(move |offer| Self {
            round: round.round,
            from: &offer.from,
            cost: (offer.cost < f64::MAX).then_some(offer.cost),
            own_cost: offer.own_cost,
            delay_us: offer.delay_us,
            sent_us: offer.sent_us,
            stored_us: offer.stored_us,
            disposition: &offer.disposition,
            is_winner: winner == Some(offer.from.as_str()),
        })
    }
}
