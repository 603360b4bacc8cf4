//! A model whose answers are written down: for tests, and for whoever wants one in process.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Completion, CompletionError, CompletionRequest, Model};

/// What a model says to a request.
type Answering = dyn Fn(&CompletionRequest) -> Result<Completion, CompletionError> + Send + Sync;

/// A function as a model.
#[derive(Clone)]
pub struct ScriptedModel {
    answer: Arc<Answering>,
}

impl ScriptedModel {
    /// A model that answers by a function of the request.
    #[must_use]
    pub fn new(
        answer: impl Fn(&CompletionRequest) -> Result<Completion, CompletionError> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Arc::new(answer) }
    }

    /// A model that always says the same.
    #[must_use]
    pub fn saying(content: &str) -> Self {
        let content = content.to_owned();
        Self::new(move |_| Ok(Completion { content: content.clone(), ..Completion::default() }))
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedModel")
    }
}

impl Model for ScriptedModel {
    fn complete(&self, request: CompletionRequest) -> BoxFuture<'static, Result<Completion, CompletionError>> {
        std::future::ready((self.answer)(&request)).boxed()
    }
}
