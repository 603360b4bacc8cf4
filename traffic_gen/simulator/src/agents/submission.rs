//! A message on its way: it is written once and handed in until it is answered, under the same id, byte for byte.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bus::PubSub;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::bargain::Conditions;
use schemas::envelope::{ConsentMode, Scope};
use schemas::payload::Cfp;
use schemas::record::Message;
use schemas::{Address, AgentId, Code, Digest, Envelope, MsgId, NegotiationId, Payload, WireTime, subject};
use serde::Deserialize;
use tokio::time::Instant;

use super::{AgentContext, Draft, Pending, ReceivedJournal};
use crate::faults::AgentFault;
use crate::keys;
use crate::points::Point;
use crate::trace::{Answer, Noted};
use crate::world::World;

/// How long an agent waits for a gateway's answer, in milliseconds: from less to more than a gateway waits for the log.
const ANSWER_MS: Range<u64> = 300..4000;
/// Most times a message is handed in for want of an answer.
const ATTEMPTS_MAX: u32 = 6;
/// A message is not handed in again later than this after the first time. Together with the longest time a gateway
/// stands still it stays below the grace of a closed negotiation: behind that the exchange no longer knows the message.
const HORIZON: Duration = Duration::from_secs(5);

/// Calls to sub-teams that name the id which only the exchange may form, in per mille.
const SUB_TEAM_NAMED: u32 = 20;

/// Numbers what an agent says, and says it.
pub(super) struct Sender {
    token: String,
    /// Somebody else, whom the agent may try to be.
    victim: AgentId,
    /// Its last sequence number: one counter for everything it says.
    seq: u64,
}

/// A message on its way.
#[derive(Clone)]
struct Submission {
    pending: Pending,
    world: Arc<World>,
    pub_sub: Arc<dyn PubSub>,
    journal: ReceivedJournal,
    agent: AgentId,
    token: String,
    negotiation: NegotiationId,
    msg_id: MsgId,
    act: schemas::Act,
    digest: Digest,
    document: Bytes,
}

/// What a gateway replies.
#[derive(Deserialize)]
struct Reply {
    accepted: Option<LogPosition>,
    refused: Option<ProblemDocument>,
}

#[derive(Deserialize)]
struct LogPosition {
    seq: u64,
    index: u32,
}

#[derive(Deserialize)]
struct ProblemDocument {
    code: Code,
}

impl Sender {
    pub(super) fn new(agent: &AgentId, victim: &AgentId) -> Self {
        Self { token: keys::token(agent), victim: victim.clone(), seq: 0 }
    }

    /// Writes the message, lets it be noted, and sends it on its way, perhaps more than once, perhaps under a false name.
    pub(super) fn send(&mut self, context: &mut AgentContext, note: impl FnOnce(&MsgId, &Payload), draft: Draft) {
        let is_forged = context.errs(AgentFault::Forge);
        let Some(submission) = self.write(context, &draft, is_forged) else { return };
        note(&submission.msg_id, &draft.payload);
        let repeats = u32::from(context.errs(AgentFault::Repeat));
        if draft.reuses.is_none() && context.errs(AgentFault::Conflict) {
            let reuses = Some(submission.msg_id.clone());
            let payload = other_body(&draft.payload);
            let after_ms = context.draw(0..400);
            context.say(after_ms, Draft { reuses, payload, ..draft });
        }
        let seed: u64 = context.rng.random();
        for copy in 0..=repeats {
            let rng = ChaCha8Rng::seed_from_u64(seed ^ u64::from(copy));
            context.pending.begin();
            tokio::spawn(submission.clone().deliver(copy, rng));
        }
    }

    fn write(&mut self, context: &mut AgentContext, draft: &Draft, is_forged: bool) -> Option<Submission> {
        self.seq += 1;
        let is_stale = context.errs(AgentFault::StaleSeq);
        let seq = if is_stale { self.seq.saturating_sub(3).max(1) } else { self.seq };
        let msg_id = draft.reuses.clone().or_else(|| MsgId::try_new(&format!("m{}", self.seq)).ok())?;
        // The exchange forms the id of a sub-team.
        let is_named = !is_for_sub_team(&draft.payload) || context.happens(SUB_TEAM_NAMED);
        let from = if is_forged { self.victim.clone() } else { context.id.clone() };
        let envelope = Envelope {
            msg_id: msg_id.clone(),
            ts: WireTime(context.world.now()),
            from: Address::Agent(from),
            to: draft.to.clone(),
            capabilities: Vec::new(),
            scope: (!draft.to.is_empty()).then_some(Scope {
                consent: ConsentMode::OptIn,
                ttl: None,
                absent: draft.invites_absent,
            }),
            negotiation: is_named.then(|| draft.negotiation.to_string()),
            seq: Some(seq),
            in_reply_to: None,
            traceparent: None,
            receipt: context.happens(100),
        };
        let message = Message { envelope, payload: draft.payload.clone() };
        Some(Submission {
            pending: context.pending.clone(),
            world: Arc::clone(&context.world),
            pub_sub: Arc::clone(&context.pub_sub),
            journal: context.journal.clone(),
            agent: context.id.clone(),
            token: self.token.clone(),
            negotiation: draft.negotiation.clone(),
            msg_id,
            act: message.payload.act(),
            digest: Digest::of(&message).ok()?,
            document: Bytes::from(serde_json::to_vec(&message).ok()?),
        })
    }
}

