//! Acceptance of the alternating offers protocol (docs/spec/alternating-offers.md).
//!
//! | module | what must hold |
//! |---|---|
//! | `vectors` | the statistics of every domain of the sample are those of NegMAS |
//! | `core` | every run of the sample comes out of the core alone |
//! | `nats` | the same with every act as an envelope through a gateway and a real nats-server |
//! | `mandate_fuzz` | deals where reserve and budget allow one and nowhere else; no party leaves its mandate |
//! | `load` | many at once keep every invariant, under every policy |
//! | `domains` | every domain shipped loads, and leaves something to bargain about |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod core;
mod domains;
mod load;
mod mandate_fuzz;
mod nats;
mod vectors;
