//! From what an endpoint sends to JSON: lenient about the envelope, which compatible servers fill in differently, and
//! strict about the answer inside of it.

use schemas::strict_json::parse_within;
use serde_json::Value;

use super::accounts::TokenUsage;
use super::shape::{InvalidReason, Misfit};
use super::{AnswerForm, Completion, CompletionError};
use crate::panel::parse::without_thinking;

/// Largest body that is read, in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// `system_fingerprint` of answers that no model has given.
pub const STUB_FINGERPRINT: &str = "llmx-model-stub";
const FENCE: &str = "```";

/// Reads what an endpoint answers to a request of this form.
///
/// # Errors
/// [`CompletionError`], by status.
pub fn read_response(
    status: u16,
    retry_after_ms: Option<u64>,
    form: AnswerForm,
    body: Result<Vec<u8>, CompletionError>,
) -> Result<Completion, CompletionError> {
    match status {
        200..=299 => read_completion(&body?),
        429 => Err(CompletionError::RateLimited { retry_after_ms }),
        400 | 422 | 500 if form != AnswerForm::Plain && body.as_ref().is_ok_and(|body| names_form(body)) => {
            Err(CompletionError::FormUnknown)
        }
        500.. => Err(CompletionError::Failed { status, retry_after_ms }),
        status => Err(CompletionError::Refused { status }),
    }
}

/// Words by which endpoints say that they do not know a form, or cannot keep an answer to its schema.
const FORM_WORDS: [&str; 6] =
    ["response_format", "json_schema", "json_object", "json schema", "invalid schema", "grammar"];

/// Whether an error is about the form that was asked for: by what the endpoint says, not by what it repeats of the request.
fn names_form(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
    let error = body.get("error").unwrap_or(&body);
    let details = body["detail"].as_array().into_iter().flatten().flat_map(|one| [&one["loc"], &one["msg"]]);
    let said = [&error["message"], &error["param"], &error["code"], error].into_iter().chain(details);
    said.filter(|part| !part.is_object()).any(|part| {
        let part = part.to_string().to_lowercase();
        FORM_WORDS.iter().any(|word| part.contains(word))
    })
}

/// Reads a chat completion. Only `choices[0].message` is needed; all else may be missing, null or of another kind.
///
/// # Errors
/// [`CompletionError::Unreadable`].
pub fn read_completion(body: &[u8]) -> Result<Completion, CompletionError> {
    let body: Value = serde_json::from_slice(body).map_err(|_| CompletionError::Unreadable)?;
    let choice = body.pointer("/choices/0").ok_or(CompletionError::Unreadable)?;
    let message = choice.get("message").and_then(Value::as_object).ok_or(CompletionError::Unreadable)?;
    let is_said = |refusal: &Value| refusal.as_str().is_some_and(|words| !words.is_empty());
    let finish = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default();
    Ok(Completion {
        content: message.get("content").map(text_of).unwrap_or_default(),
        is_refusal: message.get("refusal").is_some_and(is_said) || finish == "content_filter",
        is_truncated: finish == "length",
        usage: body.get("usage").and_then(read_usage),
        is_stub: body.get("system_fingerprint").is_some_and(|print| print == STUB_FINGERPRINT),
    })
}

/// A text, or the texts of a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn read_usage(usage: &Value) -> Option<TokenUsage> {
    let count = |name| usage.get(name).and_then(Value::as_u64);
    Some(TokenUsage { input: count("prompt_tokens")?, output: count("completion_tokens")? })
}

/// The JSON in a completion, and its text: behind thinking, alone or in the only code fence
/// (docs/spec/panel-answers.md#pa-20).
///
/// # Errors
/// Why there is none. The pointer is empty: it concerns the whole answer.
pub fn extract(completion: &Completion) -> Result<(Value, &str), Misfit> {
    let fault = |reason, expected: &str| Misfit::new(reason, "", expected);
    if completion.is_refusal {
        return Err(fault(InvalidReason::Refusal, "an answer; `refuse` is one of its acts"));
    }
    let text = said(completion);
    let places = [Some(completion.content.trim()), Some(text), in_only_fence(text)];
    match places.into_iter().flatten().find_map(|text| Some((parse(text)?, text))) {
        Some(found) => Ok(found),
        None if completion.is_truncated => Err(fault(InvalidReason::Truncated, "a shorter answer")),
        None if text.is_empty() => Err(fault(InvalidReason::Empty, "one JSON object")),
        None => Err(fault(InvalidReason::NotJson, "one JSON object, every member once, and nothing around it")),
    }
}

/// The text of a completion without thinking before it and a code fence around it.
#[must_use]
pub fn said(completion: &Completion) -> &str {
    let text = without_thinking(&completion.content);
    let inside = text.strip_prefix(FENCE).and_then(|rest| rest.strip_suffix(FENCE));
    inside.map_or(text, without_language)
}

