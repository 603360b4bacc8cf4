//! What models were asked and what they answered, kept for whoever runs the agents (`--keep-prompts DIR`).
//!
//! One file for each process, with one JSON document per line and call: agent, negotiation, messages, and the answer or why
//! there is none. Only the owner may read folder and file. A key is in no prompt; where an endpoint repeats it, it is taken
//! out. The file has at most [`KEPT_BYTES_MAX`] bytes; its last line says so where a call was left out.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use schemas::{AgentId, NegotiationId, WireTime};
use serde::Serialize;

use super::accounts::TokenUsage;
use super::consultant::Subject;
use super::{ChatMessage, Completion, CompletionError};

/// Most bytes of one file: some hundred thousand calls.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Room for the last line.
const LAST_LINE_BYTES: u64 = 128;
/// What stands for a key.
const HIDDEN: &str = "[key]";

/// A file that is written by all agents of a process.
pub struct KeptPrompts {
    path: PathBuf,
    file: Mutex<KeptFile>,
}

struct KeptFile {
    file: File,
    bytes_left: u64,
    secrets: Vec<String>,
    counts: KeptCounts,
}

/// What became of the calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptCounts {
    /// Calls in the file.
    pub kept: u64,
    /// Calls that are not: the file is full, or takes no more.
    pub left_out: u64,
}

/// One line.
#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
struct KeptCall<'a> {
    asked_at: WireTime,
    agent: &'a AgentId,
    negotiation: &'a NegotiationId,
    /// Calls of the same consultation before this one.
    retry: u32,
    messages: &'a [ChatMessage],
    answer: Option<KeptAnswer<'a>>,
    error: Option<String>,
}

#[derive(Serialize)]
struct KeptAnswer<'a> {
    content: &'a str,
    is_refusal: bool,
    is_truncated: bool,
    usage: Option<TokenUsage>,
}

impl KeptPrompts {
    /// Begins a file of its own in a folder, which is made where there is none.
    ///
    /// # Errors
    /// The operating system's; [`io::ErrorKind::PermissionDenied`] for a folder that others may read or write.
    pub fn create(folder: &Path) -> io::Result<Self> {
        Self::with_limit(folder, KEPT_BYTES_MAX)
    }

