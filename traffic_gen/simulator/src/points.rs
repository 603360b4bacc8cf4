//! The rare paths a batch of runs must have taken, all of them, or it has shown little: one table, one counter each.

use std::collections::BTreeMap;

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A rare path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// Every point.
            pub const ALL: &[Self] = &[$(Self::$point),*];

            /// Its name in reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    // What the bus did.
    /// A request never reached the broker.
    RequestLost = "request_lost",
    /// A request took effect, and its answer was lost.
    AnswerLost = "answer_lost",
    /// An append was stored, and its writer was told that nobody knows.
    AppendStoredUnknown = "append_stored_unknown",
    /// One append stands in the log twice.
    AppendDuplicated = "append_duplicated",
    /// The log refused a record because it was full.
    LogFull = "log_full",
    /// A record was stamped earlier than the one before it in its lane.
    ClockBack = "clock_back",
    /// A record was stamped seconds ahead of true time.
    ClockAhead = "clock_ahead",
    /// A message between subjects was lost.
    MessageLost = "message_lost",
    /// A message arrived twice.
    MessageDuplicated = "message_duplicated",
    /// A message overtook an earlier one to the same subscriber.
    MessageReordered = "message_reordered",
    /// A write to the register found its own value there already.
    RegisterSame = "register_same",
    /// A write to the register found the entry of another history there.
    RegisterRefused = "register_refused",
    /// Records were removed from the log.
    LogTrimmed = "log_trimmed",
    /// A reader asked for records that had been removed.
    ReadTrimmed = "read_trimmed",
    /// A checkpoint was stored.
    CheckpointStored = "checkpoint_stored",
    /// An engine read a checkpoint that names keys the register has refused.
    CheckpointRefused = "checkpoint_refused",
    /// An engine began reading behind the log's beginning: at a checkpoint.
    CheckpointRestored = "checkpoint_restored",

    // What was done to processes.
    /// An engine was killed.
    EngineCrashed = "engine_crashed",
    /// A gateway was killed.
    GatewayCrashed = "gateway_crashed",
    /// A process was killed by its k-th call: before the request left.
    CrashBeforeEffect = "crash_before_effect",
    /// A process was killed by its k-th call: after the request left, before the answer came.
    CrashAfterEffect = "crash_after_effect",
    /// A process was killed in an append that was stored nevertheless.
    CrashAfterAppend = "crash_after_append",
    /// A process was killed in a write to the register that was made nevertheless.
    CrashAfterRegister = "crash_after_register",
    /// A process stood still for a while.
    Stalled = "stalled",
    /// A process lost the broker for a while.
    Partitioned = "partitioned",
    /// The broker was gone for a while.
    BrokerRestarted = "broker_restarted",
    /// An engine was asked to leave.
    EngineLeft = "engine_left",
    /// An engine could not start and was started again.
    StartFailed = "start_failed",

    // What engines did, as the log shows it.
    /// A lane went from one engine to another.
    OwnerChanged = "owner_changed",
    /// A claim was overtaken by another of the same epoch, or a newer one.
    ClaimOutbid = "claim_outbid",
    /// An engine logged something under an epoch that was over.
    OldEpoch = "old_epoch",
    /// An engine logged that deliveries were acknowledged.
    DeliveredLogged = "delivered_logged",
    /// A delivery was given up.
    DeliveryFailed = "delivery_failed",
    /// A delivery was given up under an epoch that was over.
    DeliveryFailedOldEpoch = "delivery_failed_old_epoch",
    /// A view was asked for and not answered in time.
    ViewUnanswered = "view_unanswered",
    /// A question for a view reached an engine that had not read the lane to its end.
    ViewFromBehind = "view_from_behind",
    /// Nothing but a tick moved time.
    Ticked = "ticked",
    /// One message stands in the log twice.
    MessageTwiceInLog = "message_twice_in_log",
    /// Two gateways logged the same call.
    CallByTwoGateways = "call_by_two_gateways",
    /// One record carries messages of several senders.
    GroupCommit = "group_commit",
    /// An engine that did not own the lane any more published deliveries.
    ZombieEmission = "zombie_emission",
    /// An acknowledgement reached an engine that had not read the record behind the delivery.
    AckBeforeFold = "ack_before_fold",

    // Whom gateways invited.
    /// A call left somebody out who was absent.
    AbsentLeftOut = "absent_left_out",
    /// A call that asked for the absent invited one.
    AbsentInvited = "absent_invited",
    /// A call invited a durable agent that was absent.
    DurableInvited = "durable_invited",
    /// A call invited somebody who had been absent before.
    ReturnedInvited = "returned_invited",
    /// A call was refused because nobody it addressed was there.
    NobodyPresent = "nobody_present",

    // What agents saw.
    /// A delivery arrived again.
    DeliveryRepeated = "delivery_repeated",
    /// A delivery arrived again from another engine.
    RepeatedAfterTakeover = "repeated_after_takeover",
    /// A gateway's answer was "unknown, repeat".
    ToldUnknown = "told_unknown",
    /// No gateway answered.
    Unanswered = "unanswered",
    /// An offer came too late.
    OfferLate = "offer_late",
    /// A lot was awarded again.
    ReAwarded = "re_awarded",
    /// A confirmation came after its award was taken back.
    ConfirmedRevoked = "confirmed_revoked",
    /// An award became binding.
    Committed = "committed",
    /// Work was done.
    Completed = "completed",
    /// A call was cancelled.
    Cancelled = "cancelled",
    /// An offer was withdrawn.
    Withdrawn = "withdrawn",
    /// An initiator chose.
    InitiatorChose = "initiator_chose",
    /// Another round began.
    SecondRound = "second_round",
    /// The hard deadline ended a negotiation.
    TimedOut = "timed_out",
    /// The same message id was used for another body.
    Conflicted = "conflicted",
    /// An agent tried to be another and was refused.
    ForgeryRefused = "forgery_refused",

    // What became of bargains.
    /// A lane went over to newer rules.
    RulesChanged = "rules_changed",
    /// A call to a bargain came while its lane ran under rules that know none.
    BargainTooEarly = "bargain_too_early",
    /// A bargain came to an agreement.
    Agreed = "agreed",
    /// Every party confirmed an agreement.
    AgreementConfirmed = "agreement_confirmed",
    /// A policy accepted in a party's name.
    AcceptedByPolicy = "accepted_by_policy",
    /// An offer or an acceptance outside its party's mandate was refused.
    MandateViolation = "mandate_violation",
    /// The offer that stood ran out.
    StandingExpired = "standing_expired",
    /// An offer was taken back before anybody accepted it.
    StandingWithdrawn = "standing_withdrawn",
    /// An ACCEPT or END came after what ended the bargain.
    EndsCrossed = "ends_crossed",
    /// A party left a bargain.
    BargainEnded = "bargain_ended",
    /// A party spoke out of turn too often.
    StruckOut = "struck_out",
    /// No agreement: not all joined.
    NotJoined = "not_joined",
    /// No agreement: the rounds were over.
    RoundsOver = "rounds_over",
    /// No agreement: the time was up.
    DeadlineOver = "deadline_over",
    /// No agreement: a turn took too long.
    StepTimedOut = "step_timed_out",
    /// No agreement: not all confirmed.
    Unconfirmed = "unconfirmed",
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
        Point::ALL.iter().map(|&point| (point.as_str(), self.0[point as usize])).collect()
    }
}