/// What stands in the code fence of a text that has one, whatever is said around it.
fn in_only_fence(text: &str) -> Option<&str> {
    let parts: Vec<&str> = text.splitn(4, FENCE).collect();
    match parts[..] {
        [_, inside, _] => Some(without_language(inside)),
        _ => None,
    }
}

/// A fence may name the language behind it.
fn without_language(inside: &str) -> &str {
    let (first, rest) = inside.split_once('\n').unwrap_or(("", inside));
    let is_language = first.trim().chars().all(|c| c.is_ascii_alphanumeric());
    if is_language { rest.trim() } else { inside.trim() }
}

/// One JSON text without a member named twice, its integers those that are written (docs/spec/messages.md#ms-13).
fn parse(text: &str) -> Option<Value> {
    parse_within(text.as_bytes(), BODY_BYTES_MAX).ok()
}

#[cfg(test)]
mod tests {
    use schemas::payload::INTEGER_MAX;
    use serde_json::json;

    use super::*;
    use crate::model::AnswerShape;

    fn said(content: &str) -> Completion {
        Completion { content: content.to_owned(), ..Completion::default() }
    }

    #[test]
    fn an_answer_is_found_behind_thinking_and_in_the_only_fence_and_nowhere_else() {
        for content in [
            r#"{"act":"offer"}"#,
            " \n{\"act\":\"offer\"}\n",
            "```json\n{\"act\":\"offer\"}\n```",
            "```\n{\"act\":\"offer\"}```",
            "<think>{\"act\":\"refuse\"} or ``` not?</think>\n\n{\"act\":\"offer\"}",
            "<think>hm</think>```json\n{\"act\":\"offer\"}\n```\n",
            "{\"act\":\"refuse\"}? No.\n</think>\n\n{\"act\":\"offer\"}",
            "Here it is:\n```json\n{\"act\":\"offer\"}\n```\nIs that right?",
            "hm</think>Here: ```{\"act\":\"offer\"}```",
        ] {
            assert_eq!(extract(&said(content)).unwrap().0, json!({"act": "offer"}), "{content}");
        }
        for (content, reason) in [
            ("", InvalidReason::Empty),
            ("<think>only that</think>", InvalidReason::Empty),
            ("I would offer 5.", InvalidReason::NotJson),
            ("Here it is: {\"act\":\"offer\"}", InvalidReason::NotJson),
            ("{\"act\":\"offer\"} {\"act\":\"offer\"}", InvalidReason::NotJson),
            ("{\"act\":\"offer\",\"act\":\"refuse\"}", InvalidReason::NotJson),
            ("{\"terms\":{\"price\":1,\"price\":2}}", InvalidReason::NotJson),
            ("{'act':'offer'}", InvalidReason::NotJson),
            ("<think>unended {\"act\":\"offer\"}", InvalidReason::Empty),
            ("```\n{\"act\":\"offer\"}\n``` or\n```\n{\"act\":\"refuse\"}\n```", InvalidReason::NotJson),
            ("{\"a\":1e999}", InvalidReason::NotJson),
        ] {
            assert_eq!(extract(&said(content)).unwrap_err().reason, reason, "{content}");
        }
        let quoting = r#"{"text":"</think> and ```x```"}"#;
        assert_eq!(extract(&said(quoting)).unwrap().0, json!({"text": "</think> and ```x```"}));
        let deep = "[".repeat(200_000);
        assert_eq!(extract(&said(&deep)).unwrap_err().reason, InvalidReason::NotJson);
        let cut = Completion { is_truncated: true, ..said("{\"act\":\"of") };
        assert_eq!(extract(&cut).unwrap_err().reason, InvalidReason::Truncated);
        let refused = Completion { is_refusal: true, ..said("{\"act\":\"offer\"}") };
        assert_eq!(extract(&refused).unwrap_err().reason, InvalidReason::Refusal);
    }

