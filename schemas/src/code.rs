//! The stable refusal codes: what a client is told, and may match on, when a message goes no further.

use serde::{Deserialize, Serialize};

/// Declares the codes, each with the HTTP status that goes with it.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $code:ident => $status:literal,)+ }) => {
        crate::words! {
            $(#[$meta])*
            pub enum $name { $($(#[$doc])* $code,)+ }
        }

        impl $name {
            /// The HTTP status that goes with the code.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)+
                }
            }
        }
    };
}

codes! {
    /// Why a gateway refused a request. Codes are part of the wire contract: they are never renamed or reused.
    pub enum Code {
        /// No token, or one whose signature, algorithm, key or form is not accepted.
        Unauthenticated => 401,
        /// The token's `exp` lies in the past.
        TokenExpired => 401,
        /// The token's `nbf` or `iat` lies in the future, by more than the leeway.
        TokenNotYetValid => 401,
        /// A valid token whose subject may not do this: `from` differs from `sub`, or another agent's resource.
        Unauthorized => 403,
        /// No invited agent consents to this topic and counterpart.
        NoConsent => 403,
        /// Nobody is addressed who exists, shares a capability and is not the sender.
        NoRecipient => 422,
        /// Everybody who could be invited has too many deliveries it has not acknowledged.
        Unresponsive => 422,
        /// The agent's rate is used up, or it has as many streams open as it may; `retry_after_ms` says when to come back.
        RateLimited => 429,
        /// The body is larger than the gateway reads.
        TooLarge => 413,
        /// The body is not declared as `application/json`, or is compressed.
        UnsupportedMediaType => 415,
        /// The request did not arrive in time.
        RequestTimeout => 408,
        /// The request is no HTTP/1.1 request (RFC 9112): its first line, a header, or not exactly one Host.
        MalformedRequest => 400,
        /// The request's header is larger than the gateway reads.
        HeaderTooLarge => 431,
        /// The WebSocket handshake names another version than 13 (RFC 6455 section 4.4).
        UpgradeRequired => 426,
        /// The body is no JSON text (RFC 8259): syntax, byte order mark, encoding, trailing bytes, lone surrogate.
        MalformedJson => 422,
        /// An object names a member twice.
        DuplicateKey => 422,
        /// Nesting is deeper than the gateway reads.
        TooDeep => 422,
        /// A required member is missing.
        MissingField => 422,
        /// A member the schema does not know.
        UnknownField => 422,
        /// A value of another JSON type.
        WrongType => 422,
        /// A number, length or count outside its range.
        OutOfRange => 422,
        /// A text that does not match its format or pattern.
        BadFormat => 422,
        /// A value that is none of those allowed, for example an act agents may not send.
        NotAllowed => 422,
        /// `scope.ttl` has no time left, or a deadline lies outside what the policy allows.
        BadDeadline => 422,
        /// The policy named does not exist.
        UnknownPolicy => 422,
        /// The policy document contradicts itself.
        InvalidPolicy => 422,
        /// The same `msg_id` with another body; the first stands.
        Conflict => 409,
        /// No such resource, or none the caller may see: the same answer for both.
        NotFound => 404,
        /// The method is not offered on this path.
        MethodNotAllowed => 405,
        /// The log did not answer in time: the outcome is unknown, retry with the same `msg_id`.
        LogUnavailable => 503,
        /// The process is shutting down or not ready.
        Unavailable => 503,
        /// A bound was reached (connections, inboxes, keys); come back later.
        Overloaded => 503,
        /// A fault of ours.
        Internal => 500,
    }
}

/// A refusal: an answer, not a failure. Names the fault, where it is and what was expected; never repeats the value
/// (a call that reaches nobody excepted: it is told the name it looked for).
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// The fault and its remedy, for a person.
    pub detail: String,
    /// JSON pointer (RFC 6901) to the fault; absent where no document is at fault.
    pub pointer: Option<String>,
    /// What would have been accepted.
    pub expected: Option<String>,
    /// Milliseconds after which a retry can succeed.
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A refusal without a pointer.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), pointer: None, expected: None, retry_after_ms: None }
    }

    /// Adds the pointer to the fault.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Adds what would have been accepted.
    #[must_use]
    pub fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// Adds when to retry, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_spelled_as_serde_spells_it_and_is_an_error_of_http() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!((400..=599).contains(&code.http_status()));
        }
    }
}
