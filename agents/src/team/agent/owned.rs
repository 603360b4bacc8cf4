//! One task of this agent: from its offer, or its award, to its report.

use schemas::AwardNo;
use schemas::payload::{FAILURE_CODE_LEN_MAX, Failure, FailurePhase, Inform, InformKind, Payload};
use schemas::team::Brief;

use crate::routine::RoutineFault;
use crate::team::TaskPlan;

/// See the module.
pub struct OwnedTask {
    /// What is to be done.
    pub brief: Brief,
    /// Where it stands.
    pub stage: TaskStage,
    plan: Option<TaskPlan>,
}

/// Where a task of this agent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStage {
    /// It is offered, or was.
    Offered,
    /// An award is confirmed, and not yet binding.
    Confirming(AwardNo),
    /// The award binds; a sub-team may work on it.
    Committed(AwardNo),
    /// The worker works.
    Working(AwardNo),
    /// The result, or the failure, is said.
    Reported(AwardNo),
}

impl OwnedTask {
    /// A task that is offered.
    #[must_use]
    pub fn new(brief: Brief) -> Self {
        Self { brief, stage: TaskStage::Offered, plan: None }
    }

    /// Confirms an award. A repeat does not take a commitment back to its beginning.
    pub fn take(&mut self, award_no: AwardNo, plan: TaskPlan) {
        let is_known = match self.stage {
            TaskStage::Offered => false,
            TaskStage::Confirming(known)
            | TaskStage::Committed(known)
            | TaskStage::Working(known)
            | TaskStage::Reported(known) => known == award_no,
        };
        if !is_known {
            self.stage = TaskStage::Confirming(award_no);
            self.plan = Some(plan);
        }
    }

    /// An award binds: what is to be done now, once.
    pub fn commit(&mut self, award_no: AwardNo) -> Option<TaskPlan> {
        if self.stage != TaskStage::Confirming(award_no) {
            return None;
        }
        self.stage = TaskStage::Committed(award_no);
        self.plan.take()
    }

    /// The report of what a worker came to: its result, or its failure with a code. The code of a worker that failed is its own.
    #[must_use]
    pub fn report(outcome: Result<String, RoutineFault>) -> Payload {
        let fault = match outcome {
            Ok(result) => {
                return Payload::Inform(Inform { kind: InformKind::Result, result: Some(result), routine: None });
            }
            Err(fault) => fault,
        };
        let own = if let RoutineFault::Failed(code) = &fault { code.as_str() } else { "" };
        let code = if own.is_empty() { <&str>::from(&fault) } else { own };
        let code = code.chars().take(FAILURE_CODE_LEN_MAX).collect();
        let retryable = matches!(fault, RoutineFault::Busy | RoutineFault::Unavailable(_) | RoutineFault::TimedOut);
        Payload::Failure(Failure { phase: FailurePhase::Perform, code, retryable, penalty: None })
    }
}
