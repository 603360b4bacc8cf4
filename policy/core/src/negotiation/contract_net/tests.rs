//! What tests of the snapshot look up in a contract net.

use schemas::MsgId;

use super::ContractNet;

impl ContractNet {
    /// The ids of the messages it refers to.
    pub(crate) fn message_ids(&self) -> impl Iterator<Item = &MsgId> {
        let seen = self.parties().flat_map(|party| &party.seen).map(|seen| &seen.msg_id);
        seen.chain([&self.header.call_msg_id])
    }

    /// Elements its lists could take without growing.
    pub(crate) fn spare(&self) -> usize {
        let seen: usize = self.parties().map(|party| party.seen.capacity() - party.seen.len()).sum();
        let sessions = self.sessions.capacity() - self.sessions.len();
        seen + sessions + self.awards.spare() + self.deciding.spare()
    }
}
