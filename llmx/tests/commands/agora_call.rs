//! `llmx agora call`: agents of a running exchange, asked as responders of Agora.

use agents::ContractorConfig;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::rig::Rig;

const DOCUMENT: &str =
    "---\nname: Weather\ndescription: The temperature of a city.\nmultiround: false\n---\nSend `city`.\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_responder_is_asked_in_transactions_and_conversations() {
    let rig = Rig::start().await;
    let _population = rig.population(1, ContractorConfig::default()).await;
    let (token, file) = (rig.path("alice.token"), rig.path("weather.md"));
    std::fs::write(&token, rig.token("alice")).unwrap();
    std::fs::write(&file, DOCUMENT).unwrap();
    let target = format!("{}/agora/contractor-0", rig.exchange.url());
    let call = async |more: &[&str]| {
        let fixed = ["agora", "call", target.as_str(), "--json", "--token-file", token.to_str().unwrap()];
        rig.run(&[&fixed[..], more].concat()).await
    };
    let one = call(&["How warm?"]).await;
    assert_eq!((one.code, &one.document()["replies"][0]["status"]), (Some(0), &"success".into()), "{one:?}");

    let rejected = call(&["{}", "--document", file.to_str().unwrap()]).await;
    assert_eq!(rejected.code, Some(1), "{rejected:?}");
    assert_eq!(rejected.document()["replies"][0]["message"], "Protocol rejected", "nobody has a routine for it");
    assert!(rejected.stderr.contains("rejected: Protocol rejected"), "{rejected:?}");

    let kept = call(&["--multiround", "--keep", "How warm?", "And now?"]).await;
    assert_eq!((kept.code, kept.document()["replies"].as_array().unwrap().len()), (Some(0), 2), "{kept:?}");
    let id = kept.document()["conversation"].as_str().unwrap().to_owned();
    let last = call(&["--conversation", &id, "And then?"]).await;
    assert_eq!(last.code, Some(0), "{last:?}");
    let gone = call(&["--conversation", &id, "Still there?"]).await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert_eq!(gone.document()["replies"][0]["message"], "Conversation not found.");
}

/// A responder that opens a conversation, answers as many messages as this, and fails at everything else.
async fn failing_behind(answers: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut left = answers;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let is_whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request).to_ascii_lowercase();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                body.len() >= length.map_or(0, |length| length.parse().unwrap())
            };
            while !is_whole(&request) {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the request ended early");
            }
            let body = r#"{"status":"success","body":"25","conversationId":"c1","conversationExpires":1}"#;
            let (status, body) = if request.starts_with(b"POST") && left > 0 {
                left -= 1;
                ("200 OK", body)
            } else {
                ("500 Internal Server Error", "out of order")
            };
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    target
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_printed_though_the_conversation_breaks_or_cannot_be_ended() {
    let rig = Rig::start().await;
    for (answers, code, said) in [(2, 0, "warning: the conversation c1 stays open"), (1, 1, "500")] {
        let target = failing_behind(answers).await;
        let call = ["agora", "call", &target, "--multiround", "How warm?", "And now?"];
        let ran = rig.run(&call).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), "25\n".repeat(answers).as_str()), "{ran:?}");
        assert!(ran.stderr.contains(said) && ran.stderr.contains("out of order"), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_asked_is_said_with_its_exit_code() {
    let rig = Rig::start().await;
    let file = rig.path("notes.md");
    std::fs::write(&file, "no front matter").unwrap();
    let (target, notes) = (format!("{}/agora/bob", rig.exchange.url()), file.to_str().unwrap());
    let missing = rig.path("missing");
    let missing = missing.to_str().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/weather.md");
    for (args, code, said) in [
        (vec![target.as_str()], 2, "TEXT"),
        (vec!["ftp://a.example/", "x"], 2, "http://HOST:PORT"),
        (vec![&target, "x", "y"], 2, "--multiround"),
        (vec![&target, "x", "--negotiate"], 2, "--multiround"),
        (vec![&target, "x", "--conversation", "a", "--multiround"], 2, "cannot be used with"),
        (vec![&target, "x", "--document", missing], 2, "missing"),
        (vec![&target, "x", "--document", notes], 2, "missing_field"),
        (vec![&target, "x", "--token-file", missing], 2, "missing"),
        (vec![&target, "x", "--conversation", "a/b"], 1, "names no conversation"),
        (vec![&target, "x", "--document", example, "--multiround"], 2, "leave --multiround out"),
        (vec![&target, "x", "--token", "a", "--token-file", "b"], 2, "cannot be used with"),
        (vec![&target, "x"], 1, "401"),
        (
            vec![&target, "x"],
            1,
            r#"give a token: --token or --token-file (of an exchange of your own: --token "$(llmx token AGENT)")"#,
        ),
        (vec![&target, "x", "--token", "none"], 1, "the responder does not take this token: get another"),
        (vec!["http://127.0.0.1:1/", "x"], 1, "cannot be reached"),
    ] {
        let ran = rig.run(&[&["agora", "call"], &args[..]].concat()).await;
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said) && ran.stdout.is_empty(), "{args:?}: {ran:?}");
    }
}
