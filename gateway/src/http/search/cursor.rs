//! Where a page of hits ended (docs/spec/search.md#se-13): opaque to callers, and good for the same search only.

use ::search::HitPlace;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::search::{CURSOR_LEN_MAX, HITS_DEFAULT, SearchRequest};
use schemas::{AgentId, Code, Digest, Refusal};

/// Bytes of a search's digest that a cursor holds.
const DIGEST_BYTES: usize = 8;

/// The last hit of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    /// How many hits there were up to it.
    pub(super) depth: u32,
    /// Its place.
    pub(super) place: HitPlace,
}

impl Cursor {
    /// The cursor of a request, if it has one.
    ///
    /// # Errors
    /// [`Code::NotAllowed`] with several queries; [`Code::BadFormat`] for what is no cursor of this search.
    pub(super) fn of_request(request: &SearchRequest) -> Result<Option<Self>, Refusal> {
        let Some(text) = &request.cursor else { return Ok(None) };
        if request.queries.len() > 1 {
            let detail = "pages are offered for one query only";
            return Err(Refusal::new(Code::NotAllowed, detail).at("/cursor").expecting("one query"));
        }
        Self::of_text(text, request).map(Some).ok_or_else(|| {
            Refusal::new(Code::BadFormat, "not a cursor of this search")
                .at("/cursor")
                .expecting("`next` of a page with the same query and filters")
        })
    }

    /// The cursor as callers get it.
    pub(super) fn to_text(&self, request: &SearchRequest) -> String {
        let Self { depth, place: HitPlace { score, agent } } = self;
        let text = URL_SAFE_NO_PAD.encode(format!("{}.{depth}.{score}.{agent}", digest(request)));
        debug_assert!(text.len() <= CURSOR_LEN_MAX, "a cursor is one that requests may hold");
        text
    }

    fn of_text(text: &str, request: &SearchRequest) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = text.splitn(4, '.');
        let is_of_request = parts.next()? == digest(request);
        let (depth, score, agent) = (parts.next()?, parts.next()?, parts.next()?);
        let place = HitPlace { score: score.parse().ok()?, agent: AgentId::try_new(agent).ok()? };
        is_of_request.then_some(Self { depth: depth.parse().ok()?, place })
    }
}

/// Tells searches apart by query and filters. How many hits a page has, and where it begins, is no part of it.
fn digest(request: &SearchRequest) -> String {
    let same = SearchRequest { cursor: None, limit: HITS_DEFAULT, ..request.clone() };
    // A request has no value that JSON cannot hold.
    let text = serde_json::to_vec(&same).unwrap_or_default();
    let Digest(bytes) = Digest::of_bytes(&text);
    bytes.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_in_the_same_search_only() {
        let request = SearchRequest::of_texts(vec!["paint".to_owned()]);
        let longest = AgentId::try_new(&"x".repeat(64)).unwrap();
        let cursor = Cursor { depth: 999, place: HitPlace { score: u64::MAX, agent: longest } };
        let text = cursor.to_text(&request);
        let with = |request: SearchRequest| {
            Cursor::of_request(&SearchRequest { cursor: Some(text.clone()), ..request }).map_err(|refusal| refusal.code)
        };
        assert_eq!(with(SearchRequest { limit: 100, ..request.clone() }), Ok(Some(cursor.clone())));
        assert_eq!(with(SearchRequest { present: true, ..request.clone() }), Err(Code::BadFormat));
        assert_eq!(with(SearchRequest::of_texts(vec!["paints".to_owned()])), Err(Code::BadFormat));
        assert_eq!(with(SearchRequest::of_texts(vec!["paint".to_owned(); 2])), Err(Code::NotAllowed));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let request = SearchRequest::of_texts(vec!["paint".to_owned()]);
        let encoded = |text: String| URL_SAFE_NO_PAD.encode(text);
        let right = digest(&request);
        for text in [
            "x".to_owned(),
            "%%%".to_owned(),
            encoded(format!("{right}.1.1")),
            encoded(format!("{right}.1.-1.bob")),
            encoded(format!("{right}.1.1.bob.carol")),
            encoded(format!("{right}.4294967296.1.bob")),
            encoded(right.clone()),
            "x".repeat(200),
        ] {
            let request = SearchRequest { cursor: Some(text.clone()), ..request.clone() };
            assert_eq!(Cursor::of_request(&request).unwrap_err().code, Code::BadFormat, "{text}");
        }
    }
}
