//! The tables of docs/spec/contract-net.md: an input and every effect it has, refused inputs included. How effects
//! are written is explained in `support/script.rs`.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/script.rs"]
mod script;

#[path = "tables/admission.rs"]
mod admission;
#[path = "tables/awarding.rs"]
mod awarding;
#[path = "tables/calling.rs"]
mod calling;
#[path = "tables/cancelling.rs"]
mod cancelling;
#[path = "tables/close_rule.rs"]
mod close_rule;
#[path = "tables/collecting.rs"]
mod collecting;
#[path = "tables/documents.rs"]
mod documents;
#[path = "tables/engine_records.rs"]
mod engine_records;
#[path = "tables/legality.rs"]
mod legality;
#[path = "tables/mixed_case.rs"]
mod mixed_case;
#[path = "tables/receipts.rs"]
mod receipts;
#[path = "tables/reputation.rs"]
mod reputation;
#[path = "tables/several_lots.rs"]
mod several_lots;
#[path = "tables/views.rs"]
mod views;
