//! Commands against a gateway that means harm: what it says reaches no terminal as commands, what it sends is bounded, and
//! where it leads nobody follows.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

/// What would set a title, clear the screen, begin a sequence in eight bits, erase, or turn the line around. It begins
/// with a word that shows where it went.
const HOSTILE: &str =
    "hostile\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{9d}0;x\u{9c}\u{7f}\u{202e}\u{2066}\u{200f}\u{2028}\r\nforged";

#[test]
fn no_command_lets_a_refusal_or_an_answer_of_a_hostile_gateway_reach_the_terminal_as_it_is() {
    let refusal = json!({"code": "bad_format", "detail": HOSTILE, "pointer": HOSTILE, "expected": HOSTILE}).to_string();
    for (status, body) in [(422, refusal), (500, HOSTILE.to_owned())] {
        let rig = Rig::start(move |path| match path {
            // What waits for a gateway finds one.
            "/healthz" => answer(200, "{}"),
            _ => answer(status, &body),
        });
        let (policy, health) = (rig.policy(), format!("{}/readyz", rig.url));
        for args in rig.commands(policy.to_str().unwrap(), &health) {
            let said = rig.run(&args);
            assert_eq!(said.status.code(), Some(1), "{args:?}: {said:?}");
            assert!(stderr(&said).contains("hostile"), "{args:?}: {said:?}");
            assert_harmless(&args, &said);
        }
    }
}

#[test]
fn no_command_lets_the_documents_of_a_hostile_gateway_reach_the_terminal_as_they_are() {
    let rig = Rig::start(|path| {
        let document = match path.split('?').next().unwrap_or_default() {
            "/v1/agents" => json!({"agents": [{"agent": "bob", "description": HOSTILE, HOSTILE: HOSTILE}]}),
            "/v1/agents/bob" => json!({"agent": "bob", HOSTILE: HOSTILE, "list": [HOSTILE], "object": {HOSTILE: 1}}),
            "/v1/console" => {
                json!({"sight": HOSTILE, "lanes": 1, "named": {"gateway": HOSTILE, "default_policy": HOSTILE,
                "engines": [{"engine": HOSTILE}], "agents": [{"agent": HOSTILE}]}})
            }
            _ => json!({}),
        };
        answer(200, &document.to_string())
    });
    for args in [
        vec!["agent", "list"],
        vec!["agent", "list", "--json"],
        vec!["agent", "show", "bob"],
        vec!["agent", "show", "bob", "--json"],
        vec!["top", "--once"],
        vec!["top", "--json"],
    ] {
        let said = rig.run(&args);
        assert_eq!(said.status.code(), Some(0), "{args:?}: {said:?}");
        assert!(stdout(&said).contains("hostile"), "{args:?}: {said:?}");
        assert_harmless(&args, &said);
        if args.contains(&"--json") {
            let document: serde_json::Value = serde_json::from_str(&stdout(&said)).unwrap();
            assert!(document.to_string().contains(&json!(HOSTILE).to_string()), "the text itself is kept: {document}");
        }
    }
}

#[test]
fn the_name_of_a_foreign_file_reaches_no_terminal_as_it_is() {
    let rig = Rig::start(|_| answer(200, "{}"));
    let archive = rig.folder.path().join("archive");
    std::fs::create_dir_all(archive.join("lane-0")).unwrap();
    std::fs::write(archive.join(HOSTILE), "").unwrap();
    for args in [&["audit", "verify"][..], &["audit", "verify", "--json"]] {
        let said = rig.command(args).arg(&archive).output().unwrap();
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(stdout(&said).contains("hostile"), "{said:?}");
        assert_harmless(args, &said);
    }
}

