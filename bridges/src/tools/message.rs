//! Arguments of a tool that speaks → the message they mean.

use schemas::ids::IdError;
use schemas::{AgentId, Code, Digest, MsgId, NegotiationId, Refusal};
use serde_json::{Value, json};

use super::Arguments;
use crate::memory::{AskedBy, NegotiationMemory};

/// Time contractors and parties have to answer a call, in ms, unless the caller says otherwise: a model needs seconds.
pub const REPLY_WITHIN_MS: u64 = 30_000;
/// Time to join a bargain or a team, in ms, unless the caller says otherwise.
pub const JOIN_WITHIN_MS: u64 = 60_000;
/// Time for a turn of a bargain and for the silence of who holds a team's floor, in ms, unless the caller says otherwise.
pub const STEP_MS: u64 = 120_000;
/// Time for a panel's answer, and for a vote of a team, in ms, unless the caller says otherwise.
pub const ANSWER_MS: u64 = 60_000;
/// Hard end of a team, in ms: 32 turns of models.
const TEAM_MS: u64 = 3_600_000;
/// Rounds of a bargain for which neither rounds nor a deadline are named.
const ROUNDS: u64 = 20;
/// The policy whose own times are those of models.
const PATIENT: &str = "patient";
/// `ts` of every message: the same on every repeat and at every process, without which it is a `conflict`.
const EPOCH: &str = "1970-01-01T00:00:00Z";
/// Characters of a derived message id beside its prefix: 172 bits.
pub const DERIVED_ID_CHARS: usize = 43;

/// Limits of calls that hold whatever a model was told.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Highest price of every call, in micro-units.
    pub price_max: Option<i64>,
    /// Currency of every call.
    pub currency: Option<String>,
    /// A bargain is opened and joined under a mandate only.
    pub requires_mandate: bool,
}

impl Limits {
    /// Holds a payload to the limits: a call gets the highest price as a gate, and the currency.
    ///
    /// # Errors
    /// [`Code::NotAllowed`], its pointer into the payload.
    fn hold(&self, payload: &mut Arguments, is_of_team: bool) -> Result<(), Refusal> {
        let act = payload.get("act").and_then(Value::as_str).unwrap_or_default();
        if payload.contains_key("bargain") || (act == "join" && !is_of_team) {
            return self.require_mandate(payload);
        }
        if act == "cfp" && !payload.contains_key("team") && !payload.contains_key("panel") {
            return self.hold_call(payload);
        }
        let tasks = payload.get("tasks").and_then(Value::as_array);
        let by_award = tasks.and_then(|tasks| tasks.iter().position(|task| task["owner"].is_null()));
        if let Some(place) = by_award.filter(|_| self.price_max.is_some()) {
            let expected = "a member: this bridge has a highest price, and a task by award has none";
            return Err(not_allowed(&format!("/tasks/{place}/owner"), expected.to_owned()));
        }
        Ok(())
    }

    fn hold_call(&self, cfp: &mut Arguments) -> Result<(), Refusal> {
        if let Some(currency) = &self.currency {
            let named = cfp.insert("currency".to_owned(), json!(currency));
            if named.is_some_and(|named| named != json!(currency)) {
                return Err(not_allowed("/currency", currency.clone()));
            }
        }
        let Some(limit) = self.price_max else { return Ok(()) };
        // Beside a gate of the caller's: an offer must pass both.
        let gates = cfp.entry("gates").or_insert_with(|| json!([]));
        gates.as_array_mut().into_iter().for_each(|gates| gates.push(price_gate(limit)));
        Ok(())
    }

    fn require_mandate(&self, payload: &Arguments) -> Result<(), Refusal> {
        let binds = payload.get("mandate").is_some_and(|mandate| {
            let has_limits = mandate["limits"].as_array().is_some_and(|limits| !limits.is_empty());
            has_limits || mandate["reservation"].as_u64().is_some_and(|reservation| reservation > 0)
        });
        if self.requires_mandate && !binds {
            let expected = "a mandate with limits or a reservation value: bargains are under one only";
            return Err(not_allowed("/mandate", expected.to_owned()));
        }
        Ok(())
    }
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its id: the same for the same call of the tool.
    pub id: MsgId,
    /// Whether its sender named it: then a repeat may be of an act long past.
    pub is_named: bool,
    /// Full id of its negotiation.
    pub negotiation: NegotiationId,
    /// Envelope and payload.
    pub document: Value,
}

