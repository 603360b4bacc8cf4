//! The agents of `examples/`: what they say when they are used wrongly, what they survive, and that they soon win.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::process::{PATIENCE, Process, token};

/// The folder of the examples.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
/// The contractor in Python, of nothing but its standard library.
pub(crate) const CONTRACTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/python/contractor.py");
/// Longest wait for a first award, as a newcomer sees it.
const FIRST_AWARD: Duration = Duration::from_secs(10);
/// Longest wait of an agent whose gateway is not there.
const START: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_ones_own_says_what_it_does_and_soon_wins_an_award_of_a_demo_that_listens() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("llmx-data/signing-key.pem");
    // As the README starts it.
    let args = ["demo", "--listen", "127.0.0.1:0", "--rate", "2", "--duration", "60", "--key", key.to_str().unwrap()];
    let mut demo = Process::start(&args);
    let way_in = demo.complains("agents of your own: ").await;
    let (beginning, command) = way_in.split_once("; a token for `bob`: llmx ").unwrap();
    let url = beginning.strip_prefix("register topic courier at ").unwrap();
    assert_eq!(command, format!("token bob --key {}", key.display()));
    let bob = token("bob", &key).await;
    let mut contractor = Process::start_program("python3", &["-u", CONTRACTOR, url, "bob", &bob]);
    contractor.says("is registered").await;
    let registered = Instant::now();
    for said in [": called to deliver one parcel: offer", ": award 1 offered: confirm", ": award 1 committed"] {
        contractor.says(said).await;
    }
    assert!(registered.elapsed() < FIRST_AWARD, "{:?}", registered.elapsed());
    assert_eq!(contractor.end().await, Some(0), "it leaves, and ends cleanly");
    demo.interrupt().await;
    let (code, summary) = demo.end_by_itself().await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.contains("awards to agents of others ") && summary.contains("0 violations"), "{summary}");
}

#[tokio::test]
async fn an_example_that_is_used_wrongly_names_its_usage_and_ends_with_2() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "argument"),
        (&["http://127.0.0.1:9"], "argument"),
        (&["127.0.0.1:8080", "bob", "token", "buyer"], "give http://HOST:PORT"),
        (&["http://127.0.0.1:9", "bob", "", "buyer"], "empty"),
    ];
    for (story, (arguments, fault)) in stories().into_iter().flat_map(|story| cases.map(|case| (story, case))) {
        let arguments = &arguments[..arguments.len().min(arguments_of(story))];
        let (code, stdout, stderr) = ended(story, arguments).await;
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{story:?} {arguments:?}: {stderr}");
        assert!(stderr.contains(fault) && stderr.contains(story.1), "{story:?} {arguments:?}: {stderr}");
        assert!(!stderr.contains("Traceback") && !stderr.contains("unbound"), "{story:?} {arguments:?}: {stderr}");
    }
}

#[tokio::test]
async fn an_example_without_a_gateway_names_the_address_and_a_remedy_in_one_line_and_ends() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let began = Instant::now();
    let ends = stories()
        .into_iter()
        .map(async |story| (story, ended(story, &[&url, "bob", "token", "buyer"][..arguments_of(story)]).await));
    for (story, (code, stdout, stderr)) in futures_util::future::join_all(ends).await {
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(1), "", 1), "{story:?}: {stderr}");
        assert!(stderr.contains(&url) && stderr.contains("llmx demo --listen"), "{story:?}: {stderr}");
        assert!(began.elapsed() < START, "{story:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_example_whose_offer_is_refused_drops_it_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (_demo, url, token) = demo(folder.path(), free_port(), &[]).await;
    let copy = folder.path().join("examples");
    for (program, story) in [CONTRACTORS[0], CONTRACTORS[1]] {
        let (from, to) = (Path::new(EXAMPLES).join(story), copy.join(story));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        for file in std::fs::read_dir(from.parent().unwrap()).unwrap().map(|file| file.unwrap().path()) {
            if file.is_file() {
                std::fs::copy(&file, to.with_file_name(file.file_name().unwrap())).unwrap();
            }
        }
        let text = std::fs::read_to_string(&from).unwrap();
        let changed = text.replace("50_000_000", "85.5").replace("50000000", "85.5");
        assert_ne!(text, changed, "{story} has other terms");
        std::fs::write(&to, changed).unwrap();
        let mut contractor = Process::start_program(program, &[to.to_str().unwrap(), &url, "bob", &token]);
        for _ in 0..2 {
            let refused = contractor.complains("refused: ").await;
            assert!(refused.contains("wrong_type") && refused.contains("/payload/terms/price"), "{story}: {refused}");
        }
        contractor.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_example_whose_exchange_was_restarted_registers_anew_and_wins_again() {
    for (program, story) in CONTRACTORS {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let (mut before, url, token) = demo(folder.path(), port, &["--topic", "elsewhere"]).await;
        let path = Path::new(EXAMPLES).join(story);
        let mut contractor = Process::start_program(program, &[path.to_str().unwrap(), &url, "bob", &token]);
        contractor.says("is registered").await;
        before.kill().await;
        contractor.complains("does not answer").await;
        // It is another exchange: its log and its register are empty.
        let _after = demo(folder.path(), port, &["--rate", "2"]).await;
        contractor.complains("answers again").await;
        contractor.says("committed").await;
        contractor.kill().await;
    }
}

#[tokio::test]
async fn the_operators_story_without_a_server_names_it_and_where_it_comes_from_at_once() {
    let began = Instant::now();
    let mut command = Command::new("bash");
    command.arg(Path::new(EXAMPLES).join("shell/operator.sh")).env("NATS_SERVER", "/nonexistent").stdin(Stdio::null());
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*stdout, stderr.lines().count()), (Some(1), "", 1), "{stderr}");
    assert!(stderr.contains("no nats-server: run scripts/nats-server"), "{stderr}");
    assert!(began.elapsed() < START, "{:?}", began.elapsed());
}

/// Interpreter and path of the contractors.
const CONTRACTORS: [(&str, &str); 2] = [("python3", "python/contractor.py"), ("bash", "shell/contractor.sh")];

/// Interpreter and name of every story that takes a gateway, an agent and a token.
fn stories() -> Vec<(&'static str, &'static str)> {
    let python = ["contractor.py", "initiator.py", "bargainer.py", "teammate.py", "lead.py", "panelist.py"];
    let shell = ["contractor.sh", "initiator.sh", "bargainer.sh"].map(|name| ("bash", name));
    [&python.map(|name| ("python3", name))[..], &shell].concat()
}

/// A bargainer has a role, a lead a member, a panelist an answer.
fn arguments_of(story: (&str, &str)) -> usize {
    let has_more = ["bargainer", "lead", "panelist"].iter().any(|name| story.1.starts_with(name));
    if has_more { 4 } else { 3 }
}

/// Exit code, stdout and stderr of a story that ends by itself.
async fn ended((program, name): (&str, &str), arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = if program == "bash" { "shell" } else { "python" };
    let path = Path::new(EXAMPLES).join(folder).join(name);
    let mut command = Command::new(program);
    command.arg(path).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A demo at a port, its address, and a token for `bob`.
async fn demo(folder: &Path, port: u16, options: &[&str]) -> (Process, String, String) {
    let (key, address) = (folder.join("key.pem"), format!("127.0.0.1:{port}"));
    let args = ["demo", "--listen", &address, "--duration", "120", "--agents", "3", "--key", key.to_str().unwrap()];
    let mut demo = Process::start(&[&args[..], options].concat());
    demo.complains("agents of your own: ").await;
    let token = token("bob", &key).await;
    (demo, format!("http://{address}"), token)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
