//! What a snapshot holds where memory keeps something smaller: its format does not change with how a state is kept.

use schemas::delivery::Disposition;
use schemas::ids::Position;
use schemas::{Act, AwardNo, MsgId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// Writes a count of at most 255 as wide as other counts are.
pub(super) fn write_count<S: Serializer>(count: &u8, serializer: S) -> Result<S::Ok, S::Error> {
    u32::from(*count).serialize(serializer)
}

/// Reads such a count.
pub(super) fn read_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    u32::deserialize(deserializer).map(|count| u8::try_from(count).unwrap_or(u8::MAX))
}
