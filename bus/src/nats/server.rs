//! A nats-server of one's own on 127.0.0.1, for tests, demos and benchmarks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use super::version::Version;
use crate::BusError;

/// Environment variable that names the binary.
pub const BINARY_VARIABLE: &str = "NATS_SERVER";
/// Where `scripts/nats-server` puts the binary, below the root of the workspace.
pub const BINARY_IN_WORKSPACE: &str = ".tools/nats-server";
/// Time a server may take to open its port; it takes 50 ms, and seconds on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at whether it has.
const START_POLL: Duration = Duration::from_millis(10);
/// Its log, in its folder.
const LOG: &str = "server.log";
/// What it writes to standard error, in its folder.
const FIRST_WORDS: &str = "stderr.log";
/// Characters of the server's log repeated when it does not start.
const LOG_TAIL_LEN: usize = 2000;

/// How a [`LocalServer`] runs.
#[derive(Debug, Clone, Default)]
pub struct LocalServerOptions {
    /// Whether every acknowledgement waits for the disk (`sync_interval: always`).
    pub sync_always: bool,
    /// Further lines of the configuration file.
    pub extra_config: String,
}

/// A running nats-server with JetStream in a temporary folder. Killed, and the folder removed, when dropped.
#[derive(Debug)]
pub struct LocalServer {
    binary: PathBuf,
    options: LocalServerOptions,
    directory: TempDir,
    port: u16,
    /// None while stopped.
    child: Option<Child>,
}

impl LocalServer {
    /// Finds the binary and starts it on a port that is free.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when there is no binary or it does not start, [`BusError::Mismatch`] when it is too
    /// old; both name the remedy.
    pub async fn start(options: LocalServerOptions) -> Result<Self, BusError> {
        let binary = find_binary()?;
        check_binary(&binary)?;
        let directory = TempDir::with_prefix("llmx-nats-").map_err(|error| failed("no temporary folder", &error))?;
        // Port 0 stands for "choose one" until the first start has.
        let mut server = Self { binary, options, directory, port: 0, child: None };
        server.resume().await?;
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it, as a crash would; what it has stored stays.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only when it has ended already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again after [`Self::kill`], on the same port and folder.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when it does not start.
    pub async fn resume(&mut self) -> Result<(), BusError> {
        self.kill();
        let config = self.directory.path().join("nats.conf");
        fs::write(&config, self.config()).map_err(|error| failed("the configuration cannot be written", &error))?;
        // What it says before it has read where to log.
        let first_words = fs::File::create(self.directory.path().join(FIRST_WORDS))
            .map_err(|error| failed("no file for its output", &error))?;
        let child = Command::new(&self.binary)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(first_words)
            .spawn()
            .map_err(|error| failed("nats-server cannot be started", &error))?;
        let process = child.id();
        self.child = Some(child);
        self.port = self.until_ready(process).await?;
        Ok(())
    }

    fn config(&self) -> String {
        let root = self.directory.path().display();
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let sync = if self.options.sync_always { "sync_interval: always" } else { "" };
        format!(
            "listen: \"127.0.0.1:{port}\"\nports_file_dir: \"{root}\"\nlog_file: \"{root}/{LOG}\"\n\
             jetstream {{\n  store_dir: \"{root}/store\"\n  {sync}\n}}\n{}\n",
            self.options.extra_config
        )
    }

    /// Waits until the server has written down its port, which it does once it listens.
    async fn until_ready(&mut self, process: u32) -> Result<u16, BusError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(port) = self.port_of(process) {
                return Ok(port);
            }
            let has_ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if has_ended || Instant::now() >= deadline {
                self.kill();
                return Err(BusError::Unreachable(format!("nats-server did not start: {}", self.log_tail())));
            }
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// The port in the file `<binary>_<process>.ports`: `{"nats":["nats://127.0.0.1:34567"],…}`.
    fn port_of(&self, process: u32) -> Option<u16> {
        let suffix = format!("_{process}.ports");
        let mut files = fs::read_dir(self.directory.path()).ok()?.flatten();
        let file = files.find(|file| file.file_name().to_string_lossy().ends_with(&suffix))?;
        let ports: serde_json::Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
        ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
    }

    fn log_tail(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        let log = read(FIRST_WORDS) + &read(LOG);
        let skipped = log.chars().count().saturating_sub(LOG_TAIL_LEN);
        log.chars().skip(skipped).collect()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Finds nats-server: [`BINARY_VARIABLE`], then [`BINARY_IN_WORKSPACE`] in the working directory or above it, then
/// `PATH`.
///
/// # Errors
/// [`BusError::Unreachable`] with the remedy when there is none.
pub fn find_binary() -> Result<PathBuf, BusError> {
    if let Some(named) = std::env::var_os(BINARY_VARIABLE) {
        let path = PathBuf::from(named);
        let missing = || BusError::Unreachable(format!("{BINARY_VARIABLE} names {}, which is no file", path.display()));
        return if path.is_file() { Ok(path) } else { Err(missing()) };
    }
    let here = std::env::current_dir().unwrap_or_default();
    let in_workspace = here.ancestors().map(|folder| folder.join(BINARY_IN_WORKSPACE));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    in_workspace.chain(on_path).find(|candidate| candidate.is_file()).ok_or_else(|| {
        BusError::Unreachable(format!(
            "no nats-server found: run scripts/nats-server, or set {BINARY_VARIABLE} to a binary of version 2.12.3 or newer"
        ))
    })
}

fn check_binary(binary: &Path) -> Result<(), BusError> {
    let output = Command::new(binary)
        .arg("--version")
        .output()
        .map_err(|error| failed(&format!("{} cannot be run", binary.display()), &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().rsplit(' ').next().unwrap_or_default();
    match Version::difference(version) {
        None => Ok(()),
        Some(difference) => Err(BusError::Mismatch(format!("{}: {difference}", binary.display()))),
    }
}

fn failed(what: &str, error: &std::io::Error) -> BusError {
    BusError::Unreachable(format!("{what}: {error}"))
}
