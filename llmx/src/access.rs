//! Options of commands by which a person takes part in a running exchange, or looks into it: where it is, and as whom.

use std::path::PathBuf;
use std::sync::Arc;

use ::agents::transport::Transport;
use ::agents::transport::failover::FailoverTransport;
use ::agents::transport::http::HttpTransport;
use ::agents::transport::websocket::WebSocketTransport;
use ::agents::{Identity, Token};
use ::gateway::keys::Claims;
use agents::control::{ControlClient, ControlError, in_full};
use schemas::{AgentId, Code, Refusal};

use crate::arguments::http_url;
use crate::keys::read_key;
use crate::output::{Failure, innermost};
use crate::remote::renewed;

/// Where the exchange is, and how its users prove who they are.
#[derive(Debug, clap::Args)]
pub struct AccessArgs {
    /// Gateways' addresses, separated by commas; the first that answers is used
    #[arg(
        long,
        env = "LLMX_GATEWAY",
        default_value = "http://127.0.0.1:8080",
        value_name = "URLS",
        value_delimiter = ',',
        value_parser = http_url
    )]
    pub gateway: Vec<String>,
    /// Whose tokens it signs itself.
    #[command(flatten)]
    pub signer: SignerArgs,
}

/// How users prove who they are.
#[derive(Debug, clap::Args)]
pub struct SignerArgs {
    /// Token to use as it is (default: one is signed with --key)
    #[arg(long, env = "LLMX_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Signing key for a token, as `llmx keys` writes it
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = crate::keys::KEY_DEFAULT, value_name = "FILE")]
    key: PathBuf,
    /// Issuer of the token that is signed; the gateway must expect the same
    #[arg(long, env = "LLMX_ISSUER", default_value = crate::keys::ISSUER_DEFAULT)]
    issuer: String,
    /// Audience of the token that is signed; of several, separated by commas, the first
    #[arg(long, env = "LLMX_AUDIENCE", default_value = crate::keys::AUDIENCE_DEFAULT)]
    audience: ::gateway::Audiences,
}

/// The token to use.
pub struct Bearer {
    /// The token.
    pub token: Token,
    /// Whether it was signed here, and not given.
    pub is_signed_here: bool,
}

impl SignerArgs {
    /// The token that was given, or one signed for `agent`.
    ///
    /// # Errors
    /// [`Failure::configuration`] when neither a token nor a readable key is there.
    pub fn bearer(&self, agent: &AgentId) -> Result<Bearer, Failure> {
        if let Some(bearer) = self.given() {
            return Ok(bearer);
        }
        self.signed(agent, Claims::new)
    }

    /// The token that was given, or one of an administrator.
    ///
    /// # Errors
    /// [`Failure::configuration`] when neither a token nor a readable key is there.
    pub fn administrator(&self, agent: &AgentId) -> Result<Bearer, Failure> {
        match self.given() {
            Some(bearer) => Ok(bearer),
            None => self.signed(agent, |agent, issuer, audience, lifetime_s| {
                Claims::new(agent, issuer, audience, lifetime_s).admin()
            }),
        }
    }

    fn given(&self) -> Option<Bearer> {
        let token = self.token.as_deref().filter(|token| !token.is_empty())?;
        Some(Bearer { token: Token::fixed(token.trim()), is_signed_here: false })
    }

    fn signed(&self, agent: &AgentId, claims: fn(&AgentId, &str, &str, u64) -> Claims) -> Result<Bearer, Failure> {
        let key = Arc::new(read_key(&self.key).map_err(|failure| failure.or("or give a token: --token, LLMX_TOKEN"))?);
        let token = renewed(key, &self.issuer, self.audience.first(), agent, claims);
        Ok(Bearer { token, is_signed_here: true })
    }
}

impl AccessArgs {
    /// See [`SignerArgs::bearer`].
    ///
    /// # Errors
    /// As there.
    pub fn bearer(&self, agent: &AgentId) -> Result<Bearer, Failure> {
        self.signer.bearer(agent)
    }

    /// See [`SignerArgs::administrator`].
    ///
    /// # Errors
    /// As there.
    pub fn administrator(&self, agent: &AgentId) -> Result<Bearer, Failure> {
        self.signer.administrator(agent)
    }

