//! One operating system process, killed when it is dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::failed;
use crate::BusError;

#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts nats-server with a configuration file; what it says before it has read where to log goes to `first_words`.
    pub(super) fn spawn(binary: &Path, config: &Path, first_words: &Path) -> Result<Self, BusError> {
        let first_words = File::create(first_words).map_err(|error| failed("no file for its output", &error))?;
        let child = Command::new(binary)
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(first_words)
            .spawn()
            .map_err(|error| failed("nats-server cannot be started", &error))?;
        Ok(Self(child))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
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
        // Fails only when it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
