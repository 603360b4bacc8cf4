//! The link between one process and the broker: what can be cut, held back, or dead.

use std::collections::VecDeque;

use rand::RngExt;

use super::{Intervention, LinkId, ProcessRole, ScheduledEvent, WorldState};
use crate::points::Point;
use crate::trace::AckEventKind;

/// A process's link to the broker.
pub(super) struct Link {
    /// The process's name: an engine's or a gateway's id, unique among all incarnations.
    name: String,
    /// Whose it is.
    role: ProcessRole,
    /// The process was killed: nothing leaves and nothing arrives, for ever.
    is_dead: bool,
    /// The process stands still: what it sends and what it is sent waits.
    is_stalled: bool,
    /// The network is cut: what is sent is lost, what the broker repeats by itself waits.
    is_cut: bool,
    /// Calls until it is killed.
    crash_in: Option<u64>,
    /// What left while it stood still.
    outgoing: VecDeque<ScheduledEvent>,
    /// What arrived while it stood still.
    incoming: VecDeque<ScheduledEvent>,
    /// What the broker has for it and sends once the network is whole.
    owed: VecDeque<ScheduledEvent>,
}

impl WorldState {
    /// A new link.
    pub(super) fn add_link(&mut self, name: String, role: ProcessRole) -> LinkId {
        self.links.push(Link {
            name,
            role,
            is_dead: false,
            is_stalled: false,
            is_cut: false,
            crash_in: None,
            outgoing: VecDeque::new(),
            incoming: VecDeque::new(),
            owed: VecDeque::new(),
        });
        LinkId(self.links.len() - 1)
    }

    fn link(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0]
    }

    pub(super) fn name(&self, id: LinkId) -> &str {
        &self.links[id.0].name
    }

    pub(super) fn role(&self, id: LinkId) -> ProcessRole {
        self.links[id.0].role
    }

    pub(super) fn is_dead(&self, id: LinkId) -> bool {
        self.links[id.0].is_dead
    }

    pub(super) fn is_stalled(&self, id: LinkId) -> bool {
        self.links[id.0].is_stalled
    }

    /// Whether nothing passes between the process and the broker.
    pub(super) fn is_cut(&self, id: LinkId) -> bool {
        self.broker_faults.is_down || self.links[id.0].is_cut
    }

    /// A process makes a call: counts it, and says whether it leaves. The call that kills the process may be the last thing
    /// that leaves it.
    pub(super) fn depart(&mut self, id: LinkId) -> bool {
        let is_last_sent = self.rng.random_range(0..2) == 0;
        let link = self.link(id);
        if link.is_dead {
            return false;
        }
        match link.crash_in {
            Some(0) => {}
            Some(left) => {
                link.crash_in = Some(left - 1);
                return true;
            }
            None => return true,
        }
        // A process that stands still sends nothing before it dies.
        let is_last_sent = is_last_sent && !link.is_stalled;
        self.kill(id);
        self.crashed.push(id);
        self.reached(if is_last_sent { Point::CrashAfterEffect } else { Point::CrashBeforeEffect });
        is_last_sent
    }

    /// Sends something on its way to the broker; it is on its way even if the process dies now.
    pub(super) fn send(&mut self, id: LinkId, event: ScheduledEvent) {
        if self.is_stalled(id) {
            self.link(id).outgoing.push_back(event);
        } else {
            let latency_us = self.latency_us();
            self.after(latency_us, event);
        }
    }

    /// Something has reached the process's machine: it happens now, later when the process stands still, or never.
    pub(super) fn arrive(&mut self, id: LinkId, event: ScheduledEvent) {
        let link = self.link(id);
        if link.is_dead {
            return;
        }
        if link.is_stalled {
            link.incoming.push_back(event);
        } else {
            event(self);
        }
    }

    /// Something the broker sends until it arrives, in order: records of the log, changes of a bucket.
    pub(super) fn owe(&mut self, id: LinkId, event: ScheduledEvent) {
        if self.is_dead(id) {
            return;
        }
        if self.is_cut(id) || !self.link(id).owed.is_empty() {
            self.link(id).owed.push_back(event);
        } else {
            self.arrive(id, event);
        }
    }

    pub(super) fn apply(&mut self, intervention: Intervention) {
        match intervention {
            Intervention::Kill(id) => self.kill(id),
            Intervention::KillAtCall(id, calls) => self.link(id).crash_in = Some(calls),
            Intervention::Stall(id) => {
                self.reached(Point::Stalled);
                self.link(id).is_stalled = true;
            }
            Intervention::Resume(id) => self.resume(id),
            Intervention::Cut(id) => {
                self.reached(Point::Partitioned);
                self.link(id).is_cut = true;
            }
            Intervention::Mend(id) => self.mend(id),
            Intervention::Release(id) => {
                self.link(id).crash_in = None;
                self.resume(id);
                self.mend(id);
            }
            Intervention::BrokerDown => {
                self.reached(Point::BrokerRestarted);
                self.broker_faults.is_down = true;
            }
            Intervention::BrokerUp => self.raise_broker(),
            Intervention::LogFull(is_full) => self.broker_faults.is_full = is_full,
            Intervention::BrokerMute(is_mute) => self.broker_faults.is_mute = is_mute,
            Intervention::ClockJump(by_us) => self.broker_faults.clock_offset_us += by_us,
            Intervention::Archive => self.broker.archive(),
            Intervention::Calm => {
                self.network = self.network.calmed();
                (self.broker_faults.is_full, self.broker_faults.is_mute) = (false, false);
                self.raise_broker();
            }
        }
    }

    fn kill(&mut self, id: LinkId) {
        self.note_acks(id, AckEventKind::Died);
        let link = self.link(id);
        link.is_dead = true;
        link.outgoing.clear();
        link.incoming.clear();
        link.owed.clear();
        self.broker.forget(id);
    }

    /// The process goes on: what had arrived is read before what it makes the process send; what it was about to send
    /// leaves now.
    fn resume(&mut self, id: LinkId) {
        let link = self.link(id);
        link.is_stalled = false;
        let (incoming, outgoing) = (std::mem::take(&mut link.incoming), std::mem::take(&mut link.outgoing));
        for event in incoming {
            self.arrive(id, event);
        }
        self.note_acks(id, AckEventKind::Resumed);
        for event in outgoing {
            self.send(id, event);
        }
    }

    fn mend(&mut self, id: LinkId) {
        self.link(id).is_cut = false;
        self.pay(id);
    }

    fn raise_broker(&mut self) {
        self.broker_faults.is_down = false;
        for index in 0..self.links.len() {
            self.pay(LinkId(index));
        }
    }

    /// Hands over what the broker owes a process that it reaches.
    fn pay(&mut self, id: LinkId) {
        if self.is_cut(id) {
            return;
        }
        for event in std::mem::take(&mut self.link(id).owed) {
            self.arrive(id, event);
        }
    }
}
