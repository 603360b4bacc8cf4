//! A nats-server of one's own on 127.0.0.1, for tests, demos and benchmarks; or a cluster of them.

mod binary;
mod cluster;
mod plan;
mod process;

use std::fs;
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

/// Time a server may take to open its port; it takes 50 ms, and seconds on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at whether it has.
const START_POLL: Duration = Duration::from_millis(10);
/// Attempts at the first start: another process may have taken a port since it was chosen.
const START_ATTEMPTS_MAX: u32 = 3;
/// Its log, in its folder.
const LOG: &str = "server.log";
/// What it writes to standard error, in its folder.
const FIRST_WORDS: &str = "stderr.log";
/// Where it keeps its streams, in its folder.
const STORE: &str = "store";
/// Characters of the server's log repeated when it does not start.
const LOG_TAIL_LEN: usize = 2000;

/// `GODEBUG` of a nats-server that costs less. Go's monitor thread sleeps whenever nothing runs, and each message that comes
/// then pays for waking it; while the scheduler is traced it does not sleep so. Traced is one line each 23 days.
pub const SCHEDULER_TRACE: &str = "schedtrace=2000000000";

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
    /// Threads that execute its code at once (`GOMAXPROCS`), with [`SCHEDULER_TRACE`], as docker-compose.yml has both; none
    /// leaves them to the environment, and else to Go, which takes as many threads as the machine has cores.
    pub threads: Option<NonZeroU8>,
    /// Further lines of the configuration file.
    pub extra_config: String,
}

/// A running nats-server with JetStream in a temporary folder. Killed, and the folder removed, when dropped; on a system
/// with a shell also when this process is killed.
#[derive(Debug)]
pub struct LocalServer {
    binary: PathBuf,
    options: LocalServerOptions,
    membership: Option<Membership>,
    directory: TempDir,
    ports: Ports,
    /// None while stopped.
    process: Option<GuardedProcess>,
}

impl LocalServer {
    /// Finds the binary and starts it on ports that are free.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when there is no binary or it does not start, [`BusError::Mismatch`] when it is too
    /// old; both name the remedy.
    pub async fn start(options: LocalServerOptions) -> Result<Self, BusError> {
        let binary = checked_binary()?;
        let mut attempt = 1;
        loop {
            let mut server = Self::prepare(binary.clone(), options.clone(), Ports::choose()?, None)?;
            match server.resume().await {
                Ok(()) => return Ok(server),
                Err(error) if attempt == START_ATTEMPTS_MAX => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    /// A server that is not started yet.
    fn prepare(
        binary: PathBuf,
        options: LocalServerOptions,
        ports: Ports,
        membership: Option<Membership>,
    ) -> Result<Self, BusError> {
        let directory = TempDir::with_prefix("llmx-nats-").map_err(|error| failed("no temporary folder", &error))?;
        Ok(Self { binary, options, membership, directory, ports, process: None })
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
        self.directory.path().join(STORE)
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
        let root = self.directory.path();
        let file = root.join("nats.conf");
        let config = plan::config(root, self.ports, &self.options, self.membership.as_ref(), LOG);
        fs::write(&file, config).map_err(|error| failed("the configuration cannot be written", &error))?;
        let first_words =
            fs::File::create(root.join(FIRST_WORDS)).map_err(|error| failed("no file for its output", &error))?;
        let mut command = Command::new(&self.binary);
        command.arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(first_words);
        if let Some(threads) = self.options.threads {
            command.env("GOMAXPROCS", threads.to_string()).env("GODEBUG", SCHEDULER_TRACE);
        }
        let process = GuardedProcess::spawn(&mut command, root);
        self.process = Some(process.map_err(|error| failed("nats-server cannot be started", &error))?);
        Ok(())
    }

    /// Waits until the server has written down its ports, which it does once it listens.
    async fn until_ready(&mut self) -> Result<(), BusError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let Some(process) = &mut self.process else {
                return Err(BusError::Unreachable("the server is stopped".to_owned()));
            };
            let (id, has_ended) = (process.id(), process.ended().is_some());
            if has_written_ports(self.directory.path(), id) {
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
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        let log = read(FIRST_WORDS) + &read(LOG);
        let skipped = log.chars().count().saturating_sub(LOG_TAIL_LEN);
        log.chars().skip(skipped).collect()
    }
}

/// Whether there is a file `<binary>_<process>.ports`.
fn has_written_ports(folder: &Path, process: u32) -> bool {
    let suffix = format!("_{process}.ports");
    let mut files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.any(|file| file.file_name().to_string_lossy().ends_with(&suffix))
}

fn checked_binary() -> Result<PathBuf, BusError> {
    let binary = find_binary()?;
    binary::check_binary(&binary)?;
    Ok(binary)
}

fn failed(what: &str, error: &std::io::Error) -> BusError {
    BusError::Unreachable(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::SCHEDULER_TRACE;

    #[test]
    fn compose_stack_unit_and_script_run_nats_server_as_measurements_do() {
        let compose = include_str!("../../docker-compose.yml");
        assert!(compose.contains(&format!("  GODEBUG: {SCHEDULER_TRACE}\n")));
        let unit = include_str!("../../deploy/systemd/llmx-nats.service");
        assert!(unit.contains(&format!("\nEnvironment=GODEBUG={SCHEDULER_TRACE}\n")));
        let script = include_str!("../../scripts/nats-cluster");
        assert!(script.contains(&format!("${{GODEBUG:-{SCHEDULER_TRACE}}}")));
    }
}
