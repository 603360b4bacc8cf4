//! What a stub answers: a function of its seed and the request, so that the same questions always get the same answers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemas::Digest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Content of an answer that is too large: ten times what a client should read.
const HUGE_BYTES: usize = 10 * 1024 * 1024;
/// Where a prompt begins to say which schema the answer has to fit.
const SCHEMA_MARK: &str = "JSON Schema";
/// Widest range of integers of which one is drawn; of a wider one it is the smallest.
const RANGE_MAX: i64 = 1_000_000;
/// Bytes of a token.
const TOKEN_BYTES: usize = 4;
const JUNK: &str = "Sure! I would be happy to help. An offer of about eighty-five seems fair to me.";
const REFUSAL: &str = "I'm sorry, but I can't help with that.";
/// Words by which instructions begin, in ten languages; `gullible` looks for them.
const ORDERS: [&str; 10] =
    ["ignore", "ignorier", "ignorez", "ignora", "忽略", "無視", "무시", "игнорируй", "تجاهل", "अनदेखा"];

/// A way to answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, strum::VariantArray, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Behaviour {
    /// What fits the schema.
    Good,
    /// Prose.
    Junk,
    /// Half of the answer, cut at the token limit.
    Truncated,
    /// In a code fence.
    Fenced,
    /// Behind a block of thinking.
    Thinking,
    /// An integer as text.
    WrongType,
    /// A member the schema does not know.
    OutsideSchema,
    /// An act that is not asked for.
    OtherAct,
    /// A refusal in its own member.
    Refusal,
    /// Nothing.
    Empty,
    /// 10 MiB.
    Huge,
    /// Good, after `slow_ms`.
    Slow,
    /// 429 with `Retry-After`.
    #[serde(rename = "429")]
    #[strum(serialize = "429")]
    RateLimited,
    /// 500.
    #[serde(rename = "500")]
    #[strum(serialize = "500")]
    Failed,
    /// The connection ends in the middle of the answer.
    Drop,
    /// 400 to `response_format` of type `json_schema`; otherwise good.
    NoJsonSchema,
    /// 400 to any `response_format`; otherwise good.
    NoResponseFormat,
    /// Good, without `usage`.
    NoUsage,
    /// Good, of everything listed the first.
    First,
    /// Obeys any instruction it finds in the data.
    Gullible,
}

/// How a stub behaves: the document of `--script`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StubScript {
    /// How often each behaviour comes, as a share of the sum.
    pub shares: BTreeMap<Behaviour, u32>,
    /// What good answers say, by the member's name. Other members get what the schema lists first, or a draw.
    pub answer: BTreeMap<String, StubValue>,
    /// How long `slow` takes, in milliseconds.
    pub slow_ms: u64,
    /// What `429` says in `Retry-After`, in seconds.
    pub retry_after_s: u64,
}

/// What a member of a good answer says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum StubValue {
    /// An integer drawn from `lo` to `hi`.
    Drawn {
        /// Smallest.
        lo: i64,
        /// Largest.
        hi: i64,
    },
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

impl Default for StubScript {
    fn default() -> Self {
        let shares = [(Behaviour::Good, 1)].into();
        Self { shares, answer: BTreeMap::new(), slow_ms: 30_000, retry_after_s: 1 }
    }
}

impl StubScript {
    /// What makes no sense about it.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.shares.values().map(|share| u64::from(*share)).sum::<u64>() == 0 {
            return Err("`shares` gives no behaviour a share above 0");
        }
        let is_empty = |said: &StubValue| matches!(said, StubValue::Drawn { lo, hi } if lo > hi);
        if self.answer.values().any(is_empty) { Err("`answer`: `lo` lies above `hi`") } else { Ok(()) }
    }
}

/// What is sent back.
#[derive(Debug, Clone, PartialEq)]
pub struct StubReply {
    /// HTTP status.
    pub status: u16,
    /// The body: a chat completion or an error object.
    pub body: Value,
    /// How long to wait first, in milliseconds.
    pub delay_ms: u64,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// Whether the connection ends in the middle of the body.
    pub is_dropped: bool,
}

impl StubReply {
    /// An error as endpoints give it.
    pub fn error(status: u16, kind: &str, code: Option<&str>, param: Option<&str>, message: &str) -> Self {
        let error = json!({ "message": message, "type": kind, "param": param, "code": code });
        Self { body: json!({ "error": error }), ..Self::of(status, Value::Null) }
    }

    fn of(status: u16, body: Value) -> Self {
        Self { status, body, delay_ms: 0, retry_after_s: None, is_dropped: false }
    }
}

