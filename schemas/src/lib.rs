//! The wire contract of the exchange: everything that crosses a process boundary is spelled here, once.
//!
//! | module | question it answers |
//! |---|---|
//! | [`ids`] | what is a well-formed agent, message, negotiation, offer, award? |
//! | [`time`] | how is time written down (log time in microseconds, wire time in RFC 3339)? |
//! | [`envelope`] | who sends what to whom, under which consent and lifetime (paper, appendix A)? |
//! | [`payload`] | which acts exist and what do they carry (FIPA SC00029 names)? |
//! | [`terms`] | which values can an offer name, which numbers are integers? |
//! | [`bargain`] | what bargaining adds: rules, outcome space, sealed mandates |
//! | [`english_auction`] | what English auctions add: rules, the standing bid |
//! | [`panel`] | what panels add: rules, how answers are compared, ratings |
//! | [`evidence`] | what panels have shown about agents, by domain |
//! | [`team`] | what teams add: rules, the acts of their members, what members are told |
//! | [`document`] | which protocol documents do calls, offers and awards name, and what does a routine report? |
//! | [`policy`] | the acceptance policy as a document |
//! | [`record`] | what one record of the log holds |
//! | [`register`] | the write-once register's keys and values |
//! | [`delivery`] | what an agent receives |
//! | [`acknowledgement`] | how a gateway passes on what its agents acknowledged |
//! | [`control`] | agents, groups, consent: the control plane's documents |
//! | [`presence`] | how gateways learn which agents are there, and engines by which gateway |
//! | [`routed`] | what an engine sends to a gateway for the streams it holds |
//! | [`search`] | what is searched for among agents, and found |
//! | [`subject`] | every NATS subject |
//! | [`text`] | types that are one text, and JSON inside of formats that do not describe themselves |
//! | [`digest`] | RFC 8785 canonical form and SHA-256 |
//! | [`code`] | the stable refusal codes |
//! | `validate` (feature) | JSON Schema 2020-12 validators, compiled once |
//!
//! This crate does no input or output, reads no clock and draws no random number.

pub mod acknowledgement;
pub mod admission;
pub mod bargain;
pub mod code;
pub mod control;
pub mod delivery;
pub mod digest;
pub mod document;
pub mod english_auction;
pub mod envelope;
pub mod evidence;
pub mod ids;
pub mod journal;
pub mod panel;
pub mod payload;
pub mod policy;
pub mod presence;
pub mod protocols;
pub mod record;
pub mod register;
pub mod routed;
pub mod search;
pub mod statistics;
pub mod strict_json;
pub mod subject;
pub mod team;
pub mod terms;
pub mod text;
pub mod time;
#[cfg(feature = "validate")]
pub mod validate;

pub use code::{Code, Refusal};
pub use digest::Digest;
pub use document::DocumentHash;
pub use envelope::{Address, Envelope};
pub use ids::{
    AgentId, AwardNo, DeliveryId, GatewayId, GroupId, Lane, Lot, MsgId, NegotiationId, OfferId, Position, TopicName,
};
pub use payload::{Act, Payload};
pub use policy::Policy;
pub use register::{RegisterKey, RegisterValue};
pub use time::{Timestamp, WireTime};
