//! `GET /v1/negotiations/{id}/body`: the body of a transaction that is too long for a call (docs/spec/agora.md#ag-73). The
//! gateway keeps it beside the call for the agent that is called, for as long as the transaction lasts.

use std::sync::Arc;

use agora::body::LONG_BODY_CAPABILITY;
use agora::registry::DocumentRegistry;
use axum::extract::State;
use axum::routing::get;
use schemas::payload::TEXT_LEN_MAX;
use schemas::{AgentId, Code, Digest, NegotiationId, Refusal};
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::super::{Caller, HttpResult, PathText, RouteSpec, Site, document, identifier};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/negotiations/{id}/body", &["get"], get(show))]
}

/// The body, to the agent it is for.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let negotiation = identifier(path, NegotiationId::try_new)?;
    let body = site.documents.body(&negotiation, &caller.0.agent).await?;
    let body =
        body.ok_or_else(|| Refusal::new(Code::NotFound, "no body is kept for this agent under that negotiation"))?;
    document(&json!({ "sha256": Digest::of_bytes(body.as_bytes()), "body": body }))
}

/// A body that is kept beside its call. Dropped, it is kept no longer.
pub(super) struct KeptBody {
    documents: Arc<DocumentRegistry>,
    tasks: TaskTracker,
    negotiation: NegotiationId,
    /// The SHA-256 of its text.
    pub(super) digest: Digest,
}

impl KeptBody {
    /// Keeps the body of a call to this agent, where it is too long for a call.
    ///
    /// # Errors
    /// [`Code::OutOfRange`] where the agent takes no such body, [`Code::TooLarge`] where nobody does, and what
    /// [`DocumentRegistry::put_body`] says.
    pub(super) async fn of(
        site: &Site,
        (caller, negotiation): (&AgentId, &NegotiationId),
        agent: &AgentId,
        body: &str,
    ) -> Result<Option<Self>, Refusal> {
        if body.chars().count() <= TEXT_LEN_MAX {
            return Ok(None);
        }
        // An agent that is not registered cannot be called: the call will say so.
        let takes = site.registry.read().agents.registration(agent).is_none_or(|registration| {
            registration.capabilities.iter().any(|capability| capability.as_str() == LONG_BODY_CAPABILITY)
        });
        if !takes {
            return Err(Refusal::new(Code::OutOfRange, "the body is too long for this agent").at("/body").expecting(
                format!("at most {TEXT_LEN_MAX} characters: it does not have the capability `{LONG_BODY_CAPABILITY}`"),
            ));
        }
        site.documents.put_body((caller, negotiation), agent, body).await?;
        let (documents, tasks) = (Arc::clone(&site.documents), site.tasks.clone());
        let digest = Digest::of_bytes(body.as_bytes());
        Ok(Some(Self { documents, tasks, negotiation: negotiation.clone(), digest }))
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        let (documents, negotiation) = (Arc::clone(&self.documents), self.negotiation.clone());
        self.tasks.spawn(async move {
            // Otherwise it is removed as one that was left behind.
            let _ = documents.remove_body(&negotiation).await;
        });
    }
}
