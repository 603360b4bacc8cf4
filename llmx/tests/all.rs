//! The program as scripts, operators and attackers meet it; one file a subject, one program because each one links everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod archive;
mod award;
mod command_line;
mod configuration;
mod console;
mod demo;
mod documents;
mod health;
mod hostile;
mod metrics;
mod nats;
mod streams;
mod telemetry;
