//! What models charge, and how many tokens a text is.

use serde::Serialize;

/// Bytes of UTF-8 that count as a token: the usual estimate for English. Nothing here is counted by a tokeniser.
const TOKEN_BYTES: usize = 4;
/// One US dollar.
pub const USD: u64 = 1_000_000_000;

/// A model with its price, in nano-dollars per token. Prices are those that the paper on Agora lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PricedModel {
    /// GPT-4o: 5 and 15 dollars per million tokens sent and answered.
    Gpt4o,
    /// Llama 3 405B: 5 and 10 dollars.
    Llama405b,
    /// Gemini 1.5 Pro: 3.50 and 10.50 dollars.
    Gemini15Pro,
}

impl PricedModel {
    /// All of them, and how many of 100 agents have each.
    pub const SHARES: [(Self, usize); 3] = [(Self::Gpt4o, 38), (Self::Llama405b, 32), (Self::Gemini15Pro, 30)];

    /// What a call costs, in nano-dollars.
    #[must_use]
    pub fn cost(self, call: ModelCall) -> u64 {
        let (input, output) = match self {
            Self::Gpt4o => (5_000, 15_000),
            Self::Llama405b => (5_000, 10_000),
            Self::Gemini15Pro => (3_500, 10_500),
        };
        call.input * input + call.output * output
    }
}

/// One call to a model, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall {
    input: u64,
    output: u64,
}

impl ModelCall {
    /// A call with these texts.
    #[must_use]
    pub fn new(input: &[&str], output: &str) -> Self {
        let tokens = |bytes: usize| bytes.div_ceil(TOKEN_BYTES) as u64;
        Self { input: tokens(input.iter().map(|text| text.len()).sum()), output: tokens(output.len()) }
    }
}
