//! Teams by table (docs/spec/team.md#what-is-legal): who says what, when, and every effect it has. How effects are written is
//! explained in `support/effect_text.rs`.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/draws.rs"]
mod draws;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/script.rs"]
mod script;

#[path = "teams/cells.rs"]
mod cells;
#[path = "teams/concluding.rs"]
mod concluding;
#[path = "teams/forming.rs"]
mod forming;
#[path = "teams/fuzzed.rs"]
mod fuzzed;
#[path = "teams/gathering.rs"]
mod gathering;
#[path = "teams/legality.rs"]
mod legality;
#[path = "teams/nesting.rs"]
mod nesting;
#[path = "teams/repeating.rs"]
mod repeating;
#[path = "teams/restored.rs"]
mod restored;
#[path = "teams/speaking.rs"]
mod speaking;
#[path = "teams/stories.rs"]
mod stories;
#[path = "teams/tasks.rs"]
mod tasks;
#[path = "teams/waking.rs"]
mod waking;
