//! Panels by table (docs/spec/panel.md#what-is-legal): who says what, when, and every effect it has. How effects are written
//! is explained in `support/effect_text.rs`.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/script.rs"]
mod script;

#[path = "panels/board.rs"]
mod board;
#[path = "panels/choosing.rs"]
mod choosing;
#[path = "panels/course.rs"]
mod course;
#[path = "panels/evidence.rs"]
mod evidence;
#[path = "support/golden.rs"]
mod golden;
#[path = "panels/legality.rs"]
mod legality;
#[path = "panels/opening.rs"]
mod opening;
#[path = "panels/random_answers.rs"]
mod random_answers;
#[path = "panels/ranking.rs"]
mod ranking;
#[path = "panels/recording.rs"]
mod recording;
#[path = "panels/restored.rs"]
mod restored;
#[path = "panels/reviewing.rs"]
mod reviewing;
#[path = "panels/sealed.rs"]
mod sealed;
