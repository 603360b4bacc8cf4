//! A contractor whose awards are carried out by routines, and the task that takes its runs to them.
//!
//! A binding award becomes a [`RoutineRun`] that leaves the contractor by [`Performs::poll_run`]. [`RunQueue`] hands it to a
//! [`RoutineRunner`] outside of the agent's loop, and the result comes back as a command by [`Performs::handle_result`]. A
//! result that comes after the award was cancelled says nothing.

use std::sync::Arc;

use schemas::delivery::Delivery;
use schemas::payload::{Failure, FailurePhase, Inform, InformKind};
use schemas::{AgentId, AwardNo, Payload, Timestamp};
use telemetry::{SpanId, TraceContext};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Contractor;
use super::engagement::Engagement;
use crate::agent::{Agent, AgentCommander, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::routine::{RoutineAnswer, RoutineRequest, RoutineRunner};
use crate::strategy::{Action, Outgoing, Sent, Strategy};
use crate::transport::Transport;

/// A contractor that leaves its awards to routines.
pub trait Performs: Strategy {
    /// The next award that is to be carried out.
    fn poll_run(&mut self) -> Option<RoutineRun>;

    /// Takes what an award came to; nothing where it could not be carried out.
    fn handle_result(&mut self, run: &RoutineRun, answer: Option<RoutineAnswer>) -> Vec<Action>;
}

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

/// Where the runs of one contractor go: at most [`QUESTIONS_MAX`] wait, and as many as a commander asks for at a time are
/// under way.
#[derive(Debug)]
pub struct RunQueue {
    runs: mpsc::Sender<RoutineRun>,
    runner: Arc<RoutineRunner>,
}

impl RunQueue {
    /// A queue to a runner, and its end.
    #[must_use]
    pub fn new(runner: Arc<RoutineRunner>) -> (Self, mpsc::Receiver<RoutineRun>) {
        let (runs, receiver) = mpsc::channel(QUESTIONS_MAX);
        (Self { runs, runner }, receiver)
    }

    /// Its runner.
    #[must_use]
    pub fn runner(&self) -> &Arc<RoutineRunner> {
        &self.runner
    }

    /// Hands a contractor's runs on, after whatever it was told. Those that find no room are answered at once.
    pub fn pass<C: Performs>(&self, contractor: &mut C, mut actions: Vec<Action>) -> Vec<Action> {
        while let Some(run) = contractor.poll_run() {
            if let Err(unheard) = self.runs.try_send(run) {
                let run = unheard.into_inner();
                let answer = self.runner.turn_away(run.request());
                actions.extend(contractor.handle_result(&run, answer));
            }
        }
        actions
    }
}

/// Takes the runs of an agent to its routines and their results back, until either end is gone.
pub async fn perform_all<C: Performs + 'static>(
    commander: AgentCommander<C>,
    runs: mpsc::Receiver<RoutineRun>,
    runner: Arc<RoutineRunner>,
) {
    let perform = move |run: RoutineRun| {
        let runner = Arc::clone(&runner);
        async move {
            let answer = runner.run(run.request()).await;
            (run, answer)
        }
    };
    let take = |contractor: &mut C, _now, (run, answer): (RoutineRun, Option<RoutineAnswer>)| {
        contractor.handle_result(&run, answer)
    };
    commander.answer_all(runs, perform, take).await;
}

/// A scripted contractor that hands its runs on.
#[derive(Debug)]
pub struct PerformingContractor {
    contractor: Contractor,
    queue: RunQueue,
}

impl PerformingContractor {
    /// The contractor inside.
    #[must_use]
    pub fn contractor(&self) -> &Contractor {
        &self.contractor
    }

    /// Runs a contractor in a task of its own, and its routines in another, which ends with it.
    #[must_use]
    pub fn spawn(
        contractor: Contractor,
        runner: &Arc<RoutineRunner>,
        (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
        cancel: CancellationToken,
    ) -> AgentHandle<Self> {
        let (queue, runs) = RunQueue::new(Arc::clone(runner));
        let contractor = contractor.with_routines(runner.table().clone());
        let handle = Agent::new(transport, identity, Self { contractor, queue }).with_options(options).spawn(cancel);
        tokio::spawn(perform_all(handle.commander(), runs, Arc::clone(runner)));
        handle
    }
}

impl Performs for PerformingContractor {
    fn poll_run(&mut self) -> Option<RoutineRun> {
        self.contractor.poll_run()
    }

    fn handle_result(&mut self, run: &RoutineRun, answer: Option<RoutineAnswer>) -> Vec<Action> {
        self.contractor.handle_result(run, answer)
    }
}

impl Strategy for PerformingContractor {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let actions = self.contractor.handle(now, delivery);
        self.queue.pass(&mut self.contractor, actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        self.contractor.handle_sent(now, sent)
    }
}
