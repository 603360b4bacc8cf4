//! Somebody who asks for views all the time, as gateways do for participants: of what is being called, of what has
//! ended, and of what never was, whatever befalls the engines meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, PubSub};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::{AgentId, NegotiationId, subject};
use serde_json::json;

use super::points::Point;
use super::trace::AnsweredView;
use super::world::{ProcessRole, World};
use super::{CallPlan, Scenario};

/// One run of so many has an observer.
const OBSERVED_ONE_IN: u32 = 2;
/// Tasks of each team that it asks for: the first ones.
const TASKS: u32 = 2;
/// Between two questions, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 10..300;
/// How long an answer is waited for, in milliseconds; longer than engines stand still at most.
const ANSWER_MS: std::ops::Range<u64> = 200..5000;

/// The answers, in the order in which they came.
#[derive(Clone, Default)]
pub(super) struct Views(Arc<Mutex<Vec<AnsweredView>>>);

impl Views {
    /// Everything answered so far.
    pub(super) fn answered(&self) -> Vec<AnsweredView> {
        self.0.lock().clone()
    }
}

/// See the module.
pub(super) struct Observer {
    world: Arc<World>,
    pub_sub: Arc<dyn PubSub>,
    rng: ChaCha8Rng,
    lanes: u8,
    negotiations: Vec<NegotiationId>,
    viewers: Vec<AgentId>,
    views: Views,
}

impl Observer {
    /// An observer, in some runs.
    pub(super) fn draw(seed: u64, world: &Arc<World>, scenario: &Scenario, views: Views) -> Option<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        if rng.random_range(0..OBSERVED_ONE_IN) > 0 {
            return None;
        }
        let viewers: Vec<AgentId> = scenario.agents.iter().map(|plan| plan.id.clone()).collect();
        let calls = || scenario.agents.iter().flat_map(|plan| &plan.calls);
        let of = |is_wanted: fn(&CallPlan) -> bool| {
            calls().filter(move |call| is_wanted(call)).map(|call| &call.negotiation)
        };
        let planned = of(|call| call.is_of_net() || call.cfp.bargain.is_some());
        let teams = of(|call| call.cfp.team.is_some());
        let families =
            teams.flat_map(|team| std::iter::once(team.clone()).chain((1..=TASKS).filter_map(|n| team.task(n))));
        let nobodys = NegotiationId::form(viewers.last()?, "never").ok();
        let negotiations = planned.cloned().chain(families).chain(nobodys).collect();
        let (_, bus) = world.connect("observer".to_owned(), ProcessRole::Agent);
        Some(Self {
            world: Arc::clone(world),
            pub_sub: bus.pub_sub,
            rng,
            lanes: scenario.lanes,
            negotiations,
            viewers,
            views,
        })
    }

    /// Asks until the run ends.
    pub(super) async fn drive(mut self) {
        loop {
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(GAP_MS))).await;
            let negotiation = self.negotiations[self.rng.random_range(0..self.negotiations.len())].clone();
            let initiator = self.viewers.iter().find(|viewer| viewer.as_str() == negotiation.initiator()).cloned();
            let anyone = self.viewers[self.rng.random_range(0..self.viewers.len())].clone();
            let viewer = initiator.filter(|_| self.rng.random_range(0..3) == 0).unwrap_or(anyone);
            let patience = Duration::from_millis(self.rng.random_range(ANSWER_MS));
            let question = Question { negotiation, viewer, lanes: self.lanes, patience };
            tokio::spawn(question.ask(Arc::clone(&self.world), Arc::clone(&self.pub_sub), self.views.clone()));
        }
    }
}

struct Question {
    negotiation: NegotiationId,
    viewer: AgentId,
    lanes: u8,
    patience: Duration,
}

impl Question {
    async fn ask(self, world: Arc<World>, pub_sub: Arc<dyn PubSub>, views: Views) {
        let Self { negotiation, viewer, lanes, patience } = self;
        let lane = negotiation.lane(lanes);
        let end = || world.last_seqs()[usize::from(lane.0)];
        let from_seq = end();
        let question = Bytes::from(json!({"negotiation": negotiation, "viewer": viewer}).to_string());
        let answer = match pub_sub.request(subject::view(lane), None, question, patience).await {
            Ok(answer) => answer,
            Err(BusError::NoResponder(_)) => return,
            Err(_) => return world.reached(Point::ViewUnanswered),
        };
        let to_seq = end();
        views.0.lock().push(AnsweredView { negotiation, viewer, lane, from_seq, to_seq, answer });
    }
}