/// The negotiation that arguments name.
///
/// # Errors
/// [`Code::BadFormat`].
pub fn negotiation(arguments: &Arguments) -> Result<NegotiationId, Refusal> {
    let text = arguments.get("negotiation").and_then(Value::as_str).unwrap_or_default();
    NegotiationId::try_new(text).map_err(|error| id_fault(&error, "/negotiation"))
}

/// The message that a call of a tool that opens a negotiation means.
///
/// # Errors
/// A limit that is broken ([`Code::NotAllowed`]), or an id of no negotiation.
pub fn opening(agent: &AgentId, tool: &str, mut arguments: Arguments, limits: &Limits) -> Result<Message, Refusal> {
    arguments.remove("wait_ms");
    let own = arguments.remove("id").and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    let negotiation = NegotiationId::form(agent, &own).map_err(|error| id_fault(&error, "/id"))?;
    let id = MsgId::try_new(&own).map_err(|error| id_fault(&error, "/id"))?;
    let to = arguments.remove("to").or_else(|| arguments.remove("with")).unwrap_or_default();
    let to: Vec<String> = to.as_array().into_iter().flatten().filter_map(Value::as_str).map(address).collect();
    let mut scope = json!({"consent": "opt-in"});
    if arguments.remove("absent") == Some(Value::Bool(true)) {
        scope["absent"] = Value::Bool(true);
    }
    let mut envelope = envelope(agent, &id, &own);
    envelope.extend([("to".to_owned(), json!(to)), ("scope".to_owned(), scope)]);
    envelope.extend(arguments.remove("capabilities").map(|names| ("capabilities".to_owned(), names)));
    let mut payload = match tool {
        "bargain" => bargain(arguments),
        "form_team" => team(arguments),
        "ask_panel" => panel(arguments),
        _ => call(arguments, limits)?,
    };
    limits.hold(&mut payload, false)?;
    Ok(Message { id, is_named: true, negotiation, document: json!({"envelope": envelope, "payload": payload}) })
}

/// The message that a call of another tool that speaks means, to a negotiation of which `known` was heard.
///
/// # Errors
/// As [`opening`].
pub fn act(
    agent: &AgentId,
    tool: &str,
    mut arguments: Arguments,
    known: Option<&NegotiationMemory>,
    limits: &Limits,
) -> Result<Message, Refusal> {
    let negotiation = negotiation(&arguments)?;
    arguments.remove("negotiation");
    let asked = known.and_then(|known| known.asked.get(tool)).copied();
    let given = arguments.remove("request_id");
    let id = match given.as_ref().and_then(Value::as_str) {
        Some(given) => given.to_owned(),
        None => {
            let derive = |after: Option<&MsgId>| derived_id(&negotiation, tool, &arguments, (asked, after));
            let [before, last] = known.map_or([None, None], |known| known.acts.each_ref().map(Option::as_ref));
            // The last act made again is that act; after another one it is a new one.
            Some(derive(before))
                .filter(|id| last.is_some_and(|last| last.as_str() == id))
                .unwrap_or_else(|| derive(last))
        }
    };
    let id = MsgId::try_new(&id).map_err(|error| id_fault(&error, "/request_id"))?;
    let envelope = envelope(agent, &id, negotiation.as_str());
    let payload = payload(tool, arguments, (known, asked), limits)?;
    let is_named = given.is_some();
    Ok(Message { id, is_named, negotiation, document: json!({"envelope": envelope, "payload": payload}) })
}

/// The message that a request of another protocol means (schema `request`): a call that opens `negotiation`, or an act in it.
///
/// # Errors
/// A limit that is broken, its pointer into the message.
pub fn request(
    agent: &AgentId,
    (negotiation, id): (NegotiationId, MsgId),
    mut request: Arguments,
    known: Option<&NegotiationMemory>,
    limits: &Limits,
) -> Result<Message, Refusal> {
    let Some(Value::Object(mut payload)) = request.remove("payload") else {
        return Err(Refusal::new(Code::MissingField, "a payload is expected").at("/payload"));
    };
    limits.hold(&mut payload, known.is_some_and(|known| known.is_team)).map_err(|mut refusal| {
        refusal.pointer = refusal.pointer.map(|pointer| format!("/payload{pointer}"));
        refusal
    })?;
    let mut envelope = envelope(agent, &id, negotiation.as_str());
    if payload.get("act").is_some_and(|act| act == "cfp") {
        envelope.insert("scope".to_owned(), json!({"consent": "opt-in"}));
    }
    envelope.extend(request);
    Ok(Message { id, is_named: true, negotiation, document: json!({"envelope": envelope, "payload": payload}) })
}

