//! A process of the exchange or beside it, and what it says.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nats_server::{LocalServer, LocalServerOptions};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::program::program;

/// Longest a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An engine and a gateway on a nats-server of their own.
pub(crate) struct Site {
    pub(crate) gateway_url: String,
    pub(crate) keys: PathBuf,
    gateway: Process,
    pub(crate) engine: Process,
    server: LocalServer,
    _folder: TempDir,
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further flags of the engine.
    pub(crate) async fn start_with(engine: &[&str]) -> Self {
        let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
        let (nats, folder) = (server.url(), tempfile::tempdir().unwrap());
        let keys = folder.path().join("keys");
        let made = Command::new(program(&[])).arg("keys").arg("--out").arg(&keys).output().await.unwrap();
        assert!(made.status.success(), "{made:?}");
        let jwks = keys.join("jwks.json");
        let jwks = jwks.to_str().unwrap();
        let mut engine = Process::start(&[&["engine", "--nats", &nats], engine].concat());
        engine.says("engine: ").await;
        let options = ["--listen", "127.0.0.1:0", "--jwks", jwks, "--issuer", "llmx-local"];
        let mut gateway = Process::start(&[&["gateway", "--nats", &nats][..], &options].concat());
        let gateway_url = gateway.says("gateway: ").await;
        Self { gateway_url, keys, gateway, engine, server, _folder: folder }
    }

    /// Where its nats-server listens.
    pub(crate) fn nats_url(&self) -> String {
        self.server.url()
    }

    /// A command whose agents reach this exchange.
    pub(crate) fn remote(&self, args: &[&str]) -> Process {
        let key = key(&self.keys);
        Process::start(&[args, &["--gateway", &self.gateway_url, "--key", key.to_str().unwrap()]].concat())
    }

    pub(crate) async fn end(mut self) {
        for process in [&mut self.gateway, &mut self.engine] {
            assert_eq!(process.end().await, Some(0));
        }
    }
}

/// The signing key in a folder of keys.
pub(crate) fn key(keys: &Path) -> PathBuf {
    keys.join("signing-key.pem")
}

/// A token for one agent, as `llmx token` prints it.
pub(crate) async fn token(agent: &str, key: &Path) -> String {
    let made = Command::new(program(&[])).args(["token", agent, "--key"]).arg(key).output().await.unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

pub(crate) struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
    complained: BufReader<ChildStderr>,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_program(&program(args), args)
    }

    /// Another program than `llmx`.
    pub(crate) fn start_program(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let complained = BufReader::new(child.stderr.take().unwrap());
        Self { child, said, complained }
    }

    /// The rest of the first line on stdout that begins so.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        line_after(&mut self.said, beginning).await
    }

    /// The same on stderr.
    pub(crate) async fn complains(&mut self, beginning: &str) -> String {
        line_after(&mut self.complained, beginning).await
    }

    /// Its exit code and all it says until then.
    pub(crate) async fn end_by_itself(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        tokio::time::timeout(PATIENCE, self.said.read_to_string(&mut said)).await.unwrap().unwrap();
        (tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code(), said)
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) async fn interrupt(&self) {
        self.signal("INT").await;
    }

    /// Sends it a signal, named without its prefix.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().await.unwrap().success());
    }

    /// Ends it as a crash does: it closes nothing and takes no leave.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, and gives its exit code.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        self.signal("TERM").await;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code()
    }
}

async fn line_after(from: &mut BufReader<impl AsyncRead + Unpin>, beginning: &str) -> String {
    loop {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, from.read_line(&mut line)).await.unwrap().unwrap();
        assert!(read > 0, "it ended without `{beginning}`");
        if let Some((_, rest)) = line.split_once(beginning) {
            return rest.trim().to_owned();
        }
    }
}
