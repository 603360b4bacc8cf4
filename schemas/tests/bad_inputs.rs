//! Broken bytes and documents: number of the case, what is sent, the code it must get.
//!
//! Numbers run on in the tests of the gateway (HTTP: 47 to 51) and in the acceptance tests of `traffic_gen` (67 to 98).

use schemas::validate::{BODY_BYTES_MAX, check_message, check_policy};
use schemas::{Code, Refusal};
use serde_json::{Value, json};

/// A valid offer; the cases are made from it.
const OFFER: &str = r#"{"envelope":{"msg_id":"m1","ts":"2026-11-20T21:00:00.000Z","from":"agent://bob","negotiation":"alice~job"},"payload":{"act":"offer","terms":{"price":1250000}}}"#;
/// No refusal may repeat it.
const CANARY: &str = "canary-6b1f";

#[test]
fn the_offer_the_cases_are_made_from_is_valid() {
    assert!(check_message(OFFER.as_bytes()).is_ok());
}

#[test]
fn bytes_that_are_no_strict_json_are_refused() {
    let cases: Vec<(u32, Vec<u8>, Code)> = vec![
        (31, with("\"act\":\"offer\"", "\"act\":\"offer\",\"act\":\"offer\""), Code::DuplicateKey),
        (31, with("\"act\":\"offer\"", "\"act\":\"offer\",\"\\u0061ct\":\"cancel\""), Code::DuplicateKey),
        (31, with("\"price\":1250000", "\"price\":1250000,\"price\":1"), Code::DuplicateKey),
        (32, [OFFER, "x"].concat().into_bytes(), Code::MalformedJson),
        (32, [OFFER, OFFER].concat().into_bytes(), Code::MalformedJson),
        (32, [OFFER, "\0"].concat().into_bytes(), Code::MalformedJson),
        (33, ["\u{feff}", OFFER].concat().into_bytes(), Code::MalformedJson),
        (33, OFFER.encode_utf16().flat_map(u16::to_le_bytes).collect(), Code::MalformedJson),
        (33, OFFER.encode_utf16().flat_map(u16::to_be_bytes).collect(), Code::MalformedJson),
        (34, replaced(b"m1", b"m\xff"), Code::MalformedJson),
        (34, replaced(b"m1", b"\xc0\xaf"), Code::MalformedJson),
        (34, replaced(b"m1", b"\xed\xa0\x80"), Code::MalformedJson),
        (34, with("m1", "\\ud800"), Code::MalformedJson),
        (34, with("m1", "\\udc00\\ud800"), Code::MalformedJson),
        (35, nested(33), Code::TooDeep),
        (35, nested(129), Code::TooDeep),
        (35, nested(32_000), Code::TooDeep),
        (35, "[".repeat(100_000).into_bytes(), Code::TooLarge),
        (36, format!("[{}0]", "0,".repeat(1_000_000)).into_bytes(), Code::TooLarge),
        (36, format!("\"{}\"", "x".repeat(10_000_000)).into_bytes(), Code::TooLarge),
        (36, format!("[{}0]", "0,".repeat(30_000)).into_bytes(), Code::OutOfRange),
        (43, with("1250000", "1e400"), Code::MalformedJson),
        (43, with("1250000", "NaN"), Code::MalformedJson),
        (43, with("1250000", "01"), Code::MalformedJson),
        (43, with("1250000", "+1"), Code::MalformedJson),
        (52, padded(BODY_BYTES_MAX + 1), Code::TooLarge),
    ];
    for (case, bytes, code) in cases {
        assert_eq!(
            refuse(&bytes).code,
            code,
            "case {case}: {}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        );
    }
}

#[test]
fn documents_that_depart_from_their_schema_are_refused() {
    let cases: &[(u32, &str, &str, Code, &str)] = &[
        (37, "m1", "m\\u0000", Code::BadFormat, "/envelope/msg_id"),
        (37, "agent://bob", "agent://bob\\u0000", Code::BadFormat, "/envelope/from"),
        (38, "agent://bob", "agent://\u{202e}bob", Code::BadFormat, "/envelope/from"),
        (38, "agent://bob", "agent://b\u{200b}ob", Code::BadFormat, "/envelope/from"),
        (38, "agent://bob", "agent://b\u{43e}b", Code::BadFormat, "/envelope/from"),
        (39, "agent://bob", "agent://a.b", Code::BadFormat, "/envelope/from"),
        (39, "agent://bob", "agent://*", Code::BadFormat, "/envelope/from"),
        (39, "agent://bob", "agent://>", Code::BadFormat, "/envelope/from"),
        (39, "agent://bob", "agent://a b", Code::BadFormat, "/envelope/from"),
        (39, "m1", "m1\\r\\n", Code::BadFormat, "/envelope/msg_id"),
        (39, "alice~job", "alice~job.>", Code::BadFormat, "/envelope/negotiation"),
        (39, "price", "a.*", Code::BadFormat, "/payload/terms/a.*"),
        (40, "\"m1\"", "\"\"", Code::OutOfRange, "/envelope/msg_id"),
        (40, "agent://bob", "agent://", Code::BadFormat, "/envelope/from"),
        (41, "\"act\":", "\"state\":\"AWARDING\",\"act\":", Code::UnknownField, "/payload/state"),
        (41, "\"act\":", "\"winner\":\"bob\",\"act\":", Code::UnknownField, "/payload/winner"),
        (41, "\"ts\":", "\"role\":\"initiator\",\"ts\":", Code::UnknownField, "/envelope/role"),
        (41, "\"act\":", "\"__proto__\":{},\"act\":", Code::UnknownField, "/payload/__proto__"),
        (42, "1250000", "\"1250000\"", Code::WrongType, "/payload/terms/price"),
        (42, "\"m1\"", "{\"id\":\"m1\"}", Code::WrongType, "/envelope/msg_id"),
        (42, "{\"price\":1250000}", "[1250000]", Code::WrongType, "/payload/terms"),
        (43, "1250000", "0.30000000000000004", Code::WrongType, "/payload/terms/price"),
        (43, "1250000", "9223372036854775808", Code::OutOfRange, "/payload/terms/price"),
        (43, "1250000", "9007199254740993", Code::OutOfRange, "/payload/terms/price"),
        (43, "1250000", "1e300", Code::OutOfRange, "/payload/terms/price"),
        (44, "\"act\":", "\"currency\":\"euro\",\"act\":", Code::BadFormat, "/payload/currency"),
        (44, "\"act\":", "\"currency\":978,\"act\":", Code::WrongType, "/payload/currency"),
        (45, "21:00:00.000Z", "21:00:00.000", Code::BadFormat, "/envelope/ts"),
        (45, "2026-11-20T21:00:00.000Z", "2016-12-31T23:59:60Z", Code::BadFormat, "/envelope/ts"),
        (45, "2026-11-20T21:00:00.000Z", "9999-12-31T23:59:59Z", Code::BadFormat, "/envelope/ts"),
        (45, "2026-11-20T21:00:00.000Z", "1969-12-31T23:59:59Z", Code::BadFormat, "/envelope/ts"),
        (42, "\"ts\":", "\"receipt\":1,\"ts\":", Code::WrongType, "/envelope/receipt"),
        (42, "\"ts\":", "\"receipt\":\"all\",\"ts\":", Code::WrongType, "/envelope/receipt"),
        (46, "m1", "agent://bob/1", Code::BadFormat, "/envelope/msg_id"),
        (46, "\"m1\"", "1", Code::WrongType, "/envelope/msg_id"),
        (46, "\"msg_id\":\"m1\",", "", Code::MissingField, "/envelope/msg_id"),
    ];
    for &(case, old, new, code, pointer) in cases {
        let refused = refuse(&with(old, new));
        assert_eq!((refused.code, refused.pointer.as_deref()), (code, Some(pointer)), "case {case}: {new}");
    }
}

#[test]
fn ids_of_65_characters_are_refused_and_of_64_are_not() {
    assert!(check_message(&with("m1", &"x".repeat(64))).is_ok());
    assert_eq!(refuse(&with("m1", &"x".repeat(65))).code, Code::OutOfRange);
    assert_eq!(refuse(&with("agent://bob", &format!("agent://{}", "x".repeat(65)))).code, Code::BadFormat);
}

#[test]
fn minus_zero_is_the_integer_zero() {
    let body = |price: &str| check_message(&with("1250000", price)).unwrap().digest;
    assert_eq!(body("-0"), body("0"));
    assert_eq!(body("-0.0"), body("0"));
    assert_eq!(body("125e4"), body("1250000"));
}

#[test]
fn a_number_is_the_integer_its_digits_say_or_none() {
    let price = |text: &str| {
        let checked = check_message(&with("1250000", text));
        checked.map(|checked| {
            serde_json::from_str::<Value>(checked.body.get()).unwrap()["payload"]["terms"]["price"].clone()
        })
    };
    let integers = [
        ("85000000.0", 85_000_000_i64),
        ("8.5e7", 85_000_000),
        ("8.5E+7", 85_000_000),
        ("850000000e-1", 85_000_000),
        ("-0", 0),
        ("-0.0", 0),
        ("0e99999", 0),
        ("0.000e-400", 0),
        ("1e0", 1),
        ("10e-1", 1),
        ("1.50e1", 15),
        ("1.0000000000000000000000", 1),
        ("9007199254740991", 9_007_199_254_740_991),
        ("9007199254740991.000", 9_007_199_254_740_991),
        ("-900719925474099.1e1", -9_007_199_254_740_991),
    ];
    for (text, value) in integers {
        assert_eq!(price(text).unwrap(), json!(value), "{text}");
    }
    let others = [
        ("99999999.999999999999", Code::WrongType),
        ("1e-400", Code::WrongType),
        ("-1e-400", Code::WrongType),
        ("1e-99999999999999999999", Code::WrongType),
        ("1.0000000000000000000001", Code::WrongType),
        ("0.99999999999999999999", Code::WrongType),
        ("9007199254740991.4", Code::WrongType),
        ("123456789012345678901234567890.5", Code::WrongType),
        ("1.5e0", Code::WrongType),
        ("15e-1", Code::WrongType),
        // Exactly integers, and beyond what every reader keeps exact.
        ("9007199254740992", Code::OutOfRange),
        ("9007199254740993", Code::OutOfRange),
        ("9007199254740993.0", Code::OutOfRange),
        ("9007199254740992e0", Code::OutOfRange),
        ("12345678901234567890", Code::OutOfRange),
        ("123456789012345678901234567890", Code::OutOfRange),
        ("1e308", Code::OutOfRange),
        // No double at all.
        ("1e309", Code::MalformedJson),
    ];
    for (text, code) in others {
        assert_eq!(price(text).unwrap_err().code, code, "{text}");
    }
}

#[test]
fn policies_too_take_a_number_for_what_its_digits_say() {
    let policy = |window: &str| {
        format!(
            r#"{{"id":"mine@1","close":{{"window_ms":{window}}},"weights":[{{"attr":"price","dir":"lower","lo":0,"hi":8.5e7,"w":1000.0}}]}}"#
        )
    };
    assert_eq!(check_policy(policy("1.0e2").as_bytes()).map(|policy| policy.close.window_ms), Ok(Some(100)));
    for window in ["99.99999999999999999999", "100.00000000000000000001", "1e-400"] {
        let refused = check_policy(policy(window).as_bytes()).unwrap_err();
        assert_eq!((refused.code, refused.pointer.as_deref()), (Code::WrongType, Some("/close/window_ms")), "{window}");
    }
}

#[test]
fn a_body_of_exactly_the_limit_is_read() {
    assert!(check_message(&padded(BODY_BYTES_MAX - 1)).is_ok());
    assert!(check_message(&padded(BODY_BYTES_MAX)).is_ok());
}

#[test]
fn a_refusal_repeats_no_value() {
    let canary = format!("\"{CANARY} \"");
    for old in [
        "\"m1\"",
        "\"2026-11-20T21:00:00.000Z\"",
        "\"agent://bob\"",
        "\"alice~job\"",
        "\"offer\"",
        "1250000",
        "{\"price\":1250000}",
    ] {
        let refused = refuse(&with(old, &canary));
        assert!(!serde_json::to_string(&refused).unwrap().contains(CANARY), "{old}: {refused:?}");
    }
    for broken in
        [CANARY.to_owned(), format!("{{\"{CANARY}\""), format!("[\"{CANARY}\\x\"]"), format!("{OFFER}{CANARY}")]
    {
        let refused = refuse(broken.as_bytes());
        assert!(!serde_json::to_string(&refused).unwrap().contains(CANARY), "{refused:?}");
    }
}

#[test]
fn a_member_name_is_repeated_only_when_it_is_short_and_printable() {
    let pointer = |name: &str| refuse(&with("\"act\":", &format!("\"{name}\":0,\"act\":"))).pointer.unwrap();
    assert_eq!(pointer("a/b~c"), "/payload/a~1b~0c");
    for name in ["\u{202e}x", "\\u001b[31m", "\\r\\nX-Header: 1", &"x".repeat(60_000)] {
        assert_eq!(pointer(name), "/payload");
    }
    let duplicate = refuse(&with("\"act\":", "\"\u{202e}\":0,\"\u{202e}\":0,\"act\":"));
    assert_eq!((duplicate.code, duplicate.pointer.as_deref()), (Code::DuplicateKey, Some("/payload")));
}

#[test]
fn an_unknown_member_is_answered_with_those_that_are_known() {
    let expected = |old: &str, new: &str| refuse(&with(old, new)).expected.unwrap();
    assert_eq!(expected("\"payload\":", "\"signature\":1,\"payload\":"), "only envelope, payload");
    let of_an_offer = "only $schema, act, conditions, currency, documents, round, terms, timestamp, valid_for_ms, valid_from, valid_until, value";
    assert_eq!(expected("\"act\":", "\"valid_for\":1,\"act\":"), of_an_offer);
}

#[test]
fn however_many_faults_a_body_has_it_gets_one_refusal() {
    // Case 66: as many faulty items as fit.
    let recipients = format!("\"to\":[{}0],\"ts\":", "0,".repeat(4000));
    let refused = refuse(&with("\"ts\":", &recipients));
    assert_eq!((refused.code, refused.pointer.as_deref()), (Code::OutOfRange, Some("/envelope/to")));
}

fn with(old: &str, new: &str) -> Vec<u8> {
    assert!(OFFER.contains(old), "{old}");
    OFFER.replacen(old, new, 1).into_bytes()
}

fn replaced(old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = OFFER.as_bytes().windows(old.len()).position(|window| window == old).unwrap();
    [&OFFER.as_bytes()[..at], new, &OFFER.as_bytes()[at + old.len()..]].concat()
}

fn nested(levels: usize) -> Vec<u8> {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes()
}

/// The offer, with white space up to a size.
fn padded(size: usize) -> Vec<u8> {
    [OFFER, &" ".repeat(size - OFFER.len())].concat().into_bytes()
}

fn refuse(bytes: &[u8]) -> Refusal {
    check_message(bytes).unwrap_err()
}