fn payload(
    tool: &str,
    mut payload: Arguments,
    (known, asked): (Option<&NegotiationMemory>, Option<AskedBy>),
    limits: &Limits,
) -> Result<Arguments, Refusal> {
    let name = match tool {
        "leave" => "end",
        "report" => return Ok(report(payload)),
        name => name,
    };
    match tool {
        "offer" => {
            payload.remove("confirm");
            payload.extend(asked.and_then(|asked| asked.round).map(|round| ("round".to_owned(), json!(round))));
        }
        "join" => spell_mandate(&mut payload),
        "say" | "assign" | "pause" | "conclude" => {
            payload.extend(asked.and_then(|asked| asked.turn).map(|turn| ("turn".to_owned(), json!(turn))));
            if tool == "assign" {
                payload.entry("mode").or_insert_with(|| json!("async"));
            }
        }
        "answer" => spell_answer(&mut payload),
        _ => {}
    }
    payload.insert("act".to_owned(), json!(name));
    limits.hold(&mut payload, known.is_some_and(|known| known.is_team))?;
    Ok(payload)
}

/// A seat without an opinion says so; a reviewer's empty text is none.
fn spell_answer(payload: &mut Arguments) {
    if !payload.contains_key("order") && !payload.contains_key("reviews") {
        payload.entry("answer").or_insert(Value::Null);
    }
    for review in payload.get_mut("reviews").and_then(Value::as_array_mut).into_iter().flatten() {
        if review.as_str() == Some("") {
            *review = Value::Null;
        }
    }
}

fn report(mut arguments: Arguments) -> Arguments {
    let mut payload = Arguments::new();
    if let Some(code) = arguments.remove("failed") {
        payload.extend(members(json!({"act": "failure", "phase": "perform", "code": code})));
    } else if arguments.remove("stopped") == Some(Value::Bool(true)) {
        payload.extend(members(json!({"act": "inform", "kind": "cancelled"})));
    } else {
        payload.extend(members(json!({"act": "inform", "kind": "done"})));
        payload.extend(arguments.remove("result").map(|result| ("result".to_owned(), result)));
    }
    payload
}

fn call(mut cfp: Arguments, limits: &Limits) -> Result<Arguments, Refusal> {
    let named = cfp.remove("price_max").and_then(|max| max.as_i64());
    if let Some(limit) = limits.price_max.filter(|limit| named.is_some_and(|named| named > *limit)) {
        return Err(not_allowed("/price_max", format!("at most {limit}")));
    }
    if let Some(max) = named {
        cfp.insert("gates".to_owned(), json!([price_gate(max)]));
    }
    if cfp.get("policy").and_then(Value::as_str) != Some(PATIENT) {
        cfp.entry("reply_within_ms").or_insert(json!(REPLY_WITHIN_MS));
    }
    if let Some(hashes) = cfp.remove("documents") {
        cfp.insert("documents".to_owned(), json!({"hashes": hashes}));
    }
    cfp.insert("act".to_owned(), json!("cfp"));
    Ok(cfp)
}

fn bargain(mut cfp: Arguments) -> Arguments {
    let mut rules = Arguments::new();
    for rule in ["issues", "rounds", "deadline_ms", "step_ms", "confirm_ms"] {
        rules.extend(cfp.remove(rule).map(|value| (rule.to_owned(), value)));
    }
    rules.entry("step_ms").or_insert(json!(STEP_MS));
    if !rules.contains_key("deadline_ms") {
        rules.entry("rounds").or_insert(json!(ROUNDS));
    }
    spell_mandate(&mut cfp);
    cfp.entry("reply_within_ms").or_insert(json!(JOIN_WITHIN_MS));
    cfp.extend(members(json!({"act": "cfp", "bargain": rules})));
    cfp
}

