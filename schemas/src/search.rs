//! Searches for agents (docs/spec/search.md): what is asked, what is found.

use serde::{Deserialize, Serialize};

use crate::control::{AgentKind, Tag};
use crate::ids::{AgentId, Capability, TopicName};
use crate::terms::number;

/// Most texts searched for at once.
pub const QUERIES_MAX: usize = 8;
/// Longest text searched for, in characters.
pub const QUERY_LEN_MAX: usize = 512;
/// Hits of a text where none are asked for.
pub const HITS_DEFAULT: u32 = 3;
/// Most hits of a text on one page.
pub const HITS_MAX: u32 = 100;
/// Most hits of a text on all pages.
pub const DEPTH_MAX: u32 = 1000;
/// Longest cursor, in characters.
pub const CURSOR_LEN_MAX: usize = 256;

/// What is searched for: `POST /v1/search`.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// Texts, each searched for by itself.
    pub queries: Vec<String>,
    /// Most hits of each text.
    #[serde(default = "number::<_, HITS_DEFAULT>")]
    pub limit: u32,
    /// Only agents that have all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// Only agents that have all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Only agents that subscribe to this topic.
    pub topic: Option<TopicName>,
    /// Only agents of this kind.
    pub kind: Option<AgentKind>,
    /// Whether only agents that are present are wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub present: bool,
    /// Whether only agents whose consent lets a team call of the caller through are wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reachable: bool,
    /// Where the page before ended; with one text only.
    pub cursor: Option<String>,
}

impl SearchRequest {
    /// A search for texts, without filters.
    #[must_use]
    pub fn of_texts(queries: Vec<String>) -> Self {
        Self {
            queries,
            limit: HITS_DEFAULT,
            capabilities: Vec::new(),
            tags: Vec::new(),
            topic: None,
            kind: None,
            present: false,
            reachable: false,
            cursor: None,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchAnswer {
    /// The hits of the first text, best first, then those of the second that the first has not found, and so on.
    pub hits: Vec<SearchHit>,
    /// The cursor of the page behind this one; absent at the end and with several texts.
    pub next: Option<String>,
}

/// One agent that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchHit {
    /// The agent.
    pub agent: AgentId,
    /// What it is.
    pub kind: AgentKind,
    /// What it says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// What it can do.
    pub capabilities: Vec<Capability>,
    /// Which text found it first, counted from 0.
    pub query: u32,
    /// Its score for that text, in millionths.
    pub score: u64,
    /// Whether it is present.
    pub present: bool,
    /// Whether its consent lets a team call of the caller through.
    pub reachable: bool,
}
