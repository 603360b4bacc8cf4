//! What never stands in a log, whoever wrote it there by mistake: tokens, keys, and what an agent keeps to itself.

use std::borrow::Cow;

/// Stands where something was taken out.
pub const REDACTED: &str = "[redacted]";

/// Fields whose value is never written.
const NAMES: [&str; 14] = [
    "token",
    "authorization",
    "password",
    "secret",
    "private_key",
    "signing_key",
    "key_material",
    "mandate",
    "payload",
    "terms",
    "creds",
    "credentials",
    "jwt",
    "cookie",
];
/// Beginnings and ends of such names.
const BEGINNINGS: [&str; 2] = ["reservation", "mandate_"];
const ENDS: [&str; 4] = ["_token", "_secret", "_password", "_creds"];
/// Every JSON Web Token begins with this: `{"` in base64.
const JWT: &str = "eyJ";
/// Shortest first part of a token; what is shorter is a word.
const JWT_HEADER_MIN: usize = 8;
const BEARER: &str = "bearer ";
const KEY_BLOCK: &str = "PRIVATE KEY-----";

/// Whether the value of a field must not be written.
pub fn is_secret(field: &str) -> bool {
    let field = field.rsplit('.').next().unwrap_or(field).to_ascii_lowercase();
    NAMES.contains(&field.as_str())
        || BEGINNINGS.iter().any(|beginning| field.starts_with(beginning))
        || ENDS.iter().any(|end| field.ends_with(end))
}

/// A text without what looks like a token, a password in an address, or a key.
pub fn scrub(text: &str) -> Cow<'_, str> {
    if text.contains(KEY_BLOCK) {
        return Cow::Borrowed(REDACTED);
    }
    let text = replace(Cow::Borrowed(text), bearer);
    let text = replace(text, jwt);
    replace(text, user_info)
}

/// Replaces what `find` finds, from left to right.
fn replace(text: Cow<'_, str>, find: fn(&str) -> Option<(usize, usize)>) -> Cow<'_, str> {
    let Some(first) = find(&text) else { return text };
    let (mut out, mut rest, mut found) = (String::with_capacity(text.len()), &*text, Some(first));
    while let Some((start, end)) = found {
        out.push_str(&rest[..start]);
        out.push_str(REDACTED);
        rest = &rest[end..];
        found = find(rest);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What follows `Bearer `.
fn bearer(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let starts = (0..bytes.len().saturating_sub(BEARER.len()))
        .filter(|start| bytes[*start..*start + BEARER.len()].eq_ignore_ascii_case(BEARER.as_bytes()));
    starts.map(|start| start + BEARER.len()).find_map(|start| {
        let length = text[start..].find([' ', '"', '\'', ',', ';', '\n']).unwrap_or(text.len() - start);
        (length > 0 && !text[start..].starts_with(REDACTED)).then_some((start, start + length))
    })
}

/// A token with a first part and more behind its dot.
fn jwt(text: &str) -> Option<(usize, usize)> {
    text.match_indices(JWT).find_map(|(start, _)| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
        let token = &text[start..start + text[start..].find(|c| !is_part(c)).unwrap_or(text.len() - start)];
        let header = token.find('.')?;
        (header >= JWT_HEADER_MIN && token.len() > header + 1).then_some((start, start + token.len()))
    })
}

/// Name and password in an address: what stands between `://` and `@`.
fn user_info(text: &str) -> Option<(usize, usize)> {
    text.match_indices("://").find_map(|(at, _)| {
        let start = at + "://".len();
        let host = text[start..].find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '?' | '#'));
        let place = &text[start..start + host.unwrap_or(text.len() - start)];
        let length = place.rfind('@')?;
        (length > 0 && &place[..length] != REDACTED).then_some((start, start + length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl-_x";

    #[test]
    fn secret_fields_are_known_by_their_names() {
        for name in [
            "token",
            "Authorization",
            "reservation",
            "reservation_value",
            "mandate",
            "admin_token",
            "nats.creds",
            "terms",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["negotiation", "key", "tokens", "policy", "code", "message", "creator", "determined"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn what_looks_like_a_token_goes_wherever_it_stands() {
        for (text, expected) in [
            (TOKEN.to_owned(), "[redacted]".to_owned()),
            (format!("refused: {TOKEN}, retry"), "refused: [redacted], retry".to_owned()),
            (format!("a={TOKEN} b={TOKEN}"), "a=[redacted] b=[redacted]".to_owned()),
            (format!("Authorization: Bearer {TOKEN}"), "Authorization: Bearer [redacted]".to_owned()),
            ("bearer abc123, BEARER x".to_owned(), "bearer [redacted], BEARER [redacted]".to_owned()),
            ("nats://a:b@host:4222 down".to_owned(), "nats://[redacted]@host:4222 down".to_owned()),
            (format!("{}x.y", &TOKEN[..20]), "[redacted]".to_owned()),
            ("é Bearer é".to_owned(), "é Bearer [redacted]".to_owned()),
            ("-----BEGIN PRIVATE KEY-----\nMC4C".to_owned(), "[redacted]".to_owned()),
        ] {
            assert_eq!(scrub(&text), expected, "{text}");
            assert_eq!(scrub(&expected), expected, "twice is as good as once");
        }
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is() {
        for text in
            ["", "Bearer ", "the bearer", "eyJ", "eyJabc.", "eyJ.a.b", "keyJoin.rs", "http://a/b@c", "a@b", "://"]
        {
            assert!(matches!(scrub(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
