//! A small client of the gateway's control plane: who one is, registrations, groups, policies.

mod answer;

use std::time::Duration;

pub(crate) use answer::{body, direct};
pub use answer::{cause, client, proxy_variable};

use schemas::control::{Group, Registration, Tag};
use schemas::ids::Capability;
use schemas::search::{SearchAnswer, SearchRequest};
use schemas::{AgentId, Code, Policy, Refusal, TopicName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The gateway refused.
    #[error("{}", in_full(.0))]
    Refused(Refusal),
    /// It answered something else.
    #[error("the gateway answered {status}: {body}")]
    Unexpected {
        /// HTTP status.
        status: u16,
        /// The first characters of the body.
        body: String,
    },
    /// It sent the client elsewhere: a token is for the gateway it was meant for.
    #[error("{url} answered {status} and leads to {location}; redirects are not followed: name the gateway itself")]
    Redirected {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// Where it leads.
        location: String,
    },
    /// Its answer is not what this build reads.
    #[error("{url} answered something that cannot be read: {what}; is it a gateway, and of this version?")]
    Unreadable {
        /// What was asked.
        url: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// The request cannot be made, such as with a token that no header can carry.
    #[error("the request cannot be made: {0}; check the address and the token")]
    Unusable(String),
    /// It could not be reached.
    #[error("the gateway cannot be reached: {0}")]
    Unreachable(reqwest::Error),
}

impl From<reqwest::Error> for ControlError {
    fn from(error: reqwest::Error) -> Self {
        if !error.is_builder() {
            return Self::Unreachable(error);
        }
        let error = error.without_url();
        Self::Unusable(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    }
}

impl From<ControlError> for Refusal {
    /// The gateway's own, or [`Code::Unavailable`], which names no address: it is told to strangers.
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(refusal) => refusal,
            ControlError::Unreachable(_) => Self::new(Code::Unavailable, "no gateway answers").retry_after_ms(1000),
            ControlError::Unexpected { .. }
            | ControlError::Redirected { .. }
            | ControlError::Unreadable { .. }
            | ControlError::Unusable(_) => Self::new(Code::Unavailable, "the gateway's answer cannot be read"),
        }
    }
}

/// Most agents a gateway lists on one page.
const PAGE_MAX: usize = 200;
/// Most pages read for one list: what 200,000 agents fill.
const PAGES_MAX: usize = 1000;

/// What a gateway reads from a token: `GET /v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Whoami {
    /// Whose token it is.
    pub agent: AgentId,
    /// When it expires, in seconds since the epoch.
    pub expires_s: u64,
    /// Whether it is an administrator's.
    pub admin: bool,
}

/// An agent as others see it: `GET /v1/agents`.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedAgent {
    /// The agent.
    pub agent: AgentId,
    /// Whether it is present, where the gateway says so.
    pub present: Option<bool>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Topics it subscribes to.
    #[serde(default)]
    pub topics: Vec<TopicName>,
    /// For people.
    pub description: Option<String>,
    /// What else the gateway says of it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which agents are wanted; a member that is absent matches everyone.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Those that can do this.
    pub capability: Option<Capability>,
    /// Those that subscribe to this topic.
    pub topic: Option<TopicName>,
    /// Only those present, or only those absent.
    pub present: Option<bool>,
    /// Most agents to list.
    pub limit: usize,
    /// Most pages to read; absent: as many as 200,000 agents fill.
    pub pages_max: Option<usize>,
}

/// The agents that were found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The agents, in the order of their ids.
    pub agents: Vec<ListedAgent>,
    /// Whether [`Wanted::limit`] cut the list.
    #[serde(rename = "cut")]
    pub is_cut: bool,
}

#[derive(Deserialize)]
struct Page {
    agents: Vec<ListedAgent>,
    next: Option<AgentId>,
}

/// Talks to one gateway.
#[derive(Debug, Clone)]
pub struct ControlClient {
    base: String,
    http: reqwest::Client,
}

impl ControlClient {
    /// A client of the gateway at `base`, for example `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`] when the HTTP client cannot be set up.
    pub fn try_new(base: impl Into<String>) -> Result<Self, ControlError> {
        let base = base.into().trim_end_matches('/').to_owned();
        let http = answer::client(TIMEOUT, [base.as_str()])?;
        Ok(Self { base, http })
    }

    /// Registers an agent under its own token.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn register(&self, agent: &AgentId, token: &str, document: &Registration) -> Result<(), ControlError> {
        self.put(&format!("/v1/agents/{agent}"), token, document).await
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn whoami(&self, token: &str) -> Result<Whoami, ControlError> {
        self.read("/v1/whoami", token).await
    }

