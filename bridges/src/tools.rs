//! The tools: one table for every protocol. Names, schemas and descriptions are in `tools.json`, as MCP writes them.
//!
//! | module | is |
//! |---|---|
//! | `message` | arguments → the message they mean |
//! | `answer` | what was heard → the answer of a tool |

pub mod answer;
pub mod message;

use std::sync::LazyLock;

use schemas::Code;
use schemas::Refusal;
use schemas::validate::Schema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Arguments of a tool.
pub type Arguments = Map<String, Value>;

/// Tools that are switched on together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSet {
    /// Find agents, call for offers, follow.
    Call,
    /// Be available, offer, confirm, report.
    Answer,
    /// Bargain.
    Bargain,
    /// Form a team, speak, share out tasks.
    Team,
    /// Ask a panel, answer one.
    Panel,
    /// Protocol documents, and requests to one agent.
    Documents,
}

impl ToolSet {
    /// Those that are on unless others are named: what fits the attention of a model.
    pub const DEFAULT: [Self; 3] = [Self::Call, Self::Answer, Self::Bargain];
    /// All.
    pub const ALL: [Self; 6] = [Self::Call, Self::Answer, Self::Bargain, Self::Team, Self::Panel, Self::Documents];

    /// The set of this name.
    ///
    /// # Errors
    /// Which names there are.
    pub fn try_new(name: &str) -> Result<Self, String> {
        Self::deserialize(Value::from(name))
            .map_err(|_| "one of call, answer, bargain, team, panel, documents is expected".to_owned())
    }
}

/// One tool.
pub struct Tool {
    /// Its set.
    pub set: ToolSet,
    /// Its name.
    pub name: &'static str,
    /// Name, title, description, input schema and annotations, as MCP writes a tool.
    pub listed: Map<String, Value>,
    schema: Schema,
}

/// Every tool, in the order in which they are listed.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let listed: Vec<Map<String, Value>> =
        serde_json::from_str(include_str!("../tools.json")).expect("tools.json is a list of objects: a test reads it");
    listed.into_iter().map(Tool::new).collect()
});

/// The tools of these sets, in their order.
pub fn of(sets: &[ToolSet]) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(|tool| sets.contains(&tool.set))
}

impl Tool {
    fn new(mut listed: Map<String, Value>) -> Self {
        let set = listed.remove("set").unwrap_or_default();
        let name = listed.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            set: ToolSet::deserialize(set).expect("tools.json names sets that are known: a test reads it"),
            name: name.leak(),
            schema: Schema::try_new(&listed["inputSchema"])
                .expect("schemas of tools.json are valid: a test reads them"),
            listed,
        }
    }

    /// The tool of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Checks arguments against the tool's schema.
    ///
    /// # Errors
    /// The first fault, with its pointer into the arguments.
    pub fn check(&self, arguments: &Value) -> Result<(), Refusal> {
        self.schema.check(arguments).map_err(|refusal| {
            if refusal.code != Code::UnknownField || refusal.expected.is_some() {
                return refusal;
            }
            let members = self.listed["inputSchema"]["properties"].as_object();
            let names = members.into_iter().flat_map(Map::keys).map(String::as_str);
            refusal.expecting(names.collect::<Vec<_>>().join(", "))
        })
    }
}

/// Puts an empty object, which schema or gateway refuses, where a number stands that is no integer: nothing is rounded.
pub fn drop_fractions(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => *value = json!({}),
        Value::Array(values) => values.iter_mut().for_each(drop_fractions),
        Value::Object(members) => members.values_mut().for_each(drop_fractions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
