//! What a snapshot holds of a message. Its format does not change with how a message is kept in memory.

use schemas::delivery::Disposition;
use schemas::ids::Position;
use schemas::{Act, AwardNo, MsgId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{BesideReceipt, DIGEST_KEPT, FollowUp, SeenMessage};

/// A [`SeenMessage`] in a snapshot.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredMessage {
    msg_id: MsgId,
    digest: [u8; DIGEST_KEPT],
    act: Act,
    disposition: Disposition,
    reply: FollowUp,
    award_no: Option<AwardNo>,
    position: Position,
    at: Timestamp,
}

impl From<StoredMessage> for SeenMessage {
    fn from(stored: StoredMessage) -> Self {
        let StoredMessage { msg_id, digest, act, disposition, reply, award_no, position, at } = stored;
        let beside = BesideReceipt::of(reply, award_no);
        Self { msg_id, digest, act, disposition, beside, seq: position.seq, index: position.index, at }
    }
}

impl From<SeenMessage> for StoredMessage {
    fn from(seen: SeenMessage) -> Self {
        let (reply, award_no, position) = (seen.reply().clone(), seen.award_no(), seen.position());
        let SeenMessage { msg_id, digest, act, disposition, at, .. } = seen;
        Self { msg_id, digest, act, disposition, reply, award_no, position, at }
    }
}
