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
use crate::auth::{Identity, now_s};
use crate::http::Site;
use crate::http::streams::StreamLifetime;
use crate::metrics::CloseReason;
use crate::streams::{AgentStream, OpenedInbox, SharedStream};

/// Most agents that share a connection, those that come or go included.
const MEMBERS_MAX: usize = 256;

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
    /// What ends the connection from outside, of each agent; nothing once that agent has left.
    lifetimes: FuturesUnordered<BoxFuture<'static, Option<CloseReason>>>,
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
    /// [`Code::WrongType`] where the connection is not shared, [`Code::RateLimited`] where as many share it as may.
    pub(super) fn join(&mut self, id: Option<String>, token: String) -> Result<(), Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        members.join(id, token)
    }

    /// Lets an agent take part that has joined, in the place of itself where it does already. Returns it.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn add(&mut self, outcome: Result<(Identity, OpenedInbox), Refusal>) -> Result<AgentId, Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        let (identity, opened) = outcome?;
        Ok(members.add(identity, opened))
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
        if members.changes.len() >= 2 * MEMBERS_MAX {
            return Err(full());
        }
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
            reason = first_over(&mut self.lifetimes) => SessionEvent::Over(reason),
        }
    }

    fn join(&mut self, id: Option<String>, token: String) -> Result<(), Refusal> {
        if self.identities.len() + self.changes.len() >= MEMBERS_MAX {
            return Err(full());
        }
        let (site, peer) = (Arc::clone(&self.site), self.peer);
        let opening = self.stream.opener();
        let joining = async move {
            let outcome = async {
                let identity = site.admission.identify(Some(&token), peer).await?;
                // The leeway is for messages: with such a token the connection would end at once, for everybody.
                if identity.expires_s <= now_s() {
                    return Err(Refusal::new(Code::TokenExpired, "the token has expired").at("/token"));
                }
                let opened = opening.open(&identity.agent).await?;
                Ok((identity, opened))
            };
            MemberChange::Join { id, outcome: outcome.await }
        };
        self.changes.push_back(joining.boxed());
        Ok(())
    }

    fn add(&mut self, identity: Identity, opened: OpenedInbox) -> AgentId {
        let agent = identity.agent.clone();
        self.remove(&agent);
        let identity = Arc::new(identity);
        let (ended, left) = self.stream.add(opened);
        let mut lifetime = StreamLifetime::new(&self.site, Arc::clone(&identity), Some(ended));
        let over = async move {
            tokio::select! {
                reason = lifetime.over() => Some(reason),
                () = left.cancelled_owned() => None,
            }
        };
        self.lifetimes.push(over.boxed());
        self.identities.insert(agent.clone(), identity);
        agent
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
async fn first_over(lifetimes: &mut FuturesUnordered<BoxFuture<'static, Option<CloseReason>>>) -> CloseReason {
    loop {
        match lifetimes.next().await {
            Some(Some(reason)) => return reason,
            Some(None) => {}
            None => std::future::pending().await,
        }
    }
}