    /// Lists agents, page after page.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn agents(&self, token: &str, wanted: &Wanted) -> Result<Found, ControlError> {
        let mut query = format!("limit={PAGE_MAX}");
        // Names hold nothing that a query would have to escape.
        if let Some(capability) = &wanted.capability {
            query.push_str(&format!("&capability={capability}"));
        }
        if let Some(topic) = &wanted.topic {
            query.push_str(&format!("&topic={topic}"));
        }
        let (mut agents, mut after, mut last) = (Vec::new(), String::new(), None);
        for _ in 0..wanted.pages_max.unwrap_or(PAGES_MAX) {
            let page: Page = self.read(&format!("/v1/agents?{query}{after}"), token).await?;
            let is_wanted = |agent: &ListedAgent| wanted.present.is_none_or(|present| agent.present == Some(present));
            agents.extend(page.agents.into_iter().filter(is_wanted));
            if agents.len() > wanted.limit {
                agents.truncate(wanted.limit);
                return Ok(Found { agents, is_cut: true });
            }
            match page.next {
                None => return Ok(Found { agents, is_cut: false }),
                Some(next) if last.as_ref().is_none_or(|last| next > *last) => {
                    after = format!("&after={next}");
                    last = Some(next);
                }
                Some(next) => {
                    let what = format!("the page after {next} leads to {next} or before it again");
                    return Err(ControlError::Unreadable { url: format!("{}/v1/agents", self.base), what });
                }
            }
        }
        Ok(Found { agents, is_cut: true })
    }

    /// Searches for agents by what they say of themselves.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn search(&self, token: &str, wanted: &SearchRequest) -> Result<SearchAnswer, ControlError> {
        self.post("/v1/search", token, wanted).await
    }

    /// Removes an agent's registration under its own token.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn remove(&self, agent: &AgentId, token: &str) -> Result<(), ControlError> {
        self.delete(&format!("/v1/agents/{agent}"), token).await
    }

    /// The same, unless another instance of the agent has registered since.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn deregister(&self, agent: &AgentId, token: &str, instance: &Tag) -> Result<(), ControlError> {
        self.delete(&format!("/v1/agents/{agent}?instance={instance}"), token).await
    }

    /// Puts a group.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put_group(&self, token: &str, group: &Group) -> Result<(), ControlError> {
        self.put(&format!("/v1/groups/{}", group.id), token, group).await
    }

    /// Puts a policy.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put_policy(&self, token: &str, policy: &Policy) -> Result<(), ControlError> {
        self.put(&format!("/v1/policies/{}", policy.id), token, policy).await
    }

    /// Sends a document with PUT.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put(&self, path: &str, token: &str, document: &impl Serialize) -> Result<(), ControlError> {
        let request = self.http.put(format!("{}{path}", self.base)).bearer_auth(token).json(document);
        answer::accepted(request.send().await?).await.map(|_| ())
    }

    /// Sends a document with POST, and reads the answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        token: &str,
        document: &impl Serialize,
    ) -> Result<T, ControlError> {
        self.post_within(path, token, document, TIMEOUT).await
    }

    /// The same, with another limit of time.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        token: &str,
        document: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, ControlError> {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(token).json(document);
        answer::read(answer::accepted(request.timeout(timeout).send().await?).await?).await
    }

    /// Removes what is at a path.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn delete(&self, path: &str, token: &str) -> Result<(), ControlError> {
        let request = self.http.delete(format!("{}{path}", self.base)).bearer_auth(token);
        answer::accepted(request.send().await?).await.map(|_| ())
    }

    /// Whether there is a document the caller may see.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn finds(&self, path: &str, token: &str) -> Result<bool, ControlError> {
        match self.read::<Value>(path, token).await {
            Ok(_) => Ok(true),
            Err(ControlError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn read<T: DeserializeOwned>(&self, path: &str, token: &str) -> Result<T, ControlError> {
        self.read_as(path, Some(token)).await
    }

    /// Reads a document that may be read without a token.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn read_as<T: DeserializeOwned>(&self, path: &str, token: Option<&str>) -> Result<T, ControlError> {
        let request = self.http.get(format!("{}{path}", self.base));
        let response = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        answer::read(answer::accepted(response.send().await?).await?).await
    }
}

/// A refusal with where the fault is and what was expected.
#[must_use]
pub fn in_full(refusal: &Refusal) -> String {
    let at = refusal.pointer.as_ref().map(|pointer| format!(" (at {pointer})")).unwrap_or_default();
    let expected = refusal.expected.as_ref().map(|expected| format!("; expected: {expected}")).unwrap_or_default();
    format!("{refusal}{at}{expected}")
}
