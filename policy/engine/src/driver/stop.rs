//! The end of a lane: a clean one says what it still has to say, within a bounded time.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::inputs::Wake;
use super::{Driver, Stage};
use crate::status::{LanePhase, StopReason};

/// Time for a clean stop: several fsyncs of a slow disk, and well under the ten seconds a container is given.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(2);

impl Driver {
    /// Stops the lane. After a shutdown what is under way is finished first; after anything else nothing more may leave.
    pub(super) async fn stop(mut self, reason: StopReason) {
        if let (StopReason::Shutdown, Stage::Owner { epoch }) = (&reason, self.stage) {
            self.finish(epoch).await;
        } else if reason != StopReason::Shutdown {
            tracing::error!(lane = self.lane.0, %reason, "the lane stops");
        }
        self.report();
        self.status.send_modify(|status| status.phase = LanePhase::Stopped(reason));
    }

    /// Publishes what is queued, logs what was acknowledged, and waits for what the bus still has to answer. No further
    /// record is read: the next owner folds it.
    async fn finish(&mut self, epoch: u64) {
        let deadline = Instant::now() + STOP_MAX;
        while !self.inputs.signals.is_empty() {
            self.handle_ready_signals();
        }
        while let Some(ids) = self.delivered.take(Instant::now()) {
            self.append_delivered(epoch, ids);
        }
        let finishing = async {
            self.publish().await;
            self.inputs.cancel = tokio_util::sync::CancellationToken::new();
            while !(self.inputs.appends.is_empty() && self.inputs.writes.is_empty()) {
                match self.inputs.wait(None, false).await {
                    Wake::Write(done) => {
                        self.handle_write(&done);
                        self.publish().await;
                    }
                    Wake::Append(_) => {}
                    Wake::Signal(signal) => self.handle_signal(signal),
                    Wake::View(_) | Wake::Record(_) | Wake::Time | Wake::Shutdown => {}
                }
            }
            let _ = self.shared.bus.pub_sub.flush().await;
        };
        if timeout_at(deadline, finishing).await.is_err() {
            tracing::warn!(lane = self.lane.0, "the bus did not answer in time; the next owner finishes what is left");
        }
    }
}
