//! `llmx healthcheck URL`: for containers without a shell.

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use tokio::time::Instant;

use crate::arguments::http_url;
use crate::output::{Failure, Outcome, one_line, print, proxy_note};

/// Longest wait for an answer; a health check that hangs is a failed one.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Longest `--wait`.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Bytes of an answer that are read: what an engine says of 64 lanes has less.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Pause between two questions of one check that waits.
const PAUSE: Duration = Duration::from_millis(100);

/// What every process of the exchange answers.
const READY_PATH: &str = "/readyz";
/// Characters shown of an answer that is no problem document.
const BODY_CHARS_MAX: usize = 500;

/// Arguments of `llmx healthcheck`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx healthcheck http://127.0.0.1:8080    a gateway\n  \
    llmx healthcheck http://127.0.0.1:9464    an engine with --listen 127.0.0.1:9464\n  \
    llmx healthcheck --wait 30 http://127.0.0.1:8080/readyz    until it is ready, at most half a minute\n\n\
    Without a path /readyz is asked. Exit code 1 names what is wrong, a line each.")]
pub struct HealthcheckArgs {
    /// Address to ask, for example http://127.0.0.1:8080/readyz; /readyz where it has no path
    #[arg(value_parser = http_url)]
    url: String,
    /// Ask again until it is well, for so many seconds
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    wait: f64,
}

/// Succeeds when the address answers 2xx, now or within the time to wait. What it says is wrong all the same is printed.
pub async fn run(args: HealthcheckArgs) -> Outcome {
    let wait = Duration::try_from_secs_f64(args.wait)
        .map_err(|error| error.to_string())
        .and_then(|wait| if wait <= WAIT_MAX { Ok(wait) } else { Err("a day at most".to_owned()) })
        .map_err(|error| Failure::configuration(format_args!("--wait: {error}")))?;
    let url = readiness(&args.url);
    let client = agents::control::client(TIMEOUT, [url.as_str()])?;
    let deadline = Instant::now() + wait;
    loop {
        match ask(&client, &url).await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Outcome {
    let response = client.get(url).send().await.with_context(|| format!("no answer from {url}"))?;
    let status = response.status();
    let body = beginning(response).await;
    let faults = faults_of(&body);
    if status.is_success() {
        faults.iter().for_each(|fault| print(format_args!("{url} is degraded: {fault}")));
        return Ok(());
    }
    let said = if faults.is_empty() {
        format!(" {}", one_line(&cut(String::from_utf8_lossy(&body).trim())))
    } else {
        faults.iter().map(|fault| format!("\n  {fault}")).collect()
    };
    Err(Failure::failed(anyhow::anyhow!("{url} answered {status}{}:{said}", proxy_note(url))))
}

/// The first bytes of an answer.
async fn beginning(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece[..piece.len().min(BODY_BYTES_MAX - body.len())]);
        if body.len() == BODY_BYTES_MAX {
            break;
        }
    }
    body
}

/// Where readiness is asked for: the path that is given, or the one that every process of the exchange answers.
fn readiness(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(parsed) if parsed.path() == "/" => format!("{}{READY_PATH}", url.trim_end_matches('/')),
        Ok(_) | Err(_) => url.to_owned(),
    }
}

/// Whether a gateway is ready, and what it says is wrong; nothing where nobody answers.
pub async fn readiness_of(client: &reqwest::Client, gateway: &str) -> Option<(bool, Vec<String>)> {
    let response = client.get(readiness(gateway)).send().await.ok()?;
    Some((response.status().is_success(), faults_of(&beginning(response).await)))
}

/// What a gateway that answers says refuses its readiness; nothing where it is ready, or nobody answers.
pub async fn unready(client: &reqwest::Client, gateway: &str) -> Option<String> {
    let (is_ready, faults) = readiness_of(client, gateway).await?;
    let is_told = !is_ready && !faults.is_empty();
    is_told.then(|| format!("{gateway} answers, but is not ready: {}", faults.join("; ")))
}

/// The faults of a problem document: those it lists, or the one it is about.
fn faults_of(body: &[u8]) -> Vec<String> {
    let problem: HealthProblem = serde_json::from_slice(body).unwrap_or_default();
    let faults = if problem.faults.is_empty() { problem.detail.into_iter().collect() } else { problem.faults };
    faults.iter().map(|fault| one_line(fault)).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(BODY_CHARS_MAX).collect()
}

/// A problem document, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
struct HealthProblem {
    detail: Option<String>,
    #[serde(default)]
    faults: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_is_asked_for_readiness() {
        for (given, asked) in [
            ("http://127.0.0.1:9464", "http://127.0.0.1:9464/readyz"),
            ("http://127.0.0.1:9464/", "http://127.0.0.1:9464/readyz"),
            ("http://127.0.0.1:9464/healthz", "http://127.0.0.1:9464/healthz"),
        ] {
            assert_eq!(readiness(given), asked);
        }
    }

    #[test]
    fn faults_are_those_listed_or_the_one_the_problem_is_about() {
        for (body, faults) in [
            (
                r#"{"detail": "two", "faults": ["lane 0 waits", "no NATS"], "state": {}}"#,
                &["lane 0 waits", "no NATS"][..],
            ),
            (r#"{"detail": "the bus does not answer", "code": "unavailable"}"#, &["the bus does not answer"]),
            ("no json", &[]),
        ] {
            assert_eq!(faults_of(body.as_bytes()), faults, "{body}");
        }
    }
}
