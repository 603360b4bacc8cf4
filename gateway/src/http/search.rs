//! `/v1/search`: agents by what they say of themselves (docs/spec/search.md).

mod cursor;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::search::{Hit, HitPlace, Query};
use axum::extract::State;
use axum::routing::post;
use parking_lot::Mutex;
use schemas::control::ConsentEffect;
use schemas::protocols::Protocol;
use schemas::search::{DEPTH_MAX, SearchAnswer, SearchHit, SearchRequest};
use schemas::validate::check_search;
use schemas::{AgentId, Code, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::cursor::Cursor;
use super::{Caller, HttpResult, JsonBody, RouteSpec, Site, document};
use crate::registry::{Member, PresenceView, Registry};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/search", &["post"], post(search))]
}

/// What a search costs beyond the one request it is.
const FURTHER_REQUESTS: NonZeroU32 = NonZeroU32::new(4).expect("4 is not 0");
/// Searches that look at profiles at one time: the threads they may take from everything else.
const AT_ONCE_MAX: usize = 2;
/// Longest wait of a search for one of these places: a hundred searches among a million agents.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Bounds how many searches look at profiles at one time: one of each agent, so that whoever searches much waits for itself.
pub(super) struct Searches {
    places: Arc<Semaphore>,
    /// The turn of each agent that searches.
    turns: Mutex<BTreeMap<AgentId, Arc<Semaphore>>>,
}

/// A place in the search of profiles, and the agent's turn.
type SearchPlace = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Default for Searches {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE_MAX)), turns: Mutex::default() }
    }
}

impl Searches {
    /// A place, once it is the agent's turn and there is one. Agents that wait for a place are served in the order in which they
    /// came.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when there is none in time.
    async fn place(&self, agent: &AgentId) -> Result<SearchPlace, Refusal> {
        let (turn, places) = (self.turn(agent), self.places.clone());
        let waiting = async { Some((turn.acquire_owned().await.ok()?, places.acquire_owned().await.ok()?)) };
        tokio::time::timeout(WAIT_MAX, waiting).await.ok().flatten().ok_or_else(|| {
            Refusal::new(Code::Overloaded, "too many searches wait at this gateway, or too many of this agent's")
                .retry_after_ms(1000)
        })
    }

