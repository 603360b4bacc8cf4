//! A model that is none: what it answers is a function of its seed and the request, so that the same questions always get
//! the same answers. `llmx-lab model-stub` serves it; [`StubModel`] is it in process.

mod script;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::Digest;
use serde_json::{Map, Value, json};

pub use self::script::{StubBehaviour, StubScript, StubValue};
use super::answer::{BODY_BYTES_MAX, STUB_FINGERPRINT, read_response};
use super::shape::{DECIMALS_MAX, decimal};
use super::{Completion, CompletionError, CompletionRequest, Model};

/// Content of an answer that is too large: ten times what a client should read.
const HUGE_BYTES: usize = 10 * 1024 * 1024;
/// Where a prompt begins to say which schema the answer has to fit.
const SCHEMA_MARK: &str = "JSON Schema";
/// Widest range of integers of which one is drawn; of a wider one it is the smallest.
const RANGE_MAX: i64 = 1_000_000;
/// Most items of a list.
const ITEMS_MAX: u64 = 2;
/// Bytes of a token.
const TOKEN_BYTES: usize = 4;
const JUNK: &str = "Sure! I would be happy to help. An offer of about eighty-five seems fair to me.";
const REFUSAL: &str = "I'm sorry, but I can't help with that.";
/// Words by which instructions begin, in ten languages; `gullible` looks for them.
const ORDERS: [&str; 10] =
    ["ignore", "ignorier", "ignorez", "ignora", "忽略", "無視", "무시", "игнорируй", "تجاهل", "अनदेखा"];

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
    #[must_use]
    pub fn error(status: u16, kind: &str, code: Option<&str>, param: Option<&str>, message: &str) -> Self {
        let error = json!({ "message": message, "type": kind, "param": param, "code": code });
        Self { body: json!({ "error": error }), ..Self::of(status, Value::Null) }
    }

    fn of(status: u16, body: Value) -> Self {
        Self { status, body, delay_ms: 0, retry_after_s: None, is_dropped: false }
    }
}

/// A stub as a model, in process and at once: `slow` costs no time, but is no answer in time.
#[derive(Debug, Clone)]
pub struct StubModel {
    script: StubScript,
    seed: u64,
}

impl StubModel {
    /// A stub of a script.
    #[must_use]
    pub fn new(script: StubScript, seed: u64) -> Self {
        Self { script, seed }
    }

    /// A stub that always behaves in one way.
    #[must_use]
    pub fn always(behaviour: StubBehaviour, seed: u64) -> Self {
        Self::new(StubScript { shares: [(behaviour, 1)].into(), ..StubScript::default() }, seed)
    }

    /// What it answers.
    ///
    /// # Errors
    /// As an endpoint that behaves so.
    pub fn answer(&self, request: &CompletionRequest) -> Result<Completion, CompletionError> {
        let body = request.to_body("stub", "max_tokens");
        let reply = reply(&self.script, self.seed, body.as_bytes(), &request.retry.to_string());
        if u128::from(reply.delay_ms) >= request.timeout.as_millis() {
            return Err(CompletionError::TimedOut);
        }
        if reply.is_dropped {
            return Err(CompletionError::Unreachable("the connection was lost".to_owned()));
        }
        let body = reply.body.to_string().into_bytes();
        let body = if body.len() > BODY_BYTES_MAX { Err(CompletionError::TooLarge) } else { Ok(body) };
        let retry_after_ms = reply.retry_after_s.map(|seconds| seconds.saturating_mul(1000));
        read_response(reply.status, retry_after_ms, request.form, body)
    }
}

impl Model for StubModel {
    fn complete(&self, request: CompletionRequest) -> BoxFuture<'static, Result<Completion, CompletionError>> {
        std::future::ready(self.answer(&request)).boxed()
    }
}

/// Answers a request. `retry` is how often the client says it has asked before.
#[must_use]
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
    let mut draws = StubDraws::new(seed, body, retry);
    let behaviour = draws.behaviour(script);
    let form = request["response_format"]["type"].as_str().unwrap_or("text");
    let is_unknown = (behaviour == StubBehaviour::NoJsonSchema && form == "json_schema")
        || (behaviour == StubBehaviour::NoResponseFormat && form != "text");
    if is_unknown {
        let message =
            format!("Invalid parameter: 'response_format' of type '{form}' is not supported with this model.");
        return StubReply::error(400, "invalid_request_error", None, Some("response_format"), &message);
    }
    if behaviour == StubBehaviour::RateLimited {
        let error =
            StubReply::error(429, "requests", Some("rate_limit_exceeded"), None, "Rate limit reached for requests.");
        return StubReply { retry_after_s: Some(script.retry_after_s), ..error };
    }
    if behaviour == StubBehaviour::Failed {
        let message = "The server had an error while processing your request.";
        return StubReply::error(500, "server_error", None, None, message);
    }
    let writer = StubWriter { script, is_first: behaviour == StubBehaviour::First };
    let message = writer.message(behaviour, &request, messages, &mut draws);
    let body = completion(&request, messages, &message, behaviour, &draws);
    let delay_ms = if behaviour == StubBehaviour::Slow { script.slow_ms } else { 0 };
    StubReply { delay_ms, is_dropped: behaviour == StubBehaviour::Drop, ..StubReply::of(200, body) }
}

