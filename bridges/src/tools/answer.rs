//! What was heard → the answer of a tool.

use schemas::NegotiationId;
use schemas::delivery::{Notification, ProgressReport};
use schemas::text::is_visible;
use serde_json::{Map, Value, json};

use crate::memory::todo::Todo;
use crate::memory::{Item, Memory, NegotiationMemory};

/// How a negotiation stands of which this was `heard`: the gateway's view, what is new after item `after`, results, and what may
/// be done now with tools that are on.
pub fn negotiation(
    memory: &Memory,
    (negotiation, heard): (&NegotiationId, &[&Item]),
    (view, after): (Option<Value>, u64),
    is_on: impl Fn(&str) -> bool,
) -> Value {
    let known = memory.known(negotiation);
    let outcome = view.as_ref().and_then(|view| view.get("outcome").cloned());
    let outcome = outcome.or_else(|| known.and_then(|known| known.outcome).map(|outcome| json!(outcome)));
    let state = view.as_ref().and_then(|view| view.get("state").cloned());
    let state = state.unwrap_or_else(|| json!(if outcome.is_some() { "ended" } else { "unknown" }));
    let news: Vec<Value> = heard.iter().filter(|item| item.n > after).map(|heard| item(heard)).collect();
    let results: Vec<Value> = heard.iter().filter_map(|item| result(item)).collect();
    let todo = known.and_then(NegotiationMemory::asked_of_client).filter(|_| outcome.is_none());
    let todo: Vec<Value> = todo.and_then(|todo| may_do(todo, is_on)).into_iter().collect();
    let mut answer = Map::new();
    answer.insert("negotiation".to_owned(), json!(negotiation));
    answer.insert("state".to_owned(), state);
    answer.extend(outcome.map(|outcome| ("outcome".to_owned(), outcome)));
    answer.insert("cursor".to_owned(), json!(memory.cursor(memory.newest())));
    answer.extend(view.map(|view| ("view".to_owned(), escaped(view))));
    answer.insert("results".to_owned(), json!(results));
    answer.insert("news".to_owned(), json!(news));
    answer.insert("todo".to_owned(), json!(todo));
    if memory.lost() > 0 {
        answer.insert("lost".to_owned(), json!(memory.lost()));
    }
    Value::Object(answer)
}

/// What asks for something after item `after`, at most `limit` items.
pub fn inbox(memory: &Memory, after: u64, limit: usize, is_on: impl Fn(&str) -> bool) -> Value {
    let asking = memory.asking(after);
    let (mut items, mut last) = (Vec::new(), memory.newest().max(after));
    for (place, (heard, todo)) in asking.into_iter().enumerate() {
        if place == limit {
            break;
        }
        let mut one = item(heard);
        one["negotiation"] = json!(heard.delivery.envelope.negotiation);
        one["todo"] = json!(may_do(todo, &is_on).into_iter().collect::<Vec<_>>());
        items.push(one);
        last = if place + 1 == limit { heard.n } else { last };
    }
    json!({"cursor": memory.cursor(last), "items": items, "lost": memory.lost()})
}

fn item(item: &Item) -> Value {
    let (envelope, payload) = (&item.delivery.envelope, &item.delivery.payload);
    json!({"n": item.n, "act": payload.act(), "from": envelope.from, "ts": envelope.ts, "payload": escaped(json!(payload))})
}

fn result(item: &Item) -> Option<Value> {
    let Notification::Inform(ProgressReport::Done(done) | ProgressReport::Result(done)) = &item.delivery.payload else {
        return None;
    };
    let text = done.result.as_deref().map(visible);
    Some(json!({"award_no": done.award_no, "contractor": done.contractor, "text": text}))
}

fn may_do(todo: &Todo, is_on: impl Fn(&str) -> bool) -> Option<Value> {
    let tools: Vec<&str> = todo.tools.iter().copied().filter(|tool| is_on(tool)).collect();
    let mut one = json!({"tools": tools, "because": todo.because});
    if let Some(by) = todo.by {
        one["by"] = json!(by);
    }
    (!tools.is_empty()).then_some(one)
}

/// A document whose texts hide nothing from their reader.
pub fn escaped(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(visible(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(escaped).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (visible(&name), escaped(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => document,
    }
}

/// A text in which control, bidirectional and zero-width characters are written out, as in prompts. Line breaks stay.
fn visible(text: &str) -> String {
    if text.chars().all(|one| is_visible(one) || one == '\n') {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for one in text.chars() {
        if is_visible(one) || one == '\n' {
            shown.push(one);
        } else {
            shown.extend(one.escape_unicode());
        }
    }
    shown
}
