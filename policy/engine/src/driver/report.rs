//! What a lane says of itself: to the engine's handle, to the gauges, and through the heartbeats to other engines.

use tokio::time::Instant;

use super::Driver;
use crate::membership::MembershipInput;

/// Digests in each heartbeat: those of the last few seconds of a busy lane, and more than one in case one is lost.
const DIGESTS_TOLD: usize = 4;

impl Driver {
    pub(super) fn report(&mut self) {
        self.gauges.set(self.outbox.len(), self.position, self.is_owner());
        self.gauges.look(self.clock.log_time(Instant::now()));
        let (phase, is_fit) = (self.phase(), self.is_fit());
        let mut is_news = false;
        self.status.send_modify(|status| {
            is_news = status.phase != phase || status.is_fit != is_fit;
            status.phase = phase;
            status.is_fit = is_fit;
            status.position = self.position;
            status.epoch = self.lane_state.epoch();
            status.rules = self.lane_state.rules();
            status.now = self.lane_state.now();
            status.open = self.lane_state.open_count();
            status.outbox = self.outbox.len();
            status.register_pending = self.registrar.len();
            status.digests = self.digests.recent(DIGESTS_TOLD);
            status.faults = self.faults();
        });
        if is_news {
            // A full queue is heard with the next heartbeat.
            let _ = self.membership.try_send(MembershipInput::Changed);
        }
    }

    fn faults(&self) -> Vec<String> {
        let unclaimed = self
            .claim_failure
            .as_ref()
            .map(|error| format!("lane {}: it cannot be claimed ({error}); see that the log takes records", self.lane));
        let clock = self.clock_health.faults(&self.shared.config.clock);
        unclaimed.into_iter().chain(clock.map(|fault| format!("lane {}: {fault}", self.lane))).collect()
    }
}
