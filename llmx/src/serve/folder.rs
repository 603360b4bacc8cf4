//! The folder of `llmx serve`: one process at a time, its keys, its nats-server.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | the process that has the folder, which is locked by it and by its nats-server |
//! | `signing-key.pem`, `jwks.json` | the key that signs tokens, and the set that verifies them |
//! | `nats-url` | the address of the nats-server with the exchange's password |
//! | `nats/users.conf` | who may speak NATS; written once, to be changed by hand |
//! | `nats/store` | the log, the register, documents |

use std::fs::{self, File, TryLockError};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::gateway::keys::SigningKey;
use anyhow::Context;
use nats_server::{LocalServer, LocalServerOptions, process_in};
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::time::{Instant, sleep};

use crate::keys::{self, KEY_FILE, write_private};
use crate::nats::NatsArgs;
use crate::output::Failure;

/// How long the lock is waited for: the nats-server of a process that was killed ends a moment after it.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const LOCK_POLL: Duration = Duration::from_millis(20);
/// The variable that carries the exchange's password to its nats-server.
const PASSWORD_VARIABLE: &str = "LLMX_EXCHANGE_PASSWORD";
/// Characters of a password.
const PASSWORD_LEN: usize = 32;
/// Users with their permissions, and much that explains them.
const EXAMPLE: &str = include_str!("../../../nats.example.conf");
/// The server's own log stays small.
const EXTRA_CONFIG: &str = "include \"users.conf\"\nlogfile_size_limit: 10MB\nlogfile_max_num: 3\n";

/// A folder that is held.
pub struct DataFolder {
    path: PathBuf,
    lock: File,
}

impl DataFolder {
    /// Makes the folder where there is none, and takes it for this process.
    ///
    /// # Errors
    /// It cannot be written, or another process holds it.
    pub async fn open(path: &Path) -> Result<Self, Failure> {
        let unusable = |error: std::io::Error| {
            Failure::configuration(format_args!(
                "{} cannot be used: {error}; name a folder that can be written with --data (LLMX_DATA)",
                path.display()
            ))
        };
        let is_fit = |name: &str| !name.contains(['"', '\\']) && !name.contains(char::is_control);
        if !path.to_str().is_some_and(is_fit) {
            // It stands in the configuration of nats-server.
            let wrong = "a name in UTF-8 without quotes, backslashes and control characters is expected";
            return Err(unusable(std::io::Error::other(wrong)));
        }
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).map_err(unusable)?;
        // The folder itself: a file in it could be removed, and made again.
        let lock = File::open(path).map_err(unusable)?;
        let holder = path.join("lock");
        let deadline = Instant::now() + LOCK_MAX;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(LOCK_POLL).await,
                Err(TryLockError::WouldBlock) => return Err(held(path, &holder)),
            }
        }
        fs::write(holder, std::process::id().to_string()).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The private key.
    pub fn key(&self) -> PathBuf {
        self.path.join(KEY_FILE)
    }

    /// The file with the address of the nats-server, password included.
    pub fn nats_url(&self) -> PathBuf {
        self.path.join("nats-url")
    }

    /// The key that signs tokens; made, with its key set, where there is none.
    pub fn signing_key(&self) -> Result<SigningKey, Failure> {
        keys::read_or_make(&self.key())
    }

    /// Starts the nats-server of this folder, and has `nats` name it.
    pub async fn start_nats(&self, nats: &mut NatsArgs) -> Result<LocalServer, Failure> {
        if nats.replicas.is_some_and(|replicas| replicas > 1) {
            return Err(Failure::configuration(
                "--replicas: a nats-server of its own keeps one copy; give --nats of a cluster",
            ));
        }
        let folder = self.path.join("nats");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let kept = fs::read_to_string(self.nats_url()).ok().and_then(|url| reqwest::Url::parse(url.trim()).ok());
        let kept = kept.as_ref().and_then(|url| Some((url.password()?.to_owned(), url.port()?)));
        let (password, port) = kept.map_or_else(|| (new_password(), None), |(password, port)| (password, Some(port)));
        let users = folder.join("users.conf");
        // An empty one would let in everybody.
        if fs::metadata(&users).map_or(0, |users| users.len()) == 0 {
            write_private(&users, &users_config())?;
        }
        let options = LocalServerOptions {
            sync_always: nats.syncs_always(),
            threads: NonZeroU8::new(1),
            extra_config: EXTRA_CONFIG.to_owned(),
            environment: vec![(PASSWORD_VARIABLE, password.clone())],
            ..LocalServerOptions::default()
        };
        let lock = self.lock.try_clone().context("the lock cannot be shared")?;
        let server = LocalServer::start_in(folder, lock, port, options).await?;
        let url = format!("nats://exchange:{password}@127.0.0.1:{}", server.port());
        if port != Some(server.port()) {
            write_private(&self.nats_url(), &format!("{url}\n"))?;
        }
        nats.reach(url, server.monitor_url());
        Ok(server)
    }
}

/// Says who holds a folder.
fn held(path: &Path, holder: &Path) -> Failure {
    let process = fs::read_to_string(holder).unwrap_or_default();
    let nats = process_in(&path.join("nats")).map(|process| format!(", process {process}")).unwrap_or_default();
    Failure::configuration(format_args!(
        "{} is held by llmx serve, process {process}, or by the nats-server it left{nats}: end it, or name another folder with \
         --data (LLMX_DATA)",
        path.display()
    ))
}

/// A password that nats-server reads as a text wherever it stands: it begins with a letter.
fn new_password() -> String {
    format!("p{}", Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_LEN - 1))
}

/// The users of nats.example.conf, with passwords of their own.
fn users_config() -> String {
    let (_, users) = EXAMPLE.split_once("\nauthorization {").unwrap_or_default();
    let users = users.replace("\"change-me\"", &format!("${PASSWORD_VARIABLE}"));
    let named = ["too", "three", "gateway", "engine", "archive"].map(|name| format!("change-me-{name}"));
    let users = named.iter().fold(users, |users, password| users.replace(password, &new_password()));
    format!(
        "# Who may speak NATS here: nats.example.conf explains the permissions. Read when nats-server starts; llmx serve \
         writes this\n# file once, and then leaves it as it is.\nauthorization {{{users}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_of_the_example_get_passwords_of_their_own() {
        let (first, second) = (users_config(), users_config());
        assert!(first.contains("{ user: exchange, password: $LLMX_EXCHANGE_PASSWORD }"), "{first}");
        assert!(first.contains("{ user: bob, password: \"p") && first != second, "{first}");
        assert!(!first.contains("change-me"), "{first}");
    }
}
