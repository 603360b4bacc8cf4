//! A nats-server of one's own on 127.0.0.1: kept, or for a test, a demo, a benchmark; or a cluster of them.

mod binary;
mod cluster;
mod plan;
mod process;

use std::fs::{self, File};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

pub use self::binary::{BINARY_IN_WORKSPACE, BINARY_VARIABLE, find_binary};
pub use self::cluster::{CLUSTER_NODES, LocalCluster};
use self::plan::{Membership, Ports};
pub use self::process::GuardedProcess;
use bus::BusError;

/// Time a server may take to open its port, where there is nothing to recover; it takes 50 ms, and seconds on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at whether it has.
const START_POLL: Duration = Duration::from_millis(10);
/// Attempts at the first start: another process may have taken a port since it was chosen.
const START_ATTEMPTS_MAX: u32 = 3;
/// Its configuration, in its folder.
const CONFIG: &str = "nats.conf";
/// Its log, in its folder.
const LOG: &str = "server.log";
/// What it writes to standard error, in its folder.
const FIRST_WORDS: &str = "stderr.log";
/// Where it keeps its streams, in its folder.
const STORE: &str = "store";
/// Time a server may take where there is something to recover: a log of many gigabytes is read.
pub const RECOVERY_TIMEOUT: Duration = Duration::from_secs(600);
/// Time a server that is asked to end may take before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of the server's log repeated when it does not start.
const LOG_TAIL_LEN: usize = 2000;

/// Environment of a nats-server that costs less and pauses less, unless this process has another.
///
/// * Go's monitor thread sleeps whenever nothing runs, and each message that comes then pays for waking it; while the scheduler is
///   traced it does not sleep so. Traced is one line each 23 days.
/// * Its collector marks every entry of the register, for which messages wait: a quarter as often, up to so much memory.
pub const ENVIRONMENT: [(&str, &str); 3] =
    [("GODEBUG", "schedtrace=2000000000"), ("GOGC", "400"), ("GOMEMLIMIT", "1536MiB")];

/// How a [`LocalServer`] runs.
#[derive(Debug, Clone, Default)]
pub struct LocalServerOptions {
    /// Whether every acknowledgement waits for the disk (`sync_interval: always`).
    pub sync_always: bool,
    /// Bytes all its streams may take together (`max_file_store`); none leaves it to the server.
    pub store_bytes_max: Option<u64>,
    /// Whether leaf nodes may join it, at [`LocalServer::leaf_url`].
    pub accepts_leaves: bool,
    /// Runs it as a leaf node of the server with this [`LocalServer::leaf_url`], or of one behind a proxy there. It has
    /// no JetStream of its own then: those who connect to it use the hub's.
    pub leaf_of: Option<String>,
    /// Threads that execute its code at once (`GOMAXPROCS`), with [`ENVIRONMENT`], as docker-compose.yml has both; none
    /// leaves them to the environment, and else to Go, which takes as many threads as the machine has cores.
    pub threads: Option<NonZeroU8>,
    /// Further lines of the configuration file.
    pub extra_config: String,
    /// Variables of its environment, which the configuration may name.
    pub environment: Vec<(&'static str, String)>,
}

/// Where a server keeps its files.
#[derive(Debug)]
enum Folder {
    /// Removed with the server.
    Temporary(TempDir),
    /// Kept; the server holds the lock, too, as its standard output, so that it is free only when both processes are gone.
    Kept(PathBuf, File),
}

impl Folder {
    fn temporary() -> Result<Self, BusError> {
        let folder = TempDir::with_prefix("llmx-nats-").map_err(|error| failed("no temporary folder", &error))?;
        Ok(Self::Temporary(folder))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder, _) => folder,
        }
    }
}

/// A running nats-server with JetStream, in a folder that is temporary or kept. Killed, and a temporary folder removed, when
/// dropped; on a system with a shell also when this process is killed.
#[derive(Debug)]
pub struct LocalServer {
    binary: PathBuf,
    options: LocalServerOptions,
    membership: Option<Membership>,
    folder: Folder,
    ports: Ports,
    /// None while stopped.
    process: Option<GuardedProcess>,
    /// Bytes of its log from before it was started last.
    logged_before: u64,
}

