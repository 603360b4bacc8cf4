//! What Linux says of a process in `/proc`: processor time, context switches, memory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Linux counts processor time in hundredths of a second.
const TICK_US: f64 = 10_000.0;
/// Bytes of a page in `/proc/<pid>/statm` on the platforms this runs on.
const PAGE_BYTES: u64 = 4096;
/// State of a process that has ended and was not waited for.
const ZOMBIE: &str = "Z";

/// Whether this system has what is read here.
pub fn is_measurable() -> bool {
    cfg!(target_os = "linux") && Path::new("/proc/self/stat").exists()
}

/// What a process has used since it started.
#[derive(Debug, Clone, Default)]
pub struct ProcessUsage {
    /// Processor time of all its threads, ended ones included, in microseconds.
    pub cpu_us: f64,
    /// Voluntary and involuntary context switches of each thread it had when looked at.
    switches_by_thread: BTreeMap<u32, u64>,
    /// Whether the process has ended; it has no threads then.
    pub has_ended: bool,
}

impl ProcessUsage {
    /// Reads what the process has used so far. One that has ended can be read until it is waited for.
    pub fn read(pid: u32) -> io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let stat = std::fs::read_to_string(folder.join("stat"))?;
        let (state, cpu_us) = state_and_cpu_us(&stat)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not of the form this build reads")))?;
        let mut switches_by_thread = BTreeMap::new();
        for thread in std::fs::read_dir(folder.join("task"))?.flatten() {
            // A thread may end between the two looks.
            let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
            if let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) {
                switches_by_thread.insert(id, context_switches(&status));
            }
        }
        Ok(Self { cpu_us, switches_by_thread, has_ended: state == ZOMBIE })
    }

    /// Takes in a later look at the same process. Threads that are gone keep what was seen of them last.
    pub fn update(&mut self, later: Self) {
        self.switches_by_thread.extend(later.switches_by_thread);
        (self.cpu_us, self.has_ended) = (later.cpu_us, later.has_ended);
    }

    /// Context switches since `earlier`. Those of threads that ended meanwhile are not known.
    pub fn switches_since(&self, earlier: &Self) -> u64 {
        let by_thread = self.switches_by_thread.iter();
        by_thread.map(|(id, now)| now.saturating_sub(earlier.switches_by_thread.get(id).copied().unwrap_or(0))).sum()
    }
}

/// Processor time of this process so far, in microseconds; 0 where the system does not say.
pub fn own_cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    state_and_cpu_us(&stat).map_or(0.0, |(_, cpu_us)| cpu_us)
}

/// Files, sockets included, that a process holds open; 0 where that cannot be read.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Resident memory of a process (`self`: of this one); 0 where the system does not say.
pub fn resident_bytes(process: &str) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// The state in `/proc/<pid>/stat`, and user and system time together.
fn state_and_cpu_us(stat: &str) -> Option<(&str, f64)> {
    // The name stands in brackets and may hold anything; behind it the state is the first field, the times the 12th and 13th.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let mut ticks = fields.skip(10).map(str::parse::<f64>);
    Some((state, (ticks.next()?.ok()? + ticks.next()?.ok()?) * TICK_US))
}

/// Voluntary and involuntary context switches in `/proc/<pid>/task/<tid>/status`.
fn context_switches(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "24663 (llmx) (x) S 24638 24638 6530 0 -1 4194304 716 0 4 0 20 10 0 0 20 0 3 0 4064425 1255157760 9533 \
        18446744073709551615 94472783612800 94472808999200 140722717382672 0 0 0 0 4100 17474 0 0 0 17 0 0 0 0 0 0 \
        94472809912816 94472809935920 94473863311360 140722717391482 140722717391547 140722717391547 140722717392874 0\n";
    const STATUS: &str = "Name:\tllmx\nState:\tS (sleeping)\nThreads:\t3\nvoluntary_ctxt_switches:\t75\n\
        nonvoluntary_ctxt_switches:\t34\n";

    #[test]
    fn times_stand_behind_a_name_that_holds_brackets() {
        let (state, cpu_us) = state_and_cpu_us(STAT).unwrap();
        assert_eq!(state, "S");
        assert!((cpu_us - 300_000.0).abs() < f64::EPSILON, "{cpu_us}");
        assert!(state_and_cpu_us("1 (cut) S 1 2").is_none() && state_and_cpu_us("").is_none());
    }

    #[test]
    fn both_kinds_of_context_switches_count() {
        assert_eq!(context_switches(STATUS), 109);
        assert_eq!(context_switches(""), 0);
    }

    #[test]
    fn a_thread_that_ended_takes_nothing_from_the_others() {
        let usage = |switches: &[(u32, u64)]| ProcessUsage {
            switches_by_thread: switches.iter().copied().collect(),
            ..ProcessUsage::default()
        };
        let (before, after) = (usage(&[(1, 10), (2, 1000)]), usage(&[(1, 15), (3, 7)]));
        assert_eq!(after.switches_since(&before), 12);
    }

    #[test]
    fn a_process_that_is_followed_keeps_what_its_ended_threads_did() {
        let usage = |cpu_us, has_ended, switches: &[(u32, u64)]| ProcessUsage {
            cpu_us,
            has_ended,
            switches_by_thread: switches.iter().copied().collect(),
        };
        let mut followed = usage(10.0, false, &[(1, 10), (2, 1000)]);
        followed.update(usage(30.0, true, &[(1, 15)]));
        assert_eq!(followed.switches_since(&ProcessUsage::default()), 1015);
        assert!(followed.has_ended && (followed.cpu_us - 30.0).abs() < f64::EPSILON);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_time_grows_with_work() {
        let before = ProcessUsage::read(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while own_cpu_us() - before.cpu_us < 20_000.0 {
            sum = (0..1_000_000_u64).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        let after = ProcessUsage::read(std::process::id()).unwrap();
        assert!(after.cpu_us >= before.cpu_us + 20_000.0 && !after.has_ended);
        assert!(resident_bytes("self") > 0);
    }
}
