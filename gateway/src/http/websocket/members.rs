//! The agents of one connection: the one that opened it, or those that joined a shared one.

use std::net::IpAddr;
use std::sync::Arc;

use ahash::HashMap;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
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

/// Most agents that share a connection, those that are about to included.
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
    joining: FuturesUnordered<BoxFuture<'static, Joining>>,
    /// What ends the connection from outside, of each agent; nothing once that agent has left.
    lifetimes: FuturesUnordered<BoxFuture<'static, Option<CloseReason>>>,
}

/// An agent about to join.
pub(super) struct Joining {
    /// The client's reference.
    pub(super) id: Option<String>,
    /// Who it is, and its stream.
    pub(super) outcome: Result<(Identity, OpenedInbox), Refusal>,
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

    /// Lets an agent take part that has joined. Returns it.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn add(&mut self, outcome: Result<(Identity, OpenedInbox), Refusal>) -> Result<AgentId, Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        let (identity, opened) = outcome?;
        members.add(identity, opened)
    }

    /// An agent takes part no longer.
    ///
    /// # Errors
    /// [`Code::WrongType`] where the connection is not shared.
    pub(super) fn leave(&mut self, agent: &AgentId) -> Result<(), Refusal> {
        let Self::Shared(members) = self else { return Err(no_frame()) };
        members.identities.remove(agent);
        members.stream.remove(agent);
        Ok(())
    }
}

impl Members {
    /// Nobody yet; `peer` is where the connection comes from.
    pub(super) fn new(site: &Arc<Site>, peer: Option<IpAddr>) -> Self {
        Self {
            site: Arc::clone(site),
            peer,
            stream: SharedStream::new(&site.streams),
            identities: HashMap::default(),
            joining: FuturesUnordered::new(),
            lifetimes: FuturesUnordered::new(),
        }
    }

    async fn next(&mut self) -> SessionEvent {
        tokio::select! {
            delivery = self.stream.next() => SessionEvent::Delivery(delivery),
            Some(joining) = self.joining.next(), if !self.joining.is_empty() => SessionEvent::Joining(joining),
            Some(Some(reason)) = self.lifetimes.next(), if !self.lifetimes.is_empty() => SessionEvent::Over(reason),
        }
    }

    fn join(&mut self, id: Option<String>, token: String) -> Result<(), Refusal> {
        if self.identities.len() + self.joining.len() >= MEMBERS_MAX {
            return Err(Refusal::new(Code::RateLimited, "as many agents share this connection as may")
                .expecting(format!("at most {MEMBERS_MAX}; open another connection")));
        }
        let (site, peer) = (Arc::clone(&self.site), self.peer);
        let opening = self.stream.opener();
        let joining = async move {
            let outcome = async {
                let identity = site.admission.identify(Some(&token), peer).await?;
                let opened = opening.open(&identity.agent).await?;
                Ok((identity, opened))
            };
            Joining { id, outcome: outcome.await }
        };
        self.joining.push(joining.boxed());
        Ok(())
    }

    fn add(&mut self, identity: Identity, opened: OpenedInbox) -> Result<AgentId, Refusal> {
        let agent = identity.agent.clone();
        if self.identities.contains_key(&agent) {
            return Err(Refusal::new(Code::NotAllowed, "this agent shares the connection already"));
        }
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
        Ok(agent)
    }
}