    /// What endpoints say of a schema that they do not take, as the named threads quote it, names of schema and member aside.
    #[test]
    fn a_schema_is_refused_in_many_words_and_none_of_another_fault() {
        let of = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        let refusals = [
            // OpenAI, strict mode: github.com/dottxt-ai/outlines/issues/1254, github.com/prism-php/prism/issues/858.
            (400, of("Invalid schema for response_format 'answer': In context=('properties', 'reason'), 'maxLength' is not permitted.")),
            (400, of("Invalid schema for response_format 'answer': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.")),
            // The same: zenn.dev/nicopin/scraps/a8d8f53f5faebb, on the rule of github.com/openai/openai-python/issues/2193.
            (400, of("Invalid schema: Objects provided via 'anyOf' must not share identical first keys.")),
            // Azure: github.com/Azure/azure-sdk-for-net/issues/46579.
            (400, of("response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later")),
            // vLLM: github.com/vllm-project/vllm/issues/16321, and `validate_xgrammar_grammar` in its source.
            (400, r#"{"object":"error","message":"The provided JSON schema contains features not supported by xgrammar.","type":"BadRequestError","code":400}"#.to_owned()),
            (400, of("Failed to transform json schema into a grammar: unsupported keyword")),
            // llama.cpp: github.com/browseros-ai/BrowserOS/issues/255, github.com/lidge-jun/opencodex/issues/2135, and an older
            // build in github.com/ggml-org/llama.cpp/issues/9522.
            (400, of("JSON schema conversion failed:\nUnrecognized schema: {}")),
            (400, r#"{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar"}}"#.to_owned()),
            (500, of("response_format type must be one of \"text\" or \"json_object\", but got: json_schema")),
            // Ollama: github.com/ollama/ollama/issues/8185, github.com/datalab-to/marker/issues/984.
            (500, r#"{"error":"invalid JSON schema in format"}"#.to_owned()),
            // Of no endpoint that is known: a validator that names the place.
            (422, r#"{"detail":[{"loc":["body","response_format","type"],"msg":"unexpected value"}]}"#.to_owned()),
        ];
        for (status, body) in refusals {
            let read = |form| read_response(status, None, form, Ok(body.clone().into_bytes())).unwrap_err();
            for form in [AnswerForm::Alternatives, AnswerForm::JsonSchema, AnswerForm::JsonObject] {
                assert_eq!(read(form), CompletionError::FormUnknown, "{body}");
            }
            assert_ne!(read(AnswerForm::Plain), CompletionError::FormUnknown, "nothing is weaker");
        }
        for (status, body) in [
            (400, of("This model's maximum context length is 8192 tokens.")),
            (400, of("Unsupported parameter: 'max_tokens' is not supported with this model.")),
            (404, of("The model `m` does not exist: see response_format")),
            (500, of("The server had an error while processing your request.")),
            (503, of("json_schema is overloaded")),
            (400, json!({"error": {"message": "too long", "input": "the grammar of response_format"}}).to_string()),
            (422, r#"{"detail":[{"loc":["body","messages"],"msg":"too long","input":"json_schema"}]}"#.to_owned()),
            (400, "<p>invalid schema</p>".to_owned()),
        ] {
            let read = read_response(status, None, AnswerForm::Alternatives, Ok(body.clone().into_bytes()));
            assert!(matches!(read, Err(CompletionError::Refused { .. } | CompletionError::Failed { .. })), "{body}");
        }
    }

    #[test]
    fn an_integer_of_an_answer_is_one_by_its_digits() {
        let integer = AnswerShape::Integer { min: 0, max: INTEGER_MAX };
        let shape = AnswerShape::Object(AnswerShape::members([("price", integer)]));
        let price = |text: &str| {
            let answer = said(&format!("{{\"price\":{text}}}"));
            let (value, text) = extract(&answer).unwrap();
            shape.read(&value, text).ok().and_then(|read| read["price"].as_i64())
        };
        for (text, expected) in [("999999", Some(999_999)), ("8.5e3", Some(8500)), ("5.0", Some(5))] {
            assert_eq!(price(text), expected, "{text}");
        }
        for text in ["999999.99999999999999", "1e-400", "9007199254740991.5", "1000000.0000000000000001"] {
            assert_eq!(price(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_message_of_a_completion_is_needed() {
        let read = |body: Value| read_completion(body.to_string().as_bytes());
        let bare = json!({"choices": [{"message": {"content": "x"}}]});
        assert_eq!(read(bare).unwrap(), said("x"));
        let full = json!({"id": 7, "created": "then", "object": null, "choices": [{"index": "0", "finish_reason": "length",
            "logprobs": null, "message": {"role": "assistant", "content": "x", "refusal": null, "more": []}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}});
        let usage = Some(TokenUsage { input: 3, output: 2 });
        assert_eq!(read(full).unwrap(), Completion { is_truncated: true, usage, ..said("x") });
        let parts = json!({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}],
            "usage": {"prompt_tokens": -3}});
        assert_eq!(read(parts).unwrap(), said("ab"));
        let refusal =
            json!({"choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "unheard_of"}]});
        assert_eq!(read(refusal).unwrap(), Completion { is_refusal: true, ..said("") });
        for unreadable in [json!({}), json!({"choices": []}), json!({"choices": [{"text": "x"}]}), json!("x")] {
            assert_eq!(read(unreadable), Err(CompletionError::Unreadable));
        }
        assert_eq!(read_completion(b"<html>"), Err(CompletionError::Unreadable));
    }
}