fn team(mut arguments: Arguments) -> Arguments {
    let mut rules = members(json!({"speak_ms": STEP_MS, "ends_within_ms": TEAM_MS}));
    for rule in ["turns", "speak_ms", "depth"] {
        rules.extend(arguments.remove(rule).map(|value| (rule.to_owned(), value)));
    }
    let seats = [("min", "members_min"), ("max", "members_max")];
    let seats: Arguments =
        seats.into_iter().filter_map(|(seat, named)| Some((seat.to_owned(), arguments.remove(named)?))).collect();
    if !seats.is_empty() {
        rules.insert("members".to_owned(), Value::Object(seats));
    }
    if let Some(of) = arguments.remove("vote") {
        rules.insert("vote".to_owned(), json!({"of": of, "vote_ms": ANSWER_MS}));
    }
    let mut cfp = members(json!({"act": "cfp", "team": rules, "reply_within_ms": JOIN_WITHIN_MS}));
    cfp.insert("task".to_owned(), arguments.remove("goal").unwrap_or_default());
    cfp.extend(arguments.remove("policy").map(|policy| ("policy".to_owned(), policy)));
    cfp
}

fn panel(mut arguments: Arguments) -> Arguments {
    let mut rules = members(json!({"answer_ms": ANSWER_MS}));
    for rule in ["domain", "rounds", "answer_ms"] {
        rules.extend(arguments.remove(rule).map(|value| (rule.to_owned(), value)));
    }
    if let Some(options) = arguments.remove("options") {
        rules.insert("answer".to_owned(), json!({"kind": "choice", "options": options}));
    }
    let question = arguments.remove("question").unwrap_or_default();
    members(json!({"act": "cfp", "task": question, "panel": rules}))
}

fn price_gate(max: i64) -> Value {
    json!({"attr": "price", "max": max, "required": true})
}

/// A mandate as the schemas have it: a text to compare with is a value, worths of all issues are a linear utility.
fn spell_mandate(arguments: &mut Arguments) {
    let Some(mandate) = arguments.get_mut("mandate").and_then(Value::as_object_mut) else { return };
    for limit in mandate.get_mut("limits").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(limit) = limit.as_object_mut()
            && let Some(text) = limit.remove("text")
        {
            limit.insert("value".to_owned(), text);
        }
    }
    if let Some(worths) = mandate.remove("utility") {
        mandate.insert("utility".to_owned(), json!({"linear": worths}));
    }
}

/// Where a fault of a message is in the arguments that made it.
pub fn pointer_into_arguments(tool: &str, pointer: &str) -> String {
    let inner =
        ["/payload/bargain", "/payload/team", "/payload/panel/answer", "/payload/panel", "/payload", "/envelope"];
    let place = inner.into_iter().find_map(|outer| pointer.strip_prefix(outer).filter(|rest| rest.starts_with('/')));
    let place = place.unwrap_or(pointer);
    match (tool, place) {
        ("bargain", place) if place.starts_with("/to") => format!("/with{}", &place[3..]),
        ("form_team", "/task") => "/goal".to_owned(),
        ("ask_panel", "/task") => "/question".to_owned(),
        (_, place) if place.starts_with("/gates") => "/price_max".to_owned(),
        (_, "/msg_id") if tool == "call_for_offers" => "/id".to_owned(),
        (_, place) => place.replacen("/utility/linear", "/utility", 1),
    }
}

fn envelope(agent: &AgentId, id: &MsgId, negotiation: &str) -> Arguments {
    members(json!({
        "from": format!("agent://{agent}"), "msg_id": id, "negotiation": negotiation, "receipt": true, "ts": EPOCH
    }))
}

/// A message id that follows from the call of the tool: asked for again, it is the same message.
fn derived_id(
    negotiation: &NegotiationId,
    tool: &str,
    arguments: &Arguments,
    (asked, after): (Option<AskedBy>, Option<&MsgId>),
) -> String {
    let asked = asked.map(|asked| asked.delivery);
    format!("m-{}", digits(&json!([negotiation, tool, arguments, asked, after]), DERIVED_ID_CHARS))
}

/// So many hexadecimal digits of the digest of a document.
pub fn digits(document: &Value, count: usize) -> String {
    let digest = Digest::of(document).map(|digest| digest.to_string()).unwrap_or_default();
    digest.chars().take(count).collect()
}

/// An address; a name alone is an agent's.
fn address(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("agent://{text}") }
}

fn not_allowed(pointer: &str, expected: String) -> Refusal {
    Refusal::new(Code::NotAllowed, "the limits of this bridge do not allow it").at(pointer).expecting(expected)
}

fn id_fault(error: &IdError, pointer: &str) -> Refusal {
    Refusal::new(Code::BadFormat, error.to_string()).at(pointer)
}

fn members(value: Value) -> Arguments {
    if let Value::Object(members) = value { members } else { Arguments::new() }
}
