//! How an agent is: rates of everything it may do wrong, in per mille.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Rates, in per mille of the occasions.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentFaults {
    /// A call is declined, in one of three ways.
    pub(super) decline: u32,
    /// A call is not answered.
    pub(super) ignore: u32,
    /// An offer comes after the deadline.
    pub(super) offer_late: u32,
    /// An offer is replaced by another.
    pub(super) revise: u32,
    /// An offer is withdrawn.
    pub(super) withdraw: u32,
    /// An offer breaks the policy's gates.
    pub(super) offer_unfit: u32,
    /// An offer is valid for a short time only.
    pub(super) offer_brief: u32,
    /// An award is declined, in one of four ways.
    pub(super) decline_award: u32,
    /// An award is not answered.
    pub(super) ignore_award: u32,
    /// An award is confirmed too late.
    pub(super) confirm_late: u32,
    /// Another award is confirmed first.
    pub(super) confirm_wrong: u32,
    /// The work fails.
    pub(super) fail: u32,
    /// The work never ends.
    pub(super) dawdle: u32,
    /// An initiator calls it off.
    pub(super) cancel: u32,
    /// An initiator that may choose does not, or chooses what is not there.
    pub(super) choose_badly: u32,
    /// A message is sent again for no reason.
    pub(super) repeat: u32,
    /// A message id is used for another body.
    pub(super) conflict: u32,
    /// A message is sent under another's name.
    pub(super) forge: u32,
    /// Something is said that nobody asked for.
    pub(super) stray: u32,
    /// A sequence number is lower than the one before.
    pub(super) stale_seq: u32,
    /// A delivery is not acknowledged.
    pub(super) ack_skip: u32,
    /// It is acknowledged late.
    pub(super) ack_late: u32,
    /// It is acknowledged twice.
    pub(super) ack_twice: u32,
    /// The agent goes away and comes back.
    pub(super) reconnect: u32,
    /// A bargain is left.
    pub(super) leave: u32,
    /// Something is said in a bargain out of turn.
    pub(super) speak_out: u32,
    /// What the party's own mandate forbids is offered or accepted.
    pub(super) overreach: u32,
}

impl AgentFaults {
    /// A temper: half of the agents do what they should, some are a little careless, few are hopeless.
    pub(crate) fn draw(rng: &mut ChaCha8Rng) -> Self {
        let most = match rng.random_range(0..8) {
            0..4 => return Self::default(),
            4..7 => 150,
            _ => 500,
        };
        // Each vice is absent from half of the agents, so that some runs go deep where others cannot.
        let mut rate = |most: u32| if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(0..=most) };
        let mut temper = Self {
            decline: rate(most),
            ignore: rate(most),
            offer_late: rate(most),
            revise: rate(most),
            withdraw: rate(most),
            offer_unfit: rate(most / 2),
            offer_brief: rate(most),
            decline_award: rate(most),
            ignore_award: rate(most),
            confirm_late: rate(most),
            confirm_wrong: rate(most / 2),
            fail: rate(most),
            dawdle: rate(most),
            cancel: rate(most),
            choose_badly: rate(most),
            repeat: rate(most),
            conflict: rate(most / 3),
            forge: rate(most / 3),
            stray: rate(most / 3),
            stale_seq: rate(most / 3),
            ack_skip: rate(most),
            ack_late: rate(most),
            ack_twice: rate(most),
            reconnect: rate(most / 5),
            leave: rate(most / 3),
            speak_out: rate(most),
            overreach: rate(2 * most),
        };
        match rng.random_range(0..12) {
            0 => temper.ack_skip = 1000,
            1 => return Self::deaf(),
            _ => {}
        }
        temper
    }

    /// Nothing reaches it, so that its calls are given up.
    pub(crate) fn deaf() -> Self {
        Self { ack_skip: 1000, ignore: 1000, ..Self::default() }
    }
}
