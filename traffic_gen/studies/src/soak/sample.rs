//! What a soak leaves: `samples.jsonl`, one [`SoakLine`] each, and where the next part of it goes on.
//!
//! Lines are only ever added. A line that was cut off by a kill or a full disk is taken away when the soak goes on, so that
//! the file is whole again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SoakPlan;
use super::report::parts;

/// The lines of a soak, in its folder.
pub const SAMPLES: &str = "samples.jsonl";

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoakLine {
    /// A part begins.
    Begin(Begin),
    /// What was measured at one time.
    Sample(SampleLine),
    /// A part ends as it should.
    End(End),
}

/// The start of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Number of the part, from 1.
    pub part: u32,
    /// When.
    pub at: Timestamp,
    /// Seconds measured in earlier parts.
    pub offset_s: f64,
    /// Seconds that are not judged.
    pub warm_up_s: f64,
    /// What is soaked.
    pub plan: SoakPlan,
    /// Version of the program.
    pub version: String,
}

/// What was measured at one time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleLine {
    /// When.
    pub at: Timestamp,
    /// Seconds since the part began.
    pub elapsed_s: f64,
    /// By series: `<of>/<quantity>`. Who does not answer has none.
    pub values: BTreeMap<String, f64>,
    /// When each process began, in seconds since 1970.
    pub started: BTreeMap<String, f64>,
    /// Violations of invariants in this interval, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub violations: BTreeMap<String, u64>,
    /// Faults injected in this interval, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<String, u64>,
}

impl SampleLine {
    /// Tells the lives of a process apart, to the second; 0 where it does not say when it began.
    pub fn life(&self, of: &str) -> u64 {
        self.started.get(of).map_or(0, |started| started.round() as u64)
    }
}

/// The end of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Seconds since the part began.
    pub elapsed_s: f64,
    /// Why: `done`, `interrupted`, or what went wrong.
    pub reason: String,
    /// Violations found at the end, by name.
    pub violations: BTreeMap<String, u64>,
    /// The first few of them, in words.
    pub examples: Vec<String>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SoakFolderError {
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// A line in the midst of it is none of a soak's.
    #[error("{path}, line {line}: {reason}; move the folder away, or name another with --out", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Another soak was begun in it.
    #[error("{path} holds a soak with another value of {member}; name another folder with --out, or ask for the same", path = path.display())]
    Other {
        /// The folder.
        path: PathBuf,
        /// What differs.
        member: &'static str,
    },
    /// Another process writes it.
    #[error("{path} is being written by another soak; wait, or name another folder with --out", path = path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
}

/// The folder of a soak, open to be added to. Nothing of what it holds is kept in memory: a soak lasts.
#[derive(Debug)]
pub struct SoakFolder {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    len: u64,
    plan: SoakPlan,
    /// Parts that were begun.
    part: u32,
    /// Seconds measured in the parts before this one.
    offset_s: f64,
}

impl SoakFolder {
    /// Opens a folder, made where there is none; a line that was cut off is taken away.
    ///
    /// # Errors
    /// [`SoakFolderError`].
    pub fn open(path: &Path, plan: &SoakPlan) -> Result<Self, SoakFolderError> {
        let samples = path.join(SAMPLES);
        let fault = |source| SoakFolderError::File { path: samples.clone(), source };
        std::fs::create_dir_all(path).map_err(fault)?;
        let file = OpenOptions::new().create(true).read(true).append(true).open(&samples).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(SoakFolderError::Busy { path: path.to_owned() }),
            Err(std::fs::TryLockError::Error(source)) => return Err(fault(source)),
        }
        let (lines, len) = read(&samples)?;
        file.set_len(len).map_err(fault)?;
        if let Some(member) = begins(&lines).next().and_then(|begin| begin.plan.difference(plan)) {
            return Err(SoakFolderError::Other { path: path.to_owned(), member });
        }
        let part = begins(&lines).last().map_or(0, |begin| begin.part);
        let offset_s = parts(&lines).iter().fold(0.0, |sum, part| sum + part.measured_s);
        Ok(Self { path: path.to_owned(), file, len, plan: plan.clone(), part, offset_s })
    }

    /// Begins the next part.
    ///
    /// # Errors
    /// [`SoakFolderError::File`].
    pub fn begin(&mut self) -> Result<(), SoakFolderError> {
        self.part += 1;
        let (plan, offset_s, part) = (self.plan.clone(), self.offset_s, self.part);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.add(&SoakLine::Begin(Begin {
            part,
            at: Timestamp::now(),
            offset_s,
            warm_up_s: plan.warm_up_s(),
            plan,
            version,
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is soaked.
    pub fn plan(&self) -> &SoakPlan {
        &self.plan
    }

    /// The part that was begun last, from 1; 0 before the first.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Seconds that are still to be measured.
    pub fn remaining_s(&self) -> f64 {
        (self.plan.duration_s - self.offset_s).max(0.0)
    }

    /// Adds a line. Where it does not fit on the disk, nothing of it stays.
    ///
    /// # Errors
    /// [`SoakFolderError::File`].
    pub fn add(&mut self, line: &SoakLine) -> Result<(), SoakFolderError> {
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text)?;
            Ok(text.len() as u64)
        });
        match written {
            Ok(bytes) => self.len += bytes,
            Err(source) => {
                // Where it cannot be taken away, reading leaves out what was written of it.
                let _ = self.file.set_len(self.len);
                return Err(SoakFolderError::File { path: self.path.join(SAMPLES), source });
            }
        }
        Ok(())
    }
}

