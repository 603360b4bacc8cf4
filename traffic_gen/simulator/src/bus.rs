//! The simulated bus: the five traits over the one [`World`], as one process reaches it.
//!
//! Every call takes its way to the broker, takes effect there, and its answer takes its way back. Each of the three can
//! fail to happen, and the caller cannot tell which did.

mod documents;
mod log;
mod pub_sub;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::sync::Arc;

use bus::{Bus, BusError};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::points::Point;
use super::world::{Departure, LinkId, World, WorldState};

/// What a call is about, as far as the rare paths care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Append,
    Register,
    Other,
}

/// The answer to a call, on its way.
type AnswerSender<T> = oneshot::Sender<Result<T, BusError>>;

/// One process's handle.
#[derive(Clone)]
struct Handle {
    world: Arc<World>,
    link: LinkId,
    lanes: u8,
}

/// The bus as the process behind this link reaches it.
pub(super) fn connect(world: &Arc<World>, link: LinkId) -> Bus {
    let lanes = u8::try_from(world.state().broker.lanes.len()).unwrap_or(u8::MAX);
    let handle = Arc::new(Handle { world: Arc::clone(world), link, lanes });
    Bus {
        log: Arc::clone(&handle) as Arc<dyn bus::Log>,
        register: Arc::clone(&handle) as Arc<dyn bus::Register>,
        key_value: Arc::clone(&handle) as Arc<dyn bus::KeyValue>,
        pub_sub: Arc::clone(&handle) as Arc<dyn bus::PubSub>,
        blobs: handle,
    }
}

impl Handle {
    /// Makes a call when the future is first polled; dropping it later takes nothing back.
    fn call<T: Send + 'static>(
        &self,
        call: CallKind,
        effect: impl FnOnce(&mut WorldState, LinkId) -> Result<T, BusError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, BusError>> {
        async move {
            let (answer, outcome) = oneshot::channel();
            let link = self.link;
            self.world.change(|state| match state.depart(link) {
                Departure::Never => {}
                Departure::Leaves | Departure::LeavesLast => {
                    state.send(link, Box::new(move |state| reach(state, link, call, effect, answer)));
                }
            });
            match outcome.await {
                Ok(outcome) => outcome,
                // Only a dead process's calls are forgotten: it never learns anything any more.
                Err(_) => pending().await,
            }
        }
        .boxed()
    }
}

/// The request reaches the broker.
fn reach<T: Send + 'static>(
    state: &mut WorldState,
    link: LinkId,
    call: CallKind,
    effect: impl FnOnce(&mut WorldState, LinkId) -> Result<T, BusError>,
    answer: AnswerSender<T>,
) {
    if state.is_cut(link) || state.happens(state.weather.request_lost) {
        state.reached(Point::RequestLost);
        return give_up(state, link, answer);
    }
    let outcome = effect(state, link);
    if state.link(link).is_dead {
        match call {
            CallKind::Append if outcome.is_ok() => state.reached(Point::CrashAfterAppend),
            CallKind::Register if outcome.is_ok() => state.reached(Point::CrashAfterRegister),
            CallKind::Append | CallKind::Register | CallKind::Other => {}
        }
        return;
    }
    if state.is_broker_mute || state.happens(state.weather.answer_lost) {
        state.reached(Point::AnswerLost);
        if call == CallKind::Append && outcome.is_ok() {
            state.reached(Point::AppendStoredUnknown);
        }
        return give_up(state, link, answer);
    }
    let latency_us = state.latency_us();
    let come_back = move |state: &mut WorldState| {
        if state.is_cut(link) {
            return give_up(state, link, answer);
        }
        state.arrive(link, Box::new(move |_| drop(answer.send(outcome))));
    };
    state.after(latency_us, Box::new(come_back));
}

/// No answer comes; the caller learns it when its patience ends.
fn give_up<T: Send + 'static>(state: &mut WorldState, link: LinkId, answer: AnswerSender<T>) {
    let learn = move |_: &mut WorldState| drop(answer.send(Err(BusError::Unknown("no answer in time".to_owned()))));
    let timeout_us = state.weather.timeout_us;
    state.after(timeout_us, Box::new(move |state| state.arrive(link, Box::new(learn))));
}

/// A stream of what arrives. A process that is dead never hears that its stream ended.
fn incoming<T: Send + 'static>(receiver: UnboundedReceiver<T>) -> BoxStream<'static, T> {
    let next = |mut receiver: UnboundedReceiver<T>| async move {
        match receiver.recv().await {
            Some(item) => Some((item, receiver)),
            None => pending().await,
        }
    };
    stream::unfold(receiver, next).boxed()
}
