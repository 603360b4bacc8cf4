//! Agents against a fake exchange: what they send, hear, repeat and acknowledge, on every transport.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod bargain;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod http;
#[cfg(test)]
mod initiator;
#[cfg(test)]
mod panel;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod websocket;
