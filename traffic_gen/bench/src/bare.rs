//! The ceiling: the message pattern of a round on the bare bus, without a check, a log or a decision.
//!
//! Per round: N calls, N offers, N decisions, N acknowledgements, each one message. What the exchange adds is measured
//! against this, in the same run, over the same connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::task::JoinSet;

use super::rounds::ClosedLoop;
use traffic_gen::latency::Latency;

/// Bytes of each bare message: about those of an offer's envelope.
const PAYLOAD_BYTES: usize = 400;
/// Longest wait for one message: the bare bus may lose messages, a benchmark must not hang on one.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a bare run is paced.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This many rounds open at all times.
    Closed(usize),
    /// One round every so often, one at a time.
    Every(Duration),
}

/// Runs the bare pattern with `contractors` for `duration`: the rounds, and each from the call until the last acknowledgement.
///
/// # Errors
/// [`BusError`] when the bus cannot be reached.
pub async fn run(
    pub_sub: Arc<dyn PubSub>,
    contractors: usize,
    pace: Pace,
    duration: Duration,
) -> Result<(ClosedLoop, Latency), BusError> {
    let mut background = JoinSet::new();
    for index in 0..contractors {
        let inbox = pub_sub.subscribe(format!("bare.contractor.{index}"), None).await?;
        background.spawn(contract(Arc::clone(&pub_sub), inbox));
    }
    let workers = match pace {
        Pace::Closed(workers) => workers,
        Pace::Every(_) => 1,
    };
    let started = Instant::now();
    let mut running = JoinSet::new();
    for worker in 0..workers {
        let subject = format!("bare.initiator.{worker}");
        let inbox = pub_sub.subscribe(subject.clone(), None).await?;
        running.spawn(initiate(Arc::clone(&pub_sub), inbox, subject, contractors, pace, started + duration));
    }
    let (mut rounds, mut to_last_ack) = (0, Latency::default());
    while let Some(worker) = running.join_next().await {
        let (completed, latency) = worker.map_err(|error| BusError::Unknown(error.to_string()))??;
        rounds += completed;
        to_last_ack.add(&latency);
    }
    Ok((ClosedLoop { rounds, elapsed_s: started.elapsed().as_secs_f64() }, to_last_ack))
}

/// Answers every message with one of the same size, to the subject the message begins with.
async fn contract(pub_sub: Arc<dyn PubSub>, mut inbox: BoxStream<'static, Received>) {
    while let Some(message) = inbox.next().await {
        let Some(reply_to) = address(&message.payload) else { continue };
        if pub_sub.publish(reply_to, message.payload).await.is_err() {
            return;
        }
    }
}

fn address(payload: &Bytes) -> Option<String> {
    let end = payload.iter().position(|&byte| byte == b' ')?;
    std::str::from_utf8(&payload[..end]).ok().map(str::to_owned)
}

async fn initiate(
    pub_sub: Arc<dyn PubSub>,
    mut inbox: BoxStream<'static, Received>,
    subject: String,
    contractors: usize,
    pace: Pace,
    until: Instant,
) -> Result<(u64, Latency), BusError> {
    let payload = payload(&format!("{subject} "));
    let (mut rounds, mut to_last_ack) = (0, Latency::default());
    let mut next = Instant::now();
    while Instant::now() < until {
        if let Pace::Every(interval) = pace {
            next += interval;
            // The runtime's timers are coarse; the bare pattern is measured from the actual send, so that is no matter.
            tokio::time::sleep_until(next.into()).await;
        }
        let called = Instant::now();
        exchange(&pub_sub, &mut inbox, contractors, &payload).await?;
        exchange(&pub_sub, &mut inbox, contractors, &payload).await?;
        to_last_ack.record(called.elapsed());
        rounds += 1;
    }
    Ok((rounds, to_last_ack))
}

/// A message of the usual size that begins so.
pub fn payload(begin: &str) -> Bytes {
    Bytes::from(format!("{begin:x<PAYLOAD_BYTES$}"))
}

/// Waits for a message, a bounded time.
///
/// # Errors
/// [`BusError::Closed`]; [`BusError::Unknown`] when none comes.
pub async fn received(inbox: &mut BoxStream<'static, Received>) -> Result<Received, BusError> {
    match tokio::time::timeout(PATIENCE, inbox.next()).await {
        Ok(message) => message.ok_or(BusError::Closed),
        Err(_) => Err(BusError::Unknown("a bare message was lost".to_owned())),
    }
}

/// One message to every contractor, one answer from each.
async fn exchange(
    pub_sub: &Arc<dyn PubSub>,
    inbox: &mut BoxStream<'static, Received>,
    contractors: usize,
    payload: &Bytes,
) -> Result<(), BusError> {
    for index in 0..contractors {
        pub_sub.publish(format!("bare.contractor.{index}"), payload.clone()).await?;
    }
    for _ in 0..contractors {
        received(inbox).await?;
    }
    Ok(())
}
