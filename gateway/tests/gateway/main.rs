//! The gateway from outside: real sockets on loopback, the embedded bus behind.

mod admission;
mod bad_inputs;
mod control;
mod framing;
mod rig;
mod streams;
mod surface;
mod tokens;