/// Answers a request. `retry` is how often the client says it has asked before.
pub fn reply(script: &StubScript, seed: u64, body: &[u8], retry: &str) -> StubReply {
    let invalid = |param, message| StubReply::error(400, "invalid_request_error", None, param, message);
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return invalid(None, "We could not parse the JSON body of your request.");
    };
    let Some(messages) = request["messages"].as_array().filter(|messages| !messages.is_empty()) else {
        return invalid(Some("messages"), "Missing required parameter: 'messages'.");
    };
    if !request["model"].is_string() {
        return invalid(Some("model"), "you must provide a model parameter");
    }
    let mut draws = Draws::new(seed, body, retry);
    let behaviour = draws.behaviour(script);
    let form = request["response_format"]["type"].as_str().unwrap_or("text");
    let is_unknown = (behaviour == Behaviour::NoJsonSchema && form == "json_schema")
        || (behaviour == Behaviour::NoResponseFormat && form != "text");
    if is_unknown {
        let message =
            format!("Invalid parameter: 'response_format' of type '{form}' is not supported with this model.");
        return StubReply::error(400, "invalid_request_error", None, Some("response_format"), &message);
    }
    if behaviour == Behaviour::RateLimited {
        let error =
            StubReply::error(429, "requests", Some("rate_limit_exceeded"), None, "Rate limit reached for requests.");
        return StubReply { retry_after_s: Some(script.retry_after_s), ..error };
    }
    if behaviour == Behaviour::Failed {
        let message = "The server had an error while processing your request.";
        return StubReply::error(500, "server_error", None, None, message);
    }
    let writer = AnswerWriter { script, is_first: behaviour == Behaviour::First };
    let message = writer.message(behaviour, &request, messages, &mut draws);
    let body = completion(&request, messages, &message, behaviour, &draws);
    let delay_ms = if behaviour == Behaviour::Slow { script.slow_ms } else { 0 };
    StubReply { delay_ms, is_dropped: behaviour == Behaviour::Drop, ..StubReply::of(200, body) }
}

fn completion(request: &Value, messages: &[Value], message: &Value, behaviour: Behaviour, draws: &Draws) -> Value {
    let length = |text: &Value| text.as_str().map_or(0, str::len);
    let input = messages.iter().map(|message| length(&message["content"])).sum::<usize>().div_ceil(TOKEN_BYTES);
    let output = (length(&message["content"]) + length(&message["refusal"])).div_ceil(TOKEN_BYTES);
    let finish = if behaviour == Behaviour::Truncated { "length" } else { "stop" };
    let mut body = json!({
        "id": format!("chatcmpl-{}", draws.id),
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish }],
        "usage": { "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output },
    });
    if behaviour == Behaviour::NoUsage
        && let Some(members) = body.as_object_mut()
    {
        members.remove("usage");
    }
    body
}

/// Writes answers.
struct AnswerWriter<'a> {
    script: &'a StubScript,
    is_first: bool,
}

impl AnswerWriter<'_> {
    fn message(&self, behaviour: Behaviour, request: &Value, messages: &[Value], draws: &mut Draws) -> Value {
        let assistant =
            |content: Value, refusal: Value| json!({ "role": "assistant", "content": content, "refusal": refusal });
        let Some(schema) = schema_of(request, messages) else { return assistant("ok".into(), Value::Null) };
        let good = self.write("", &schema, draws);
        let content = match behaviour {
            Behaviour::Refusal => return assistant(Value::Null, REFUSAL.into()),
            Behaviour::Junk => JUNK.to_owned(),
            Behaviour::Empty => String::new(),
            Behaviour::Huge => "x".repeat(HUGE_BYTES),
            Behaviour::Truncated => half(&good.to_string()),
            Behaviour::Fenced => format!("```json\n{good}\n```"),
            Behaviour::Thinking => format!("<think>Is {{}} enough? No.</think>\n{good}"),
            Behaviour::WrongType => blurred(good).to_string(),
            Behaviour::OutsideSchema => with_surplus(good).to_string(),
            Behaviour::OtherAct => json!({ "act": "accept", "award_no": 1 }).to_string(),
            Behaviour::Gullible => obeying(good, &schema, messages).to_string(),
            Behaviour::Good
            | Behaviour::Slow
            | Behaviour::RateLimited
            | Behaviour::Failed
            | Behaviour::Drop
            | Behaviour::NoJsonSchema
            | Behaviour::NoResponseFormat
            | Behaviour::NoUsage
            | Behaviour::First => good.to_string(),
        };
        assistant(content.into(), Value::Null)
    }

    /// A value that fits a schema.
    fn write(&self, name: &str, schema: &Value, draws: &mut Draws) -> Value {
        match self.script.answer.get(name) {
            Some(StubValue::Number(number)) => return (*number).into(),
            Some(StubValue::Text(text)) => return text.as_str().into(),
            Some(StubValue::Drawn { lo, hi }) => return draws.integer(*lo, *hi).into(),
            None => {}
        }
        if let Some(first) = schema["anyOf"].get(0) {
            let is_text = first["type"] == "string" && first["enum"].is_null();
            return if is_text { Value::Null } else { self.write(name, first, draws) };
        }
        if let Some(values) = schema["enum"].as_array() {
            // The act that is listed first is the one that goes on.
            let is_first = self.is_first || name == "act";
            let index = if is_first { 0 } else { draws.index(values.len()) };
            return values.get(index).cloned().unwrap_or_default();
        }
        match schema["type"].as_str().unwrap_or_default() {
            "object" => {
                let members = schema["properties"].as_object().cloned().unwrap_or_default();
                let mut written = Map::new();
                for (name, schema) in members {
                    let value = self.write(&name, &schema, draws);
                    written.insert(name, value);
                }
                written.into()
            }
            "array" => json!([]),
            "integer" | "number" => {
                let lo = schema["minimum"].as_i64().unwrap_or(0);
                let hi = schema["maximum"].as_i64().unwrap_or(lo).max(lo);
                let is_drawn = !self.is_first && hi.saturating_sub(lo) <= RANGE_MAX;
                if is_drawn { draws.integer(lo, hi).into() } else { lo.into() }
            }
            "boolean" => true.into(),
            "string" => "stub".into(),
            _ => Value::Null,
        }
    }
}

