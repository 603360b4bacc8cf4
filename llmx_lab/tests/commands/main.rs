//! Commands of the laboratory, as a person types them: the real programs `llmx-lab` and `llmx`, both built beside these tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod agora;
mod bargain;
mod chaos;
mod experiment;
mod models;
mod panel;
mod panel_lines;
mod panel_play;
#[path = "../../../llmx/tests/load/process.rs"]
#[expect(dead_code, reason = "the tests of llmx use all of it")]
mod process;
#[path = "../../../llmx/tests/common/program.rs"]
mod program;
mod report;
#[path = "../../../llmx/tests/commands/rig.rs"]
#[expect(dead_code, reason = "the tests of llmx use all of it")]
mod rig;
#[path = "../../../llmx/tests/common/signalled.rs"]
mod signalled;
mod signals;
mod simulate;
mod soak;
mod team;
mod team_goal;
