//! How a lane stops.

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::LaneDriver;
use crate::lane::{LaneWake, STOP_MAX};
use crate::status::{LanePhase, StopReason};

impl LaneDriver {
    /// Stops the lane. After a shutdown what is under way is finished first; after anything else nothing more may leave.
    pub(super) async fn stop(mut self, reason: StopReason) {
        if let (StopReason::Shutdown, Some(epoch)) = (&reason, self.ownership.epoch()) {
            self.finish(epoch).await;
        } else if reason != StopReason::Shutdown {
            tracing::error!(lane = self.lane.0, %reason, "the lane stops");
        }
        self.report(Instant::now());
        self.status.send_modify(|status| {
            status.phase = LanePhase::Stopped(reason);
            status.is_fit = false;
            // The state goes with the task.
            (status.open, status.outbox, status.register_pending) = (0, 0, 0);
        });
        self.ownership.announce();
    }

    /// Publishes what is queued, logs what was acknowledged and registered, and waits for what the bus still has to
    /// answer. No further record is read: the next owner folds it.
    async fn finish(&mut self, epoch: u64) {
        let deadline = Instant::now() + STOP_MAX;
        while let Ok(signal) = self.inputs.signals.try_recv() {
            let _ = self.handle_signal(signal);
        }
        self.inputs.cancel = CancellationToken::new();
        let finishing = async {
            self.publish().await;
            while !self.inputs.writes.is_empty() {
                self.finish_next().await;
            }
            let now = Instant::now();
            self.publisher.note_registered(self.fold.position(), now);
            self.publisher.append_all_delivered(epoch, now, &mut self.inputs);
            while !self.inputs.appends.is_empty() {
                self.finish_next().await;
            }
            let _ = self.shared.bus.pub_sub.flush().await;
        };
        if timeout_at(deadline, finishing).await.is_err() {
            tracing::warn!(lane = self.lane.0, "the bus did not answer in time; the next owner finishes what is left");
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is finished")]
    async fn finish_next(&mut self) {
        match self.inputs.wait(None, false).await {
            LaneWake::Write(done) => {
                self.publisher.handle_write(&done, self.fold.state(), &mut self.observer);
                self.publish().await;
            }
            LaneWake::Signal(signal) => {
                let _ = self.handle_signal(signal);
            }
            _ => {}
        }
        self.observe_deliveries();
    }
}
