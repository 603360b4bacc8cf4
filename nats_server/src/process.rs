//! One operating system process, killed when it is dropped.

use std::fs::File;
#[cfg(unix)]
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::failed;
use bus::BusError;

/// Ends the server, and removes its folder, when its standard input closes: the parent is gone then, however it ended.
/// Signals of a terminal are for the parent.
const GUARD: &str = r#"trap '' HUP INT TERM; while read -r _; do :; done; kill -s KILL "$0"; rm -rf "$1""#;

#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    /// None where there is no shell: a server whose parent is killed goes on then.
    guard: Option<Child>,
}

impl Process {
    /// Starts nats-server with a configuration file in its `folder`; what it says before it has read where to log goes to
    /// `first_words`. It ends with this process, and the folder with it.
    pub(super) fn spawn(binary: &Path, folder: &Path, config: &Path, first_words: &Path) -> Result<Self, BusError> {
        let first_words = File::create(first_words).map_err(|error| failed("no file for its output", &error))?;
        let mut command = Command::new(binary);
        command.arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(first_words);
        let server = apart(&mut command).spawn().map_err(|error| failed("nats-server cannot be started", &error))?;
        let guard = guard(&server, folder).ok();
        Ok(Self { server, guard })
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// Sends a signal, by its name without `SIG`.
    pub(super) fn signal(&self, name: &str) -> Result<(), BusError> {
        // Every shell has `kill`, not every machine has it as a program.
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(BusError::Unreachable(format!("signal {name} was not sent: {status}"))),
            Err(error) => Err(failed("no shell to send a signal with", &error)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: it would end whoever gets the number next. Both fail only when they have ended already.
        for child in self.guard.iter_mut().chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A shell that waits for the end of this process.
fn guard(server: &Child, folder: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", GUARD]).arg(server.id().to_string()).arg(folder);
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
