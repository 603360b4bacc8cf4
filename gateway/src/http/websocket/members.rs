//! The agents of one connection: the one that opened it, or those that joined a shared one.

use std::net::IpAddr;
use std::sync::Arc;

use ahash::HashMap;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{FutureExt as _, StreamExt as _};
use schemas::{AgentId, Code, Refusal};
use tokio_util::sync::CancellationToken;

use super::no_frame;
use super::session::SessionEvent;
use crate::auth::Identity;
use crate::http::Site;
use crate::http::streams::StreamLifetime;
use crate::metrics::CloseReason;
use crate::streams::{AgentStream, OpenedInbox, SharedStream};

/// Most agents that share a connection.
const MEMBERS_MAX: usize = 256;
/// Most that come or go at once.
const CHANGES_MAX: usize = 2 * MEMBERS_MAX;

/// Where the deliveries of a connection come from.
pub(super) enum SessionStream {
    /// The agent that opened it has it alone.
    Own(AgentStream),
    /// Agents share it.
    Shared(Box<Members>),
}

/// The agents that share a connection.
pub(super) struct Members {
    site: Arc<Site>,
    peer: Option<IpAddr>,
    stream: SharedStream,
    identities: HashMap<AgentId, Arc<Identity>>,
    /// Who comes and who goes, in the order in which it was said.
    changes: FuturesOrdered<BoxFuture<'static, MemberChange>>,
    /// What ends the stream of each agent from outside; nothing once that agent has left.
    lifetimes: FuturesUnordered<BoxFuture<'static, Option<(AgentId, CloseReason)>>>,
}

/// Who shares a connection changes.
pub(super) enum MemberChange {
    /// An agent joins, if it may.
    Join {
        /// The client's reference.
        id: Option<String>,
        /// Who it is, and its stream.
        outcome: Result<(Identity, OpenedInbox), Refusal>,
    },
    /// One leaves.
    Leave(AgentId),
    /// One may not stay.
    Over(AgentId, CloseReason),
}

impl SessionStream {
    /// What is cancelled when an administrator ends the stream; of a shared one each agent has its own.
    pub(super) fn ended(&self) -> Option<CancellationToken> {
        match self {
            Self::Own(stream) => Some(stream.ended()),
            Self::Shared(_) => None,
        }
    }

    /// How many agents have their streams here.
    pub(super) fn agents_len(&self) -> usize {
        match self {
            Self::Own(_) => 1,
            Self::Shared(members) => members.identities.len(),
        }
    }

    /// Whether there are agents that may stay when the token of whoever opened the connection is taken no longer.
    pub(super) fn holds_others(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Shared(members) => !(members.identities.is_empty() && members.changes.is_empty()),
        }
    }

    /// What comes next. May be dropped and called again.
    pub(super) async fn next(&mut self) -> SessionEvent {
        match self {
            Self::Own(stream) => SessionEvent::Delivery(stream.next().await),
            Self::Shared(members) => members.next().await,
        }
    }

    /// Whose a frame is: on a shared connection it says so, and on any other it does not.
    ///
    /// # Errors
    /// [`Code::WrongType`] where it does not say what it must, [`Code::Unauthorized`] of an agent that has not joined.
    pub(super) fn identity_of<'a>(
        &'a self,
        opener: &'a Arc<Identity>,
        agent: Option<&AgentId>,
    ) -> Result<&'a Arc<Identity>, Refusal> {
        match (self, agent) {
            (Self::Own(_), None) => Ok(opener),
            (Self::Shared(members), Some(agent)) => members.identities.get(agent).ok_or_else(|| {
                Refusal::new(Code::Unauthorized, "this agent has not joined the connection")
                    .at("/agent")
                    .expecting(r#"{"type":"join","token":…} before"#)
            }),
            (Self::Own(_), Some(_)) | (Self::Shared(_), None) => Err(no_frame()),
        }
    }

    /// Begins to let an agent take part.
    ///
    /// # Errors
    /// [`Code::WrongType`] where the connection is not shared, [`Code::RateLimited`] where too many come and go at once.
    pub(super) fn join(&mut self, id: Option<String>, token: String) -> Result<(), Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        members.join(id, token)
    }

    /// Lets an agent take part that has joined, in the place of itself where it does already. Returns it.
    ///
    /// # Errors
    /// Why it does not; [`Code::RateLimited`] where as many others share the connection as may.
    pub(super) fn add(&mut self, outcome: Result<(Identity, OpenedInbox), Refusal>) -> Result<AgentId, Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        let (identity, opened) = outcome?;
        members.add(identity, opened)
    }

    /// An agent takes part no longer, once those have joined that were to join before.
    ///
    /// # Errors
    /// [`Code::WrongType`] where the connection is not shared, [`Code::RateLimited`] where too many come and go at once.
    pub(super) fn leave(&mut self, agent: AgentId) -> Result<(), Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        if members.changes.is_empty() {
            members.remove(&agent);
            return Ok(());
        }
        members.check_changes()?;
        members.changes.push_back(std::future::ready(MemberChange::Leave(agent)).boxed());
        Ok(())
    }

    /// Removes an agent at once.
    pub(super) fn remove(&mut self, agent: &AgentId) {
        if let Self::Shared(members) = self {
            members.remove(agent);
        }
    }
}

