//! The end of a lane: a clean one says what it still has to say, within a bounded time.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::inputs::LaneWake;
use super::{Driver, OwnershipState};
use crate::membership::MembershipInput;
use crate::status::{LanePhase, StopReason};

/// Time for a clean stop: several fsyncs of a slow disk, and well under the ten seconds a container is given.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(2);

impl Driver {
    /// Stops the lane. After a shutdown what is under way is finished first; after anything else nothing more may leave.
    pub(super) async fn stop(mut self, reason: StopReason) {
        if let (StopReason::Shutdown, OwnershipState::Owner { epoch, .. }) = (&reason, self.ownership) {
            self.finish(epoch).await;
        } else if reason != StopReason::Shutdown {
            tracing::error!(lane = self.lane.0, %reason, "the lane stops");
        }
        self.report();
        self.status.send_modify(|status| {
            status.phase = LanePhase::Stopped(reason);
            status.is_fit = false;
            // The state goes with the task.
            (status.open, status.outbox, status.register_pending) = (0, 0, 0);
        });
        let _ = self.membership.try_send(MembershipInput::Changed);
    }

    /// Publishes what is queued, logs what was acknowledged and registered, and waits for what the bus still has to
    /// answer. No further record is read: the next owner folds it.
    async fn finish(&mut self, epoch: u64) {
        let deadline = Instant::now() + STOP_MAX;
        while !self.inputs.signals.is_empty() {
            let _ = self.handle_ready_signals();
        }
        self.inputs.cancel = CancellationToken::new();
        let finishing = async {
            self.publish().await;
            while !self.inputs.writes.is_empty() {
                self.finish_next().await;
            }
            let now = Instant::now();
            self.note_registered(now);
            while let Some(batch) = self.delivered.take(now) {
                self.append_delivered(epoch, batch);
            }
            while !self.inputs.appends.is_empty() {
                self.finish_next().await;
            }
            let _ = self.shared.bus.pub_sub.flush().await;
        };
        if timeout_at(deadline, finishing).await.is_err() {
            tracing::warn!(lane = self.lane.0, "the bus did not answer in time; the next owner finishes what is left");
        }
    }

    async fn finish_next(&mut self) {
        match self.inputs.wait(None, false).await {
            LaneWake::Write(done) => {
                self.handle_write(&done);
                self.publish().await;
            }
            LaneWake::Signal(signal) => {
                let _ = self.handle_signal(signal);
            }
            LaneWake::Append(_)
            | LaneWake::Maintenance(_)
            | LaneWake::View(_)
            | LaneWake::End(_)
            | LaneWake::Record(_)
            | LaneWake::Peers
            | LaneWake::Time
            | LaneWake::Shutdown => {}
        }
        self.note_delivery_events();
    }
}
