//! Notes everything some agents hear, and passes it on to the recorder that judges the invariants.

use std::sync::Arc;

use agents::observer::{Observed, Observer};
use parking_lot::Mutex;
use schemas::AgentId;
use schemas::delivery::Delivery;
use tokio::time::Instant;
use traffic_gen::recorder::Recorder;

/// A delivery as it was heard.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) agent: AgentId,
    pub(crate) at: Instant,
    pub(crate) delivery: Delivery,
}

/// See the module.
pub(crate) struct Journal {
    pub(crate) recorder: Recorder,
    heard: Mutex<Vec<Heard>>,
}

impl Journal {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self { recorder: Recorder::start(Instant::now(), true, None), heard: Mutex::default() })
    }

    /// Everything heard so far, repeats included.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().clone()
    }
}

impl Observer for Journal {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        if let Observed::Delivered { delivery, .. } = event {
            self.heard.lock().push(Heard { agent: agent.clone(), at, delivery: delivery.clone() });
        }
        self.recorder.handle(agent, at, event);
    }
}
