//! The kinds of task of the network, and the texts that agents exchange for them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A field of a task's input or output.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskField {
    /// Its name.
    name: String,
    /// What it is, with its unit or format.
    text: String,
    /// What it can be.
    values: FieldValues,
}

/// What a field can be.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FieldValues {
    /// One of these.
    Words(Vec<String>),
    /// One of the words of this list.
    List(String),
    /// An integer of this range.
    Integer(i64, i64),
    /// A day of 2025.
    Day,
}

/// A kind of task.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskKind {
    /// Its name, which a document for it bears too.
    pub name: String,
    /// What is wanted, in a sentence.
    pub text: String,
    /// The tool of the service that does it.
    tool: String,
    input: Vec<TaskField>,
    output: Vec<TaskField>,
}

/// The lists of words that fields share, and the kinds.
#[derive(Deserialize)]
struct TaskTable {
    lists: BTreeMap<String, Vec<String>>,
    task: Vec<TaskKind>,
}

static TABLE: LazyLock<TaskTable> =
    LazyLock::new(|| toml::from_str(include_str!("texts/tasks.toml")).expect("a table of tasks"));

/// The kinds of task of the network.
pub fn tasks() -> &'static [TaskKind] {
    &TABLE.task
}

impl TaskField {
    /// The words it can be.
    fn words(&self) -> &[String] {
        match &self.values {
            FieldValues::Words(words) => words,
            FieldValues::List(name) => TABLE.lists[name].as_slice(),
            FieldValues::Integer(..) | FieldValues::Day => &[],
        }
    }

    fn drawn(&self, random: &mut ChaCha12Rng) -> Value {
        match self.values {
            FieldValues::Words(_) | FieldValues::List(_) => {
                let words = self.words();
                words.get(random.random_range(0..words.len())).cloned().into()
            }
            FieldValues::Integer(from, to) => random.random_range(from..=to).into(),
            FieldValues::Day => {
                format!("2025-{:02}-{:02}", random.random_range(1..=12), random.random_range(1..=28)).into()
            }
        }
    }

    fn schema(&self) -> Value {
        let kind = if matches!(self.values, FieldValues::Integer(..)) { "integer" } else { "string" };
        json!({"type": kind, "description": self.text})
    }
}

fn object(fields: &[TaskField], of: impl FnMut(&TaskField) -> Value) -> Map<String, Value> {
    fields.iter().map(|field| field.name.clone()).zip(fields.iter().map(of)).collect()
}

fn schema(fields: &[TaskField]) -> Value {
    let required: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    json!({"type": "object", "properties": object(fields, TaskField::schema), "required": required})
}

/// One task: its data, and what the service finds out.
#[derive(Debug, Clone)]
pub struct TaskData {
    input: Map<String, Value>,
    output: Map<String, Value>,
}

impl TaskKind {
    /// Data of one task of this kind.
    pub fn drawn(&self, random: &mut ChaCha12Rng) -> TaskData {
        let input = object(&self.input, |field| field.drawn(random));
        let output = object(&self.output, |field| field.drawn(random));
        TaskData { input, output }
    }

    /// The task as an initiator's model is told of it, without its data.
    pub fn described(&self) -> String {
        let (text, input, output) = (&self.text, schema(&self.input), schema(&self.output));
        format!("Task: {text}\nInput schema: {input:#}\nOutput schema: {output:#}\n")
    }

    /// The tool as a responder's model is told of it.
    pub fn tool_described(&self) -> String {
        let function = json!({
            "name": self.tool, "description": self.text, "parameters": schema(&self.input), "returns": schema(&self.output),
        });
        format!("Tool: {function:#}\n")
    }

    /// What an initiator writes to a responder.
    pub fn asked(&self, data: &TaskData) -> String {
        let line =
            |TaskField { name, text, .. }: &TaskField| format!("- {name} ({text}): {}", shown(data.input.get(name)));
        let given: Vec<String> = self.input.iter().map(line).collect();
        let wanted: Vec<&str> = self.output.iter().map(|field| field.text.as_str()).collect();
        format!(
            "Hello! I would like to ask for your help with the following: {}\n\nHere is what you need to know:\n{}\n\nPlease \
             tell me: {}. If anything is missing or not clear, please ask. Thank you!",
            self.text,
            given.join("\n"),
            wanted.join("; ")
        )
    }

    /// What a responder writes back.
    pub fn answered(&self, data: &TaskData) -> String {
        let line = |TaskField { name, text, .. }: &TaskField| format!("- {text}: {}", shown(data.output.get(name)));
        let found: Vec<String> = self.output.iter().map(line).collect();
        format!(
            "Thank you for your request. Here is what I found:\n{}\n\nPlease let me know if you need more.",
            found.join("\n")
        )
    }

