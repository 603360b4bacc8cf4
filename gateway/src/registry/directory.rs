//! The agents' profiles, to be searched: a table beside those of the control plane, with a lock of its own, so that a long
//! search holds up no message. It follows the agents' table: what that holds, this finds (docs/spec/search.md#se-15).

use std::sync::Arc;

use parking_lot::RwLock;
use schemas::AgentId;
use schemas::control::{Registration, Tag, Visibility};
use schemas::ids::Capability;
use search::{Hit, HitPlace, PostingsIndex, ProfileDocument, ProfileStanding, Query};

use super::presence::Member;

/// Profiles added between two pauses while the directory is built anew: some milliseconds.
const ADDED_AT_ONCE: usize = 256;

/// The index over profiles.
type Profiles = PostingsIndex<Arc<Member>>;

/// The profiles of the agents that anybody may find.
#[derive(Default)]
pub(crate) struct Directory {
    profiles: RwLock<Profiles>,
}

impl Directory {
    /// Follows a change of one agent; `member` is what it is now.
    pub(super) fn follow(&self, agent: &AgentId, member: Option<Arc<Member>>) {
        let is_same = |known: &Arc<Member>| member.as_ref().is_some_and(|member| Arc::ptr_eq(known, member));
        if self.read(|profiles| profiles.value(agent).is_some_and(is_same)) {
            return;
        }
        // The words are counted before the lock is taken.
        let document = member.as_ref().map(|member| document(&member.registration));
        let mut profiles = self.profiles.write();
        put(&mut profiles, agent, member.zip(document));
    }

    /// Takes these agents in place of all it held. Searches find the former ones until the last is added.
    pub(super) async fn replace(&self, members: Vec<(AgentId, Arc<Member>)>) {
        let mut profiles = Profiles::default();
        for some in members.chunks(ADDED_AT_ONCE) {
            for (agent, member) in some {
                put(&mut profiles, agent, Some((member.clone(), document(&member.registration))));
            }
            tokio::task::yield_now().await;
        }
        *self.profiles.write() = profiles;
    }

    /// How many agents can be found.
    pub(crate) fn len(&self) -> usize {
        self.read(PostingsIndex::len)
    }

    /// The first `limit` hits behind `after` of those that `admits` admits, and how many profiles were looked at; long searches
    /// take milliseconds.
    pub(crate) fn search(
        &self,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
        admits: &dyn Fn(&AgentId, &Arc<Member>) -> bool,
    ) -> (Vec<Hit<Arc<Member>>>, usize) {
        self.read(|profiles| profiles.search_counted(query, limit, after, admits))
    }

    fn read<R>(&self, look: impl FnOnce(&Profiles) -> R) -> R {
        look(&self.profiles.read())
    }
}

/// Puts an agent as it is now, or removes it.
fn put(profiles: &mut Profiles, agent: &AgentId, now: Option<(Arc<Member>, ProfileDocument)>) {
    let found = now.and_then(|(member, document)| Some((standing(&member.registration)?, member, document)));
    match found {
        Some((standing, member, document)) => profiles.put(agent, document, standing, member),
        None => profiles.remove(agent),
    }
}

/// Whether an agent counts for everybody; nothing where nobody finds it.
fn standing(registration: &Registration) -> Option<ProfileStanding> {
    match registration.visibility {
        Visibility::Listed => Some(ProfileStanding::Listed),
        Visibility::Consented => Some(ProfileStanding::Unlisted),
        Visibility::Hidden => None,
    }
}

/// What searches read of a registration (docs/spec/search.md#se-9).
fn document(registration: &Registration) -> ProfileDocument {
    let description = registration.description.as_deref();
    let tags = registration.tags.iter().map(Tag::as_str);
    let capabilities = registration.capabilities.iter().map(Capability::as_str);
    ProfileDocument::of_texts(description.into_iter().chain(tags).chain(capabilities))
}