    fn turn(&self, agent: &AgentId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        // Those that nobody holds or waits for.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(agent.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

/// Agents by text.
async fn search(State(site): State<Arc<Site>>, caller: Caller, JsonBody(bytes): JsonBody) -> HttpResult {
    let began = Instant::now();
    let answer = answer(&site, caller, &bytes).await;
    let hits = answer.as_ref().ok().map(|answer| answer.hits.len());
    site.metrics.control.discovered(hits, began.elapsed());
    let answer = answer?;
    site.metrics.control.searched(answer.hits.len());
    document(&answer)
}

async fn answer(site: &Site, Caller(identity): Caller, bytes: &[u8]) -> Result<SearchAnswer, Refusal> {
    site.admission.charge_further(&identity.agent, FURTHER_REQUESTS)?;
    let request = check_search(bytes)?;
    let after = Cursor::of_request(&request)?;
    let place = site.searches.place(&identity.agent).await?;
    let finding = Finding::new(&site.registry, identity.agent, request);
    let (registry, admission) = (site.registry.clone(), site.admission.clone());
    let searching = move || {
        // Held, and charged, until the search has ended, whether or not its caller still waits.
        let _place = place;
        let (answer, profiles) = finding.answer(&registry, after);
        admission.charge_answer(&finding.caller, 0, profiles);
        answer
    };
    let found = tokio::task::spawn_blocking(searching).await;
    found.map_err(|_| Refusal::new(Code::Internal, "a fault of the exchange; it has been recorded"))
}

/// A search, and what it needs to know who is found.
struct Finding {
    caller: AgentId,
    request: SearchRequest,
    presence: PresenceView,
}

impl Finding {
    fn new(registry: &Registry, caller: AgentId, request: SearchRequest) -> Self {
        let presence = registry.read().agents.presence(registry.now_ms());
        Self { caller, request, presence }
    }

    /// The hits of each text in turn, each agent once, and how many profiles were looked at. Takes as long as the texts are
    /// common.
    fn answer(&self, registry: &Registry, after: Option<Cursor>) -> (SearchAnswer, usize) {
        let (mut hits, mut next, mut known) = (Vec::new(), None, BTreeSet::new());
        let mut profiles = 0;
        let is_one = self.request.queries.len() == 1;
        for (number, text) in (0..).zip(&self.request.queries) {
            let depth = after.as_ref().map_or(0, |after| after.depth);
            let limit = self.request.limit.min(DEPTH_MAX.saturating_sub(depth)) as usize;
            let after = after.as_ref().map(|after| &after.place);
            // One more tells whether there is a further page.
            let (mut found, looked_at) = self.find(registry, &Query::of_text(text), limit + 1, after);
            profiles += looked_at;
            let is_more = found.len() > limit;
            found.truncate(limit);
            let depth = depth + u32::try_from(found.len()).unwrap_or(u32::MAX);
            if let Some(last) = found.last().filter(|_| is_one && is_more && depth < DEPTH_MAX) {
                next = Some(Cursor { depth, place: last.place.clone() }.to_text(&self.request));
            }
            let is_new = |hit: &Hit<_>| known.insert(hit.place.agent.clone());
            hits.extend(found.into_iter().filter(is_new).map(|hit| self.hit(number, hit)));
        }
        (SearchAnswer { hits, next }, profiles)
    }

    fn find(
        &self,
        registry: &Registry,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
    ) -> (Vec<Hit<Arc<Member>>>, usize) {
        registry.directory().search(query, limit, after, &|agent, member| self.admits(agent, member))
    }

    /// Whether the caller may find an agent, and wants it.
    fn admits(&self, agent: &AgentId, member: &Member) -> bool {
        let (request, registration) = (&self.request, &*member.registration);
        *agent != self.caller
            && request.kind.is_none_or(|kind| registration.kind == kind)
            && request.capabilities.iter().all(|wanted| registration.capabilities.contains(wanted))
            && request.tags.iter().all(|wanted| registration.tags.contains(wanted))
            && request.topic.as_ref().is_none_or(|wanted| registration.topics.contains(wanted))
            && registration.is_visible_to(&self.caller)
            && (!request.present || self.presence.is_present(member))
            && (!request.reachable || self.is_reachable(member))
    }

    /// Whether a team call of the caller to the agent would be let through.
    fn is_reachable(&self, member: &Member) -> bool {
        member.registration.consent.effect(None, &self.caller, Protocol::Team) == ConsentEffect::Allow
    }

    fn hit(&self, query: u32, Hit { place: HitPlace { score, agent }, value: member }: Hit<Arc<Member>>) -> SearchHit {
        let registration = &member.registration;
        SearchHit {
            agent,
            kind: registration.kind,
            description: registration.description.clone(),
            tags: registration.tags.clone(),
            capabilities: registration.capabilities.clone(),
            query,
            score,
            present: self.presence.is_present(&member),
            reachable: self.is_reachable(&member),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_searches_without_end_holds_one_place_and_others_have_theirs_at_once() {
        let searches = Searches::default();
        let [heavy, light] = ["heavy", "light"].map(|name| AgentId::try_new(name).unwrap());
        let held = searches.place(&heavy).await.unwrap();
        let began = tokio::time::Instant::now();
        let further = (0..20).map(|_| searches.place(&heavy));
        let others = async {
            for _ in 0..100 {
                drop(searches.place(&light).await.unwrap());
            }
            began.elapsed()
        };
        let (refused, waited) = tokio::join!(futures_util::future::join_all(further), others);
        assert_eq!(waited, Duration::ZERO);
        assert!(refused.iter().all(|place| place.as_ref().is_err_and(|refusal| refusal.code == Code::Overloaded)));
        drop(held);
        assert!(searches.place(&heavy).await.is_ok());
        assert!(searches.turns.lock().len() <= 1, "nobody else searches");
    }
}
