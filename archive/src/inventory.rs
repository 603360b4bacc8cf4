//! What stands in an archive's folder: its own files, what an interrupted archiver may leave, and what is not of it.
//!
//! The folders are listed and nothing is opened. An archive has regular files and folders only, and no link is followed. A folder that is not of the archive is named once, whatever it holds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemas::Lane;

use super::follow::LOCK;
use super::segment_store::{BEGINNING, BEGINNING_NEW, MEMO, MEMO_NEW, segment_of};
use super::verify::Difference;

/// What a lane's folder is called, before its number.
const LANE: &str = "lane-";

/// What stands in a folder.
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
    match name(path) {
        Some(MEMO | BEGINNING) => file(path, FileKind::Own),
        Some(MEMO_NEW | BEGINNING_NEW) => file(path, FileKind::Leftover),
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
