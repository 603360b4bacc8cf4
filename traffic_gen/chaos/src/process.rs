//! One process of the exchange: started, killed, paused, started again; ended with its handle.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at whether a process has ended.
const END_POLL: Duration = Duration::from_millis(20);
/// Characters of a process's output repeated when it ended by itself.
const TAIL_LEN: usize = 1500;
/// Variables of this process that would change what its children do.
const VARIABLES: &str = "LLMX_";
/// The one of them children keep: how much they log.
const LOG_VARIABLE: &str = "LLMX_LOG";

/// Signals a child is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Sends a signal to a process that this process, or one of its own, has started and not yet waited for. The shell's own
/// `kill` does it: it is there wherever a shell is, and needs no unsafe code here.
///
/// # Errors
/// When there is no shell, or the signal could not be sent.
pub fn signal(process: u32, signal: Signal) -> io::Result<()> {
    let name = match signal {
        Signal::Stop => "STOP",
        Signal::Continue => "CONT",
        Signal::Terminate => "TERM",
        Signal::Kill => "KILL",
    };
    let mut command = Command::new("sh");
    command.args(["-c", "kill -\"$1\" \"$2\"", "sh", name, &process.to_string()]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -{name} {process}: {status}"))) }
}

/// A process that can be started again and again with the same arguments. Its output goes to a file. Killed on drop.
#[derive(Debug)]
pub struct Service {
    name: String,
    binary: PathBuf,
    arguments: Vec<String>,
    output: PathBuf,
    /// Bytes of its output from before it was started last.
    said_before: usize,
    child: Option<Child>,
    is_paused: bool,
}

impl Service {
    /// A service that is not started yet; `folder` takes its output.
    pub fn new(name: &str, binary: &Path, arguments: Vec<String>, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            binary: binary.to_owned(),
            arguments,
            output: folder.join(format!("{name}.log")),
            said_before: 0,
            child: None,
            is_paused: false,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was started and neither killed nor paused since.
    pub fn is_up(&self) -> bool {
        self.child.is_some() && !self.is_paused
    }

    /// Starts it unless it runs.
    ///
    /// # Errors
    /// When it cannot be started, or its output cannot be written.
    pub fn start(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let output = OpenOptions::new().create(true).append(true).open(&self.output)?;
        self.said_before = usize::try_from(output.metadata()?.len()).unwrap_or(usize::MAX);
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with(VARIABLES) && text != LOG_VARIABLE {
                command.env_remove(&name);
            }
        }
        // In a group of its own, so that Ctrl-C reaches this process alone, which then ends the others.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.child = Some(command.spawn()?);
        self.is_paused = false;
        Ok(())
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only when it has ended already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.is_paused = false;
    }

    /// Pauses it with SIGSTOP.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn pause(&mut self) -> io::Result<()> {
        self.send(Signal::Stop).inspect(|()| self.is_paused = true)
    }

    /// Lets it go on with SIGCONT.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn unpause(&mut self) -> io::Result<()> {
        self.is_paused = false;
        self.send(Signal::Continue)
    }

    /// Asks it to end with SIGTERM and waits; false when it did not end well within `patience`, and was killed.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub async fn end(&mut self, patience: Duration) -> io::Result<bool> {
        if self.child.is_none() {
            return Ok(true);
        }
        self.send(Signal::Terminate)?;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Ok(status.success());
            }
            tokio::time::sleep(END_POLL).await;
        }
        self.kill();
        Ok(false)
    }

    /// How it ended, when it has ended by itself since it was started; it counts as not started from then on.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.is_paused = false;
        Some(status)
    }

    /// The end of its output.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.output).unwrap_or_default();
        let skipped = text.chars().count().saturating_sub(TAIL_LEN);
        text.chars().skip(skipped).collect()
    }

    /// Whether it has said this text since it was started last.
    pub fn has_said(&self, text: &str) -> bool {
        let said = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(said.get(self.said_before..).unwrap_or_default()).contains(text)
    }

    fn send(&self, what: Signal) -> io::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| signal(child.id(), what))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A free port of loopback below those the system gives to outgoing connections. One of those could be taken by any
/// client while a process that shall come back to it is down, or even be connected to itself. Processes that start one after
/// another look in different places, so that runs at the same time do not find the same ports free.
///
/// # Errors
/// When none is free.
pub fn port() -> io::Result<u16> {
    let mut candidates: Vec<u16> = (PORT_FIRST..PORT_END).collect();
    let start = (std::process::id() as usize).wrapping_mul(PORT_STRIDE) % candidates.len();
    candidates.rotate_left(start);
    let is_free = |port: &u16| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut taken = TAKEN.lock();
    let port = candidates.into_iter().find(|port| !taken.contains(port) && is_free(port));
    let port = port.ok_or_else(|| io::Error::other(format!("no port of {PORT_FIRST}..{PORT_END} is free")))?;
    taken.insert(port);
    Ok(port)
}

/// Ports given out by this process, so that two services that are not listening yet get different ones.
static TAKEN: parking_lot::Mutex<std::collections::BTreeSet<u16>> =
    parking_lot::Mutex::new(std::collections::BTreeSet::new());
/// Linux gives outgoing connections ports from 32768 on.
const PORT_FIRST: u16 = 20_000;
const PORT_END: u16 = 32_000;
/// More ports than a run takes, and prime, so that every process id of a few thousand has a place of its own.
const PORT_STRIDE: usize = 61;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_is_started_killed_and_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut service = shell("echo started; exec sleep 100", folder.path());
        assert!(!service.is_up());
        service.start().unwrap();
        until(|| service.has_said("started")).await;
        assert!(service.is_up() && service.ended().is_none());
        service.kill();
        assert!(!service.is_up() && service.ended().is_none(), "a kill is no end of its own");
        service.start().unwrap();
        until(|| service.tail().matches("started").count() == 2).await;
    }

    #[tokio::test]
    async fn a_service_that_ends_by_itself_is_noticed_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut service = shell("echo farewell >&2; exit 3", folder.path());
        service.start().unwrap();
        let mut status = None;
        until(|| {
            status = service.ended();
            status.is_some()
        })
        .await;
        assert_eq!(status.unwrap().code(), Some(3));
        assert!(service.tail().contains("farewell"));
    }

    #[tokio::test]
    async fn a_paused_service_does_nothing_until_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut service =
            shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done", folder.path());
        service.start().unwrap();
        until(|| service.has_said("ready")).await;
        service.pause().unwrap();
        assert!(!service.is_up());
        service.send(Signal::Terminate).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!service.has_said("bye"));
        service.unpause().unwrap();
        until(|| service.has_said("bye")).await;
    }

    #[tokio::test]
    async fn a_service_that_does_not_end_when_asked_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut stubborn = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done", folder.path());
        stubborn.start().unwrap();
        until(|| stubborn.has_said("ready")).await;
        assert!(!stubborn.end(Duration::from_millis(200)).await.unwrap());
        assert!(!stubborn.is_up());
    }

    #[test]
    fn ports_differ_before_anybody_listens() {
        assert_ne!(port().unwrap(), port().unwrap());
    }

    fn shell(script: &str, folder: &Path) -> Service {
        Service::new("sh", Path::new("/bin/sh"), vec!["-c".to_owned(), script.to_owned()], folder)
    }

    async fn until(mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "it did not come to that");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