/// The schema of the answer: of the request's format, or the one that stands in the prompt.
fn schema_of(request: &Value, messages: &[Value]) -> Option<Value> {
    let given = &request["response_format"]["json_schema"]["schema"];
    if given.is_object() {
        return Some(given.clone());
    }
    let text =
        messages.iter().find_map(|message| message["content"].as_str().filter(|text| text.contains(SCHEMA_MARK)))?;
    let (_, rest) = text.rsplit_once(SCHEMA_MARK)?;
    let object = &rest[rest.find('{')?..];
    serde_json::Deserializer::from_str(object).into_iter::<Value>().next()?.ok()
}

fn half(text: &str) -> String {
    text.chars().take(text.chars().count() / 2).collect()
}

/// With a member that no schema has; what is no object becomes a list.
fn with_surplus(mut good: Value) -> Value {
    match good.as_object_mut() {
        Some(members) => {
            members.insert("surplus".to_owned(), true.into());
            good
        }
        None => json!([good]),
    }
}

/// With its first integer as a text; what has none becomes a list.
fn blurred(mut good: Value) -> Value {
    if blur(&mut good) { good } else { json!([good]) }
}

fn blur(value: &mut Value) -> bool {
    match value {
        Value::Number(number) => {
            *value = number.to_string().into();
            true
        }
        Value::Object(members) => members.values_mut().any(blur),
        Value::Array(items) => items.iter_mut().any(blur),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// As an instruction in the data wants it: integers among the terms become the first number behind it.
fn obeying(mut good: Value, schema: &Value, messages: &[Value]) -> Value {
    let data: String = messages
        .iter()
        .filter(|message| message["role"] == "user")
        .filter_map(|message| message["content"].as_str())
        .map(readable)
        .collect();
    let Some(order) = ORDERS.iter().find_map(|order| data.find(order)) else { return good };
    let digits = data[order..].chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
    let Ok(number) = digits.collect::<String>().parse::<i64>() else { return good };
    let is_integer = |name: &String| {
        let terms = schema.pointer("/properties/terms/anyOf/0/properties").and_then(|terms| terms.get(name));
        terms.is_some_and(|term| term["type"] == "integer")
    };
    for (name, value) in good.get_mut("terms").and_then(Value::as_object_mut).into_iter().flatten() {
        if is_integer(name) {
            *value = number.into();
        }
    }
    good
}

/// The text as a reader that wants to obey reads it: in lower case, without invisible characters, base64 decoded.
fn readable(text: &str) -> String {
    let visible: String = text
        .replace("\\u200b", "")
        .replace("\\u200d", "")
        .chars()
        .filter(|c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}'))
        .collect();
    let is_code = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let decoded: String = visible
        .split(|c| !is_code(c))
        .filter(|word| word.len() >= 12)
        .filter_map(|word| String::from_utf8(STANDARD.decode(word).ok()?).ok())
        .collect();
    format!("{visible} {decoded}").to_lowercase()
}

/// Draws of one request.
struct Draws {
    id: String,
    digest: Digest,
    count: u32,
}

impl Draws {
    fn new(seed: u64, body: &[u8], retry: &str) -> Self {
        let digest = Digest::of_parts(&[&seed.to_be_bytes(), body, retry.as_bytes()]);
        Self { id: digest.to_string()[..24].to_owned(), digest, count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        let digest = Digest::of_parts(&[&self.digest.0, &self.count.to_be_bytes()]);
        digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len.max(1)).unwrap_or(1);
        usize::try_from(self.next() % len).unwrap_or(0)
    }

    fn integer(&mut self, lo: i64, hi: i64) -> i64 {
        let width = hi.abs_diff(lo).saturating_add(1);
        lo.saturating_add_unsigned(self.next() % width.max(1))
    }

    fn behaviour(&mut self, script: &StubScript) -> Behaviour {
        let sum: u64 = script.shares.values().map(|share| u64::from(*share)).sum();
        let mut left = self.next() % sum.max(1);
        for (behaviour, share) in &script.shares {
            let share = u64::from(*share);
            if left < share {
                return *behaviour;
            }
            left -= share;
        }
        Behaviour::Good
    }
}

#[cfg(test)]
mod tests;
