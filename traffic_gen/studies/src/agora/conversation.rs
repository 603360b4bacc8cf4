//! What each piece of a model's work costs: the texts it would be sent and would answer, counted and priced.
//!
//! A model is sent everything again with each of its calls: its instructions, the task or the tools, what was said before.

use super::task::{TaskData, TaskKind};

const INITIATOR: &str = include_str!("texts/initiator.txt");
const RESPONDER: &str = include_str!("texts/responder.txt");
const INITIATOR_CHECK: &str = include_str!("texts/initiator_check.txt");
const RESPONDER_CHECK: &str = include_str!("texts/responder_check.txt");
const PICK: &str = include_str!("texts/pick.txt");
const INITIATOR_NEGOTIATION: &str = include_str!("texts/initiator_negotiation.txt");
const RESPONDER_NEGOTIATION: &str = include_str!("texts/responder_negotiation.txt");
const INITIATOR_PROGRAM: &str = include_str!("texts/initiator_program.txt");
const RESPONDER_PROGRAM: &str = include_str!("texts/responder_program.txt");
/// What a responder says of a document that it has nothing against.
const ACCEPTED: &str = "I have compared the document with my tools. Every argument can be taken from the request, and every \
                        value of the answer is returned. The errors are said. I accept the document as it stands.";

/// Bytes of UTF-8 that count as a token: the usual estimate for English. Nothing here is counted by a tokeniser.
const TOKEN_BYTES: usize = 4;
/// One US dollar.
pub const USD: u64 = 1_000_000_000;

/// A model with its price, in nano-dollars per token. Prices are those that the paper on Agora lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// What a call with these texts costs, in nano-dollars.
    pub fn cost(self, input: &[&str], output: &str) -> u64 {
        let (sent, answered) = match self {
            Self::Gpt4o => (5_000, 15_000),
            Self::Llama405b => (5_000, 10_000),
            Self::Gemini15Pro => (3_500, 10_500),
        };
        let tokens = |bytes: usize| bytes.div_ceil(TOKEN_BYTES) as u64;
        tokens(input.iter().map(|text| text.len()).sum()) * sent + tokens(output.len()) * answered
    }
}

/// An initiator's work on one kind of task.
#[derive(Debug, Clone, Copy)]
pub struct InitiatorWork<'a> {
    /// Its model.
    pub model: PricedModel,
    /// The kind of task.
    pub kind: &'a TaskKind,
}

/// A responder's work with its tools.
#[derive(Debug, Clone, Copy)]
pub struct ResponderWork<'a> {
    /// Its model.
    pub model: PricedModel,
    /// The descriptions of its tools.
    pub tools: &'a str,
}

/// Request and answer of one query.
#[derive(Debug, Clone)]
pub struct QueryMessages<'a> {
    kind: &'a TaskKind,
    data: &'a TaskData,
    document: Option<&'a str>,
    request: String,
    answer: String,
}

impl<'a> QueryMessages<'a> {
    /// The messages under a document, or in natural language.
    pub fn new(kind: &'a TaskKind, data: &'a TaskData, document: Option<&'a str>) -> Self {
        let (request, answer) = match document {
            Some(_) => (data.input(), data.output()),
            None => (kind.asked(data), kind.answered(data)),
        };
        Self { kind, data, document, request, answer }
    }

    /// What the initiator sends.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// What the responder answers.
    pub fn answer(&self) -> &str {
        &self.answer
    }
}

impl InitiatorWork<'_> {
    /// Writes the request, and reads the answer. In nano-dollars, as everything here.
    pub fn talk(&self, messages: &QueryMessages<'_>) -> u64 {
        let (task, input) = (self.kind.described(), messages.data.input());
        let sent = [INITIATOR, &task, &input, messages.document.unwrap_or_default()];
        let read = [&sent[..], &[&messages.request, &messages.answer]].concat();
        self.model.cost(&sent, &messages.request) + self.model.cost(&read, &messages.data.output())
    }

    /// Reads names and descriptions of documents, and picks some.
    pub fn pick(&self, list: &str, picked: &str) -> u64 {
        self.model.cost(&[PICK, &self.kind.described(), list], picked)
    }

    /// Reads a document, and says whether it suffices.
    pub fn check(&self, document: &str, reply: &str) -> u64 {
        self.model.cost(&[INITIATOR_CHECK, &self.kind.described(), document], reply)
    }

    /// Proposes a document, hears the answer, and sends the document that both agreed on.
    pub fn negotiate(&self, document: &str) -> u64 {
        let task = self.kind.described();
        let proposed = [INITIATOR_NEGOTIATION, &task];
        self.model.cost(&proposed, document)
            + self.model.cost(
                &[&proposed[..], &[document, ACCEPTED]].concat(),
                &format!("<FINALPROTOCOL>{document}</FINALPROTOCOL>"),
            )
    }

    /// Writes a routine.
    pub fn program(&self, document: &str) -> u64 {
        self.model.cost(&[INITIATOR_PROGRAM, &self.kind.described(), document], &self.kind.initiator_routine())
    }
}

impl ResponderWork<'_> {
    /// Reads the request, calls the tool, and writes the answer.
    pub fn talk(&self, messages: &QueryMessages<'_>) -> u64 {
        let call = messages.kind.tool_call(messages.data);
        let sent = [RESPONDER, self.tools, messages.document.unwrap_or_default(), &messages.request];
        let found = messages.data.output();
        self.model.cost(&sent, &call) + self.model.cost(&[&sent[..], &[&call, &found]].concat(), &messages.answer)
    }

    /// Reads a document, and says whether the tools serve for it.
    pub fn check(&self, document: &str, reply: &str) -> u64 {
        self.model.cost(&[RESPONDER_CHECK, self.tools, document], reply)
    }

    /// Reads a proposal, and accepts it.
    pub fn negotiate(&self, document: &str) -> u64 {
        self.model.cost(&[RESPONDER_NEGOTIATION, self.tools, document], ACCEPTED)
    }

    /// Writes a routine.
    pub fn program(&self, kind: &TaskKind, document: &str) -> u64 {
        self.model.cost(&[RESPONDER_PROGRAM, self.tools, document], &kind.responder_routine())
    }
}
