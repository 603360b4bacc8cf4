//! A contractor whose awards are carried out by routines, and the task that takes its runs to them.
//!
//! A binding award becomes a [`RoutineRun`], which [`Asking`] hands to a [`RoutineRunner`] outside of the agent's loop. A result
//! that comes back after the award was cancelled says nothing.

use std::sync::Arc;

use schemas::delivery::Delivery;
use schemas::payload::{Failure, FailurePhase, Inform, InformKind};
use schemas::{AgentId, AwardNo, Payload, Timestamp};
use telemetry::{SpanId, TraceContext};
use tokio_util::sync::CancellationToken;

use super::Contractor;
use super::engagement::Engagement;
use crate::agent::{AgentHandle, AgentOptions};
use crate::asking::{self, Answers, Asking};
use crate::identity::Identity;
use crate::routine::{RoutineAnswer, RoutineRequest, RoutineRunner};
use crate::strategy::{Action, Outgoing};
use crate::transport::Transport;

/// Code of the FAILURE of an award that no routine, model or sentence answered.
pub const FAILURE_CODE: &str = "routine_failed";

/// A binding award that is to be carried out.
#[derive(Debug, Clone)]
pub struct RoutineRun {
    /// The receipt that made it binding.
    receipt: Delivery,
    award_no: AwardNo,
    request: RoutineRequest,
    /// Whether an answer in words is none.
    requires_document: bool,
    perform_ms: u64,
}

impl RoutineRun {
    /// A run for an award that this receipt made binding. `perform_ms` passes between the result and its report.
    #[must_use]
    pub fn new(
        (now, agent, receipt): (Timestamp, &AgentId, &Delivery),
        award_no: AwardNo,
        engagement: Engagement,
        perform_ms: u64,
    ) -> Self {
        let envelope = &receipt.envelope;
        let trace = TraceContext::of(envelope.traceparent.as_deref(), &envelope.negotiation);
        let requires_document = engagement.requires_document;
        let request = RoutineRequest {
            agent: agent.clone(),
            negotiation: envelope.negotiation.clone(),
            context: trace.under(SpanId::processed(envelope.msg_id)),
            asked_at: now,
            deadline: engagement.ends_by,
            document: engagement.document,
            text: engagement.task.unwrap_or_default(),
        };
        Self { receipt: receipt.clone(), award_no, request, requires_document, perform_ms }
    }

    /// What a routine is asked.
    #[must_use]
    pub fn request(&self) -> &RoutineRequest {
        &self.request
    }

    /// The award.
    #[must_use]
    pub fn award_no(&self) -> AwardNo {
        self.award_no
    }

    /// The answer, unless it follows no document where the call requires one (docs/spec/agora.md#ag-52).
    #[must_use]
    pub fn usable(&self, answer: Option<RoutineAnswer>) -> Option<RoutineAnswer> {
        answer.filter(|answer| answer.report.hash.is_some() || !self.requires_document)
    }

    /// The report of its result: INFORM, or FAILURE where there is none.
    #[must_use]
    pub fn report(&self, answer: Option<RoutineAnswer>) -> Action {
        let report = match answer {
            Some(RoutineAnswer { result, report }) => {
                Payload::Inform(Inform { kind: InformKind::Result, result: Some(result), routine: Some(report) })
            }
            None => Payload::Failure(Failure {
                phase: FailurePhase::Perform,
                code: FAILURE_CODE.to_owned(),
                retryable: true,
                penalty: None,
            }),
        };
        let outgoing = Outgoing::reply(&self.receipt, report);
        outgoing.after_ms(self.perform_ms).once(self.award_no.0).into()
    }
}

impl Answers<Contractor> for RoutineRunner {
    async fn answer(&self, run: &RoutineRun) -> Option<RoutineAnswer> {
        self.run(run.request()).await
    }

    fn turn_away(&self, run: &RoutineRun) -> Option<RoutineAnswer> {
        self.turn_away(run.request())
    }
}

/// A scripted contractor that hands its runs on.
pub type PerformingContractor = Asking<Contractor>;

impl PerformingContractor {
    /// Runs a contractor in a task of its own, and its routines in another, which ends with it.
    #[must_use]
    pub fn spawn(
        contractor: Contractor,
        runner: &Arc<RoutineRunner>,
        way: (Arc<dyn Transport>, Identity, AgentOptions),
        cancel: CancellationToken,
    ) -> AgentHandle<Self> {
        asking::spawn(contractor.with_routines(runner.table().clone()), Arc::clone(runner), way, cancel)
    }
}
