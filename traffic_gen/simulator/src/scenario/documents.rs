//! Protocol documents that calls name.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::DocumentHash;
use schemas::document::CallDocuments;

use crate::Scenario;

/// Calls that name documents: one in so many.
const DOCUMENTS_ONE_IN: u32 = 2;
/// Calls with documents that require one: one in so many.
const REQUIRE_ONE_IN: u32 = 3;

/// Adds documents to calls. They draw from a generator of their own: other runs stay as they are.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    for call in scenario.agents.iter_mut().flat_map(|plan| &mut plan.calls) {
        if rng.random_range(0..DOCUMENTS_ONE_IN) == 0 {
            let mut hashes = known();
            hashes.shuffle(rng);
            hashes.truncate(rng.random_range(1..=hashes.len()));
            call.documents = Some(CallDocuments { hashes, require: rng.random_range(0..REQUIRE_ONE_IN) == 0 });
        }
    }
}

/// The documents that calls name.
pub(crate) fn known() -> Vec<DocumentHash> {
    ["parcels", "prices", "weather"].map(|name| DocumentHash::of_bytes(name.as_bytes())).to_vec()
}

/// A document that no call names.
pub(crate) fn foreign() -> DocumentHash {
    DocumentHash::of_bytes(b"foreign")
}
