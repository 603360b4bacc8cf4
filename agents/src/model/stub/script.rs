//! How a stub behaves: how often in which way, and what its good answers say.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A way to answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, strum::VariantArray, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StubBehaviour {
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
    pub shares: BTreeMap<StubBehaviour, u32>,
    /// What good answers say, by the member's name. Other members get what the schema lists first, or a draw.
    pub answer: BTreeMap<String, StubValue>,
    /// Of offers listed with their terms, good answers choose the one with the least of this; absent: one is drawn.
    pub prefer: Option<String>,
    /// How long `slow` takes, in milliseconds.
    pub slow_ms: u64,
    /// What `429` says in `Retry-After`, in seconds.
    pub retry_after_s: u64,
}

/// What a member of a good answer says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum StubValue {
    /// A list: each item says what a member says. First: two integers would also be read as the ends of a range.
    List(Vec<StubValue>),
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

impl StubValue {
    fn is_empty_range(&self) -> bool {
        match self {
            Self::Drawn { lo, hi } => lo > hi,
            Self::List(items) => items.iter().any(Self::is_empty_range),
            Self::Number(_) | Self::Text(_) => false,
        }
    }
}

impl Default for StubScript {
    fn default() -> Self {
        let shares = [(StubBehaviour::Good, 1)].into();
        Self { shares, answer: BTreeMap::new(), prefer: None, slow_ms: 30_000, retry_after_s: 1 }
    }
}

impl StubScript {
    /// What makes no sense about it.
    ///
    /// # Errors
    /// The first such thing.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.shares.values().map(|share| u64::from(*share)).sum::<u64>() == 0 {
            return Err("`shares` gives no behaviour a share above 0");
        }
        let has_empty_range = self.answer.values().any(StubValue::is_empty_range);
        if has_empty_range { Err("`answer`: `lo` lies above `hi`") } else { Ok(()) }
    }
}
