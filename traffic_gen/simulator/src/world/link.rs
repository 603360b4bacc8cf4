//! The link between one process and the broker: what can be cut, held back, or dead.

use std::collections::VecDeque;

use super::{Event, WorldState};
use crate::points::Point;

/// A link's place in the list of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(usize);

/// Whose link it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProcessRole {
    /// A gateway's.
    Gateway,
    /// An engine's.
    Engine,
    /// An agent's.
    Agent,
}

/// A process's link to the broker.
pub(crate) struct Link {
    /// The process's name: an engine's or a gateway's id, unique among all incarnations.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) role: ProcessRole,
    /// The process was killed: nothing leaves and nothing arrives, for ever.
    pub(crate) is_dead: bool,
    /// The process stands still: what it sends and what it is sent waits.
    is_stalled: bool,
    /// The network is cut: what is sent is lost, what the broker repeats by itself waits.
    is_cut: bool,
    /// Calls until it is killed.
    crash_in: Option<u64>,
    /// What left while it stood still.
    outgoing: VecDeque<Event>,
    /// What arrived while it stood still.
    incoming: VecDeque<Event>,
    /// What the broker has for it and sends once the network is whole.
    owed: VecDeque<Event>,
}

/// How a call that is to be the process's last goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The process lives, or did not survive to send anything more.
    Leaves,
    /// It is the last thing that leaves: the process is dead.
    LeavesLast,
    /// It never leaves: the process is dead.
    Never,
}

impl WorldState {
    /// A new link.
    pub(crate) fn add_link(&mut self, name: String, role: ProcessRole) -> LinkId {
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

    /// A link.
    pub(crate) fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0]
    }

    /// Whether the process stands still.
    pub(crate) fn is_stalled(&self, id: LinkId) -> bool {
        self.link(id).is_stalled
    }

    /// Whether nothing passes between the process and the broker.
    pub(crate) fn is_cut(&self, id: LinkId) -> bool {
        self.is_broker_down || self.link(id).is_cut
    }

    /// A process makes a call: counts it, and says whether it leaves.
    pub(crate) fn depart(&mut self, id: LinkId) -> Departure {
        let is_last_sent = rand::RngExt::random_range(&mut self.rng, 0..2) == 0;
        let link = self.link_mut(id);
        if link.is_dead {
            return Departure::Never;
        }
        match link.crash_in {
            Some(0) => {}
            Some(left) => {
                link.crash_in = Some(left - 1);
                return Departure::Leaves;
            }
            None => return Departure::Leaves,
        }
        // A process that stands still sends nothing before it dies.
        let is_last_sent = is_last_sent && !link.is_stalled;
        self.kill(id);
        self.crashed.push(id);
        self.reached(if is_last_sent { Point::CrashAfterEffect } else { Point::CrashBeforeEffect });
        if is_last_sent { Departure::LeavesLast } else { Departure::Never }
    }

    /// Sends something on its way to the broker; it is on its way even if the process dies now.
    pub(crate) fn send(&mut self, id: LinkId, event: Event) {
        if self.link(id).is_stalled {
            self.link_mut(id).outgoing.push_back(event);
        } else {
            let latency_us = self.latency_us();
            self.after(latency_us, event);
        }
    }

    /// Something has reached the process's machine: it happens now, later when the process stands still, or never.
    pub(crate) fn arrive(&mut self, id: LinkId, event: Event) {
        let link = self.link_mut(id);
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
    pub(crate) fn owe(&mut self, id: LinkId, event: Event) {
        if self.link(id).is_dead {
            return;
        }
        if self.is_cut(id) || !self.link(id).owed.is_empty() {
            self.link_mut(id).owed.push_back(event);
        } else {
            self.arrive(id, event);
        }
    }

    /// Kills the process: its link is dead, its subscriptions are gone.
    pub(crate) fn kill(&mut self, id: LinkId) {
        let link = self.link_mut(id);
        link.is_dead = true;
        link.outgoing.clear();
        link.incoming.clear();
        link.owed.clear();
        self.broker.forget(id);
    }

    /// The process will be killed by the call after the next `calls`.
    pub(crate) fn kill_at_call(&mut self, id: LinkId, calls: u64) {
        self.link_mut(id).crash_in = Some(calls);
    }

    /// The process will not be killed by a call.
    pub(crate) fn spare(&mut self, id: LinkId) {
        self.link_mut(id).crash_in = None;
    }

    /// The process stands still, or goes on.
    pub(crate) fn set_stalled(&mut self, id: LinkId, is_stalled: bool) {
        let link = self.link_mut(id);
        link.is_stalled = is_stalled;
        if is_stalled {
            return;
        }
        // What had arrived is read before what it makes the process send; what it was about to send leaves now.
        let (incoming, outgoing) = (std::mem::take(&mut link.incoming), std::mem::take(&mut link.outgoing));
        for event in incoming {
            self.arrive(id, event);
        }
        for event in outgoing {
            self.send(id, event);
        }
    }

    /// The network is cut, or whole again.
    pub(crate) fn set_cut(&mut self, id: LinkId, is_cut: bool) {
        self.link_mut(id).is_cut = is_cut;
        if !is_cut {
            self.pay(id);
        }
    }

    /// The broker goes down, or comes back.
    pub(crate) fn set_broker_down(&mut self, is_down: bool) {
        self.is_broker_down = is_down;
        if !is_down {
            for index in 0..self.links.len() {
                self.pay(LinkId(index));
            }
        }
    }

    fn pay(&mut self, id: LinkId) {
        if self.is_cut(id) {
            return;
        }
        for event in std::mem::take(&mut self.link_mut(id).owed) {
            self.arrive(id, event);
        }
    }
}