    /// The agent a token makes its bearer, as a gateway reads it.
    ///
    /// # Errors
    /// What the gateway refuses, or that none answers.
    pub async fn identity(&self, Bearer { token, .. }: Bearer) -> Result<Identity, Failure> {
        let agent = self.ask(async |gateway| gateway.whoami(&token.current()).await).await?.agent;
        Ok(Identity { agent, token })
    }

    /// Asks the first gateway that answers.
    ///
    /// # Errors
    /// What it refuses, or that none answers.
    pub async fn ask<T>(
        &self,
        question: impl AsyncFn(&ControlClient) -> Result<T, ControlError>,
    ) -> Result<T, Failure> {
        let mut last = None;
        for url in &self.gateway {
            match question(&ControlClient::try_new(url.as_str())?).await {
                Err(ControlError::Unreachable(error)) => last = Some(error),
                Err(ControlError::Refused(refusal)) => return Err(refused(&refusal)),
                Err(error) => return Err(error.into()),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(self.unreachable(last.map(|error| innermost(&error))))
    }

    /// See [`transport`].
    ///
    /// # Errors
    /// As there.
    pub fn transport(&self) -> Result<Arc<dyn Transport>, Failure> {
        transport(&self.gateway)
    }

    /// No gateway answers.
    pub fn unreachable(&self, why: Option<String>) -> Failure {
        let addresses = self.gateway.join(", ");
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        Failure::failed(anyhow::anyhow!(
            "no gateway answers at {addresses}{why}; start one, or say where it is: --gateway URL, LLMX_GATEWAY"
        ))
    }
}

/// The way of one agent to the exchange: WebSocket, or HTTP with server-sent events where the address is `https`.
///
/// # Errors
/// [`Failure`] when no HTTP client can be made.
pub fn transport(gateways: &[String]) -> Result<Arc<dyn Transport>, Failure> {
    let way = |url: &String| -> Result<Arc<dyn Transport>, Failure> {
        Ok(if url.starts_with("https:") {
            Arc::new(HttpTransport::try_new(url)?)
        } else {
            Arc::new(WebSocketTransport::new(url))
        })
    };
    let ways = gateways.iter().map(way).collect::<Result<Vec<_>, Failure>>()?;
    Ok(Arc::new(FailoverTransport::try_new(ways)?))
}

/// A refusal with what its reader can do about it, where that is known here.
pub fn refused(refusal: &Refusal) -> Failure {
    let failure = Failure::failed(anyhow::anyhow!("{}", in_full(refusal)));
    match remedy(refusal) {
        Some(remedy) => failure.or(remedy),
        None => failure,
    }
}

/// What helps against a refusal, where a command of ours does.
fn remedy(refusal: &Refusal) -> Option<&'static str> {
    let code = refusal.code;
    if code == Code::Unauthenticated {
        // What is wrong with a token's form or times is said; the rest is between key, issuer and gateway.
        refusal.expected.is_none().then_some(
            "the gateway must know the key and expect the issuer: --key, --issuer and --audience, or --token",
        )
    } else if code == Code::TokenExpired {
        Some("get another token: `llmx token AGENT`")
    } else if code == Code::TokenNotYetValid {
        Some("compare the clocks of who signed the token and of the gateway")
    } else if code == Code::Unavailable {
        Some(
            "the gateway answers, but what it works on does not: `llmx healthcheck URL` says what is missing; does NATS run?",
        )
    } else if code == Code::NoRecipient {
        let are_absent = refusal.expected.as_deref().is_some_and(|expected| expected.contains("scope.absent"));
        Some(if are_absent {
            "`llmx agent list` shows who is registered, `llmx call --absent` invites the absent, too"
        } else {
            "`llmx agent list` shows who is registered"
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_scheme_of_the_web_and_a_host() {
        assert_eq!(http_url("http://127.0.0.1:8080/"), Ok("http://127.0.0.1:8080".to_owned()));
        assert_eq!(http_url("https://exchange.example"), Ok("https://exchange.example".to_owned()));
        for bad in ["", "localhost:8080", "ftp://exchange.example", "http://", "nats://127.0.0.1:4222", "exchange"] {
            assert!(http_url(bad).is_err(), "{bad}");
        }
    }
}
