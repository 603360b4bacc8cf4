//! `llmx listen AGENT`: what arrives for an agent, live.

mod line;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use agents::Identity;
use agents::control::ControlClient;
use agents::transport::{Connection, InboxMessage, TransportError, is_of_token};
use futures_util::StreamExt as _;
use schemas::delivery::Delivery;
use schemas::{AgentId, DeliveryId};
use tokio::time::Instant;

use crate::access::{AccessArgs, refused};
use crate::arguments::seconds;
use crate::output::{Failure, Outcome, note, print, print_json_line, printed};
use crate::signals::asked_to_end;

pub use line::{cut, line, terms};

/// Deliveries remembered, so that a repeat is not shown again: a delivery is repeated eight times within minutes.
const SEEN_MAX: usize = 65_536;
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// How long an orderly end may take.
const END_MAX: Duration = Duration::from_millis(500);

/// Arguments of `llmx listen`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx listen bob\n  llmx listen bob --ack --json >> bob.jsonl\n  \
    llmx listen bob --count 1 --for 10        the next delivery; exit code 1 when there is none in 10 s\n\n\
    Each delivery is shown once, however often it is repeated. Without --ack nothing is acknowledged: the exchange goes on\n\
    repeating, and gives a delivery up after eight attempts. An agent that listens is present, and calls wait for its\n\
    answer: listen beside the agent itself, or under a name that is registered for nothing.\n\
    With --json the output is a stream: one JSON document per line, as the agent receives it (docs/agents.md).\n\
    Ends on Ctrl-C or SIGTERM. Exit codes: 0 it ended as asked; 1 refused, out of reach, or fewer than --count in time.")]
pub struct ListenArgs {
    /// The agent whose deliveries are shown
    #[arg(value_parser = AgentId::try_new)]
    agent: AgentId,
    /// Acknowledge what is shown
    #[arg(long)]
    ack: bool,
    /// End after this many deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Print each delivery as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Why listening ended.
enum ListenEnd {
    /// `--for` is over, or a signal came.
    Asked,
    /// `--count` is reached.
    Counted,
}

/// Shows deliveries until it is asked to end.
pub async fn run(args: ListenArgs) -> Outcome {
    let mut listener = Listener { seen: SeenDeliveries::default(), shown: 0, args };
    let deadline = listener.args.duration.map(|duration| Instant::now() + duration);
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        end = listener.listen() => end?,
        () = over => ListenEnd::Asked,
        () = asked_to_end() => ListenEnd::Asked,
    };
    match (end, listener.args.count) {
        (ListenEnd::Asked, Some(wanted)) if listener.shown < wanted => {
            let shown = listener.shown;
            Err(Failure::failed(anyhow::anyhow!("{shown} of {wanted} deliveries arrived in time")))
        }
        (ListenEnd::Asked | ListenEnd::Counted, _) => Ok(()),
    }
}

struct Listener {
    args: ListenArgs,
    seen: SeenDeliveries,
    shown: u64,
}

impl Listener {
    /// Listens until `--count` is reached, over as many connections as it takes. Only the first one must succeed.
    async fn listen(&mut self) -> Result<ListenEnd, Failure> {
        let identity = self.identity().await?;
        self.note_registration(&identity).await?;
        let transport = self.args.access.transport()?;
        let mut is_first = true;
        loop {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, transport.connect(&identity)).await;
            match connecting.unwrap_or_else(|_| Err(TransportError::Unreachable("no answer".to_owned()))) {
                Ok(connection) => {
                    let said = if is_first { "listening" } else { "listening again" };
                    note(format_args!("{said} as {}; Ctrl-C ends", identity.agent));
                    is_first = false;
                    if self.read(connection).await? {
                        return Ok(ListenEnd::Counted);
                    }
                    note("the connection ended; trying again");
                }
                Err(TransportError::Refused(refusal)) if is_first || is_of_token(refusal.code) => {
                    return Err(refused(&refusal));
                }
                Err(error) if is_first => return Err(self.args.access.unreachable(Some(error.to_string()))),
                Err(error) => tracing::debug!(%error, "not connected"),
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// The agent's own identity: a token of another agent would show that one's deliveries.
    async fn identity(&self) -> Result<Identity, Failure> {
        let ListenArgs { agent, access, .. } = &self.args;
        let identity = access.identity(access.bearer(agent)?).await?;
        if identity.agent != *agent {
            let owner = &identity.agent;
            return Err(Failure::failed(anyhow::anyhow!("unauthorized: the token is of {owner}, not of {agent}")));
        }
        Ok(identity)
    }

    /// Nobody can invite an agent that is not registered; whoever mistyped a name would wait for ever.
    async fn note_registration(&self, identity: &Identity) -> Outcome {
        let path = format!("/v1/agents/{}", identity.agent);
        let token = identity.token.current();
        let is_registered = async |gateway: &ControlClient| gateway.finds(&path, &token).await;
        if !self.args.access.ask(is_registered).await? {
            note(format_args!("{} is not registered: no call reaches it", identity.agent));
        }
        Ok(())
    }

    /// Shows what one connection brings. True when `--count` is reached.
    ///
    /// # Errors
    /// Stdout takes no more: what was not shown is not acknowledged.
    async fn read(&mut self, mut connection: Connection) -> Result<bool, Failure> {
        while let Some(InboxMessage { deliveries, unreadable }) = connection.inbox.next().await {
            if unreadable > 0 {
                note(format_args!("{unreadable} deliveries cannot be read by this build"));
            }
            let mut heard = Vec::new();
            let mut is_enough = false;
            for delivery in deliveries {
                heard.push(delivery.envelope.msg_id);
                if self.seen.is_new(delivery.envelope.msg_id) {
                    self.show(&delivery);
                    self.shown += 1;
                    is_enough = self.args.count.is_some_and(|count| self.shown >= count);
                    if is_enough {
                        break;
                    }
                }
            }
            printed()?;
            if self.args.ack && connection.link.ack(heard).await.is_err() {
                return Ok(is_enough);
            }
            if is_enough {
                end(connection).await;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn show(&self, delivery: &Delivery) {
        if self.args.json {
            // What was read as JSON can be written as JSON.
            let _ = print_json_line(delivery);
        } else {
            print(line(delivery));
        }
    }
}

/// Ends a connection in order: what was acknowledged leaves before.
async fn end(connection: Connection) {
    let Connection { link, mut inbox } = connection;
    drop(link);
    let ended = async { while inbox.next().await.is_some() {} };
    // What is left unsaid is repeated to whoever connects next.
    let _ = tokio::time::timeout(END_MAX, ended).await;
}

/// The ids of deliveries that were shown: the newest [`SEEN_MAX`].
#[derive(Default)]
struct SeenDeliveries {
    ids: HashSet<DeliveryId>,
    order: VecDeque<DeliveryId>,
}

impl SeenDeliveries {
    fn is_new(&mut self, id: DeliveryId) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > SEEN_MAX {
            self.order.pop_front().map(|oldest| self.ids.remove(&oldest));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    #[test]
    fn a_repeat_is_known_and_what_is_remembered_is_bounded() {
        let mut seen = SeenDeliveries::default();
        let id = |number: u128| DeliveryId::new(Lane(0), number.to_be_bytes());
        assert!(seen.is_new(id(0)) && !seen.is_new(id(0)));
        for number in 1..=SEEN_MAX as u128 {
            assert!(seen.is_new(id(number)));
        }
        assert_eq!((seen.ids.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
        assert!(seen.is_new(id(0)), "the oldest is forgotten");
    }
}
