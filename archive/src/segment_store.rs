//! The archive on the disk. The segments of one lane stand in a folder; in tests, in anything that can fail at any byte.
//! [`Inventory`] lists what stands in the archive's folder: its own files, what an interrupted archiver may leave, and what is
//! not of it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use schemas::Lane;

use super::follow::LOCK;
use super::scan::Difference;

/// Digits of a segment's name.
const NAME_LEN: usize = 20;
/// The file beside the segments that spares reading them.
pub(super) const MEMO: &str = "resume";
/// The state that removed segments led to: what the lane's archive begins with.
pub(super) const BEGINNING: &str = "beginning";
/// What the name of such a document ends with while it is written; a killed archiver leaves it.
const UNFINISHED: &str = ".new";
/// Most bytes of a document beside the segments: some times what 2^20 ended ids and a full lane state of open negotiations take,
/// and a bound on what a damaged file costs.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;
/// What a segment's file name ends with.
const EXTENSION: &str = "jsonl";

/// The segments of one lane, each named by the first sequence it may hold.
pub(super) trait Media: Send + 'static {
    /// The names, ascending.
    ///
    /// # Errors
    /// The folder's.
    fn segments(&self) -> io::Result<Vec<u64>>;

    /// A segment from its beginning.
    ///
    /// # Errors
    /// The file's.
    fn read(&self, segment: u64) -> io::Result<Box<dyn Read>>;

    /// Makes the segment end with `bytes` from the byte `at` on, and returns when that is synced. After an error any part
    /// of it may stand there.
    ///
    /// # Errors
    /// The file's: not known to be stored. Safe to repeat.
    fn store(&mut self, segment: u64, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// A document beside the segments, [`MEMO`] or [`BEGINNING`], if it is there.
    ///
    /// # Errors
    /// The folder's.
    fn document(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Keeps a document in the place of the one of its name before, and returns when that is synced: one or the other stands
    /// there, whatever happens.
    ///
    /// # Errors
    /// The folder's: the one before may still stand.
    fn keep(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a segment.
    ///
    /// # Errors
    /// The folder's.
    fn remove(&mut self, segment: u64) -> io::Result<()>;

    /// Bytes of a segment.
    ///
    /// # Errors
    /// The file's.
    fn size(&self, segment: u64) -> io::Result<u64>;

    /// Where a segment stands, for messages.
    fn path(&self, segment: u64) -> PathBuf;
}

/// A folder with one file per segment.
#[derive(Debug)]
pub(super) struct Folder {
    lane: Lane,
    path: PathBuf,
    /// The segment written to last.
    open: Option<(u64, File)>,
}

impl Folder {
    /// The folder of a lane. Nothing is created before something is stored.
    pub(super) fn new(archive: &Path, lane: Lane) -> Self {
        Self { lane, path: lane_folder(archive, lane), open: None }
    }

    fn file(&mut self, segment: u64) -> io::Result<&mut File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != segment) {
            fs::create_dir_all(&self.path)?;
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path(segment))?;
            // A file is found again after a power loss only once the folders that name it are synced.
            for folder in [Some(self.path.as_path()), self.path.parent()].into_iter().flatten() {
                File::open(folder)?.sync_all()?;
            }
            self.open = Some((segment, file));
        }
        let (_, file) = self.open.as_mut().expect("it was opened above");
        Ok(file)
    }

    /// The lane.
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// The folder itself, for messages.
    pub(super) fn folder(&self) -> &Path {
        &self.path
    }

    fn try_store(&mut self, segment: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(segment)?;
        file.set_len(at)?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        file.sync_data()
    }
}

