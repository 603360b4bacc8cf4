//! Where the time of one offer goes: each stage that can be called alone, beside what it must cost at least.
//!
//! Stages that only compute are timed on one thread. Those that speak to nats-server are measured by the processor time of
//! this process, without the server's. What a gateway and an agent do to put frames on a connection, and what waking up
//! costs, shows only in [`processes`](super::processes): the least it can be is the row of a loopback connection.

use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use agents::session::{AgentSession, SessionLimits};
use agents::{Action, Contractor, ContractorConfig, Strategy as _};
use bus::Bus;
use bus::memory::MemoryOptions;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use policy_core::{Deliver, Effect};
use policy_engine::DocumentWriter;
use schemas::delivery::Delivery;
use schemas::record::Record;
use schemas::validate::{Kind, check_document, check_message, parse};
use schemas::{AwardNo, Digest, Lane, Lot, RegisterKey, subject};
use serde::de::IgnoredAny;

use super::admission::{LOCALHOST, body, ingress};
use super::fold::FoldBench;
use super::overhead::median;
use super::rounds::{self, BenchError, Way, stuck, unlimited};
use super::usage::own_cpu_us;
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::live::contractor_name;

/// Messages of each stage that only computes.
const MESSAGES: u32 = 20_000;
/// Messages timed together; between two batches the appender gets a chance to empty its queue.
const BATCH: usize = 512;
/// Messages of each stage that speaks to nats-server.
const ON_NATS: usize = 6_000;
/// Of those, so many leave together: what a call to twelve contractors gives.
const TOGETHER: usize = 12;
/// Rounds open at once in the row of a whole round.
const OPEN: usize = 64;
/// Longest wait for one message of nats-server.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one stage costs.
#[derive(Debug, Clone)]
pub struct StageCost {
    /// The stage.
    pub stage: &'static str,
    /// Microseconds per message.
    pub us: f64,
    /// Allocations per message; known in builds that count them, of stages on one thread.
    pub allocations: Option<f64>,
    /// What it must cost at least, in microseconds; none where another stage's least covers it.
    pub floor_us: Option<f64>,
}

/// Measures every stage; `nats` is for those that speak to a server.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(nats: &Bus) -> Result<Vec<StageCost>, BenchError> {
    let bodies: Vec<Bytes> = (0..MESSAGES).map(body).collect();
    let mut stages = Vec::new();
    let floor = loopback().map_err(stuck)?;
    stages.push(StageCost { stage: "loopback", us: floor, allocations: None, floor_us: None });
    admitted(&bodies, &mut stages).await?;
    folded(&mut stages)?;
    spoken(nats, floor, &mut stages).await?;
    Ok(stages)
}

/// Time and allocations of one thread, batch by batch. The time is the median's: other work on the machine hits some batches.
#[derive(Default)]
struct Meter {
    us_by_batch: Vec<f64>,
    allocations: Option<u64>,
    messages: u64,
}

impl Meter {
    /// Measures `work` on `messages` messages.
    fn note(&mut self, messages: usize, work: impl FnOnce()) {
        let mut elapsed = Duration::ZERO;
        let counted = allocations_of(|| {
            let started = Instant::now();
            work();
            elapsed = started.elapsed();
        });
        self.us_by_batch.push(elapsed.as_secs_f64() * 1e6 / messages.max(1) as f64);
        self.allocations = counted.map(|counted| self.allocations.unwrap_or(0) + counted);
        self.messages += messages as u64;
    }

    /// Of one item after another.
    fn over<T>(items: &[T], mut work: impl FnMut(&T)) -> Self {
        let mut meter = Self::default();
        for batch in items.chunks(BATCH) {
            meter.note(batch.len(), || batch.iter().for_each(&mut work));
        }
        meter
    }

    fn us(&self) -> f64 {
        median(&self.us_by_batch)
    }

    fn stage(&self, stage: &'static str, floor_us: Option<f64>) -> StageCost {
        let allocations = self.allocations.map(|counted| counted as f64 / self.messages.max(1) as f64);
        StageCost { stage, us: self.us(), allocations, floor_us }
    }

    /// What this costs beyond a part of it that was measured alone.
    fn beyond(&self, parts: &[&Self], stage: &'static str, floor_us: Option<f64>) -> StageCost {
        let (whole, parts) = (self.stage(stage, floor_us), parts.iter().map(|part| part.stage(stage, None)));
        parts.fold(whole, |whole, part| StageCost {
            us: (whole.us - part.us).max(0.0),
            allocations: whole.allocations.zip(part.allocations).map(|(whole, part)| (whole - part).max(0.0)),
            ..whole
        })
    }
}

