//! Bargains by table (docs/spec/alternating-offers.md#what-is-legal): who says what, when, and every effect it has. How effects are written is explained in
//! `support/effect_text.rs`.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/script.rs"]
mod script;

#[path = "bargains/delegating.rs"]
mod delegating;
#[path = "bargains/ending.rs"]
mod ending;
#[path = "bargains/haggle.rs"]
mod haggle;
#[path = "bargains/legality.rs"]
mod legality;
#[path = "bargains/legality_of_three.rs"]
mod legality_of_three;
#[path = "bargains/mandated.rs"]
mod mandated;
#[path = "bargains/opening.rs"]
mod opening;
#[path = "bargains/restored.rs"]
mod restored;
#[path = "bargains/sealed.rs"]
mod sealed;
#[path = "bargains/views.rs"]
mod views;
