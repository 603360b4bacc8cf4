//! Striking the blows.

use super::{Deed, ProcessManager};
use crate::faults::{Harm, SingleFault, Trouble};
use crate::points::Point;
use crate::world::{LinkId, WorldState};

impl ProcessManager {
    pub(super) fn strike(&mut self, blow: &SingleFault) {
        match blow {
            // A process that is down already cannot be harmed.
            SingleFault::Process(place, harm) => {
                if let Some(link) = self.slots[*place].link() {
                    self.harm(*place, link, harm);
                }
            }
            SingleFault::Broker(trouble) => self.trouble(trouble),
        }
    }

    fn harm(&mut self, place: usize, link: LinkId, harm: &Harm) {
        let name = self.slots[place].name();
        self.world.change(|state| state.tell(format!("{name}: {harm:?}")));
        match harm {
            Harm::Kill { back_after_ms } => {
                self.world.change(|state| state.kill(link));
                self.bury(place, *back_after_ms);
            }
            Harm::KillAtCall { calls, back_after_ms } => {
                self.slots[place].back_after_ms = *back_after_ms;
                self.world.change(|state| state.kill_at_call(link, *calls));
            }
            Harm::Stall { for_ms } => {
                self.world.change(|state| {
                    state.reached(Point::Stalled);
                    state.set_stalled(link, true);
                });
                self.plan(*for_ms, Deed::Resume(link));
            }
            Harm::Cut { for_ms } => {
                self.world.change(|state| {
                    state.reached(Point::Partitioned);
                    state.set_cut(link, true);
                });
                self.plan(*for_ms, Deed::Mend(link));
            }
            Harm::Leave { back_after_ms } => {
                if self.slots[place].leave() {
                    self.world.change(|state| state.reached(Point::EngineLeft));
                    self.plan(*back_after_ms, Deed::Start(place));
                }
            }
        }
    }

    fn trouble(&mut self, trouble: &Trouble) {
        self.world.change(|state| state.tell(format!("broker: {trouble:?}")));
        match trouble {
            Trouble::Down { for_ms } => {
                self.world.change(|state| {
                    state.reached(Point::BrokerRestarted);
                    state.set_broker_down(true);
                });
                self.plan(*for_ms, Deed::BrokerUp);
            }
            Trouble::Full { for_ms } => {
                self.world.change(|state| state.broker.is_full = true);
                self.plan(*for_ms, Deed::Empty);
            }
            Trouble::Mute { for_ms } => {
                self.world.change(|state| state.is_broker_mute = true);
                self.plan(*for_ms, Deed::Unmute);
            }
            Trouble::Jump { by_us } => self.world.change(|state| state.broker.clock_offset_us += by_us),
            Trouble::Archived => self.world.change(WorldState::archive),
        }
    }
}