/// The parts that were begun.
pub fn begins(lines: &[SoakLine]) -> impl Iterator<Item = &Begin> {
    lines.iter().filter_map(|line| match line {
        SoakLine::Begin(begin) => Some(begin),
        SoakLine::Sample(_) | SoakLine::End(_) => None,
    })
}

/// The whole lines of a file, and their bytes; none where there is no file.
///
/// # Errors
/// [`SoakFolderError::File`], [`SoakFolderError::Damaged`].
pub fn read(path: &Path) -> Result<(Vec<SoakLine>, u64), SoakFolderError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(SoakFolderError::File { path: path.to_owned(), source }),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let parsed = whole.lines().enumerate().map(|(index, line)| {
        let damaged = |error: serde_json::Error| SoakFolderError::Damaged {
            path: path.to_owned(),
            line: index + 1,
            reason: error.to_string(),
        };
        serde_json::from_str(line).map_err(damaged)
    });
    Ok((parsed.collect::<Result<Vec<SoakLine>, _>>()?, whole.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::super::{Place, SoakFaults};
    use super::*;

    fn plan() -> SoakPlan {
        SoakPlan {
            place: Place::Embedded,
            agents: 12,
            policy: "high@1".to_owned(),
            rate: 5.0,
            faults: SoakFaults::None,
            sample_s: 2.0,
            seed: 1,
            metrics: Vec::new(),
            duration_s: 180.0,
        }
    }

    fn sample(elapsed_s: f64) -> SoakLine {
        SoakLine::Sample(SampleLine { elapsed_s, ..SampleLine::default() })
    }

    #[test]
    fn a_soak_that_was_killed_goes_on_behind_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = SoakFolder::open(folder.path(), &plan()).unwrap();
        first.begin().unwrap();
        first.add(&sample(2.0)).unwrap();
        first.add(&sample(4.0)).unwrap();
        drop(first);
        let path = folder.path().join(SAMPLES);
        let mut torn = std::fs::read_to_string(&path).unwrap();
        torn.push_str("{\"sample\":{\"at\":");
        std::fs::write(&path, torn).unwrap();
        let mut second = SoakFolder::open(folder.path(), &plan()).unwrap();
        assert!((second.remaining_s() - 176.0).abs() < 1e-9, "{second:?}");
        second.begin().unwrap();
        let (lines, _) = read(&path).unwrap();
        let begun: Vec<(u32, f64)> = begins(&lines).map(|begin| (begin.part, begin.offset_s)).collect();
        assert_eq!((begun, lines.len()), (vec![(1, 0.0), (2, 4.0)], 4));
    }

    #[test]
    fn a_folder_of_another_soak_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        SoakFolder::open(folder.path(), &plan()).unwrap().begin().unwrap();
        let longer = SoakPlan { duration_s: 999.0, ..plan() };
        SoakFolder::open(folder.path(), &longer).unwrap().begin().unwrap();
        let other = SoakPlan { agents: 5, ..plan() };
        let refused = SoakFolder::open(folder.path(), &other).unwrap_err();
        assert!(matches!(refused, SoakFolderError::Other { member: "--agents", .. }), "{refused}");
    }

    #[test]
    fn a_folder_that_is_being_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = SoakFolder::open(folder.path(), &plan()).unwrap();
        let refused = SoakFolder::open(folder.path(), &plan()).unwrap_err();
        assert!(matches!(refused, SoakFolderError::Busy { .. }), "{refused}");
        drop(first);
    }

    #[test]
    fn a_line_that_is_none_is_named_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        SoakFolder::open(folder.path(), &plan()).unwrap().begin().unwrap();
        let path = folder.path().join(SAMPLES);
        let text = std::fs::read_to_string(&path).unwrap() + "no line\n";
        std::fs::write(&path, text).unwrap();
        let refused = SoakFolder::open(folder.path(), &plan()).unwrap_err();
        assert!(matches!(refused, SoakFolderError::Damaged { line: 2, .. }), "{refused}");
    }
}
