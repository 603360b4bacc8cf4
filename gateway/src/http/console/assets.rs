//! The page and what it loads, embedded in the binary. Nothing comes from elsewhere, and the policy sent along lets
//! nothing come from elsewhere.

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use schemas::{Code, Digest, Refusal};

use super::must_be_on;
use crate::http::{HttpResult, PathText, Site, segment};

/// No script, style, image, font or connection but this gateway's own, none of it inline; no frame around the page.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

struct Asset {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($folder:literal $name:literal => $media_type:literal),+ $(,)?) => {
        [$(Asset {
            name: $name,
            media_type: $media_type,
            text: include_str!(concat!("../../../console/", $folder, $name)),
        }),+]
    };
}

/// Everything there is; the first is the page.
static ASSETS: [Asset; 19] = assets![
    "" "index.html" => "text/html; charset=utf-8",
    "" "console.css" => "text/css; charset=utf-8",
    "" "console.js" => "text/javascript; charset=utf-8",
    "" "dom.js" => "text/javascript; charset=utf-8",
    "" "auction.js" => "text/javascript; charset=utf-8",
    "" "charts.js" => "text/javascript; charset=utf-8",
    "" "overview.js" => "text/javascript; charset=utf-8",
    "" "policies.js" => "text/javascript; charset=utf-8",
    "" "agents.js" => "text/javascript; charset=utf-8",
    "" "family.js" => "text/javascript; charset=utf-8",
    "" "panel.js" => "text/javascript; charset=utf-8",
    "" "plane.js" => "text/javascript; charset=utf-8",
    "" "utility.js" => "text/javascript; charset=utf-8",
    "" "team.js" => "text/javascript; charset=utf-8",
    "" "timeline.js" => "text/javascript; charset=utf-8",
    "" "icon.svg" => "image/svg+xml",
    "vendor/" "uplot.js" => "text/javascript; charset=utf-8",
    "vendor/" "uplot.css" => "text/css; charset=utf-8",
    "vendor/" "uplot.LICENSE" => "text/plain; charset=utf-8",
];

/// The page.
pub(super) async fn page(State(site): State<Arc<Site>>, headers: HeaderMap) -> HttpResult {
    must_be_on(&site)?;
    Ok(serve(0, &headers))
}

/// What the page loads.
pub(super) async fn asset(State(site): State<Arc<Site>>, path: PathText, headers: HeaderMap) -> HttpResult {
    must_be_on(&site)?;
    let wanted = segment(path)?;
    let index = ASSETS.iter().position(|asset| asset.name == wanted);
    let index = index.ok_or_else(|| Refusal::new(Code::NotFound, "the console has no such part"))?;
    Ok(serve(index, &headers))
}

/// An asset, or that the visitor's copy is still good: copies are kept, and asked about every time, so that a page and
/// its parts always come from one version.
fn serve(index: usize, asked: &HeaderMap) -> Response {
    let asset = &ASSETS[index];
    let tag = tag(index);
    let common: [(HeaderName, HeaderValue); 6] = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, tag.clone()),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    if asked.get_all(header::IF_NONE_MATCH).iter().any(|known| known == tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type))];
    (common, media_type, asset.text).into_response()
}

/// The version of an asset: the digest of its text, quoted.
fn tag(index: usize) -> &'static HeaderValue {
    static TAGS: [OnceLock<HeaderValue>; ASSETS.len()] = [const { OnceLock::new() }; ASSETS.len()];
    TAGS[index].get_or_init(|| {
        let digest = Digest::of_bytes(ASSETS[index].text.as_bytes());
        let quoted = format!("\"{}\"", HEXLOWER.encode(&digest.short()));
        // Hexadecimal digits are always a header's value; without a tag nothing would be kept, which is harmless.
        HeaderValue::from_str(&quoted).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_the_page_loads_comes_from_elsewhere_and_nothing_is_inline() {
        for asset in ASSETS.iter().filter(|asset| !asset.name.starts_with("uplot.")) {
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for foreign in
                ["http://", "https://", "url(", "@import", "style=\"", "onclick=", "onload=", "innerHTML", "eval("]
            {
                assert!(!text.contains(foreign), "{} has `{foreign}`", asset.name);
            }
        }
        assert!(!ASSETS[0].text.contains("<style"), "styles are in console.css");
    }

    #[test]
    fn the_vendored_library_is_the_one_its_readme_names() {
        let readme = include_str!("../../../console/vendor/README.md");
        let vendored = ASSETS.iter().filter(|asset| asset.name.starts_with("uplot."));
        for asset in vendored {
            let digest = HEXLOWER.encode(&Digest::of_bytes(asset.text.as_bytes()).0);
            assert!(readme.contains(&format!("| `{}` | `{digest}` |", asset.name)), "{} is {digest}", asset.name);
        }
    }

    #[test]
    fn everything_the_page_names_is_there() {
        let served: Vec<String> = ASSETS.iter().map(|asset| format!("/console/{}", asset.name)).collect();
        let mut named = 0;
        for asset in &ASSETS {
            for piece in asset.text.split(['"', '\'']).filter(|piece| piece.starts_with("/console/")) {
                assert!(served.iter().any(|path| path == piece), "{} names {piece}", asset.name);
                named += 1;
            }
        }
        assert!(named >= 5, "{named}");
    }
}
