//! By which gateway each agent is reached, as hellos and the gateways' own lists say. One for all lanes of an engine.
//!
//! Nothing here is binding, and an engine that knows nothing serves every agent: a delivery goes to a gateway only the first
//! time, and only if that gateway alone is known to hold the agent's streams; repeats go to the agent's inbox.

use std::time::Duration;

use ahash::HashMap;
use parking_lot::RwLock;
use schemas::presence::{Hello, REPORT_PERIOD_MS};
use schemas::{AgentId, GatewayId};
use tokio::time::Instant;

/// Agents of which it is remembered where they are; others are reached on their inboxes. Twice what a gateway registers, with
/// room to spare.
const AGENTS_MAX: usize = 262_144;
/// Gateways remembered of one agent. With two it is reached on its inbox already.
const GATEWAYS_MAX: usize = 8;
/// How long a gateway's word counts: two of its lists may be late, or one lost.
const GATEWAY_COUNTS: Duration = Duration::from_millis(REPORT_PERIOD_MS * 5 / 2);
/// How long an agent counts as one that reads on the bus after it has said so: the longest lease, in which it says so thrice.
const ON_BUS_COUNTS: Duration = Duration::from_secs(86_400);
/// Between two looks for what counts no longer.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub(crate) struct AgentRoutes(RwLock<RouteTable>);

#[derive(Default)]
struct RouteTable {
    places_by_agent: HashMap<AgentId, AgentPlace>,
    swept_at: Option<Instant>,
}

/// Where one agent is.
#[derive(Default)]
struct AgentPlace {
    /// Gateways that hold a stream of it, and until when that counts.
    gateways: Vec<(GatewayId, Instant)>,
    /// It reads its inbox on the bus, until then.
    on_bus_until: Option<Instant>,
}

impl AgentRoutes {
    /// An agent, or a gateway for it, said hello.
    pub(crate) fn handle_hello(&self, agent: &AgentId, hello: &Hello, now: Instant) {
        let mut table = self.0.write();
        table.sweep(now);
        match hello {
            Hello::Connected(Some(gateway)) => table.note_gateway(agent, gateway, now),
            Hello::Connected(None) | Hello::Renewal(None) => {
                if let Some(place) = table.place(agent) {
                    place.on_bus_until = Some(now + ON_BUS_COUNTS);
                }
            }
            // Over HTTP, from an agent that may have no stream at all.
            Hello::Renewal(Some(_)) => {}
            Hello::Closed(gateway) => {
                if let Some(place) = table.places_by_agent.get_mut(agent) {
                    place.gateways.retain(|(known, _)| known != gateway);
                }
            }
        }
    }

    /// A gateway listed agents that have a stream open there.
    pub(crate) fn handle_list(&self, gateway: &GatewayId, agents: &[AgentId], now: Instant) {
        let mut table = self.0.write();
        table.sweep(now);
        agents.iter().for_each(|agent| table.note_gateway(agent, gateway, now));
    }

    /// Names the gateway that alone holds an agent's streams. Nothing changes until it is dropped.
    pub(crate) fn lock(&self, now: Instant) -> impl Fn(&AgentId) -> Option<GatewayId> {
        let table = self.0.read();
        move |agent| table.gateway_of(agent, now)
    }
}

impl RouteTable {
    fn gateway_of(&self, agent: &AgentId, now: Instant) -> Option<GatewayId> {
        let place = self.places_by_agent.get(agent)?;
        if place.on_bus_until.is_some_and(|until| until > now) {
            return None;
        }
        let mut gateways = place.gateways.iter().filter(|(_, until)| *until > now);
        let (gateway, _) = gateways.next()?;
        gateways.next().is_none().then(|| gateway.clone())
    }

    fn note_gateway(&mut self, agent: &AgentId, gateway: &GatewayId, now: Instant) {
        let Some(place) = self.place(agent) else { return };
        place.gateways.retain(|(known, until)| known != gateway && *until > now);
        if place.gateways.len() == GATEWAYS_MAX {
            place.gateways.remove(0);
        }
        place.gateways.push((gateway.clone(), now + GATEWAY_COUNTS));
    }

    /// Where an agent is, as far as there is room to remember it.
    fn place(&mut self, agent: &AgentId) -> Option<&mut AgentPlace> {
        if self.places_by_agent.len() >= AGENTS_MAX && !self.places_by_agent.contains_key(agent) {
            return None;
        }
        Some(self.places_by_agent.entry(agent.clone()).or_default())
    }

