use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use strum::VariantArray;

use super::*;
use crate::model::{AnswerForm, ChatMessage, ChatRole};

const KEY: &str = "sk-canary-8251";

/// What a server is asked, as text.
type Heard = Arc<Mutex<Vec<String>>>;

/// Serves one answer to each connection, and notes what it is asked.
async fn serve(answer: Vec<u8>) -> (String, Heard) {
    serve_in_turn(vec![answer]).await
}

/// The same, the last answer over and over.
async fn serve_in_turn(answers: Vec<Vec<u8>>) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let heard = Heard::default();
    let noted = Arc::clone(&heard);
    tokio::spawn(async move {
        let mut served = 0;
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = &answers[served.min(answers.len() - 1)];
            served += 1;
            let mut request = Vec::new();
            while !is_whole(&request) {
                let mut piece = [0; 4096];
                match socket.read(&mut piece).await {
                    Ok(0) | Err(_) => break,
                    Ok(length) => request.extend_from_slice(&piece[..length]),
                }
            }
            noted.lock().push(String::from_utf8_lossy(&request).into_owned());
            let _ = socket.write_all(answer).await;
        }
    });
    (url, heard)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

fn request(form: AnswerForm) -> CompletionRequest {
    CompletionRequest {
        messages: vec![ChatMessage { role: ChatRole::System, content: "hello".to_owned() }],
        form,
        schema: r#"{"type": "object"}"#.to_owned(),
        answer_tokens: 99,
        retry: 2,
        timeout: Duration::from_secs(20),
    }
}

fn model(url: &str) -> HttpModel {
    let config = ModelConfig { url: url.to_owned(), name: "m-1".to_owned(), ..ModelConfig::default() };
    HttpModel::try_new(&config, Some(KEY)).unwrap()
}

async fn outcome(served: Vec<u8>, form: AnswerForm) -> Result<Completion, CompletionError> {
    let (url, _) = serve(served).await;
    model(&url).complete(request(form)).await
}

