use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::routine::RESULT_CHARS_MAX;

fn request(text: &str) -> WorkRequest {
    WorkRequest {
        agent: AgentId::try_new("bob").unwrap(),
        task: NegotiationId::try_new("alice~paper").unwrap(),
        title: "count".to_owned(),
        text: text.to_owned(),
    }
}

fn shell(script: &str) -> WorkRunner {
    WorkRunner::new(ProgramWorker::new("/bin/sh", vec!["-c".to_owned(), script.to_owned()]))
}

#[tokio::test]
async fn a_function_works_on_a_task_and_its_failure_is_told_in_its_words() {
    let counts = |request: &WorkRequest| match request.text.split_whitespace().count() {
        0 => Err("no words".to_owned()),
        words => Ok(format!("{} words for {}", words, request.title)),
    };
    let runner = WorkRunner::new(FunctionWorker::new(counts));
    assert_eq!(runner.run(request("three small words")).await.as_deref(), Ok("3 words for count"));
    assert_eq!(runner.run(request(" ")).await, Err(RoutineFault::Failed("no words".to_owned())));
    let panics = WorkRunner::new(FunctionWorker::new(|_| panic!("on purpose")));
    assert_eq!(panics.run(request("x")).await, Err(RoutineFault::Failed("it panicked".to_owned())));
}

#[tokio::test]
async fn a_program_reads_its_task_from_stdin_and_writes_the_result_to_stdout() {
    assert_eq!(shell("tr a-z A-Z").run(request("a survey")).await.as_deref(), Ok("A SURVEY"));
    // What it does not read, and how it ends the line, is its own matter.
    assert_eq!(shell("echo done; echo noise >&2").run(request(&"long ".repeat(800))).await.as_deref(), Ok("done"));
    // No variable of this process but these is handed on.
    let variables = shell("env | cut -d= -f1 | grep -vE '^(PWD|SHLVL|_|OLDPWD)$' | sort | tr '\\n' ' '");
    assert_eq!(variables.run(request("")).await.as_deref(), Ok("HOME PATH "));
}

#[tokio::test]
async fn a_program_that_fails_is_told_apart_by_how() {
    let too_long = format!("head -c {} /dev/zero | tr '\\0' a", RESULT_CHARS_MAX + 1);
    for (script, fault) in [
        ("exit 3", RoutineFault::Failed("it ended with exit status: 3".to_owned())),
        ("printf '\\377'", RoutineFault::Unreadable),
        (too_long.as_str(), RoutineFault::TooLong),
        ("cat /dev/zero", RoutineFault::TooLong),
    ] {
        assert_eq!(shell(script).run(request("x")).await, Err(fault), "{script}");
    }
    let absent = WorkRunner::new(ProgramWorker::new("/nowhere/worker", Vec::new())).run(request("x")).await;
    assert!(matches!(&absent, Err(RoutineFault::Unavailable(why)) if why.contains("does not start")), "{absent:?}");
}

#[tokio::test]
async fn a_program_is_ended_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ > {}.new; mv {0}.new {0}; exec sleep 600", pid.display());
    let runner = shell(&script).within(Duration::from_secs(2));
    assert_eq!(runner.run(request("x")).await, Err(RoutineFault::TimedOut));
    let pid = std::fs::read_to_string(&pid).unwrap();
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    // Ended, and collected by the runtime a moment later.
    let state = || std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    let is_over = || !process.exists() || state().contains(") Z ");
    for _ in 0..1000 {
        if is_over() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {pid} goes on: {}", state());
}

#[tokio::test]
async fn beyond_sixteen_tasks_at_a_time_a_worker_is_busy() {
    struct Never;
    impl Worker for Never {
        fn run(&self, _request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
            std::future::pending().boxed()
        }
    }
    let runner = WorkRunner::new(Never);
    let mut waiting = Vec::new();
    for _ in 0..WORKERS_MAX {
        let mut task = Box::pin(runner.run(request("x")));
        assert!(futures_util::poll!(&mut task).is_pending());
        waiting.push(task);
    }
    assert_eq!(runner.run(request("x")).await, Err(RoutineFault::Busy));
    waiting.pop();
    assert!(futures_util::poll!(Box::pin(runner.run(request("x")))).is_pending());
}

#[tokio::test]
async fn a_service_is_posted_the_task_and_answers_a_text_or_a_conclusion() {
    for (status, body, result) in [
        ("200 OK", "as it stands", Ok("as it stands")),
        ("200 OK", "\"a JSON text\"", Ok("a JSON text")),
        ("200 OK", r#"{"conclusion": "found 30", "uid": "u"}"#, Ok("found 30")),
        ("200 OK", r#"{"answer": 30}"#, Ok(r#"{"answer": 30}"#)),
        ("500 Oops", "", Err(RoutineFault::Unavailable("the service answers 500".to_owned()))),
    ] {
        let (url, asked) = serve(status, body).await;
        let runner = WorkRunner::new(HttpWorker::try_new(&url).unwrap().with_model("small"));
        assert_eq!(runner.run(request("find 30 papers")).await, result.map(str::to_owned), "{body}");
        let asked = asked.await.unwrap();
        let json = asked.split_once("\r\n\r\n").unwrap().1;
        let expected = serde_json::json!({"task_desc": "find 30 papers", "uid": "alice~paper", "model": "small"});
        assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap(), expected);
        assert!(asked.starts_with("POST /run "), "{asked}");
    }
    assert!(HttpWorker::try_new("ftp://host/run").is_err());
}

/// Serves one answer to one connection, and gives what was asked.
async fn serve(status: &str, body: &str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/run", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"}") {
            let mut piece = [0; 4096];
            let length = socket.read(&mut piece).await.unwrap();
            asked.extend_from_slice(&piece[..length]);
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(asked).unwrap()
    });
    (url, serving)
}
