//! The gateways that run, as agents reach them: for streams and acknowledgements, which do not pass through the broker.

use gateway::{AgentStreams, GatewayHandle};
use rand::RngExt;
use schemas::acknowledgement::AgentAcks;
use schemas::{AgentId, DeliveryId};
use tokio::sync::broadcast;

use super::{LinkId, RunningGateway, World, WorldState};
use crate::points::Point;
use crate::trace::AckEventKind;

impl World {
    /// A gateway runs and takes streams and acknowledgements, or is no more.
    pub(crate) fn set_gateway(&self, link: LinkId, gateway: Option<&GatewayHandle>) {
        let running = gateway.map(|gateway| RunningGateway {
            acknowledgements: gateway.acknowledgements(),
            streams: gateway.streams(),
            runs: broadcast::Sender::new(1),
        });
        let mut state = self.state.lock();
        match running {
            Some(running) => drop(state.gateways.insert(link, running)),
            None => drop(state.gateways.remove(&link)),
        }
    }

    /// The gateways that run; the receiver of each fails once it does not.
    pub(crate) fn gateways(&self) -> Vec<(LinkId, AgentStreams, broadcast::Receiver<()>)> {
        let state = self.state.lock();
        let running = state.gateways.iter();
        running.map(|(link, gateway)| (*link, gateway.streams.clone(), gateway.runs.subscribe())).collect()
    }

    /// An agent has a stream open at a gateway, or none any more.
    pub(crate) fn note_stream(&self, gateway: LinkId, agent: &AgentId, is_open: bool) {
        let mut state = self.state.lock();
        let now_us = state.now_us();
        state.presence.note_stream(gateway, agent, is_open, now_us);
    }

    /// An agent acknowledges at some gateway, as over a stream; whether there is one.
    pub(crate) fn acknowledge(&self, agent: &AgentId, ids: &[DeliveryId]) -> bool {
        let acks = (agent.clone(), ids.to_vec());
        self.change(|state| send_acks(state, acks))
    }
}

/// An acknowledgement is on its way to a gateway, which may die before it arrives.
fn send_acks(state: &mut WorldState, acks: AgentAcks) -> bool {
    let alive: Vec<LinkId> = state.gateways.keys().copied().filter(|link| !state.is_dead(*link)).collect();
    if alive.is_empty() {
        return false;
    }
    let link = alive[state.rng.random_range(0..alive.len())];
    let Some(acknowledgements) = state.gateways.get(&link).map(|gateway| gateway.acknowledgements.clone()) else {
        return false;
    };
    let take = move |state: &mut WorldState| {
        let taken = acknowledgements.collect(&acks.0, &acks.1);
        debug_assert!(taken.is_ok(), "an inbox message has no more deliveries than one may acknowledge");
        state.reached(Point::AckCollected);
        state.note_acks(link, AckEventKind::Taken(acks));
    };
    let latency_us = state.latency_us();
    state.after(latency_us, Box::new(move |state| state.arrive(link, Box::new(take))));
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use gateway::{Gateway, GatewayConfig, GatewayMetrics};
    use parking_lot::Mutex;

    use super::super::{NetworkFaults, ProcessRole, World};

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_gateways_end_hears_of_it_in_the_order_of_waiting() {
        let world = World::new(7, 1, NetworkFaults::default());
        tokio::spawn(Arc::clone(&world).drive());
        let (link, bus) = world.connect("gateway-0-1".to_owned(), ProcessRole::Gateway);
        let mut config = GatewayConfig::new(crate::keys::auth());
        (config.id, config.listen) = ("gateway-0-1".to_owned(), None);
        config.policies = policy_core::policy::presets();
        let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
        let gateway = Gateway::start(bus, config, metrics).await.unwrap();
        world.set_gateway(link, Some(&gateway));
        let woken = Arc::new(Mutex::new(Vec::new()));
        for number in 0..16 {
            let (_, _, mut runs) = world.gateways().swap_remove(0);
            let woken = Arc::clone(&woken);
            tokio::spawn(async move {
                let _ = runs.recv().await;
                woken.lock().push(number);
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.set_gateway(link, None);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*woken.lock(), (0..16).collect::<Vec<_>>());
    }
}
