//! One operating system process that ends with this one, and the temporary folder it works in with it.

#[cfg(unix)]
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::failed;
use bus::BusError;

/// Where every POSIX system has it, whatever the PATH.
const SHELL: &str = "/bin/sh";
/// Ends the process, and removes its folder if it is given one, when its standard input closes: the parent is gone then,
/// however it ended. Signals of a terminal are for the parent.
const GUARD: &str = r#"trap '' HUP INT QUIT TERM; while read -r _; do :; done; kill -s KILL "$0"; rm -rf "$@""#;

/// A child process: killed when dropped, and on a system with a shell also when this process is killed.
#[derive(Debug)]
pub struct GuardedProcess {
    child: Child,
    /// None where there is no shell: a child whose parent is killed goes on then. None as well once the child has ended.
    guard: Option<Child>,
    temporary: Option<PathBuf>,
}

impl GuardedProcess {
    /// Starts what `command` says, in a process group of its own. When this process is killed, the child is as well, and
    /// `temporary` is removed.
    ///
    /// # Errors
    /// What kept it from starting.
    pub fn spawn(command: &mut Command, temporary: Option<&Path>) -> std::io::Result<Self> {
        let child = apart(command).spawn()?;
        let guard = guard(&child, temporary).ok();
        Ok(Self { child, guard, temporary: temporary.map(Path::to_owned) })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, once it has. Until this says so, its entry in the process table is kept.
    pub fn ended(&mut self) -> Option<std::io::Result<ExitStatus>> {
        let Some(ended) = self.child.try_wait().transpose() else {
            // Somebody may have killed the guard.
            if self.guard.as_mut().is_some_and(|guard| guard.try_wait().is_ok_and(|ended| ended.is_some())) {
                self.guard = guard(&self.child, self.temporary.as_deref()).ok();
            }
            return None;
        };
        // It would end whoever gets the number next.
        self.end_guard();
        Some(ended)
    }

    /// Sends a signal, by its name without `SIG`.
    pub(super) fn signal(&self, name: &str) -> Result<(), BusError> {
        // Every shell has `kill`, not every machine has it as a program.
        let status = Command::new(SHELL).args(["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(BusError::Unreachable(format!("signal {name} was not sent: {status}"))),
            Err(error) => Err(failed("no shell to send a signal with", &error)),
        }
    }

    fn end_guard(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            // Fails only when it has ended already.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        // The guard first: it would end whoever gets the number next. Killing fails only what has ended already.
        self.end_guard();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell that waits for the end of this process.
fn guard(child: &Child, temporary: Option<&Path>) -> std::io::Result<Child> {
    let mut command = Command::new(SHELL);
    command.args(["-c", GUARD]).arg(child.id().to_string()).args(temporary);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    apart(&mut command).spawn()
}

/// In a process group of its own, which no Ctrl-C of a terminal reaches: the parent ends it when it needs it no more.
#[cfg(unix)]
fn apart(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

#[cfg(not(unix))]
fn apart(command: &mut Command) -> &mut Command {
    command
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_handle_and_its_guard_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = GuardedProcess::spawn(Command::new("sleep").arg("100"), Some(folder.path())).unwrap();
        assert!(process.ended().is_none());
        let pids = [process.id(), process.guard.as_ref().unwrap().id()];
        drop(process);
        for pid in pids {
            let is_there = Command::new("sh").args(["-c", "kill -0 \"$0\" 2>&1", &pid.to_string()]).output().unwrap();
            assert!(!is_there.status.success(), "{pid} goes on");
        }
        assert!(folder.path().is_dir(), "who made the folder removes it");
    }

    #[test]
    fn a_process_that_ended_says_how_and_is_guarded_no_more() {
        let mut process = GuardedProcess::spawn(Command::new("sh").args(["-c", "exit 3"]), None).unwrap();
        let status = loop {
            match process.ended() {
                Some(status) => break status.unwrap(),
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(status.code(), Some(3));
        assert!(process.guard.is_none());
    }
}