    fn with_limit(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
        check_private(folder)?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let path = folder.join(format!("prompts-{began}-{}.jsonl", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        let bytes_left = bytes_max.saturating_sub(LAST_LINE_BYTES);
        let file = KeptFile { file, bytes_left, secrets: Vec::new(), counts: KeptCounts::default() };
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Keeps this key out of the file.
    pub fn hide(&self, key: &str) {
        // As it stands in a JSON text, without the marks around it.
        let quoted = serde_json::Value::from(key).to_string();
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        if !inner.is_empty() {
            self.file.lock().secrets.push(inner.to_owned());
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What became of the calls so far.
    #[must_use]
    pub fn counts(&self) -> KeptCounts {
        self.file.lock().counts
    }

    /// Keeps one call. Writes to the file before it returns, as a log does; what cannot be written is counted, and said once.
    pub fn keep(
        &self,
        subject: &Subject,
        (retry, messages): (u32, &[ChatMessage]),
        answer: &Result<Completion, CompletionError>,
    ) {
        let said = answer.as_ref().ok().map(|completion| KeptAnswer {
            content: &completion.content,
            is_refusal: completion.is_refusal,
            is_truncated: completion.is_truncated,
            usage: completion.usage,
        });
        let call = KeptCall {
            asked_at: WireTime(subject.asked_at),
            agent: &subject.agent,
            negotiation: &subject.negotiation,
            retry,
            messages,
            answer: said,
            error: answer.as_ref().err().map(ToString::to_string),
        };
        let line = serde_json::to_string(&call).map_err(io::Error::other);
        self.file.lock().write(line, &self.path);
    }
}

impl KeptFile {
    fn write(&mut self, line: io::Result<String>, path: &Path) {
        if self.counts.left_out > 0 {
            self.counts.left_out += 1;
            return;
        }
        let written = line.and_then(|line| {
            let mut line = self.secrets.iter().fold(line, |line, secret| line.replace(secret, HIDDEN));
            line.push('\n');
            let Some(left) = self.bytes_left.checked_sub(line.len() as u64) else {
                self.file.write_all(b"{\"ended\":\"the file is full: calls from here on are not kept\"}\n")?;
                return Err(io::Error::new(io::ErrorKind::StorageFull, "it is as large as it may become"));
            };
            self.bytes_left = left;
            self.file.write_all(line.as_bytes())
        });
        match written {
            Ok(()) => self.counts.kept += 1,
            Err(error) => {
                self.counts.left_out += 1;
                tracing::warn!(path = %path.display(), %error, "no further prompts are kept");
            }
        }
    }
}

impl fmt::Debug for KeptPrompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPrompts").field("path", &self.path).field("counts", &self.counts()).finish()
    }
}

impl fmt::Display for KeptPrompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeptCounts { kept, left_out } = self.counts();
        write!(f, "prompts of {kept} calls kept in {}", self.path.display())?;
        if left_out > 0 { write!(f, "; {left_out} more are not: it is full, or took no more") } else { Ok(()) }
    }
}

/// A folder that others may read would give them the files' names, and one they may write the files.
#[cfg(unix)]
fn check_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = std::fs::metadata(folder)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let remedy = format!("others may read or write the folder: chmod 700 {}", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, remedy))
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use schemas::Timestamp;
    use serde_json::Value;
    use telemetry::TraceContext;

    use super::*;
    use crate::model::ChatRole;

    fn subject() -> Subject {
        let negotiation = NegotiationId::try_new("alice~n1").unwrap();
        let context = TraceContext::of(None, &negotiation);
        let agent = AgentId::try_new("bob").unwrap();
        Subject { agent, negotiation, context, asked_at: Timestamp::from_ms(5), deadline: Timestamp::from_ms(9) }
    }

    fn keep(kept: &KeptPrompts, asked: &str, answered: &str) {
        let messages = [ChatMessage { role: ChatRole::User, content: asked.to_owned() }];
        let answer = Completion { content: answered.to_owned(), ..Completion::default() };
        kept.keep(&subject(), (0, &messages), &Ok(answer));
    }

    fn lines(kept: &KeptPrompts) -> Vec<Value> {
        let text = std::fs::read_to_string(kept.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_call_is_kept_where_only_its_owner_can_read_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("prompts");
        let kept = KeptPrompts::create(&folder).unwrap();
        keep(&kept, "How much?", "{\"price\":5}");
        kept.keep(&subject(), (1, &[]), &Err(CompletionError::TimedOut));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(kept.path())), (0o700, 0o600));
        let lines = lines(&kept);
        assert_eq!(lines[0]["messages"][0]["content"], "How much?");
        assert_eq!(lines[0]["answer"]["content"], "{\"price\":5}");
        assert_eq!((&lines[0]["agent"], &lines[0]["negotiation"]), (&"bob".into(), &"alice~n1".into()));
        assert_eq!((&lines[1]["error"], lines[1].get("answer")), (&"no answer in time".into(), None));
        assert_eq!(kept.counts(), KeptCounts { kept: 2, left_out: 0 });
    }

    #[test]
    fn a_folder_that_others_may_read_is_refused() {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let refused = KeptPrompts::create(home.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_key_that_an_endpoint_repeats_is_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptPrompts::create(&home.path().join("prompts")).unwrap();
        kept.hide("sk-\"canary\"");
        keep(&kept, "How much?", "your key is sk-\"canary\"");
        assert_eq!(lines(&kept)[0]["answer"]["content"], "your key is [key]");
    }

    #[test]
    fn a_full_file_says_so_in_its_last_line_and_counts_what_is_left_out() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptPrompts::with_limit(&home.path().join("prompts"), 1000).unwrap();
        for _ in 0..20 {
            keep(&kept, "How much?", &"x".repeat(200));
        }
        let (counts, lines) = (kept.counts(), lines(&kept));
        assert!(counts.kept > 0 && counts.kept + counts.left_out == 20, "{counts:?}");
        assert_eq!(lines.len() as u64, counts.kept + 1);
        assert!(lines.last().unwrap()["ended"].as_str().unwrap().contains("full"));
        assert!(std::fs::metadata(kept.path()).unwrap().len() <= 1000);
        assert!(kept.to_string().contains("more are not"), "{kept}");
    }
}