impl Members {
    /// Nobody yet, on a connection from `peer` that `opener` has opened.
    ///
    /// # Errors
    /// As [`SharedStream::open`].
    pub(super) fn new(site: &Arc<Site>, opener: &AgentId, peer: Option<IpAddr>) -> Result<Self, Refusal> {
        Ok(Self {
            site: Arc::clone(site),
            peer,
            stream: SharedStream::open(&site.streams, opener)?,
            identities: HashMap::default(),
            changes: FuturesOrdered::new(),
            lifetimes: FuturesUnordered::new(),
        })
    }

    async fn next(&mut self) -> SessionEvent {
        tokio::select! {
            delivery = self.stream.next() => SessionEvent::Delivery(delivery),
            Some(change) = self.changes.next(), if !self.changes.is_empty() => SessionEvent::Member(change),
            (agent, reason) = first_over(&mut self.lifetimes) => SessionEvent::Member(MemberChange::Over(agent, reason)),
        }
    }

    fn join(&mut self, id: Option<String>, token: String) -> Result<(), Refusal> {
        self.check_changes()?;
        let (site, peer) = (Arc::clone(&self.site), self.peer);
        let opening = self.stream.opener();
        let joining = async move {
            let outcome = async {
                let identity = site.admission.identify(Some(&token), peer, |_| ()).await?;
                let opened = opening.open(&identity.agent).await?;
                Ok((identity, opened))
            };
            MemberChange::Join { id, outcome: outcome.await }
        };
        self.changes.push_back(joining.boxed());
        Ok(())
    }

    fn check_changes(&self) -> Result<(), Refusal> {
        if self.changes.len() >= CHANGES_MAX { Err(full()) } else { Ok(()) }
    }

    fn add(&mut self, identity: Identity, opened: OpenedInbox) -> Result<AgentId, Refusal> {
        let agent = identity.agent.clone();
        self.remove(&agent);
        if self.identities.len() >= MEMBERS_MAX {
            return Err(full());
        }
        let identity = Arc::new(identity);
        let (ended, left) = self.stream.add(opened);
        let mut lifetime = StreamLifetime::new(&self.site, Arc::clone(&identity), Some(ended));
        let named = agent.clone();
        let over = async move {
            tokio::select! {
                biased;
                () = left.cancelled_owned() => None,
                reason = lifetime.over() => Some((named, reason)),
            }
        };
        self.lifetimes.push(over.boxed());
        self.identities.insert(agent.clone(), identity);
        Ok(agent)
    }

    fn remove(&mut self, agent: &AgentId) {
        self.identities.remove(agent);
        self.stream.remove(agent);
    }
}

fn full() -> Refusal {
    Refusal::new(Code::RateLimited, "as many agents share this connection as may, or come and go at once")
        .expecting(format!("at most {MEMBERS_MAX}; open another connection"))
}

/// Waits until one of the agents may not stay, and says why. Those that have left are passed over.
async fn first_over(
    lifetimes: &mut FuturesUnordered<BoxFuture<'static, Option<(AgentId, CloseReason)>>>,
) -> (AgentId, CloseReason) {
    loop {
        match lifetimes.next().await {
            Some(Some(over)) => return over,
            Some(None) => {}
            None => std::future::pending().await,
        }
    }
}