impl LocalServer {
    /// Finds the binary and starts it on ports that are free.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when there is no binary or it does not start, [`BusError::Mismatch`] when it is too
    /// old; both name the remedy.
    pub async fn start(options: LocalServerOptions) -> Result<Self, BusError> {
        let binary = checked_binary().await?;
        let mut attempt = 1;
        loop {
            let (folder, ports) = (Folder::temporary()?, Ports::choose(None)?);
            let mut server = Self::prepare(binary.clone(), options.clone(), folder, ports);
            match server.resume().await {
                Ok(()) => return Ok(server),
                Err(error) if attempt == START_ATTEMPTS_MAX => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    /// Starts it in a folder that is kept, which must exist, on the port for clients it had before, if that is free. Whoever
    /// holds `lock` keeps others out of the folder: the server does as long as it runs. It may take ten minutes to recover.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_in(
        folder: PathBuf,
        lock: File,
        port: Option<u16>,
        options: LocalServerOptions,
    ) -> Result<Self, BusError> {
        let ports = Ports::choose(port)?;
        let mut server = Self::prepare(checked_binary().await?, options, Folder::Kept(folder, lock), ports);
        server.resume().await.map(|()| server)
    }

    /// A server that is not started yet.
    fn prepare(binary: PathBuf, options: LocalServerOptions, folder: Folder, ports: Ports) -> Self {
        Self { binary, options, membership: None, folder, ports, process: None, logged_before: 0 }
    }

    /// The port it listens on for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.client
    }

    /// Whether it does not run: it has ended by itself, was killed, or has not started.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.ended().is_some())
    }

    /// Asks it to end and waits until it has, 5 s at most; then it is killed.
    pub async fn stop(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        if self.running().and_then(|process| process.signal("TERM")).is_ok() {
            while !self.has_ended() && Instant::now() < deadline {
                tokio::time::sleep(START_POLL).await;
            }
        }
        self.kill();
    }

    /// Where it listens for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.ports.client)
    }

    /// Where it answers `/varz`, `/jsz` and `/healthz`.
    #[must_use]
    pub fn monitor_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.monitor)
    }

    /// Where it listens for leaf nodes, if it does; for [`LocalServerOptions::leaf_of`].
    #[must_use]
    pub fn leaf_url(&self) -> String {
        format!("nats-leaf://127.0.0.1:{}", self.ports.leaf)
    }

    /// The folder of its streams. Changing it while the server runs is looking for trouble.
    #[must_use]
    pub fn store_folder(&self) -> PathBuf {
        self.folder.path().join(STORE)
    }

    /// Its process, none while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(GuardedProcess::id)
    }

    /// Kills it, as a crash would; what it has stored stays.
    pub fn kill(&mut self) {
        // A process is killed when it is dropped.
        self.process = None;
    }

    /// Stops it where it is (`SIGSTOP`), as an overloaded machine would: its connections stay open and nobody answers.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when it does not run.
    pub fn pause(&self) -> Result<(), BusError> {
        self.running()?.signal("STOP")
    }

    /// Lets it go on after [`Self::pause`].
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when it does not run.
    pub fn unpause(&self) -> Result<(), BusError> {
        self.running()?.signal("CONT")
    }

    fn running(&self) -> Result<&GuardedProcess, BusError> {
        self.process.as_ref().ok_or_else(|| BusError::Unreachable("the server is stopped".to_owned()))
    }

    /// Changes how it runs from the next [`Self::resume`] on.
    pub fn reconfigure(&mut self, options: LocalServerOptions) {
        self.options = options;
    }

    /// Starts it again after [`Self::kill`], on the same ports and folder.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when it does not start.
    pub async fn resume(&mut self) -> Result<(), BusError> {
        self.spawn()?;
        self.until_ready().await
    }

    fn spawn(&mut self) -> Result<(), BusError> {
        self.kill();
        let root = self.folder.path();
        remove_ports(root);
        self.logged_before = fs::metadata(root.join(LOG)).map_or(0, |log| log.len());
        let file = root.join(CONFIG);
        let config = plan::config(root, self.ports, &self.options, self.membership.as_ref(), LOG);
        fs::write(&file, config).map_err(|error| failed("the configuration cannot be written", &error))?;
        let first_words =
            File::create(root.join(FIRST_WORDS)).map_err(|error| failed("no file for its output", &error))?;
        let mut command = Command::new(&self.binary);
        let (output, temporary) = match &self.folder {
            Folder::Temporary(folder) => (Stdio::null(), Some(folder.path())),
            Folder::Kept(_, lock) => {
                (lock.try_clone().map_err(|error| failed("the lock cannot be shared", &error))?.into(), None)
            }
        };
        command.arg("--config").arg(file).stdin(Stdio::null()).stdout(output).stderr(first_words);
        if let Some(threads) = self.options.threads {
            command.env("GOMAXPROCS", threads.to_string());
            command.envs(ENVIRONMENT.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
        }
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        let process = GuardedProcess::spawn(&mut command, temporary);
        self.process = Some(process.map_err(|error| failed("nats-server cannot be started", &error))?);
        Ok(())
    }

    /// Waits until the server has written down its ports, which it does once it listens.
    async fn until_ready(&mut self) -> Result<(), BusError> {
        let limit = if matches!(self.folder, Folder::Temporary(_)) { START_TIMEOUT } else { RECOVERY_TIMEOUT };
        let deadline = Instant::now() + limit;
        loop {
            let Some(process) = &mut self.process else {
                return Err(BusError::Unreachable("the server is stopped".to_owned()));
            };
            let (id, has_ended) = (process.id(), process.ended().is_some());
            if has_written_ports(self.folder.path(), id) {
                return Ok(());
            }
            if has_ended || Instant::now() >= deadline {
                self.kill();
                return Err(BusError::Unreachable(format!("nats-server did not start: {}", self.log_tail())));
            }
            tokio::time::sleep(START_POLL).await;
        }
    }

    fn log_tail(&self) -> String {
        let read = |name: &str| fs::read(self.folder.path().join(name)).unwrap_or_default();
        let (log, first_words) = (read(LOG), read(FIRST_WORDS));
        let new = log.get(usize::try_from(self.logged_before).unwrap_or(usize::MAX)..).unwrap_or(&log);
        let log = String::from_utf8_lossy(new) + String::from_utf8_lossy(&first_words);
        let skipped = log.chars().count().saturating_sub(LOG_TAIL_LEN);
        log.chars().skip(skipped).collect()
    }
}

