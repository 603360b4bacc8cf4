//! The acceptance policy applied: which offers count, when collection closes, who wins, what is paid.

pub(crate) mod close;
pub(crate) mod decision;
pub(crate) mod gate;
pub(crate) mod payment;
pub(crate) mod score;
pub(crate) mod threshold;
pub(crate) mod tie_break;