#[test]
fn an_endless_answer_is_cut_off_and_said_to_be_too_large() {
    for (status, says) in [(200, "it is larger than 16777216 bytes"), (422, "the gateway answered 422")] {
        let rig = Rig::start(move |_| Answer { status, headers: String::new(), body: Body::Endless });
        let reading = ["policy", "show", "high", "--token", "x", "--gateway", &rig.url];
        for args in [&["agent", "list"][..], &["agent", "remove", "bob"], &reading] {
            let said = rig.run(args);
            assert_eq!(said.status.code(), Some(1), "{args:?}: {said:?}");
            assert!(stderr(&said).contains(says), "{args:?}: {said:?}");
        }
        if status != 200 {
            let said = rig.run(&["policy", "default", "low", "--token", "x"]);
            assert!(said.status.code() == Some(1) && stderr(&said).contains(says), "{said:?}");
        }
    }
}

#[test]
fn a_redirect_is_not_followed_and_names_both_addresses() {
    let elsewhere = Rig::start(|_| answer(200, r#"{"agents":[]}"#));
    let target = elsewhere.url.clone();
    let rig = Rig::start(move |_| Answer {
        status: 307,
        headers: format!("Location: {target}/v1/agents\r\n"),
        body: Body::Text(String::new()),
    });
    let said = rig.run(&["agent", "list"]);
    assert_eq!((said.status.code(), stdout(&said).as_str()), (Some(1), ""), "{said:?}");
    for part in [&rig.url, &elsewhere.url, "redirects are not followed"] {
        assert!(stderr(&said).contains(part), "{part}: {said:?}");
    }
}

#[test]
fn a_list_whose_pages_do_not_advance_and_an_answer_of_another_form_are_named_and_not_taken_for_silence() {
    for (body, says) in [
        (r#"{"agents":[],"next":"bob"}"#, "leads to bob or before it again"),
        (r#"{"agents":7}"#, "invalid type: integer `7`"),
        ("no json", "expected ident"),
    ] {
        let rig = Rig::start(move |_| answer(200, body));
        let said = rig.run(&["agent", "list"]);
        assert_eq!((said.status.code(), stdout(&said).as_str()), (Some(1), ""), "{said:?}");
        assert!(stderr(&said).contains(says) && stderr(&said).contains(&rig.url), "{said:?}");
        assert!(!stderr(&said).contains("no gateway answers"), "{said:?}");
    }
    let rig = Rig::start(|_| answer(200, "{}"));
    let said = rig.run(&["agent", "list", "--token", "a\nb"]);
    assert!(stderr(&said).contains("the request cannot be made"), "{said:?}");
    assert!(!stderr(&said).contains("no gateway answers"), "{said:?}");
}

#[test]
fn a_call_waits_for_a_mute_gateway_no_longer_than_asked_and_says_that_none_was_made() {
    let mute = Rig::start(|_| Answer { status: 200, headers: String::new(), body: Body::Never });
    let rig = Rig::start(|path| match path {
        "/v1/whoami" => answer(200, r#"{"agent":"caller","expires_s":9999999999,"admin":false}"#),
        _ => Answer { status: 200, headers: String::new(), body: Body::Never },
    });
    for rig in [mute, rig] {
        let began = Instant::now();
        let said = rig.run(&["call", "carry a parcel", "--wait", "1"]);
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(stderr(&said).contains("within 1 s: no call was made"), "{said:?}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}

#[test]
fn a_signal_to_quit_ends_a_command_in_order() {
    let rig = Rig::start(|_| Answer { status: 200, headers: String::new(), body: Body::Never });
    let mut child = rig.command(&["agent", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig.asked.recv_timeout(Duration::from_secs(60)).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-QUIT", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    let mut complained = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
    assert_eq!(status.code(), Some(1), "{status:?}: {complained}");
    assert!(complained.contains("ended by SIGQUIT"), "{complained}");
}

#[test]
fn what_cannot_be_written_to_stdout_fails_and_a_reader_that_went_away_does_not() {
    let rig = Rig::start(|_| answer(200, r#"{"agents":[]}"#));
    let commands: [&[&str]; 9] = [
        &["--help"],
        &["policy", "-h"],
        &["--version"],
        &["completions", "bash"],
        &["schema", "list"],
        &["policy", "list"],
        &["config", "show"],
        &["agent", "list"],
        &["top", "--once"],
    ];
    for args in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let said = rig.command(args).stdout(full).output().unwrap();
        assert_eq!(said.status.code(), Some(1), "{args:?}: {said:?}");
        assert!(stderr(&said).contains("cannot write to stdout: No space left"), "{args:?}: {said:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said = rig.command(args).stdout(writer).output().unwrap();
        assert_eq!((said.status.code(), stderr(&said).as_str()), (Some(0), ""), "{args:?}: {said:?}");
    }
}

/// A gateway of our own making, and a key to sign with.
struct Rig {
    url: String,
    folder: TempDir,
    /// A word for each request.
    asked: Receiver<()>,
}

struct Answer {
    status: u16,
    headers: String,
    body: Body,
}

enum Body {
    Text(String),
    Endless,
    /// Not even a status.
    Never,
}

fn answer(status: u16, body: &str) -> Answer {
    Answer { status, headers: String::new(), body: Body::Text(body.to_owned()) }
}

impl Rig {
    fn start(answers: impl Fn(&str) -> Answer + Send + Clone + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, asked) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answers, heard) = (answers.clone(), heard.clone());
                // Whoever hangs up has heard enough.
                std::thread::spawn(move || drop(serve(stream, &heard, &answers)));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let rig = Self { url, folder, asked };
        let made = rig.run(&["keys", "--out", rig.folder.path().to_str().unwrap()]);
        assert!(made.status.success(), "{made:?}");
        std::fs::write(rig.policy(), rig.run(&["policy", "show", "high"]).stdout).unwrap();
        rig
    }

    fn policy(&self) -> PathBuf {
        self.folder.path().join("policy.json")
    }

    /// Every command that asks a gateway.
    fn commands<'a>(&'a self, policy: &'a str, health: &'a str) -> Vec<Vec<&'a str>> {
        let url = self.url.as_str();
        vec![
            vec!["agent", "list"],
            vec!["agent", "list", "--json"],
            vec!["agent", "show", "bob"],
            vec!["agent", "remove", "bob"],
            vec!["call", "carry a parcel", "--wait", "10"],
            vec!["listen", "bob", "--for", "10"],
            vec!["top", "--once"],
            vec!["top", "--json"],
            vec!["policy", "list", "--gateway", url, "--token", "x"],
            vec!["policy", "show", "high", "--gateway", url, "--token", "x"],
            vec!["policy", "put", policy, "--token", "x"],
            vec!["policy", "default", "high", "--token", "x"],
            vec!["contractors", "--count", "1", "--wait", "5"],
            vec!["healthcheck", health],
        ]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmx"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LLMX_")) {
            command.env_remove(name);
        }
        command.args(args).env("LLMX_GATEWAY", &self.url).stdin(Stdio::null());
        command.env("LLMX_SIGNING_KEY", self.folder.path().join("signing-key.pem"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

fn serve(stream: TcpStream, heard: &Sender<()>, answers: &impl Fn(&str) -> Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let (mut request, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut request)?;
    while reader.read_line(&mut line)? > 2 {
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let Answer { status, headers, body } = answers(request.split(' ').nth(1).unwrap_or_default());
    let _ = heard.send(());
    if matches!(body, Body::Never) {
        // Until whoever asked hangs up.
        return stream.read(&mut [0]).map(drop);
    }
    write!(stream, "HTTP/1.1 {status} Answer\r\nConnection: close\r\n{headers}\r\n")?;
    match body {
        Body::Text(text) => stream.write_all(text.as_bytes()),
        Body::Never => Ok(()),
        Body::Endless => loop {
            stream.write_all(&[b' '; 65_536])?;
        },
    }
}

fn assert_harmless(args: &[&str], said: &Output) {
    for text in [stdout(said), stderr(said)] {
        let obeyed = text.chars().find(|&letter| letter != '\n' && telemetry::terminal::is_control(letter));
        assert_eq!(obeyed, None, "{args:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{args:?}: {text:?}");
    }
}

fn stdout(said: &Output) -> String {
    String::from_utf8(said.stdout.clone()).unwrap()
}

fn stderr(said: &Output) -> String {
    String::from_utf8(said.stderr.clone()).unwrap()
}
