//! Processes that are sent signals, and what they say.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::program::program;

/// Longest a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest a process may take to end after a signal, on a machine that is busy with other tests.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) said: BufReader<ChildStdout>,
    pub(crate) complained: BufReader<ChildStderr>,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(&program(args), args)
    }

    pub(crate) fn of(program: &str, args: &[&str]) -> Self {
        let mut command = heeding_every_signal(program);
        command.args(args);
        Self::run(command)
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LLMX_")) {
            command.env_remove(name);
        }
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let complained = BufReader::new(child.stderr.take().unwrap());
        Self { child, said, complained }
    }

    /// The rest of the next line on stdout that has this in it.
    pub(crate) async fn says(&mut self, part: &str) -> String {
        line_with(&mut self.said, part).await
    }

    /// The same on stderr.
    pub(crate) async fn complains(&mut self, part: &str) -> String {
        line_with(&mut self.complained, part).await
    }

    pub(crate) async fn signal(&mut self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().await.unwrap().success());
    }

    /// Its exit code after a signal, which must come soon, and what else it says on stderr.
    pub(crate) async fn ended_by(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal).await;
        let ended = tokio::time::timeout(PROMPT, self.child.wait()).await;
        let code = ended.unwrap_or_else(|_| panic!("it ignores SIG{signal}")).unwrap().code();
        let mut complained = String::new();
        self.complained.read_to_string(&mut complained).await.unwrap();
        (code, complained)
    }

    /// Its exit code and all it says until then, on stdout and on stderr.
    pub(crate) async fn end_by_itself(mut self) -> (Option<i32>, String, String) {
        let (mut said, mut complained) = (String::new(), String::new());
        let reading = async {
            tokio::join!(self.said.read_to_string(&mut said), self.complained.read_to_string(&mut complained))
        };
        let (read, also) = tokio::time::timeout(PATIENCE, reading).await.expect("it ends by itself");
        read.unwrap();
        also.unwrap();
        (tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code(), said, complained)
    }
}

/// A program that SIGHUP ends although these tests may run under `nohup`: what is ignored stays so in a new program, and llmx
/// heeds that.
pub(crate) fn heeding_every_signal(program: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(program);
    command
}

pub(crate) async fn line_with(from: &mut BufReader<impl AsyncRead + Unpin>, part: &str) -> String {
    loop {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, from.read_line(&mut line)).await;
        let read = read.unwrap_or_else(|_| panic!("it does not say `{part}`")).unwrap();
        assert!(read > 0, "it ended without `{part}`");
        if let Some((_, rest)) = line.split_once(part) {
            return rest.trim().to_owned();
        }
    }
}
