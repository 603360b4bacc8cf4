//! Requests for views and journals, answered only from a state that is current.
//!
//! A process that was stopped wakes with requests in its subscription and a state of long ago, and so does one that folds
//! more slowly than the log grows. So the lane asks the log where it ends, once a request is there, and answers when it
//! has folded up to that record. By then it has also folded the claim of an engine that has taken the lane meanwhile, and
//! leaves the answer to that one.
//!
//! `view.<lane>` asks what one participant may see of one negotiation: `{"negotiation": <id>, "viewer": <agent>}`. The role
//! filter is the core's ([`LaneState::view`]); who the viewer is, the asking gateway has checked. `journal.<lane>` asks what
//! happened in one negotiation ([`JournalRequest`]); it holds every message and decision, so gateways pass it on to those
//! only who may see it. Either is answered `{"found": ...}` or `{"not_found": true}`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::stream::{BoxStream, select};
use futures_util::{FutureExt, StreamExt};
use policy_core::LaneState;
use schemas::journal::JournalRequest;
use schemas::{AgentId, Lane, NegotiationId, subject};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::Inputs;
use crate::lane::FLUSH_MAX;
use crate::lane::observer::LaneObserver;

/// Most requests that wait; further ones are dropped, and their senders told by nobody. Far more than gateways ask at once.
const WAITING_MAX: usize = 1024;
/// Gap after a subscription that the bus did not take.
const SUBSCRIBE_GAP: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct ViewRequest {
    negotiation: NegotiationId,
    viewer: AgentId,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LookUp<T> {
    Found(T),
    NotFound(bool),
}

/// The requests to one lane. One question for the log's end is outstanding at a time and serves every request that came
/// before it was asked.
pub(super) struct Requests {
    lane: Lane,
    bus: Bus,
    /// Not before then is the subscription tried again.
    subscribe_at: Instant,
    queue: RequestQueue,
}

impl Requests {
    pub(super) fn new(lane: Lane, bus: Bus, now: Instant) -> Self {
        Self { lane, bus, subscribe_at: now, queue: RequestQueue::default() }
    }

    /// Answers for the lane from now on. Views are a convenience: a bus that takes no subscription stops nothing else.
    pub(super) async fn subscribe(&mut self, now: Instant, has_journals: bool, inputs: &mut Inputs) {
        if inputs.requests.is_some() || now < self.subscribe_at {
            return;
        }
        self.subscribe_at = now + SUBSCRIBE_GAP;
        match timeout(FLUSH_MAX, subscribe(&*self.bus.pub_sub, self.lane, has_journals)).await {
            Ok(Ok(requests)) => inputs.requests = Some(requests),
            Ok(Err(_)) | Err(_) => tracing::warn!(lane = self.lane.0, "the bus takes no subscription for views yet"),
        }
    }

    /// When the subscription is tried again.
    pub(super) fn wake_at(&self, inputs: &Inputs) -> Option<Instant> {
        (inputs.requests.is_none()).then_some(self.subscribe_at)
    }

    pub(super) fn add(&mut self, request: Received) {
        self.queue.add(request);
    }

    /// Asks the log where it ends on behalf of who asks, and takes an answer that is there at once.
    pub(super) fn ask_end(&mut self, inputs: &mut Inputs) {
        while self.queue.poll_end_wanted() {
            let (log, lane) = (Arc::clone(&self.bus.log), self.lane);
            inputs.ends.push(Box::pin(async move {
                let end = timeout(FLUSH_MAX, log.last_seq(lane)).await;
                end.ok().and_then(Result::ok)
            }));
            while let Some(Some(end)) = inputs.ends.next().now_or_never() {
                self.queue.handle_end(end);
            }
        }
    }

    /// The log has told its end, or nothing.
    pub(super) fn handle_end(&mut self, end: Option<u64>) {
        self.queue.handle_end(end);
    }

    /// The answers that can be given from the state after a record, by their subjects.
    pub(super) fn poll_answers(
        &mut self,
        position: u64,
        state: &LaneState,
        observer: &LaneObserver,
    ) -> Vec<(String, Bytes)> {
        let journals = subject::journal(self.lane);
        let due = std::iter::from_fn(|| self.queue.poll_due(position)).flatten();
        let answered = due.filter_map(|request| {
            let answer = if request.subject == journals {
                journal(observer, &request.payload)?
            } else {
                view(state, &request.payload)
            };
            Some((request.reply?, answer))
        });
        answered.collect()
    }

    /// Forgets every request: the lane has no state, or another owner.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Requests for views and, where journals are kept, for journals; their subjects tell them apart.
async fn subscribe(
    pub_sub: &dyn PubSub,
    lane: Lane,
    has_journals: bool,
) -> Result<BoxStream<'static, Received>, BusError> {
    let views = pub_sub.subscribe(subject::view(lane), None).await?;
    if !has_journals {
        return Ok(views);
    }
    let journals = pub_sub.subscribe(subject::journal(lane), None).await?;
    Ok(select(views, journals).boxed())
}

/// The answer to a request for a view; an unreadable request finds nothing.
fn view(state: &LaneState, request: &[u8]) -> Bytes {
    let request = serde_json::from_slice::<ViewRequest>(request).ok();
    written(request.and_then(|request| state.view(&request.negotiation, &request.viewer)))
}

/// The answer to a request for a journal; nothing where none are kept.
fn journal(observer: &LaneObserver, request: &[u8]) -> Option<Bytes> {
    let request = serde_json::from_slice::<JournalRequest>(request).ok();
    let journals = observer.has_journals();
    journals.then(|| written(request.and_then(|request| observer.journal(&request.negotiation))))
}

fn written<T: Serialize>(found: Option<T>) -> Bytes {
    let answer = found.map_or(LookUp::NotFound(true), LookUp::Found);
    // Views and journals are texts and integers, which always have an encoding.
    serde_json::to_vec(&answer).map_or_else(|_| Bytes::from_static(b"{\"not_found\":true}"), Bytes::from)
}

/// Requests in the order in which they can be answered. Holds no socket and reads no clock.
#[derive(Debug, Default)]
struct RequestQueue {
    /// The log has not been asked for its end since they came.
    fresh: Vec<Received>,
    /// The log is asked for its end on their behalf.
    asking: Vec<Received>,
    /// Wait until this record is folded.
    waiting: VecDeque<(u64, Vec<Received>)>,
    /// All of them.
    len: usize,
}

impl RequestQueue {
    /// Takes a request in.
    fn add(&mut self, request: Received) {
        if self.len < WAITING_MAX {
            self.len += 1;
            self.fresh.push(request);
        }
    }

    /// Whether the log is to be asked for its end now.
    fn poll_end_wanted(&mut self) -> bool {
        if self.fresh.is_empty() || !self.asking.is_empty() {
            return false;
        }
        self.asking = std::mem::take(&mut self.fresh);
        true
    }

    /// The log has told its end, or nothing. Where it has not, nobody can say what is current: those who asked ask again.
    fn handle_end(&mut self, end: Option<u64>) {
        let asking = std::mem::take(&mut self.asking);
        match end {
            Some(end) => self.waiting.push_back((end, asking)),
            None => self.len -= asking.len(),
        }
    }

    /// The next requests that can be answered from the state after a record.
    fn poll_due(&mut self, position: u64) -> Option<Vec<Received>> {
        let (_, due) = self.waiting.pop_front_if(|(end, _)| *end <= position)?;
        self.len -= due.len();
        Some(due)
    }

    /// Forgets every request: the lane has no state, or another owner.
    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_request_is_answered_once_the_log_is_folded_up_to_its_end() {
        let mut queue = RequestQueue::default();
        queue.add(request("first"));
        assert!(queue.poll_due(100).is_none(), "nobody knows yet where the log ends");
        assert!(queue.poll_end_wanted());
        queue.handle_end(Some(101));
        assert!(queue.poll_due(100).is_none(), "behind");
        assert_eq!(payloads(queue.poll_due(101)), ["first"]);
        assert!(queue.poll_due(101).is_none(), "once");
    }

    #[test]
    fn a_request_that_comes_while_the_log_is_asked_waits_for_the_next_answer() {
        let mut queue = RequestQueue::default();
        queue.add(request("first"));
        assert!(queue.poll_end_wanted());
        queue.add(request("second"));
        assert!(!queue.poll_end_wanted(), "one question at a time");
        queue.handle_end(Some(1));
        assert_eq!(payloads(queue.poll_due(1)), ["first"]);
        assert!(queue.poll_end_wanted());
        queue.handle_end(Some(2));
        assert!(queue.poll_due(1).is_none());
        assert_eq!(payloads(queue.poll_due(2)), ["second"]);
        assert!(!queue.poll_end_wanted(), "nobody asks");
    }

    #[test]
    fn nothing_is_answered_where_the_log_does_not_say_its_end() {
        let mut queue = RequestQueue::default();
        queue.add(request("first"));
        assert!(queue.poll_end_wanted());
        queue.handle_end(None);
        assert!(queue.poll_due(u64::MAX).is_none());
        assert_eq!(queue.len, 0);
    }

    #[test]
    fn requests_that_wait_are_bounded_and_forgotten_with_the_lane() {
        let mut queue = RequestQueue::default();
        (0..2 * WAITING_MAX).for_each(|_| queue.add(request("many")));
        assert!(queue.poll_end_wanted());
        queue.handle_end(Some(1));
        queue.add(request("more"));
        assert_eq!(payloads(queue.poll_due(1)).len(), WAITING_MAX);
        queue.add(request("again"));
        assert_eq!(queue.len, 1);
        queue.clear();
        assert!(!queue.poll_end_wanted());
    }

    fn request(payload: &'static str) -> Received {
        Received { subject: String::new(), payload: Bytes::from_static(payload.as_bytes()), reply: None, token: None }
    }

    fn payloads(due: Option<Vec<Received>>) -> Vec<String> {
        let due = due.unwrap_or_default();
        due.iter().map(|request| String::from_utf8_lossy(&request.payload).into_owned()).collect()
    }
}