/// Allocations of `work` on this thread, in a build that counts them.
#[cfg(feature = "count-allocations")]
fn allocations_of(work: impl FnOnce()) -> Option<u64> {
    let session = alloc_tracker::Session::new().no_stdout().no_file();
    let operation = session.operation("stage");
    let span = operation.measure_thread().iterations(1);
    work();
    drop(span);
    Some(session.to_report().operations().map(|(_, counted)| counted.total_allocations_count()).sum())
}

#[cfg(not(feature = "count-allocations"))]
fn allocations_of(work: impl FnOnce()) -> Option<u64> {
    work();
    None
}

/// The gateway's stages.
async fn admitted(bodies: &[Bytes], stages: &mut Vec<StageCost>) -> Result<(), BenchError> {
    let exchange = unlimited(bus::memory::open(MemoryOptions::default()), ExchangeOptions::default()).await?;
    let token = exchange.identity(&contractor_name(0))?.token.current();
    let admission = exchange.gateway().admission();
    let peer = Some(LOCALHOST);
    // The first has its signature checked; the others find the token remembered.
    admission.identify(Some(&token), peer, |_| ()).await.map_err(stuck)?;
    let keys = RandomState::new();
    let hashed = Meter::over(bodies, |_| _ = black_box(keys.hash_one(token.as_bytes()))).us();
    let token_checked =
        Meter::over(bodies, |_| _ = black_box(admission.identify(Some(&token), peer, |_| ()).now_or_never()));
    let lexed = Meter::over(bodies, |body| _ = black_box(serde_json::from_slice::<IgnoredAny>(body).is_ok())).us();
    let digested = Meter::over(bodies, |body| _ = black_box(Digest::of_bytes(body))).us();
    let copied = Meter::over(bodies, |body| _ = black_box(Bytes::copy_from_slice(body))).us();
    // A space in front makes it a message like any other, which takes the long way.
    let spaced: Vec<Bytes> = bodies.iter().map(|body| [b" ", &body[..]].concat().into()).collect();
    let parsed = Meter::over(&spaced, |body| _ = black_box(parse(body).is_ok()));
    let valid = Meter::over(&spaced, |body| _ = black_box(check_document(Kind::Message, body).is_ok()));
    let checked = Meter::over(&spaced, |body| _ = black_box(check_message(body).is_ok()));
    let compared = Meter::over(bodies, |body| _ = black_box(check_message(body).is_ok()));
    let mut whole = Meter::default();
    for batch in bodies.chunks(BATCH) {
        let mut refused = None;
        whole.note(batch.len(), || {
            for bytes in batch {
                if let Some(Err(refusal)) = admission.admit(ingress(&token, bytes.clone())).now_or_never() {
                    refused = Some(refusal);
                }
            }
        });
        if let Some(refusal) = refused {
            return Err(stuck(refusal));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    exchange.shutdown().await;
    stages.push(token_checked.stage("token", Some(hashed)));
    stages.push(parsed.stage("parse", Some(lexed)));
    stages.push(valid.beyond(&[&parsed], "schema", None));
    stages.push(checked.beyond(&[&valid], "canonical_form_and_digest", Some(digested + copied)));
    stages.push(compared.stage("canonical_offer", Some(lexed + digested + copied)));
    stages.push(whole.beyond(&[&token_checked, &compared], "consent_duplicates_queue", Some(hashed)));
    stages.push(whole.stage("admission", Some(hashed + lexed + digested + copied)));
    Ok(())
}

/// The engine's and the agent's stages that only compute.
fn folded(stages: &mut Vec<StageCost>) -> Result<(), BenchError> {
    let mut bench = FoldBench::new()?;
    let (mut calls, mut receipts) = (Vec::new(), Vec::new());
    let count = MESSAGES as usize / 4;
    for number in 0..count {
        bench.fold(&bench.call(number)?, |effect| calls.extend(delivery(effect)));
    }
    let records: Vec<Record> = (0..count).map(|number| bench.offer(number, 0)).collect::<Result<_, _>>()?;
    let copied = |bytes: &[Vec<u8>]| Meter::over(bytes, |bytes| _ = black_box(Bytes::copy_from_slice(bytes))).us();
    let mut written = Vec::new();
    for record in &records {
        written.push(record.encode().map_err(stuck)?);
    }
    let encoded = Meter::over(&records, |record| _ = black_box(record.encode().is_ok()));
    stages.push(encoded.stage("record_encode", Some(copied(&written))));
    let lexed = Meter::over(&written, |bytes| _ = black_box(serde_json::from_slice::<IgnoredAny>(bytes).is_ok())).us();
    let decoded = Meter::over(&written, |bytes| _ = black_box(Record::decode(bytes).is_ok()));
    stages.push(decoded.stage("record_decode", Some(lexed)));
    let hashed = {
        let (keys, names) = (RandomState::new(), bench.negotiations(count)?);
        Meter::over(&names, |name| _ = black_box(keys.hash_one(name.as_str()))).us()
    };
    let folded = Meter::over(&records, |record| bench.fold(record, |effect| receipts.extend(delivery(effect))));
    stages.push(folded.stage("fold", Some(hashed)));
    let mut documents = Vec::new();
    for (stage, deliveries) in [("serialise_receipt", &receipts), ("serialise_call", &calls)] {
        let mut writer = DocumentWriter::default();
        documents.clear();
        for deliver in deliveries {
            let mut document = Vec::new();
            writer.write(deliver, &mut document).map_err(stuck)?;
            documents.push(document);
        }
        let mut out = Vec::new();
        let serialised = Meter::over(deliveries, |deliver| {
            out.clear();
            _ = black_box(writer.write(deliver, &mut out).is_ok());
        });
        stages.push(serialised.stage(stage, Some(copied(&documents))));
    }
    answered(&documents, stages)
}

/// The agent's own: it reads a call, decides, and writes its offer.
fn answered(calls: &[Vec<u8>], stages: &mut Vec<StageCost>) -> Result<(), BenchError> {
    let lexed = Meter::over(calls, |call| _ = black_box(serde_json::from_slice::<IgnoredAny>(call).is_ok())).us();
    let read = Meter::over(calls, |call| _ = black_box(Delivery::decode(call).is_ok()));
    stages.push(read.stage("agent_read", Some(lexed)));
    let name = contractor_name(0);
    let mut contractor = Contractor::try_new(&name, ContractorConfig::default()).map_err(stuck)?;
    let mut session = AgentSession::new(name, 1, SessionLimits::default());
    let calls: Vec<Delivery> = calls.iter().filter_map(|call| Delivery::decode(call).ok()).collect();
    let mut offered = 0;
    let answered = Meter::over(&calls, |call| {
        let now = call.envelope.ts.0;
        session.handle_delivery(call.envelope.msg_id);
        for action in contractor.handle(now, call) {
            if let Action::Send(outgoing) = action
                && session.write(now, *outgoing, None).is_ok()
                && let Some(transmit) = session.poll_transmit()
            {
                offered += 1;
                session.handle_receipt(&transmit.msg_id);
                _ = black_box(transmit);
            }
        }
    });
    if offered == 0 {
        return Err(stuck("the contractor made no offer"));
    }
    stages.push(answered.stage("agent_decide_and_write", None));
    Ok(())
}

fn delivery(effect: Effect) -> Option<Deliver> {
    match effect {
        Effect::Deliver(deliver) => Some(deliver),
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => None,
    }
}

/// Stages that speak to nats-server. The least each can cost is one message to it and one from it.
async fn spoken(nats: &Bus, floor: f64, stages: &mut Vec<StageCost>) -> Result<(), BenchError> {
    let bench = FoldBench::new()?;
    let record = Bytes::from(bench.offer(0, 0)?.encode().map_err(stuck)?);
    let mut push = |stage, messages: usize, cpu_us: f64| {
        stages.push(StageCost { stage, us: cpu_us / messages as f64, allocations: None, floor_us: Some(floor) });
    };
    let began = own_cpu_us();
    for _ in 0..ON_NATS {
        nats.log.append(Lane(0), record.clone()).await?;
    }
    push("nats_append", ON_NATS, own_cpu_us() - began);
    let began = own_cpu_us();
    let mut log = nats.log.read(Lane(0), 0).await?;
    for _ in 0..ON_NATS {
        timely(log.next()).await??;
    }
    drop(log);
    push("nats_read", ON_NATS, own_cpu_us() - began);
    let writes = ON_NATS / TOGETHER;
    let names = bench.negotiations(writes)?;
    let began = own_cpu_us();
    for name in names {
        nats.register.write(RegisterKey::Award(name, Lot(0), AwardNo(1)), Bytes::from_static(b"{}")).await?;
    }
    push("nats_register", writes, own_cpu_us() - began);
    let inbox = subject::inbox(&contractor_name(0));
    for (stage, bytes) in [("nats_deliver", record.len()), ("nats_acknowledge", 0)] {
        let payload = Bytes::from(vec![b'x'; bytes]);
        let mut received = nats.pub_sub.subscribe(inbox.clone(), None).await?;
        let began = own_cpu_us();
        for _ in 0..ON_NATS / TOGETHER {
            for _ in 0..TOGETHER {
                nats.pub_sub.publish(inbox.clone(), payload.clone()).await?;
            }
            for _ in 0..TOGETHER {
                timely(received.next()).await?;
            }
        }
        push(stage, ON_NATS, own_cpu_us() - began);
    }
    Ok(())
}

async fn timely<T>(next: impl Future<Output = Option<T>>) -> Result<T, BenchError> {
    let next = tokio::time::timeout(PATIENCE, next).await.ok().flatten();
    next.ok_or_else(|| stuck(format!("nothing came from nats-server within {PATIENCE:?}")))
}

/// Microseconds of processor time of a whole round with everything in this process, its twelve contractors included, on
/// the bus in memory.
///
/// # Errors
/// [`BenchError`].
pub async fn whole_round(duration: Duration) -> Result<f64, BenchError> {
    let bus = || bus::memory::open(MemoryOptions::default());
    let contractors = u32::try_from(TOGETHER).unwrap_or(u32::MAX);
    rounds::closed_loop(bus(), contractors, OPEN, duration / 4, Way::Bus, "warm").await?;
    let began = own_cpu_us();
    let ours = rounds::closed_loop(bus(), contractors, OPEN, duration, Way::Bus, "budget").await?;
    Ok((own_cpu_us() - began) / ours.rounds.max(1) as f64)
}

/// Microseconds to send an offer's bytes over a loopback connection and to receive them, without waking anybody.
fn loopback() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let (message, mut buffer) = (body(0), vec![0; BATCH * 2]);
    let mut failed = None;
    let sent = Meter::over(&[(); ON_NATS], |()| {
        let done = sender.write_all(&message).and_then(|()| receiver.read_exact(&mut buffer[..message.len()]));
        failed = done.err();
    });
    failed.map_or(Ok(sent.us()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(us: f64, allocations: Option<u64>) -> Meter {
        Meter { us_by_batch: vec![us, us, us * 100.0], allocations: allocations.map(|of| of * 10), messages: 10 }
    }

    #[test]
    fn a_stage_inside_another_is_taken_off_and_never_below_nothing() {
        let (whole, part) = (meter(9.0, Some(20)), meter(4.0, Some(5)));
        let rest = whole.beyond(&[&part], "rest", Some(1.0));
        assert_eq!((rest.stage, rest.allocations, rest.floor_us), ("rest", Some(15.0), Some(1.0)));
        assert!((rest.us - 5.0).abs() < 1e-9);
        assert!(part.beyond(&[&whole], "noise", None).us.abs() < f64::EPSILON);
        assert_eq!(meter(1.0, None).beyond(&[&part], "not counted", None).allocations, None);
    }

    #[test]
    fn every_item_is_measured_once_in_batches() {
        let mut seen = 0;
        let meter = Meter::over(&[1; 2 * BATCH + 1], |number| seen += number);
        assert_eq!((seen, meter.messages, meter.us_by_batch.len()), (2 * BATCH + 1, 2 * BATCH as u64 + 1, 3));
    }

    #[test]
    fn the_stages_that_compute_have_a_cost_and_what_they_must_cost() {
        let mut stages = Vec::new();
        folded(&mut stages).unwrap();
        let names: Vec<_> = stages.iter().map(|stage| stage.stage).collect();
        let computed = ["record_encode", "record_decode", "fold", "serialise_receipt", "serialise_call", "agent_read"];
        assert_eq!(names, [&computed[..], &["agent_decide_and_write"]].concat());
        assert!(stages.iter().all(|stage| stage.us > 0.0), "{stages:?}");
        assert!(loopback().unwrap() > 0.0);
    }
}