#[tokio::test]
async fn a_question_is_one_post_with_the_key_in_its_header_alone() {
    let (url, heard) = serve(answer("200 OK", "", r#"{"choices":[{"message":{"content":"x"}}]}"#)).await;
    for form in AnswerForm::VARIANTS {
        assert_eq!(model(&format!("{url}/")).complete(request(*form)).await.unwrap().content, "x");
    }
    let heard = heard.lock().clone();
    let formats = [json!("json_schema"), json!("json_schema"), json!("json_object"), Value::Null];
    for (request, format) in heard.iter().zip(formats) {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{head}");
        assert!(head.to_lowercase().contains(&format!("authorization: bearer {KEY}")), "{head}");
        assert!(head.to_lowercase().contains("x-retry-count: 2"), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["response_format"]["type"], format);
        assert_eq!((&body["model"], &body["max_tokens"]), (&json!("m-1"), &json!(99)));
        assert_eq!(body["messages"], json!([{"role": "system", "content": "hello"}]));
        assert!(!body.to_string().contains(KEY));
    }
    assert_eq!(heard.len(), 4);
}

#[tokio::test]
async fn every_way_an_endpoint_fails_is_told_apart() {
    let unsupported = r#"{"error":{"message":"unknown parameter","param":"response_format"}}"#;
    let huge = "x".repeat(BODY_BYTES_MAX + 1);
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(2 * BODY_BYTES_MAX));
    let (schema, plain) = (AnswerForm::JsonSchema, AnswerForm::Plain);
    let failed = |status, retry_after_ms| CompletionError::Failed { status, retry_after_ms };
    for (served, form, error) in [
        (
            answer("429 Too Many", "retry-after: 7\r\n", "{}"),
            schema,
            CompletionError::RateLimited { retry_after_ms: Some(7000) },
        ),
        (
            answer("429 Too Many", "retry-after-ms: 70\r\nretry-after: 7\r\n", ""),
            schema,
            CompletionError::RateLimited { retry_after_ms: Some(70) },
        ),
        (
            answer("429 Too Many", "retry-after: Wed, 21 Oct\r\n", ""),
            schema,
            CompletionError::RateLimited { retry_after_ms: None },
        ),
        (answer("500 Oh", "", "{}"), schema, failed(500, None)),
        (answer("503 Oh", "retry-after: 99999999999999999999\r\n", "{}"), schema, failed(503, None)),
        (answer("503 Oh", "retry-after: 0.5\r\n", "{}"), schema, failed(503, Some(500))),
        (answer("503 Oh", "retry-after: -1\r\n", "{}"), schema, failed(503, None)),
        (answer("400 Bad", "", unsupported), schema, CompletionError::FormUnknown),
        (answer("422 Bad", "", unsupported), AnswerForm::JsonObject, CompletionError::FormUnknown),
        (answer("400 Bad", "", unsupported), plain, CompletionError::Refused { status: 400 }),
        (
            answer("400 Bad", "", r#"{"error":{"message":"no such model"}}"#),
            schema,
            CompletionError::Refused { status: 400 },
        ),
        (answer("401 No", "", unsupported), schema, CompletionError::Refused { status: 401 }),
        (answer("200 OK", "", "<html>"), schema, CompletionError::Unreadable),
        (answer("200 OK", "", &huge), schema, CompletionError::TooLarge),
        (endless.into_bytes(), schema, CompletionError::TooLarge),
    ] {
        assert_eq!(outcome(served, form).await, Err(error));
    }
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"choices\":".to_vec();
    for lost in [cut, Vec::new()] {
        assert!(matches!(outcome(lost, schema).await, Err(CompletionError::Unreachable(_))));
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let unreachable = model(&format!("http://{closed}/v1")).complete(request(schema)).await;
    assert_eq!(unreachable, Err(CompletionError::NotConnected("Connection refused (os error 111)".to_owned())));
}

#[tokio::test]
async fn a_model_that_thinks_first_is_limited_as_it_asks_to_be() {
    // OpenAI: github.com/teilomillet/gollm/issues/33.
    let words =
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let refused = answer("400 Bad Request", "", &json!({"error": {"message": words}}).to_string());
    let fine = answer("200 OK", "", r#"{"choices":[{"message":{"content":"5"}}]}"#);
    let (url, heard) = serve_in_turn(vec![refused.clone(), fine]).await;
    let model = model(&url);
    for _ in 0..2 {
        assert_eq!(model.complete(request(AnswerForm::Plain)).await.unwrap().content, "5");
    }
    let limits = heard.lock().iter().map(|asked| asked.contains("max_completion_tokens")).collect::<Vec<_>>();
    assert_eq!(limits, [false, true, true], "it is asked anew once");
    assert_eq!(outcome(refused, AnswerForm::Plain).await, Err(CompletionError::Refused { status: 400 }));
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let config = ModelConfig { url, timeout_ms: 30, ..ModelConfig::default() };
    let short = HttpModel::try_new(&config, None).unwrap().complete(request(AnswerForm::Plain));
    assert_eq!(short.await, Err(CompletionError::TimedOut));
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_key_not_sent_on() {
    let (elsewhere, heard_elsewhere) = serve(answer("200 OK", "", "{}")).await;
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let served = answer(status, &format!("location: {elsewhere}/chat/completions\r\n"), "");
        let status = status[..3].parse().unwrap();
        assert_eq!(outcome(served, AnswerForm::Plain).await, Err(CompletionError::Refused { status }));
    }
    assert!(heard_elsewhere.lock().is_empty());
}

#[tokio::test]
async fn no_error_and_no_debug_text_shows_the_key_or_what_the_endpoint_wrote() {
    let echo = format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#);
    for status in ["400 Bad", "401 No", "429 Slow", "500 Oh", "200 OK"] {
        let error = outcome(answer(status, "", &echo), AnswerForm::JsonSchema).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
    let shown = format!("{:?}", model("http://127.0.0.1:1"));
    assert!(!shown.contains("sk-") && shown.contains("has_key: true"), "{shown}");
    let config = ModelConfig::default();
    let unusable = HttpModel::try_new(&config, Some("sk-canary\n8251")).unwrap_err();
    assert!(!format!("{unusable} {unusable:?}").contains("canary"));
    assert!(HttpModel::try_new(&config, Some(" ")).unwrap().authorization.is_none());
}