impl Media for Folder {
    fn document(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match open(&self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let too_large =
            || no_archive(&format!("it is larger than {DOCUMENT_BYTES_MAX} bytes, which no archiver writes"));
        if file.metadata()?.len() > DOCUMENT_BYTES_MAX {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        // It may grow while it is read.
        file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX { Err(too_large()) } else { Ok(Some(bytes)) }
    }

    fn keep(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let written = self.path.join(format!("{name}{UNFINISHED}"));
        let mut file = File::create(&written)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(written, self.path.join(name))?;
        File::open(&self.path)?.sync_all()
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(no_archive("it is called like the folder of a lane, and is none: links are not followed"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Of the entry itself: a link is no segment, wherever it leads.
            if entry.file_type()?.is_file() {
                segments.extend(segment_of(&entry.path()));
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    fn read(&self, segment: u64) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(open(&self.path(segment))?))
    }

    fn store(&mut self, segment: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let stored = self.try_store(segment, at, bytes);
        if stored.is_err() {
            // After a failed sync the system may take the pages for written: a new handle writes all of them again.
            self.open = None;
        }
        stored
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.take_if(|(open, _)| *open == segment);
        fs::remove_file(self.path(segment))
    }

    fn size(&self, segment: u64) -> io::Result<u64> {
        Ok(fs::metadata(self.path(segment))?.len())
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:0NAME_LEN$}.{EXTENSION}"))
    }
}

/// Opens a regular file. A pipe would be waited for, and a link may lead out of the archive.
///
/// # Errors
/// The file's; [`io::ErrorKind::InvalidData`] for what is no regular file.
fn open(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(no_archive("it is no regular file: pipes, devices and links are not read"));
    }
    File::open(path)
}

/// What stands there is not what an archiver writes.
fn no_archive(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The segment a file is; none for other files.
fn segment_of(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let is_segment = path.extension()? == EXTENSION && stem.len() == NAME_LEN;
    stem.parse().ok().filter(|_| is_segment && stem.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a lane's folder is called, before its number.
const LANE: &str = "lane-";

/// What stands in an archive's folder. The folders are listed and nothing is opened: an archive has regular files and folders
/// only, and no link is followed. A folder that is not of the archive is named once, whatever it holds.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// The lanes that have a folder.
    pub(super) lanes: BTreeSet<Lane>,
    /// Temporary files of an archiver that was killed; its next run replaces or removes them.
    pub(super) leftovers: Vec<Difference>,
    /// Files and folders no archiver writes.
    pub(super) foreign: Vec<Difference>,
}

/// What an entry of a folder is.
enum FileKind {
    Own,
    Lane(Lane),
    Leftover,
    Foreign(&'static str),
}

impl Inventory {
    /// Lists an archive.
    ///
    /// # Errors
    /// A folder cannot be listed; the path is its.
    pub(super) fn of(archive: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut inventory = Self::default();
        inventory.list(archive, in_archive)?;
        for lane in inventory.lanes.clone() {
            inventory.list(&lane_folder(archive, lane), in_lane)?;
        }
        inventory.leftovers.sort_by(|one, other| one.file.cmp(&other.file));
        inventory.foreign.sort_by(|one, other| one.file.cmp(&other.file));
        Ok(inventory)
    }

    fn list(&mut self, folder: &Path, kind: fn(&Path) -> FileKind) -> Result<(), (PathBuf, io::Error)> {
        let with_path = |source| (folder.to_path_buf(), source);
        for entry in fs::read_dir(folder).map_err(with_path)? {
            let file = entry.map_err(with_path)?.path();
            let named = |what: &str| Difference { file: file.clone(), line: None, what: what.to_owned() };
            match kind(&file) {
                FileKind::Own => {}
                FileKind::Lane(lane) => {
                    self.lanes.insert(lane);
                }
                FileKind::Leftover => {
                    self.leftovers.push(named("a temporary file of an archiver that was interrupted"))
                }
                FileKind::Foreign(what) => self.foreign.push(named(what)),
            }
        }
        Ok(())
    }
}

/// The folder of a lane.
pub(super) fn lane_folder(archive: &Path, lane: Lane) -> PathBuf {
    archive.join(format!("{LANE}{lane}"))
}

/// What an entry beside the lanes is.
fn in_archive(path: &Path) -> FileKind {
    let lane = name(path).and_then(|name| name.strip_prefix(LANE)).and_then(|number| number.parse().ok()).map(Lane);
    // `lane-01` and `lane-+1` are numbers too, and the folder of no lane.
    match lane.filter(|&lane| name(path) == Some(&format!("{LANE}{lane}"))) {
        Some(lane) if is_own(path, fs::FileType::is_dir) => FileKind::Lane(lane),
        Some(_) => FileKind::Foreign("it is called like the folder of a lane, and is none"),
        None if name(path) == Some(LOCK) => file(path, FileKind::Own),
        None => FileKind::Foreign("no archiver writes a file or folder of this name here"),
    }
}

/// What an entry beside the segments of a lane is.
fn in_lane(path: &Path) -> FileKind {
    if segment_of(path).is_some() {
        return file(path, FileKind::Own);
    }
    let is_document = |name: &str| [MEMO, BEGINNING].contains(&name);
    match name(path) {
        Some(name) if is_document(name) => file(path, FileKind::Own),
        Some(name) if name.strip_suffix(UNFINISHED).is_some_and(is_document) => file(path, FileKind::Leftover),
        _ => FileKind::Foreign("no archiver writes a file or folder of this name in the folder of a lane"),
    }
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Whether a path itself, and not what a link there leads to, is of such a type.
fn is_own(path: &Path, is_type: fn(&fs::FileType) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| is_type(&found.file_type()))
}

/// `kind` for a regular file.
fn file(path: &Path, kind: FileKind) -> FileKind {
    if is_own(path, fs::FileType::is_file) {
        kind
    } else {
        FileKind::Foreign("it is called like a file of the archive, and is none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back_and_replaces_what_stood_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut media = Folder::new(folder.path(), Lane(3));
        assert_eq!(media.segments().unwrap(), Vec::<u64>::new());
        media.store(70, 0, b"abcdef").unwrap();
        media.store(70, 3, b"x").unwrap();
        media.store(9, 0, b"first").unwrap();
        let mut text = String::new();
        media.read(70).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), media.segments().unwrap()), ("abcx", vec![9, 70]));
        assert!(folder.path().join("lane-3/00000000000000000070.jsonl").is_file());
    }

    #[test]
    fn other_files_are_no_segments() {
        for name in ["1.jsonl", "00000000000000000001.json", "+0000000000000000001.jsonl", "notes.jsonl"] {
            assert_eq!(segment_of(Path::new(name)), None, "{name}");
        }
        assert_eq!(segment_of(Path::new("00000000000000000001.jsonl")), Some(1));
    }
}
