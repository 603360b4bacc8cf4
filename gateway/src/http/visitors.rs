//! Requests that enter without a token, as whom or as far as the gateway's configuration lets them: those of Agora's clients
//! (`agora_token_file`), and of whoever looks at an open console.
//!
//! A page of another site that is open in a browser on this network could make such requests too: under its own name, where it
//! lets that name resolve to this gateway, or under ours, with its own name as `Origin`. Both are refused.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use schemas::{Code, Refusal};

/// Refuses a request that did not come to this gateway under one of its own names, or comes from a page of another.
///
/// # Errors
/// [`Code::Unauthorized`].
pub(super) fn check(headers: &HeaderMap, hosts: &[String]) -> Result<(), Refusal> {
    let refusal = |detail: &str| Refusal::new(Code::Unauthorized, detail);
    let authority = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = authority.filter(|authority| is_own(authority.host(), hosts)).ok_or_else(|| {
        refusal("a request without a token must come under a name of this gateway")
            .expecting("Host: an address, a name without a dot, or one of the gateway's `visitor_hosts`; or a token")
    })?;
    if headers.get_all(header::ORIGIN).iter().all(|origin| is_of(origin, &authority)) {
        return Ok(());
    }
    let expected = format!("an Origin of {authority}, as its own pages have, or none; or a token");
    Err(refusal("a request without a token must not come from a page of another site").expecting(expected))
}

/// Whether a host is an address, which no name server can give away, or a name that is none of the internet's or was listed.
fn is_own(host: &str, hosts: &[String]) -> bool {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || !host.trim_end_matches('.').contains('.') || hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

fn is_of(origin: &HeaderValue, authority: &Authority) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(authority.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_under_an_own_name_and_from_no_other_page_enters_without_a_token() {
        let hosts = ["exchange.example".to_owned()];
        let rows: [(&str, &[&str], bool); 17] = [
            ("127.0.0.1:8080", &[], true),
            ("[::1]:8080", &[], true),
            ("10.0.0.7", &[], true),
            ("localhost:8080", &[], true),
            ("gateway-1:8080", &[], true),
            ("Exchange.Example", &[], true),
            ("localhost:8080", &["http://localhost:8080"], true),
            ("exchange.example", &["https://exchange.example"], true),
            ("evil.example:8080", &[], false),
            ("evil.example:8080", &["http://evil.example:8080"], false),
            ("evil.example.:8080", &[], false),
            ("127.0.0.1.evil.example", &[], false),
            ("exchange.example.evil", &[], false),
            ("localhost:8080", &["http://evil.example"], false),
            ("localhost:8080", &["http://localhost:3000"], false),
            ("localhost:8080", &["null"], false),
            ("localhost:8080", &["http://localhost:8080", "http://evil.example"], false),
        ];
        for (host, origins, is_let_in) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            for origin in origins {
                headers.append(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(check(&headers, &hosts).is_ok(), is_let_in, "{host} {origins:?}");
        }
        assert!(check(&HeaderMap::new(), &hosts).is_err(), "HTTP/1.0 may name no host");
    }
}
