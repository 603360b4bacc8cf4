//! Panels (docs/spec/panel.md), as agents see them: asked a question in rounds, with what the others said, they answer.
//!
//! | module | question it answers |
//! |---|---|
//! | here, [`Panelist`] | what does an agent answer to an ask? (pure) |
//! | [`member`] | how does it take part on the exchange? |
//! | [`stub`] | what does a scripted panelist answer, by its accuracy, its ratings and a seed? (pure) |
//! | [`parse`] | what does a model's text say of ratings, orders and answers? (pure) |
//!
//! A panelist keeps nothing from one ask to the next: whatever it is to know stands in the ask. Why an answer does not count it
//! learns by [`Panelist::refused`], and may correct it there.

pub mod member;
pub mod parse;
pub mod stub;

use schemas::delivery::Ask;
use schemas::panel::PanelAnswer;
use schemas::payload::Reasoned;
use schemas::{NegotiationId, Payload};

use crate::strategy::ActRefusal;

pub use member::PanelMember;
pub use stub::{AnswerScript, StubPanelist, StubProfile, StubQuestion, StubQuestions};

/// What an agent does with an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskReply {
    /// Answers it.
    Answer(Box<PanelAnswer>),
    /// Leaves the panel for good, and says why.
    Refuse(String),
    /// Says nothing. A seat is asked again in the next round.
    Silence,
}

impl AskReply {
    /// A seat's answer to an ask; none: no opinion.
    #[must_use]
    pub fn answer(ask: &Ask, answer: Option<String>) -> Self {
        Self::of_round(ask, PanelAnswer { answer: Some(answer), ..PanelAnswer::default() })
    }

    /// What is said, if anything is.
    #[must_use]
    pub fn payload(self) -> Option<Payload> {
        match self {
            Self::Answer(answer) => Some(Payload::Answer(answer)),
            Self::Refuse(reason) => Some(Payload::Refuse(Reasoned { reason: Some(reason), round: None })),
            Self::Silence => None,
        }
    }

    /// An answer in the round of an ask.
    #[must_use]
    pub fn of_round(ask: &Ask, answer: PanelAnswer) -> Self {
        Self::Answer(Box::new(PanelAnswer { round: ask.round, ..answer }))
    }
}

/// Answers the asks of panels. Pure, as a [`Strategy`](crate::Strategy) is: no clock, no input or output.
///
/// A function `FnMut(&NegotiationId, &Ask) -> AskReply` is a panelist, which neither ranks nor reviews.
pub trait Panelist: Send {
    /// Answers as a seat.
    fn answer(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply;

    /// Ranks the answers of a round: 1 to `keep` places in `ask.peers`, counted from 1, the best first.
    fn rank(&mut self, _panel: &NegotiationId, _ask: &Ask, _keep: u32) -> AskReply {
        AskReply::Refuse("does not rank".to_owned())
    }

    /// Reviews the answers of a round: a text or nothing, and a rating, for each entry of `ask.peers`.
    fn review(&mut self, _panel: &NegotiationId, _ask: &Ask) -> AskReply {
        AskReply::Refuse("does not review".to_owned())
    }

    /// Learns why an answer of its own does not count. `ask` is what may still be answered anew, until its `answer_by`: what is
    /// returned is sent instead. Without one it is too late, and nothing is sent.
    fn refused(&mut self, _panel: &NegotiationId, _refusal: &ActRefusal, _ask: Option<&Ask>) -> AskReply {
        AskReply::Silence
    }

    /// Answers whatever the ask is for.
    fn reply(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply {
        match ask.rank {
            Some(rank) => self.rank(panel, ask, rank.keep),
            None if ask.review => self.review(panel, ask),
            None => self.answer(panel, ask),
        }
    }
}

impl<F: FnMut(&NegotiationId, &Ask) -> AskReply + Send> Panelist for F {
    fn answer(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply {
        self(panel, ask)
    }
}