    /// Forgets what counts no longer.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|at| now.saturating_duration_since(at) < SWEEP_PERIOD) {
            return;
        }
        self.swept_at = Some(now);
        self.places_by_agent.retain(|_, place| {
            place.gateways.retain(|(_, until)| *until > now);
            !place.gateways.is_empty() || place.on_bus_until.is_some_and(|until| until > now)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn gateway(name: &str) -> GatewayId {
        GatewayId::try_new(name).unwrap()
    }

    #[test]
    fn an_agent_is_reached_by_its_gateway_only_while_that_one_alone_holds_its_streams() {
        let (one, other) = (gateway("one"), gateway("other"));
        let (opened, moved) = (Hello::Connected(Some(one.clone())), Hello::Connected(Some(other.clone())));
        let (closed, gone) = (Hello::Closed(one.clone()), Hello::Closed(other.clone()));
        let (on_bus, renewal) = (Hello::Connected(None), Hello::Renewal(None));
        let asked = Hello::Renewal(Some(one.clone()));
        for (name, hellos, expected) in [
            ("unknown", vec![], None),
            ("a stream", vec![&opened], Some(&one)),
            ("another stream at the same gateway", vec![&opened, &opened], Some(&one)),
            ("closed", vec![&opened, &closed], None),
            ("at two", vec![&opened, &moved], None),
            ("moved", vec![&opened, &closed, &moved], Some(&other)),
            ("moved, and its old gateway notices last", vec![&opened, &moved, &closed], Some(&other)),
            ("another gateway's word changes nothing", vec![&opened, &gone], Some(&one)),
            ("on the bus", vec![&on_bus], None),
            ("on the bus beside a stream", vec![&opened, &on_bus], None),
            ("on the bus before a stream", vec![&on_bus, &opened], None),
            ("still on the bus", vec![&opened, &renewal], None),
            ("renewed over HTTP", vec![&opened, &asked], Some(&one)),
            ("renewed over HTTP without a stream", vec![&asked], None),
        ] {
            let routes = AgentRoutes::default();
            let now = Instant::now();
            hellos.into_iter().for_each(|hello| routes.handle_hello(&id("bob"), hello, now));
            assert_eq!(routes.lock(now)(&id("bob")).as_ref(), expected, "{name}");
            assert_eq!(routes.lock(now)(&id("ann")), None, "{name}: others are where they were");
        }
    }

    #[test]
    fn a_gateway_is_forgotten_unless_its_lists_name_the_agent() {
        let (routes, one, began) = (AgentRoutes::default(), gateway("one"), Instant::now());
        routes.handle_hello(&id("ann"), &Hello::Connected(Some(one.clone())), began);
        let listed_at = began + Duration::from_millis(REPORT_PERIOD_MS);
        routes.handle_list(&one, &[id("bob")], listed_at);
        let at = |agent: &str, now| routes.lock(now)(&id(agent));
        let later = began + GATEWAY_COUNTS;
        assert_eq!((at("ann", listed_at), at("bob", listed_at)), (Some(one.clone()), Some(one.clone())));
        assert_eq!((at("ann", later), at("bob", later)), (None, Some(one.clone())));
        assert_eq!(at("bob", listed_at + GATEWAY_COUNTS), None);
        // A gateway that is gone does not keep the agent from being reached by its next one.
        routes.handle_hello(&id("bob"), &Hello::Connected(Some(gateway("other"))), later);
        assert_eq!((at("bob", later), at("bob", later + GATEWAY_COUNTS / 2)), (None, Some(gateway("other"))));
    }

    #[test]
    fn an_agent_on_the_bus_is_one_for_the_longest_lease() {
        let (routes, one, began) = (AgentRoutes::default(), gateway("one"), Instant::now());
        routes.handle_hello(&id("bob"), &Hello::Renewal(None), began);
        for after in [Duration::ZERO, ON_BUS_COUNTS - Duration::from_secs(1)] {
            routes.handle_list(&one, &[id("bob")], began + after);
            assert_eq!(routes.lock(began + after)(&id("bob")), None);
        }
        let later = began + ON_BUS_COUNTS;
        routes.handle_list(&one, &[id("bob")], later);
        assert_eq!(routes.lock(later)(&id("bob")), Some(one));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_swept() {
        let (routes, one, now) = (AgentRoutes::default(), gateway("one"), Instant::now());
        let agents: Vec<_> = (0..AGENTS_MAX).map(|number| id(&format!("a{number}"))).collect();
        routes.handle_list(&one, &agents, now);
        routes.handle_hello(&id("late"), &Hello::Connected(Some(one.clone())), now);
        assert_eq!(routes.lock(now)(&id("late")), None, "no room");
        for number in 0..2 * GATEWAYS_MAX {
            routes.handle_hello(&agents[0], &Hello::Connected(Some(gateway(&format!("g{number}")))), now);
        }
        assert_eq!(routes.0.write().places_by_agent[&agents[0]].gateways.len(), GATEWAYS_MAX);
        let later = now + SWEEP_PERIOD;
        routes.handle_hello(&id("late"), &Hello::Connected(Some(one.clone())), later);
        assert_eq!(routes.lock(later)(&id("late")), Some(one));
        assert_eq!(routes.0.write().places_by_agent.len(), 1);
    }
}
