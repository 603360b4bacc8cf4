//! English auctions on the command line: their rules, and how they are told.

use agents::ContractorConfig;
use agents::contractor::Distribution;
use schemas::english_auction::{AuctionRules, AuctionSpec, Extension, PriceDirection, StandingBid, Step};
use schemas::validate::{Kind, check_document};

use crate::arguments::{read_text, units};

/// Longest file of rules.
const FILE_BYTES_MAX: u64 = 4096;

/// Rules as a JSON document, or a file that holds one.
///
/// # Errors
/// Why they are none, with the code and where the fault is.
pub fn spec(text: &str) -> Result<AuctionSpec, String> {
    let text = if text.trim_start().starts_with(['{', '[', '"']) {
        text.to_owned()
    } else {
        read_text(text.as_ref(), FILE_BYTES_MAX).map_err(|error| format!("cannot read {text}: {error}"))?
    };
    check_document(Kind::EnglishAuction, text.as_bytes()).map_err(|refusal| {
        let at = refusal.pointer.as_deref().map(|pointer| format!(" at {pointer}")).unwrap_or_default();
        let expected =
            refusal.expected.as_deref().map(|expected| format!("; expected: {expected}")).unwrap_or_default();
        format!("{refusal}{at}{expected}")
    })?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The rules of a demo: prices fall from the most that its contractors ask, and each bid leaves time for another.
pub fn demo() -> AuctionSpec {
    let extend = Some(Extension { ms: 250, latest_within_ms: 8_000 });
    let step = Step::Permille(20);
    let rules =
        AuctionRules { direction: PriceDirection::Descending, start: 150_000_000, step, quiet_ms: Some(500), extend };
    AuctionSpec { rules, reserve: Some(140_000_000) }
}

/// How contractors of a demo bid, unless a file says: not all at once, since the first to beat a bid makes the others wait.
pub fn demo_bidders() -> ContractorConfig {
    ContractorConfig { reply_delay_ms: Distribution::Uniform { lo: 0, hi: 200 }, ..ContractorConfig::default() }
}

/// What a call to an auction says of its rules.
pub fn called(rules: &AuctionRules) -> String {
    let way = match rules.direction {
        PriceDirection::Ascending => "upwards",
        PriceDirection::Descending => "downwards",
    };
    let step = match rules.step {
        Step::Fixed(step) => units(step),
        Step::Permille(permille) => format!("{permille} per mille"),
    };
    format!("an auction from {} {way} by {step}", units(rules.start))
}

/// How an auction stands.
pub fn standing(bid: &StandingBid) -> String {
    let StandingBid { bid_no, price, leads, bidders, next_price, .. } = bid;
    let whose = if *leads { ", yours" } else { "" };
    let next = next_price.map(|next| format!(", next {}", units(next))).unwrap_or_default();
    format!("{} (bid {bid_no}{whose}){next}, {bidders} bidders", units(*price))
}
