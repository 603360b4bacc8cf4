//! What tests of the snapshot look up in a contract net.

use schemas::MsgId;

use super::ContractNet;
use super::session::{CollectedOffer, ContractorSession};
use crate::negotiation::SeenMessage;

/// What most open negotiations consist of is kept small. Each of these sizes is one that an allocator hands out.
#[test]
fn what_is_kept_of_a_call_fits_its_sizes() {
    assert_eq!((size_of::<SeenMessage>(), size_of::<ContractorSession>()), (64, 64));
    assert!(size_of::<CollectedOffer>() <= 80, "{}", size_of::<CollectedOffer>());
    assert!(size_of::<ContractNet>() <= 384, "{}", size_of::<ContractNet>());
}

impl ContractNet {
    /// The ids of the messages it refers to.
    pub(crate) fn message_ids(&self) -> impl Iterator<Item = &MsgId> {
        let seen = self.parties().flat_map(|party| &party.seen).map(|seen| &seen.msg_id);
        seen.chain([&self.header.call_msg_id])
    }

    /// Elements its lists could take without growing.
    pub(crate) fn spare(&self) -> usize {
        let seen: usize = self.parties().map(|party| party.seen.capacity() - party.seen.len()).sum();
        seen + self.awards.spare() + self.deciding.spare()
    }
}
