//! What is no record: one row for each way, with the code it gets.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bridges::records::{RECORD_BYTES_MAX, RecordFault, RecordKeySet, verify};
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use schemas::Digest;
use schemas::digest::canonical;
use serde_json::{Value, json};

use crate::rig::{ISSUER, KEY, KID, PUBLIC, keys};

fn part(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn header() -> Value {
    json!({"alg": "EdDSA", "typ": "llmx-award+jwt", "kid": KID})
}

/// Claims of an award, with these members changed; those that become null are left out.
fn claims(changed: Value) -> Value {
    let digest = |text: &str| Digest::of_bytes(text.as_bytes()).to_string();
    let terms = json!({"delivery_ms": 2000, "price": 85_000_000});
    let mut claims = json!({
        "award_no": 1, "awarded_at": "2026-11-22T10:00:03.098301Z", "chain": digest("chain"),
        "closed_at": "2026-11-22T10:00:04.210007Z", "contractor": "bob", "currency": "EUR", "decision": digest("decision"),
        "iat": 1_795_341_604, "initiator": "alice", "iss": ISSUER, "jti": "alice~parcel-1/0/1", "lane": 2, "lot": 0,
        "negotiation": "alice~parcel-1", "offer_id": "o6-0", "outcome": "completed", "payment": 85_000_000,
        "policy": "high@1", "policy_digest": digest("policy"), "record": "award", "state": "done", "terms": terms,
        "terms_digest": Digest::of(&terms).unwrap().to_string(), "v": 1,
    });
    for (name, value) in changed.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

/// What the right key signs, whatever it says.
fn signed(header: &str, payload: &[u8]) -> String {
    let signed = format!("{}.{}", part(header.as_bytes()), part(payload));
    let key = EncodingKey::from_ed_pem(KEY.as_bytes()).unwrap();
    format!("{signed}.{}", crypto::sign(signed.as_bytes(), &key, Algorithm::EdDSA).unwrap())
}

fn with_header(header: &Value) -> String {
    signed(&header.to_string(), &canonical(&claims(json!({}))).unwrap())
}

/// The header with a further member.
fn also(name: &str, value: Value) -> String {
    let mut header = header();
    header[name] = value;
    with_header(&header)
}

fn with_claims(changed: Value) -> String {
    signed(&header().to_string(), &canonical(&claims(changed)).unwrap())
}

fn with_payload(payload: &str) -> String {
    signed(&header().to_string(), payload.as_bytes())
}

fn good() -> String {
    with_claims(json!({}))
}

fn code(text: &str) -> Option<RecordFault> {
    verify(text, &keys(), Some(ISSUER)).err().map(|refusal| refusal.code)
}

/// The record with one of its three parts replaced.
fn replaced(index: usize, by: &str) -> String {
    let good = good();
    let mut parts: Vec<&str> = good.split('.').collect();
    parts[index] = by;
    parts.join(".")
}

#[test]
fn each_way_of_being_no_record_has_its_code() {
    use RecordFault::{
        BadClaims, BadSignature, Malformed, NotCanonical, TermsMismatch, UnknownKey, WrongAlg, WrongType,
    };
    let text = String::from_utf8(canonical(&claims(json!({}))).unwrap()).unwrap();
    let none = with_header(&json!({"alg": "none", "typ": "llmx-award+jwt", "kid": KID}));
    let unsigned = none.rsplit_once('.').unwrap().0.to_owned() + ".";
    let cheaper =
        claims(json!({"terms": {"price": 1}, "terms_digest": Digest::of(&json!({"price": 1})).unwrap().to_string()}));
    let rows = [
        ("alg none", unsigned, WrongAlg),
        ("alg HS256", with_header(&json!({"alg": "HS256", "typ": "llmx-award+jwt", "kid": KID})), WrongAlg),
        ("no alg", with_header(&json!({"typ": "llmx-award+jwt", "kid": KID})), WrongAlg),
        ("jwk", also("jwk", json!({"kty": "OKP", "crv": "Ed25519", "x": PUBLIC})), Malformed),
        ("jku", also("jku", json!("https://evil.example/jwks.json")), Malformed),
        ("x5c", also("x5c", json!([])), Malformed),
        ("x5t#S256", also("x5t#S256", json!("x")), Malformed),
        ("crit", also("crit", json!(["b64"])), Malformed),
        (
            "a key twice",
            signed(&format!(r#"{{"alg":"EdDSA","typ":"llmx-award+jwt","kid":"{KID}","kid":"x"}}"#), b"{}"),
            Malformed,
        ),
        ("a header that is no object", signed("[]", b"{}"), Malformed),
        ("nothing", String::new(), Malformed),
        ("two parts", good().rsplit_once('.').unwrap().0.to_owned(), Malformed),
        ("four parts", good() + ".x", Malformed),
        ("padded", good() + "=", Malformed),
        ("as JSON", json!({"payload": part(text.as_bytes()), "signatures": []}).to_string(), Malformed),
        ("two records", format!("{}\n{}", good(), good()), Malformed),
        ("too long", "x".repeat(RECORD_BYTES_MAX + 1), Malformed),
        ("another payload", replaced(1, &part(text.replace("\"bob\"", "\"eve\"").as_bytes())), BadSignature),
        ("terms and their digest changed", replaced(1, &part(&canonical(&cheaper).unwrap())), BadSignature),
        ("no signature", replaced(2, ""), BadSignature),
        ("a short signature", replaced(2, &part(&[0; 63])), BadSignature),
        ("a token", with_header(&json!({"alg": "EdDSA", "typ": "JWT", "kid": KID})), WrongType),
        ("a token without a type", with_header(&json!({"alg": "EdDSA", "kid": KID})), WrongType),
        ("another key", with_header(&json!({"alg": "EdDSA", "typ": "llmx-award+jwt", "kid": "other"})), UnknownKey),
        ("no key", with_header(&json!({"alg": "EdDSA", "typ": "llmx-award+jwt"})), UnknownKey),
        ("no JSON", with_payload("x"), BadClaims),
        ("a claim twice", with_payload(&text.replacen('{', r#"{"v":1,"#, 1)), BadClaims),
        ("a claim too many", with_claims(json!({"exp": 1})), BadClaims),
        ("a claim too few", with_claims(json!({"contractor": null})), BadClaims),
        ("an award with a party's claims", with_claims(json!({"by": "bob"})), BadClaims),
        ("an agreement with a contractor", with_claims(json!({"record": "agreement"})), BadClaims),
        ("another version", with_claims(json!({"v": 2})), BadClaims),
        ("another issuer", with_claims(json!({"iss": "https://other.example"})), BadClaims),
        ("a price that is no integer", with_claims(json!({"payment": 0.5})), BadClaims),
        ("a jti of another award", with_claims(json!({"jti": "alice~parcel-1/0/2"})), BadClaims),
        ("an iat of another time", with_claims(json!({"iat": 1_795_341_605})), BadClaims),
        ("an offer id of no log", with_claims(json!({"offer_id": "o99999999999999999999-0"})), BadClaims),
        (
            "claims in another order",
            with_payload(&text.replace(r#","v":1}"#, "}").replacen('{', r#"{"v":1,"#, 1)),
            NotCanonical,
        ),
        ("white space", with_payload(&text.replacen('{', "{ ", 1)), NotCanonical),
        ("an integer with a fraction", with_payload(&text.replace(r#""v":1}"#, r#""v":1.0}"#)), NotCanonical),
        ("other terms", with_claims(json!({"terms": {"price": 1}})), TermsMismatch),
        ("another digest", with_claims(json!({"terms_digest": Digest::of_bytes(b"").to_string()})), TermsMismatch),
    ];
    for (what, text, expected) in rows {
        assert_eq!(code(&text), Some(expected), "{what}: {text}");
    }
}

#[test]
fn what_must_be_taken_is_taken() {
    assert_eq!(code(&good()), None);
    assert_eq!(code(&format!("{}\n", good())), None, "one line end behind it");
    for more in ["\n", " ", "\r\n"] {
        assert!(
            code(&format!("{}{more}\n", good())).is_some(),
            "a file of a record has one form, so that its digest names it"
        );
    }
    assert_eq!(code(&with_claims(json!({"currency": null, "payment": null}))), None);
    let later = verify(&with_claims(json!({"state": "not_accepted"})), &keys(), None).unwrap();
    assert_eq!(later.state, "not_accepted", "a word of a later version");
    let parties = json!({
        "record": "agreement", "contractor": null, "decision": null, "payment": null, "policy": null,
        "policy_digest": null, "parties": ["alice", "bob"], "by": "bob", "round": 2, "step": 4, "outcome": "agreement",
    });
    assert_eq!(code(&with_claims(parties)), None);
    assert_eq!(verify(&good(), &keys(), None).unwrap().jti, "alice~parcel-1/0/1");
}

#[test]
fn hmac_with_the_public_key_is_no_signature() {
    let header = json!({"alg": "HS256", "typ": "llmx-award+jwt", "kid": KID}).to_string();
    let signed = format!("{}.{}", part(header.as_bytes()), part(&canonical(&claims(json!({}))).unwrap()));
    let secret = EncodingKey::from_secret(PUBLIC.as_bytes());
    let signature = crypto::sign(signed.as_bytes(), &secret, Algorithm::HS256).unwrap();
    assert_eq!(code(&format!("{signed}.{signature}")), Some(RecordFault::WrongAlg));
    assert_eq!(code(&replaced(2, &signature)), Some(RecordFault::BadSignature));
}

#[test]
fn no_changed_byte_passes() {
    let good = good();
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(bytes).unwrap();
        assert!(code(&altered).is_some(), "byte {at}: {altered}");
    }
    let payload = good.match_indices('.').nth(1).unwrap().0 - 3;
    let signature = good.len() - 40;
    for at in [payload, signature] {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(code(&String::from_utf8(bytes).unwrap()), Some(RecordFault::BadSignature), "byte {at}");
    }
}

#[test]
fn a_key_set_has_the_keys_of_records_and_no_others() {
    let public = |kid: &str| json!({"kty": "OKP", "crv": "Ed25519", "x": PUBLIC, "kid": kid});
    let set = |keys: Value| RecordKeySet::parse(&json!({ "keys": keys }).to_string());
    let verdict = |keys: Value| verify(&good(), &set(keys).unwrap(), None).err().map(|refusal| refusal.code);
    assert_eq!(verdict(json!([public(KID)])), None);
    // A key of tokens has another name, and signs nothing that counts.
    let of_tokens = with_header(&json!({"alg": "EdDSA", "typ": "llmx-award+jwt", "kid": "1cb7f2bd6d5a4d2e"}));
    let keys = set(json!([public("1cb7f2bd6d5a4d2e")])).unwrap();
    assert_eq!(verify(&of_tokens, &keys, None).unwrap_err().code, RecordFault::UnknownKey);
    assert_eq!(verdict(json!([public("1cb7f2bd6d5a4d2e")])), Some(RecordFault::UnknownKey));
    let others =
        json!([{"kty": "EC", "crv": "P-256", "x": PUBLIC, "y": PUBLIC, "kid": KID}, {"kid": KID}, 7, public(KID)]);
    assert_eq!(verdict(others), None);
    let private = json!([{"kty": "OKP", "crv": "Ed25519", "x": PUBLIC, "d": PUBLIC, "kid": KID}]);
    assert!(set(private).unwrap_err().to_string().contains("private"));
    assert!(set(json!(vec![public(KID); 65])).is_err());
    for bad in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
        assert!(RecordKeySet::parse(bad).unwrap_err().is_usage(), "{bad}");
    }
}
