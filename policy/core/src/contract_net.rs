//! The contract net: the ladder of admission, then one file per state.

pub(crate) mod admission;
mod awarding;
mod cancelling;
mod closing;
mod collecting;
pub(crate) mod deciding;
mod ending;
pub(crate) mod judging;
pub(crate) mod opening;
mod performing;
mod ranking;
mod re_awarding;
pub(crate) mod state;
