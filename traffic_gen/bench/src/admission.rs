//! One message through the gateway's checks: size, cached token, rate, parse, schema, decode, canonical form, digest.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use bus::memory::MemoryOptions;
use bytes::Bytes;
use futures_util::FutureExt;
use gateway::{Credentials, Ingress, Transport};
use schemas::validate::check_message;

use super::rounds::{BenchError, stuck, unlimited};
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::live::contractor_name;

/// Where messages come from.
pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Messages measured.
const MESSAGES: u32 = 50_000;
/// Messages after which the appender gets a chance to empty its queue.
const BATCH: u32 = 512;

/// Microseconds per message.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionCost {
    /// From the bytes to the log's queue.
    pub admit_us: f64,
    /// Of which: parse, schema, decode, canonical form, digest.
    pub check_us: f64,
    /// The ceiling: parsing the same bytes into a generic JSON value.
    pub parse_us: f64,
}

/// Measures the checks on an offer of about 500 bytes.
///
/// # Errors
/// [`BenchError`].
pub async fn measure() -> Result<AdmissionCost, BenchError> {
    let exchange = unlimited(bus::memory::open(MemoryOptions::default()), ExchangeOptions::default()).await?;
    let agent = contractor_name(0);
    let token = exchange.identity(&agent)?.token.current();
    let admission = exchange.gateway().admission();
    let bodies: Vec<Bytes> = (0..MESSAGES).map(body).collect();
    // The first one has its signature checked; the others find the token remembered.
    admission.admit(ingress(&token, bodies[0].clone())).await.map_err(stuck)?;
    let mut elapsed = Duration::ZERO;
    for (number, bytes) in (0_u32..).zip(&bodies).skip(1) {
        let started = Instant::now();
        let answer = admission.admit(ingress(&token, bytes.clone())).now_or_never();
        elapsed += started.elapsed();
        if let Some(Err(refusal)) = answer {
            return Err(stuck(refusal));
        }
        if number % BATCH == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    exchange.shutdown().await;
    let per_message = |elapsed: Duration| elapsed.as_secs_f64() * 1e6 / f64::from(MESSAGES);
    let started = Instant::now();
    for bytes in &bodies {
        std::hint::black_box(check_message(bytes).map_err(stuck)?);
    }
    let check_us = per_message(started.elapsed());
    let started = Instant::now();
    for bytes in &bodies {
        std::hint::black_box(serde_json::from_slice::<serde_json::Value>(bytes).ok());
    }
    let parse_us = per_message(started.elapsed());
    Ok(AdmissionCost { admit_us: per_message(elapsed), check_us, parse_us })
}

/// A message of whom a token names, from a client on this machine.
pub fn ingress(token: &str, bytes: Bytes) -> Ingress<'_> {
    let (transport, credentials) = (Transport::InProcess, Credentials::Token(Some(token)));
    Ingress { transport, credentials, named_sender: None, peer: Some(LOCALHOST), bytes }
}

/// An offer of about 500 bytes.
pub fn body(number: u32) -> Bytes {
    let document = serde_json::json!({
        "envelope": {
            "msg_id": format!("offer-{number}"), "ts": "2026-11-20T21:00:00.000Z", "from": "agent://contractor-0",
            "negotiation": format!("alice~bench-{number}"), "seq": 1, "in_reply_to": "00a7c7a4f3f1b2c3d4e5f60718293a4b",
            "scope": {"consent": "opt-in", "ttl": 120}, "capabilities": ["haul"]
        },
        "payload": {
            "act": "offer", "terms": {"price": 98_500_000, "delivery_ms": 1500}, "currency": "EUR", "valid_for_ms": 30_000,
            "conditions": "payment within thirty days", "round": 1
        }
    });
    Bytes::from(document.to_string())
}