/// Whether there is a file `<binary>_<process>.ports`.
fn has_written_ports(folder: &Path, process: u32) -> bool {
    files_that_end(folder, &format!("_{process}.ports")).next().is_some()
}

/// Removes those of servers that were killed: one may have had the number that the next one gets.
fn remove_ports(folder: &Path) {
    // A file that stays is a fault only with that number.
    files_that_end(folder, ".ports").for_each(|file| drop(fs::remove_file(file)));
}

/// The process of the server that [`LocalServer::start_in`] runs in this folder, in whichever process; Linux only. One that
/// was killed leaves its file, and its number to anybody.
#[must_use]
pub fn process_in(folder: &Path) -> Option<u32> {
    let file = files_that_end(folder, ".ports").next()?;
    let process = file.file_stem()?.to_str()?.rsplit('_').next()?.parse().ok()?;
    let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let config = folder.join(CONFIG);
    line.split(|byte| *byte == 0).any(|argument| argument == config.as_os_str().as_encoded_bytes()).then_some(process)
}

fn files_that_end(folder: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(move |file| file.to_string_lossy().ends_with(suffix))
}

async fn checked_binary() -> Result<PathBuf, BusError> {
    let binary = find_binary()?;
    binary::check_binary(&binary).await?;
    Ok(binary)
}

fn failed(what: &str, error: &std::io::Error) -> BusError {
    BusError::Unreachable(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::ENVIRONMENT;

    #[test]
    fn compose_stack_unit_manifest_and_script_run_nats_server_as_measurements_do() {
        let compose = include_str!("../../docker-compose.yml");
        let unit = include_str!("../../deploy/systemd/llmx-nats.service");
        let manifest = include_str!("../../deploy/kubernetes/ha.yaml");
        let script = include_str!("../../scripts/nats-cluster");
        let settings = include_str!("../../.env.example");
        for (name, value) in ENVIRONMENT {
            let is_settable = compose.contains(&format!("  {name}: ${{NATS_{name}:-{value}}}\n"));
            assert!(is_settable || compose.contains(&format!("  {name}: {value}\n")), "{name}");
            assert!(!is_settable || settings.contains(&format!("\nNATS_{name}={value}\n")), "{name}");
            assert!(unit.contains(&format!("\nEnvironment={name}={value}\n")), "{name}");
            let plain = format!("{{ name: {name}, value: {value} }}");
            assert!(
                manifest.contains(&plain) || manifest.contains(&plain.replace(value, &format!("\"{value}\""))),
                "{name}"
            );
            assert!(script.contains(&format!("export {name}=\"${{{name}:-{value}}}\"")), "{name}");
        }
    }
}
