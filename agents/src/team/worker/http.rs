//! A service that carries tasks out: `POST {"task_desc", "uid", "model"}`, answered with a text or `{"conclusion": text}`.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use super::{WorkRequest, Worker};
use crate::routine::RoutineFault;
use crate::routine::http::{HttpRoutineError, HttpService};

/// A service that works on tasks.
#[derive(Clone)]
pub struct HttpWorker {
    service: HttpService,
    model: String,
}

#[derive(Serialize)]
struct RunRequest<'a> {
    task_desc: &'a str,
    uid: &'a str,
    model: &'a str,
}

/// An answer that is no plain text.
#[derive(Deserialize)]
#[serde(untagged)]
enum RunAnswer {
    Conclusion { conclusion: String },
    Text(String),
}

impl HttpWorker {
    /// The service at this URL.
    ///
    /// # Errors
    /// [`HttpRoutineError`].
    pub fn try_new(url: &str) -> Result<Self, HttpRoutineError> {
        Ok(Self { service: HttpService::try_new(url)?, model: String::new() })
    }

    /// The same, which asks the service to use this model.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        Self { model: model.into(), ..self }
    }
}

impl Worker for HttpWorker {
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let asked = RunRequest { task_desc: &request.text, uid: request.task.as_str(), model: &self.model };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let posted = serde_json::to_string(&asked)
            .map(|body| self.service.post(headers, body))
            .map_err(|error| RoutineFault::Failed(error.to_string()));
        async move { Ok(text_of(posted?.await?)) }.boxed()
    }
}

/// The result in an answer: what is no JSON of a known form is a text as it stands.
fn text_of(answer: String) -> String {
    match serde_json::from_str(&answer) {
        Ok(RunAnswer::Conclusion { conclusion: text } | RunAnswer::Text(text)) => text,
        Err(_) => answer,
    }
}