fn is_for_sub_team(payload: &Payload) -> bool {
    matches!(payload, Payload::Cfp(Cfp { team: Some(team), .. }) if team.of.is_some())
}

/// Another body of the same act.
fn other_body(payload: &Payload) -> Payload {
    let mut other = payload.clone();
    match &mut other {
        Payload::Cfp(cfp) => cfp.task = Some("another task".to_owned()),
        Payload::Offer(offer) => offer.conditions = Some(Conditions::Text("other conditions".to_owned())),
        Payload::Refuse(reasoned)
        | Payload::NotUnderstood(reasoned)
        | Payload::Withdraw(reasoned)
        | Payload::End(reasoned)
        | Payload::Cancel(reasoned) => reasoned.reason = Some("another reason".to_owned()),
        Payload::Accept(accept) => accept.offer_id.0.seq += 1,
        Payload::Confirm(confirm) => confirm.award_no.0 += 1,
        Payload::Inform(inform) => inform.result = Some("another result".to_owned()),
        Payload::Failure(failure) => failure.retryable = !failure.retryable,
        Payload::Join(join) => join.mandate = join.mandate.is_none().then(Box::default),

        Payload::Answer(answer) => answer.text = Some("another text".to_owned()),
        Payload::Say(say) => say.text.push('!'),
        Payload::Assign(assign) => assign.policy = Some("another".to_owned()),
        Payload::Pause(pause) => pause.text = Some("another reason".to_owned()),
        Payload::Conclude(conclude) => conclude.text.push('!'),
    }
    other
}

impl Submission {
    /// Hands the message in until it is answered for good.
    async fn deliver(self, copy: u32, mut rng: ChaCha8Rng) {
        if copy > 0 {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..600))).await;
        }
        let begin = Instant::now();
        for attempt in 1..=ATTEMPTS_MAX {
            // A deliberate copy counts on, so that every handing-in has a number of its own.
            let attempt = attempt + copy * ATTEMPTS_MAX;
            self.journal.note(&self.world, self.sent(attempt));
            let patience = Duration::from_millis(rng.random_range(ANSWER_MS));
            let answer = self.hand_in(patience).await;
            let (negotiation, msg_id) = (self.negotiation.clone(), self.msg_id.clone());
            self.journal.note(&self.world, Noted::Answered { negotiation, msg_id, attempt, answer });
            self.count(answer);
            if is_final(answer) || begin.elapsed() > HORIZON {
                break;
            }
            let gap_ms = rng.random_range(50..600);
            tokio::time::sleep(Duration::from_millis(gap_ms)).await;
        }
        self.pending.end();
    }

    fn sent(&self, attempt: u32) -> Noted {
        Noted::Sent {
            negotiation: self.negotiation.clone(),
            msg_id: self.msg_id.clone(),
            act: self.act,
            attempt,
            digest: self.digest,
            document: self.document.clone(),
            token_of: self.agent.clone(),
        }
    }

    async fn hand_in(&self, patience: Duration) -> Answer {
        let (subject, token) = (subject::gateway_in(&self.agent), Some(self.token.clone()));
        let Ok(reply) = self.pub_sub.request(subject, token, self.document.clone(), patience).await else {
            return Answer::None;
        };
        match serde_json::from_slice(&reply) {
            Ok(Reply { accepted: Some(LogPosition { seq, index }), .. }) => Answer::Accepted { seq, index },
            Ok(Reply { refused: Some(ProblemDocument { code }), .. }) => Answer::Refused(code),
            Ok(Reply { accepted: None, refused: None }) | Err(_) => Answer::None,
        }
    }

    fn count(&self, answer: Answer) {
        let point = match answer {
            Answer::None => Point::Unanswered,
            Answer::Refused(Code::LogUnavailable) => Point::ToldUnknown,
            Answer::Refused(Code::Unauthorized) => Point::ForgeryRefused,
            Answer::Refused(Code::NoRecipient) => Point::NobodyPresent,
            Answer::Refused(Code::Overloaded) => Point::CallHeldBack,
            Answer::Refused(_) | Answer::Accepted { .. } => return,
        };
        self.world.reached(point);
    }
}

/// Whether handing the same message in again would be answered alike.
fn is_final(answer: Answer) -> bool {
    match answer {
        Answer::Accepted { .. } => true,
        Answer::None => false,
        Answer::Refused(code) => {
            !matches!(code, Code::LogUnavailable | Code::Unavailable | Code::Overloaded | Code::RateLimited)
        }
    }
}
