//! The rare paths a batch of runs must have taken, all of them, or it has shown little, with one counter each.

use std::collections::BTreeMap;

/// A rare path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Point {
    // What the bus did.
    /// A request never reached the broker.
    RequestLost,
    /// A request took effect, and its answer was lost.
    AnswerLost,
    /// An append was stored, and its writer was told that nobody knows.
    AppendStoredUnknown,
    /// One append stands in the log twice.
    AppendDuplicated,
    /// The log refused a record because it was full.
    LogFull,
    /// A record was stamped earlier than the one before it in its lane.
    ClockBack,
    /// A record was stamped seconds ahead of true time.
    ClockAhead,
    /// A message between subjects was lost.
    MessageLost,
    /// A message arrived twice.
    MessageDuplicated,
    /// A message overtook an earlier one to the same subscriber.
    MessageReordered,
    /// A write to the register found its own value there already.
    RegisterSame,
    /// A write to the register found the entry of another history there.
    RegisterRefused,
    /// An entry was removed from the register.
    RegisterExpired,
    /// Records were removed from the log.
    LogTrimmed,
    /// A reader asked for records that had been removed.
    ReadTrimmed,
    /// A checkpoint was stored.
    CheckpointStored,
    /// An engine read a checkpoint that names keys the register has refused.
    CheckpointRefused,
    /// An engine began reading behind the log's beginning: at a checkpoint.
    CheckpointRestored,

    // What was done to processes.
    /// An engine was killed.
    EngineCrashed,
    /// A gateway was killed.
    GatewayCrashed,
    /// A process was killed by its k-th call: before the request left.
    CrashBeforeEffect,
    /// A process was killed by its k-th call: after the request left, before the answer came.
    CrashAfterEffect,
    /// A process was killed in an append that was stored nevertheless.
    CrashAfterAppend,
    /// A process was killed in a write to the register that was made nevertheless.
    CrashAfterRegister,
    /// A process stood still for a while.
    Stalled,
    /// A process lost the broker for a while.
    Partitioned,
    /// The broker was gone for a while.
    BrokerRestarted,
    /// An engine was asked to leave.
    EngineLeft,
    /// An engine could not start and was started again.
    StartFailed,

    // What engines did, as the log shows it.
    /// A lane went from one engine to another.
    OwnerChanged,
    /// An engine took up a lane it did not fold.
    LaneTakenUp,
    /// An engine let go of a lane that others fold.
    LaneLetGo,
    /// A lane that no engine folded any more came to be owned by one that had to read its checkpoint first.
    ColdTakeover,
    /// A claim was overtaken by another of the same epoch, or a newer one.
    ClaimOutbid,
    /// An engine logged something under an epoch that was over.
    OldEpoch,
    /// An engine logged that deliveries were acknowledged.
    DeliveredLogged,
    /// A delivery was given up.
    DeliveryFailed,
    /// A delivery was given up under an epoch that was over.
    DeliveryFailedOldEpoch,
    /// A view was asked for and not answered in time.
    ViewUnanswered,
    /// A question for a view reached an engine that had not read the lane to its end.
    ViewFromBehind,
    /// Nothing but a tick moved time.
    Ticked,
    /// One message stands in the log twice.
    MessageTwiceInLog,
    /// Two gateways logged the same call.
    CallByTwoGateways,
    /// One record carries messages of several senders.
    GroupCommit,
    /// An engine that did not own the lane any more published deliveries.
    ZombieEmission,
    /// A gateway took an acknowledgement in.
    AckCollected,
    /// A gateway passed acknowledgements of several agents on in one message.
    AcksTogether,
    /// An acknowledgement reached an engine that had not read the record behind the delivery.
    AckBeforeFold,

    // Whom gateways invited.
    /// A call left somebody out who was absent.
    AbsentLeftOut,
    /// A call that asked for the absent invited one.
    AbsentInvited,
    /// A call invited a durable agent that was absent.
    DurableInvited,
    /// A call invited somebody who had been absent before.
    ReturnedInvited,
    /// A call was refused because nobody it addressed was there.
    NobodyPresent,

    // What agents saw.
    /// Deliveries left by the gateway that holds their agents' streams.
    Routed,
    /// A delivery came to a gateway at which its agent has no stream.
    RoutedWrong,
    /// A delivery arrived again.
    DeliveryRepeated,
    /// Receipts came along with another delivery.
    ReceiptAlong,
    /// A delivery arrived again from another engine.
    RepeatedAfterTakeover,
    /// A gateway's answer was "unknown, repeat".
    ToldUnknown,
    /// No gateway answered.
    Unanswered,
    /// A call was refused because more is called for than can be done.
    CallHeldBack,
    /// An offer came too late.
    OfferLate,
    /// The REJECT of a late offer was answered by another offer.
    RejectionAnswered,
    /// A lot was awarded again.
    ReAwarded,
    /// A confirmation came after its award was taken back.
    ConfirmedRevoked,
    /// An award became binding.
    Committed,
    /// An award pinned a protocol document.
    DocumentPinned,
    /// An offer named none of the documents of a call that requires one.
    DocumentMissing,
    /// A report named another document than the award.
    DocumentForeign,
    /// Work was done.
    Completed,
    /// A call was cancelled.
    Cancelled,
    /// An offer was withdrawn.
    Withdrawn,
    /// An initiator chose.
    InitiatorChose,
    /// Another round began.
    SecondRound,
    /// The hard deadline ended a negotiation.
    TimedOut,
    /// A bid of an auction stood.
    BidStood,
    /// No bid of an auction reached its reserve.
    ReserveNotMet,
    /// The same message id was used for another body.
    Conflicted,
    /// An agent tried to be another and was refused.
    ForgeryRefused,

    // What became of bargains.
    /// A lane went over to newer rules.
    RulesChanged,
    /// A call to a bargain came while its lane ran under rules that know none.
    BargainTooEarly,
    /// A bargain came to an agreement.
    Agreed,
    /// Every party confirmed an agreement.
    AgreementConfirmed,
    /// A policy accepted in a party's name.
    AcceptedByPolicy,
    /// An offer or an acceptance outside its party's mandate was refused.
    MandateViolation,
    /// The offer that stood ran out.
    StandingExpired,
    /// An offer was taken back before anybody accepted it.
    StandingWithdrawn,
    /// An ACCEPT or END came after what ended the bargain.
    EndsCrossed,
    /// A party left a bargain.
    BargainEnded,
    /// A party spoke out of turn too often.
    StruckOut,
    /// No agreement: not all joined.
    NotJoined,
    /// No agreement: the rounds were over.
    RoundsOver,
    /// No agreement: the time was up.
    DeadlineOver,
    /// No agreement: a turn took too long.
    StepTimedOut,
    /// No agreement: not all confirmed.
    Unconfirmed,

    // What became of teams.
    /// A team could only conclude any more.
    TeamForced,
    /// A member was muted.
    MemberMuted,
    /// An act named a turn that was over.
    TurnCrossed,
    /// A team of which tasks were open could only conclude any more.
    TeamForcedWithTasks,
    /// Tasks were shared out.
    TasksAssigned,
    /// A team waited for the tasks of an assignment.
    TasksAwaited,
    /// A team waited for tasks of earlier assignments.
    TeamPaused,
    /// A team waited, and went on when the last of the tasks had ended.
    TeamWoken,
    /// The last task that a member waits for ended in the record of its pause.
    WokenInPause,
    /// The award of a task was lost, and went to another member.
    TaskReAwarded,
    /// Whoever was named for a task refused it.
    DirectTaskRefused,
    /// A team waited for a task whose owner let the time pass.
    OwnerSilent,
    /// The owner of a task was killed.
    OwnerKilled,
    /// A task went on after the conclusion and came to a result.
    TaskOutlived,
    /// A sub-team concluded, which is the result of its task.
    ConclusionRaised,
    /// So did the team of that task, itself a sub-team.
    ConclusionRaisedTwice,
    /// A sub-team ended because its award was committed no longer.
    SubTeamOrphaned,
    /// So did the sub-team of one of its tasks.
    SubTeamOrphanedTwice,
    /// A sub-team came to nothing while its owner was bound still.
    SubTeamInVain,
    /// An owner reported by itself while its sub-team was open.
    OwnerReportedAlone,
    /// The lead left, and the next seat leads.
    LeadLeft,
    /// Every member of a team was muted.
    TeamMuted,
    /// A say was told by reference to an earlier one.
    SayRepeated,
    /// Who joined got no seat.
    SeatOutscored,
    /// A team concluded.
    TeamConcluded,
    /// A conclusion was voted.
    ConclusionVoted,
    /// A conclusion was voted after another had been rejected.
    ConclusionVotedAgain,
    /// Too few joined.
    TeamNotFormed,
    /// A team ended without a conclusion: nobody concluded.
    TeamSilent,
    /// A team ended without a conclusion: the time was up.
    TeamOverdue,
    /// A team ended without a conclusion: every vote rejected it.
    ConclusionRejected,
    /// A team ended without a conclusion: too few were left.
    TeamLeft,

    // What became of panels.
    /// A seat was asked in a further round.
    PanelNextRound,
    /// More than two thirds of a round agreed.
    ConsensusOfAnswers,
    /// More than two thirds of those a selection kept agreed.
    ConsensusOfKept,
    /// The rounds were over: a plurality.
    PluralityAtEnd,
    /// The time was over: a plurality.
    PluralityInTime,
    /// Nobody replied in a round: a plurality of the one before.
    PluralityInSilence,
    /// A panel ended with an answer.
    PanelAnswered,
    /// A panel ended without one.
    PanelNoAnswer,
    /// An agent ranked answers, or was to.
    RankerAsked,
    /// Reviewers were asked in a panel that came to a result.
    ReviewersAsked,
    /// A seat was to rate reviewers.
    ReviewersRated,
    /// An answer came after its time.
    AnswerLate,
    /// An answer named an earlier round.
    AnswerStale,
    /// A panel chose its seats by evidence.
    SeatsChosen,
    /// A panel that chooses its seats took everybody on trial.
    SeatsOnTrial,
    /// An engine stored what panels have shown.
    LedgerStored,
    /// A call to a contract net pinned a reputation other than the average.
    ReputationPinned,
    /// A call to a team did.
    ReputationPinnedForSeats,
    /// A call to a panel that chooses its seats did.
    ReputationPinnedForChoice,
}

impl Point {
    /// Every point.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// How often each point was reached.
#[derive(Debug, Clone)]
pub(super) struct Points([u64; Point::ALL.len()]);

impl Points {
    pub(super) const fn new() -> Self {
        Self([0; Point::ALL.len()])
    }

    /// The point was reached.
    pub(super) const fn reached(&mut self, point: Point) {
        self.0[point as usize] += 1;
    }

    /// By name, those never reached included.
    pub(super) fn by_name(&self) -> BTreeMap<&'static str, u64> {
        Point::ALL.iter().map(|&point| (point.into(), self.0[point as usize])).collect()
    }
}