    /// The call of the tool.
    pub fn tool_call(&self, data: &TaskData) -> String {
        json!({"name": self.tool, "arguments": data.input}).to_string()
    }

    /// The document that two agents agree on, which names them.
    pub fn document(&self, initiator: &str, responder: &str) -> String {
        let members = |fields: &[TaskField]| {
            let line = |field: &TaskField| {
                let kind = if matches!(field.values, FieldValues::Integer(..)) { "integer" } else { "text" };
                format!("- `{}` ({kind}): {}\n", field.name, field.text)
            };
            fields.iter().map(line).collect::<String>()
        };
        let example = |fields: &[TaskField]| Value::Object(object(fields, TaskField::example));
        let (name, text) = (&self.name, &self.text);
        format!(
            "---\nname: {name}\ndescription: {text}\nmultiround: false\n---\n\nAgreed by {initiator} and {responder}.\n\n# Request\n\n\
             The body is a JSON object with exactly these members:\n\n{}\nExample:\n\n{}\n\n# Answer\n\nThe body is a JSON object \
             with exactly these members:\n\n{}\nExample:\n\n{}\n\n# Errors\n\nA request that is no such object, lacks a member or \
             has one of another type is answered by a JSON object with the one member `error` (text), which names the member. \
             If the service cannot find an answer, every member of the answer is null. Nothing else is sent.\n",
            members(&self.input),
            example(&self.input),
            members(&self.output),
            example(&self.output)
        )
    }

    /// What a model says of a document for the task, field by field, with its verdict at the end.
    pub fn considered(&self, suits: bool) -> String {
        let found = if suits { "has it under the same name and of the same type" } else { "says nothing of it" };
        let considered = [&self.input, &self.output]
            .map(|fields| lines(fields, |name| format!("- {name}: the document {found}.\n")));
        format!("{}{}", considered.concat(), if suits { "YES" } else { "NO" })
    }

    /// The routine of an initiator.
    pub fn initiator_routine(&self) -> String {
        let sent = lines(&self.input, |name| format!("        \"{name}\": task_data[\"{name}\"],\n"));
        let read = lines(&self.output, |name| format!("        \"{name}\": answer[\"{name}\"],\n"));
        format!(
            "import json\n\n\ndef send_query(task_data: dict) -> dict:\n    request = {{\n{sent}    }}\n    answer = \
             json.loads(send_to_server(json.dumps(request)))\n    if not isinstance(answer, dict):\n        raise ValueError(\"the \
             answer is no object\")\n    if \"error\" in answer:\n        raise ValueError(answer[\"error\"])\n    return {{\n{read}    }}\n"
        )
    }

    /// The routine of a responder.
    pub fn responder_routine(&self) -> String {
        let checks = self.input.iter().map(|field| {
            let (name, kind) =
                (&field.name, if matches!(field.values, FieldValues::Integer(..)) { "int" } else { "str" });
            format!("    if not isinstance(request.get(\"{name}\"), {kind}):\n        return json.dumps({{\"error\": \"{name}\"}})\n")
        });
        let arguments = lines(&self.input, |name| format!("{name}=request[\"{name}\"], "));
        let answer = lines(&self.output, |name| format!("        \"{name}\": found.get(\"{name}\"),\n"));
        let (tool, checks) = (&self.tool, checks.collect::<String>());
        format!(
            "import json\n\n\ndef reply(query: str) -> str:\n    try:\n        request = json.loads(query)\n    except ValueError:\n        \
             return json.dumps({{\"error\": \"the body\"}})\n    if not isinstance(request, dict):\n        return \
             json.dumps({{\"error\": \"the body\"}})\n{checks}    found = {tool}({})\n    return json.dumps({{\n{answer}    }})\n",
            arguments.trim_end_matches(", ")
        )
    }
}

impl TaskField {
    fn example(&self) -> Value {
        match self.values {
            FieldValues::Words(_) | FieldValues::List(_) => self.words().first().cloned().into(),
            FieldValues::Integer(from, _) => from.into(),
            FieldValues::Day => "2025-03-01".into(),
        }
    }
}

impl TaskData {
    /// The data as they are in a task.
    pub fn input(&self) -> String {
        json!(self.input).to_string()
    }

    /// What the initiator delivers in the end.
    pub fn output(&self) -> String {
        json!(self.output).to_string()
    }
}

fn lines(fields: &[TaskField], line: impl Fn(&str) -> String) -> String {
    fields.iter().map(|field| line(&field.name)).collect()
}

fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    }
}
