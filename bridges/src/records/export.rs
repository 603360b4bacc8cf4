//! An archive as files of records, all of them or none.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use archive::{Positions, VerifyOptions};
use schemas::{AgentId, NegotiationId};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::{AwardRecord, RecordKey, RecordsError, records_of};

/// What is exported, and where to.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Folder of the archive. It may still be written: what has ended by now is exported.
    pub archive: PathBuf,
    /// `iss` of the records.
    pub issuer: String,
    /// Only of this negotiation.
    pub negotiation: Option<NegotiationId>,
    /// Only what this agent called, offered or is bound by.
    pub agent: Option<AgentId>,
    /// File that says how far the archive was read; made where it is not there, and moved on. Without it the whole archive is
    /// read.
    pub after: Option<PathBuf>,
    /// Folder of the records: `<negotiation>/<lot>-<award_no>.jws`.
    pub out: PathBuf,
}

/// What an export came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Records of the log that were read.
    pub read: u64,
    /// Negotiations that ended in them.
    pub negotiations: u64,
    /// Records that stand in the folder now, those that stood there before included.
    pub records: u64,
    /// Awards that cannot be told: a bounded archive has removed their call or offer.
    pub left_out: u64,
}

/// Reads an archive, or what is new in it, and writes the records of what ended. They are signed and written once everything
/// that was read verifies. A record that stands there already stays.
///
/// # Errors
/// [`RecordsError`]. After [`RecordsError::Unverified`] nothing was written; after [`RecordsError::File`] and
/// [`RecordsError::Taken`] some records may be, and the positions stay: exporting again goes on.
pub fn export(options: &ExportOptions, key: &RecordKey) -> Result<Exported, RecordsError> {
    let mut positions = options.after.as_deref().map_or_else(|| Ok(Positions::default()), read_positions)?;
    let mut spool = Spool::try_new()?;
    let mut exported = Exported::default();
    let keep_positions = options.after.is_some();
    let reading = VerifyOptions { allow_open_end: true, keep_positions, ..VerifyOptions::default() };
    let report = archive::hear(&options.archive, &reading, &mut positions, &mut |lane, closed| {
        if options.negotiation.as_ref().is_none_or(|only| *only == closed.negotiation) {
            let found = records_of(closed, lane, &options.issuer);
            exported.left_out += found.left_out;
            let is_wanted = |record: &&AwardRecord| options.agent.as_ref().is_none_or(|agent| record.concerns(agent));
            found.records.iter().filter(is_wanted).for_each(|record| spool.push(record));
        }
    })?;
    let foreign = report.foreign.into_iter().next();
    if let Some(difference) = report.first_difference.or(foreign) {
        return Err(RecordsError::Unverified(difference));
    }
    (exported.read, exported.negotiations) = (report.total.records, report.total.negotiations);
    exported.records = spool.write_all(options, key)?;
    if let Some(file) = &options.after {
        let text = serde_json::to_vec(&positions).map_err(|error| in_file(file)(error.into()))?;
        replace(file, &text, true).map_err(in_file(file))?;
    }
    Ok(exported)
}

fn in_file(path: &Path) -> impl FnOnce(io::Error) -> RecordsError {
    |source| RecordsError::File { path: path.to_path_buf(), source }
}

fn read_positions(path: &Path) -> Result<Positions, RecordsError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| RecordsError::Positions(format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Positions::default()),
        Err(error) => Err(in_file(path)(error)),
    }
}

/// Payloads that wait in a file without a name until the archive is known to verify: they may be more than memory holds.
struct Spool {
    file: BufWriter<File>,
    /// The first fault of the disk.
    fault: Option<io::Error>,
}

impl Spool {
    fn try_new() -> Result<Self, RecordsError> {
        let file = tempfile::tempfile().map_err(in_file(&std::env::temp_dir()))?;
        Ok(Self { file: BufWriter::new(file), fault: None })
    }

    /// Adds a record, as a line.
    fn push(&mut self, record: &AwardRecord) {
        let mut line = record.canonical();
        line.push(b'\n');
        if self.fault.is_none() {
            self.fault = self.file.write_all(&line).err();
        }
    }

    /// Signs every payload into its file; gives how many.
    fn write_all(mut self, options: &ExportOptions, key: &RecordKey) -> Result<u64, RecordsError> {
        let spooled = self.fault.take().map_or_else(|| self.file.flush(), Err);
        let spooled = spooled.and_then(|()| self.file.get_ref().rewind());
        spooled.map_err(in_file(&std::env::temp_dir()))?;
        let mut count = 0;
        for line in BufReader::new(self.file.get_ref()).lines() {
            let line = line.map_err(in_file(&std::env::temp_dir()))?;
            let record: AwardRecord =
                serde_json::from_str(&line).map_err(|error| in_file(&std::env::temp_dir())(error.into()))?;
            let file = format!("{}/{}-{}.jws", record.negotiation, record.lot, record.award_no);
            keep(&options.out.join(file), key.sign(line.as_bytes())?.as_bytes(), options.after.is_some())?;
            count += 1;
        }
        Ok(count)
    }
}

/// Writes a record, unless it stands there. It is synced where a position counts on it.
fn keep(path: &Path, record: &[u8], is_synced: bool) -> Result<(), RecordsError> {
    match fs::read(path) {
        Ok(found) if found == record => Ok(()),
        Ok(_) => Err(RecordsError::Taken(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace(path, record, is_synced).map_err(in_file(path))
        }
        Err(error) => Err(in_file(path)(error)),
    }
}

/// Writes a file as a whole.
fn replace(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    if is_synced {
        file.as_file().sync_data()?;
    }
    file.persist(path)?;
    if is_synced {
        // The names, too: a position must not outlast the records it counts on.
        File::open(folder)?.sync_all()?;
        File::open(folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(folder))?.sync_all()?;
    }
    Ok(())
}
