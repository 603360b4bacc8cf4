//! Panels (docs/spec/panel.md), as agents see them: asked a question in rounds, with what the others said, they answer.
//!
//! | module | question it answers |
//! |---|---|
//! | [`panelist`] | what does an agent answer to an ask? (pure) |
//! | [`member`] | how does it take part on the exchange? |
//! | [`stub`] | what does a scripted panelist answer, by its accuracy, its ratings and a seed? (pure) |
//! | [`parse`] | what does a model's text say of ratings, orders and answers? (pure) |
//! | [`file`] | which question, under which rules, to which scripted panelists? (a file) |
//!
//! A panelist keeps nothing from one ask to the next: whatever it is to know stands in the ask.

pub mod file;
pub mod member;
pub mod panelist;
pub mod parse;
pub mod stub;

pub use file::{PanelFile, StubAgent};
pub use member::PanelMember;
pub use panelist::{AskReply, Panelist};
pub use stub::{AnswerScript, Question, Questions, StubPanelist, StubProfile};