fn completion(
    request: &Value,
    messages: &[Value],
    message: &Value,
    behaviour: StubBehaviour,
    draws: &StubDraws,
) -> Value {
    let length = |text: &Value| text.as_str().map_or(0, str::len);
    let input = messages.iter().map(|message| length(&message["content"])).sum::<usize>().div_ceil(TOKEN_BYTES);
    let output = (length(&message["content"]) + length(&message["refusal"])).div_ceil(TOKEN_BYTES);
    let finish = if behaviour == StubBehaviour::Truncated { "length" } else { "stop" };
    let mut body = json!({
        "id": format!("chatcmpl-{}", draws.id),
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "system_fingerprint": STUB_FINGERPRINT,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish }],
        "usage": { "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output },
    });
    if behaviour == StubBehaviour::NoUsage
        && let Some(members) = body.as_object_mut()
    {
        members.remove("usage");
    }
    body
}

/// Writes answers.
struct StubWriter<'a> {
    script: &'a StubScript,
    is_first: bool,
}

impl StubWriter<'_> {
    fn message(&self, behaviour: StubBehaviour, request: &Value, messages: &[Value], draws: &mut StubDraws) -> Value {
        let assistant =
            |content: Value, refusal: Value| json!({ "role": "assistant", "content": content, "refusal": refusal });
        let Some(whole) = schema_of(request, messages).or_else(|| self.any_schema(request)) else {
            return assistant("ok".into(), Value::Null);
        };
        let inside = inside(&whole);
        let schema = self.act(inside.unwrap_or(&whole), draws);
        let mut good = self.write("", schema, draws);
        if let Some(index) =
            self.script.prefer.as_deref().filter(|_| !self.is_first).and_then(|name| least(name, messages))
            && schema.pointer("/properties/choice").is_some()
        {
            good["choice"] = index.into();
        }
        if behaviour == StubBehaviour::Gullible {
            good = obeying(good, schema, messages);
        }
        let good = if inside.is_some() { json!({ "answer": good }) } else { good };
        let content = match behaviour {
            StubBehaviour::Refusal => return assistant(Value::Null, REFUSAL.into()),
            StubBehaviour::Junk => JUNK.to_owned(),
            StubBehaviour::Empty => String::new(),
            StubBehaviour::Huge => "x".repeat(HUGE_BYTES),
            StubBehaviour::Truncated => half(&good.to_string()),
            StubBehaviour::Fenced => format!("```json\n{good}\n```"),
            StubBehaviour::Thinking => format!("<think>Is {{}} enough? No.</think>\n{good}"),
            StubBehaviour::WrongType => blurred(good).to_string(),
            StubBehaviour::OutsideSchema => with_surplus(good).to_string(),
            StubBehaviour::OtherAct => json!({ "act": "accept", "award_no": 1 }).to_string(),
            StubBehaviour::Good
            | StubBehaviour::Gullible
            | StubBehaviour::Slow
            | StubBehaviour::RateLimited
            | StubBehaviour::Failed
            | StubBehaviour::Drop
            | StubBehaviour::NoJsonSchema
            | StubBehaviour::NoResponseFormat
            | StubBehaviour::NoUsage
            | StubBehaviour::First => good.to_string(),
        };
        assistant(content.into(), Value::Null)
    }

    /// Where JSON is asked for, and not which: the members that the script has.
    fn any_schema(&self, request: &Value) -> Option<Value> {
        let is_json = request["response_format"]["type"].as_str().is_some_and(|form| form != "text");
        let members = self.script.answer.keys().map(|name| (name.clone(), Value::Null));
        is_json.then(|| json!({ "type": "object", "properties": members.collect::<Map<_, _>>() }))
    }

    /// Of a choice of acts one that the script does not exclude: the first `act`, or a draw.
    fn act<'s>(&self, schema: &'s Value, draws: &mut StubDraws) -> &'s Value {
        let told = |(name, member): (&String, &Value)| match (self.script.answer.get(name), &member["enum"]) {
            (Some(StubValue::Text(text)), Value::Array(values)) => values.iter().any(|value| value == text),
            _ => true,
        };
        let is_told = |act: &&Value| act["properties"].as_object().is_some_and(|members| members.iter().all(told));
        let acts: Vec<&Value> = schema["anyOf"].as_array().into_iter().flatten().filter(is_told).collect();
        let is_first = self.is_first || acts.first().is_none_or(|act| act["properties"].get("act").is_some());
        acts.get(if is_first { 0 } else { draws.index(acts.len()) }).copied().unwrap_or(schema)
    }

    /// A value that fits a schema. What the script says of a number is in millionths.
    fn write(&self, name: &str, schema: &Value, draws: &mut StubDraws) -> Value {
        if let Some(said) = self.script.answer.get(name) {
            let value = scripted(said, draws);
            return if schema["type"] == "number" { millionths(&value) } else { value };
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
            "array" => {
                let most = schema["maxItems"].as_u64().unwrap_or(ITEMS_MAX).min(ITEMS_MAX);
                let count = draws.integer(0, i64::try_from(most).unwrap_or_default());
                (0..count).map(|_| self.write(name, &schema["items"], draws)).collect()
            }
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

/// The schema of what stands in an envelope, where there is one.
fn inside(schema: &Value) -> Option<&Value> {
    let sole = schema["properties"].as_object().filter(|members| members.len() == 1)?.get("answer")?;
    (sole["type"] == "object" || sole["anyOf"][0]["type"] == "object").then_some(sole)
}

/// A number of so many millionths.
fn millionths(value: &Value) -> Value {
    let Some(count) = value.as_i64() else { return value.clone() };
    serde_json::from_str(&decimal(count, DECIMALS_MAX)).unwrap_or_default()
}

/// What a script says of a member.
fn scripted(said: &StubValue, draws: &mut StubDraws) -> Value {
    match said {
        StubValue::Number(number) => (*number).into(),
        StubValue::Text(text) => text.as_str().into(),
        StubValue::Drawn { lo, hi } => draws.integer(*lo, *hi).into(),
        StubValue::List(items) => items.iter().map(|item| scripted(item, draws)).collect(),
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

/// Of the offers listed in the data, one JSON object on each line, the index of the one with the least of a term.
fn least(name: &str, messages: &[Value]) -> Option<i64> {
    let lines = messages.iter().filter_map(|message| message["content"].as_str()).flat_map(str::lines);
    let offers = lines.filter(|line| line.starts_with('{')).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let worth = offers.filter_map(|offer| Some((offer["terms"].get(name)?.as_f64()?, offer["index"].as_i64()?)));
    worth.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, index)| index)
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

/// As an instruction in the data wants it: of listed offers, or candidates, the one whose words hold it; numbers among the terms that
/// are no list of values become the first number behind it.
fn obeying(mut good: Value, schema: &Value, messages: &[Value]) -> Value {
    let lines: Vec<String> = messages
        .iter()
        .filter(|message| message["role"] == "user")
        .filter_map(|message| message["content"].as_str())
        .flat_map(str::lines)
        .map(readable)
        .collect();
    let Some((line, order)) =
        lines.iter().find_map(|line| ORDERS.iter().find_map(|order| line.find(order)).map(|order| (line, order)))
    else {
        return good;
    };
    if schema.pointer("/properties/choice").is_some() {
        if let Some(index) = first_number(line) {
            good["choice"] = index.into();
        }
        return good;
    }
    if schema.pointer("/properties/members").is_some() {
        if let Some(index) = first_number(line) {
            good["members"] = json!([index]);
        }
        return good;
    }
    let Some(number) = first_number(&line[order..]) else { return good };
    let terms = &schema["properties"]["terms"];
    let terms = terms["anyOf"].get(0).unwrap_or(terms)["properties"].clone();
    for (name, value) in good.get_mut("terms").and_then(Value::as_object_mut).into_iter().flatten() {
        if value.is_number() && terms[name]["enum"].is_null() {
            *value = number.into();
        }
    }
    good
}

fn first_number(text: &str) -> Option<i64> {
    let digits = text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().ok()
}

/// The text as a reader that wants to obey reads it: in lower case, without invisible characters, and base64 decoded too
/// where the feature of this name is on.
fn readable(text: &str) -> String {
    let visible: String = text
        .replace("\\u200b", "")
        .replace("\\u200d", "")
        .chars()
        .filter(|c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}'))
        .collect();
    format!("{visible} {}", decoded(&visible)).to_lowercase()
}

/// What stands in a text in base64.
#[cfg(feature = "base64")]
fn decoded(text: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    let is_code = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let words = text.split(|c| !is_code(c)).filter(|word| word.len() >= 12);
    words.filter_map(|word| String::from_utf8(STANDARD.decode(word).ok()?).ok()).collect()
}

#[cfg(not(feature = "base64"))]
fn decoded(_text: &str) -> &'static str {
    ""
}

/// Draws of one request.
struct StubDraws {
    id: String,
    digest: Digest,
    count: u32,
}

impl StubDraws {
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

    fn behaviour(&mut self, script: &StubScript) -> StubBehaviour {
        let sum: u64 = script.shares.values().map(|share| u64::from(*share)).sum();
        let mut left = self.next() % sum.max(1);
        for (behaviour, share) in &script.shares {
            let share = u64::from(*share);
            if left < share {
                return *behaviour;
            }
            left -= share;
        }
        StubBehaviour::Good
    }
}

#[cfg(test)]
mod tests;
