//! Tokens, forged and foreign.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::memory::{self, MemoryOptions};
use gateway::Audiences;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use hmac_free::hs256;
use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};

use crate::rig::{ISSUER, Rig, claims, code, offer};

#[tokio::test]
async fn forged_and_foreign_tokens_are_refused_and_nothing_is_logged() {
    let rig = Rig::start().await;
    let rows = [
        of_another_algorithm(&rig),
        of_another_form(&rig),
        with_a_header_that_leads_away(&rig),
        signed_by_others(&rig),
    ];
    for (name, token) in rows.into_iter().flatten() {
        let (status, body) = rig.post(&token, offer("bob", "m1", "alice~job").to_string()).await;
        assert_eq!((status, code(&body)), (401, "unauthenticated"), "{name}: {body}");
        assert!(!body.to_string().contains(&token), "{name}: the answer repeats the token");
    }
    assert!(rig.logged().await.is_empty());
}

/// A case's number and name, and its token.
type Row = (&'static str, String);

/// 1 and 5 to 7: the header names an algorithm the key is not for.
fn of_another_algorithm(rig: &Rig) -> Vec<Row> {
    let [_, body, signature] = parts(&rig.token("bob"));
    let kid = rig.key.kid();
    let header = |algorithm: &str| encoded(&json!({ "alg": algorithm, "typ": "JWT", "kid": kid }));
    let mut rows = Vec::new();
    for none in ["none", "None", "nOnE", "NONE"] {
        rows.push(("1 alg none", format!("{}.{body}.", header(none))));
        rows.push(("1 alg none, signed", format!("{}.{body}.{signature}", header(none))));
    }
    let message = format!("{}.{body}", header("HS256"));
    let public = key_set(&[&rig.key]);
    for secret in ["", "secret", "password", public.as_str(), kid] {
        let forged = hs256(secret.as_bytes(), message.as_bytes());
        rows.push(("5, 7 HS256 with something public", format!("{message}.{forged}")));
    }
    for algorithm in ["RS256", "ES256", "PS256", "ES512", "eddsa"] {
        rows.push(("6 key of another algorithm", format!("{}.{body}.{signature}", header(algorithm))));
    }
    rows
}

/// 2 to 4, 16, 17, 19, 28, 29: not a token, or not written as one.
fn of_another_form(rig: &Rig) -> Vec<Row> {
    let good = rig.token("bob");
    let [head, body, signature] = parts(&good);
    let json_form = json!({ "protected": head, "payload": body, "signature": signature });
    vec![
        ("2 empty signature", format!("{head}.{body}.")),
        ("3 two parts", format!("{head}.{body}")),
        ("4 four parts", format!("{good}.x")),
        ("4 five parts", format!("{good}.x.y")),
        ("19 padding", format!("{head}.{body}.{signature}=")),
        ("19 white space", format!("{head}.{body} .{signature}")),
        ("19 other alphabet", format!("{head}.{}+/.{signature}", &body[2..])),
        ("19 trailing bits", format!("{head}.{body}.{}", with_trailing_bits(&signature))),
        ("28 too long", format!("{head}.{}.{signature}", "A".repeat(5000))),
        ("28 nested claims", rig.key.sign(&nested(100)).unwrap()),
        ("29 JSON serialisation", json_form.to_string()),
        ("not a token", "hello".to_owned()),
    ]
}

/// 8 to 11, 14, 15, 25: a header that brings its key, points to one, or changes what the token is.
fn with_a_header_that_leads_away(rig: &Rig) -> Vec<Row> {
    let signed = |change: &dyn Fn(&mut Header)| signed_with_header(&rig.key, change);
    let mut rows = vec![
        ("9 jku", signed(&|header| header.jku = Some("http://127.0.0.1:1/jwks".to_owned()))),
        ("10 x5u", signed(&|header| header.x5u = Some("http://127.0.0.1:1/cert".to_owned()))),
        ("10 x5c", signed(&|header| header.x5c = Some(vec!["AAAA".to_owned()]))),
        ("11 no kid", signed(&|header| header.kid = None)),
        ("14 crit", signed(&|header| header.crit = Some(vec!["exp".to_owned()]))),
        ("15 b64 false", signed(&|header| header.extras.insert("b64", false))),
        ("25 id token", signed(&|header| header.typ = Some("id_token".to_owned()))),
        ("25 no typ", signed(&|header| header.typ = None)),
        ("25 nested", signed(&|header| header.cty = Some("JWT".to_owned()))),
    ];
    for wild in ["../../etc/passwd", "' OR 1=1 --", "a\0b", "http://127.0.0.1/", "", &"k".repeat(2000)] {
        rows.push(("11 wild kid", signed(&|header| header.kid = Some(wild.to_owned()))));
    }
    rows
}

/// 8, 16, 17: a signature that is none of this issuer's.
fn signed_by_others(rig: &Rig) -> Vec<Row> {
    let stranger = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let [head, body, _] = parts(&rig.token("bob"));
    let unsigned = |signature: &[u8]| format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(signature));
    let own_key = |kid: &str| {
        signed_with_header(&stranger, &|header| {
            header.jwk = Some(jwk_of(&stranger));
            header.kid = Some(kid.to_owned());
        })
    };
    let under_known_kid = signed_with_header(&stranger, &|header| header.kid = Some(rig.key.kid().to_owned()));
    vec![
        ("8 own jwk", own_key(stranger.kid())),
        ("8 own jwk under a known kid", own_key(rig.key.kid())),
        ("16 zeros", unsigned(&[0; 64])),
        ("17 too short", unsigned(&[0x30, 6, 2, 1, 1, 2, 1, 1])),
        ("a stranger's", stranger.sign(&claims("bob")).unwrap()),
        ("a stranger's under a known kid", under_known_kid),
    ]
}

#[tokio::test]
async fn both_types_of_token_are_accepted_in_any_case_with_or_without_their_prefix() {
    let rig = Rig::start().await;
    for typ in ["JWT", "jwt", "application/jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+JWT"] {
        let token = signed_with_header(&rig.key, &|header| header.typ = Some(typ.to_owned()));
        let (status, body) = rig.call("GET", "/v1/whoami", Some(&token), None).await;
        assert_eq!(status, 200, "{typ}: {body}");
    }
}

#[tokio::test]
async fn of_several_audiences_a_token_names_any_one() {
    let own = "https://exchange.example/mcp";
    let several = Audiences::Any(vec!["llmx".to_owned(), own.to_owned()]);
    assert_eq!(several.first(), "llmx");
    let rig = Rig::with(|config| config.auth.audience = several).await;
    let signed = |audience: Value| {
        let mut value = serde_json::to_value(claims("bob")).unwrap();
        value["aud"] = audience;
        rig.key.sign(&value).unwrap()
    };
    for (audience, status) in [
        (json!("llmx"), 200),
        (json!(own), 200),
        (json!(["nats", own]), 200),
        (json!("nats"), 401),
        (json!(format!("llmx,{own}")), 401),
        (json!([]), 401),
    ] {
        assert_eq!(rig.call("GET", "/v1/whoami", Some(&signed(audience.clone())), None).await.0, status, "{audience}");
    }
}

#[tokio::test]
async fn an_ecdsa_signature_of_zeros_or_in_another_encoding_is_refused() {
    let key = SigningKey::generate(KeyAlgorithm::Es256).unwrap();
    let rig = Rig::on(memory::open(MemoryOptions::default()), key, |_| {}).await;
    let [head, body, signature] = parts(&rig.token("bob"));
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let integer = |part: &[u8]| [&[2, 33, 0], part].concat();
    let der = [&[0x30, 70][..], &integer(&raw[..32]), &integer(&raw[32..])].concat();
    for (name, forged) in [("16 r = s = 0", vec![0; 64]), ("17 DER", der), ("half", raw[..32].to_vec())] {
        let token = format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(forged));
        let (status, body) = rig.post(&token, offer("bob", "m1", "alice~job").to_string()).await;
        assert_eq!((status, code(&body)), (401, "unauthenticated"), "{name}");
    }
}

#[tokio::test]
async fn claims_outside_what_is_trusted_are_refused() {
    let rig = Rig::start().await;
    let now = claims("bob").iat;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::to_value(claims("bob")).unwrap();
        change(&mut value);
        rig.key.sign(&value).unwrap()
    };
    let set = |name: &'static str, value: Value| with(&move |claims| claims[name] = value.clone());
    let without = |name: &'static str| {
        with(&move |claims| {
            claims.as_object_mut().unwrap().remove(name);
        })
    };
    let expired = "token_expired";
    let bad = "unauthenticated";
    let rows: Vec<(&str, String, &str)> = vec![
        ("20 exp past", set("exp", json!(now - 60)), expired),
        ("20 exp past, with a fraction", set("exp", json!(now as f64 - 60.5)), expired),
        ("20 exp missing", without("exp"), bad),
        ("20 exp text", set("exp", json!("9999999999")), bad),
        ("20 exp huge", set("exp", json!(1e300)), bad),
        ("20 exp negative", set("exp", json!(-1)), bad),
        ("20 exp null", set("exp", Value::Null), bad),
        ("21 nbf future", set("nbf", json!(now + 600)), "token_not_yet_valid"),
        ("21 iat future", set("iat", json!(now + 600)), "token_not_yet_valid"),
        ("22 lifetime", set("exp", json!(now + 90_000)), bad),
        (
            "22 lifetime without iat",
            {
                with(&|claims| {
                    claims.as_object_mut().unwrap().remove("iat");
                    claims["exp"] = json!(now + 90_000);
                })
            },
            bad,
        ),
        ("23 iss missing", without("iss"), bad),
        ("23 iss other", set("iss", json!("https://evil.test")), bad),
        ("23 iss slash", set("iss", json!(format!("{ISSUER}/"))), bad),
        ("23 iss case", set("iss", json!(ISSUER.to_uppercase())), bad),
        ("23 iss list", set("iss", json!([ISSUER])), bad),
        ("24 aud missing", without("aud"), bad),
        ("24 aud other", set("aud", json!("nats")), bad),
        ("24 aud list without us", set("aud", json!(["a", "b"])), bad),
        ("24 aud empty list", set("aud", json!([])), bad),
        ("sub missing", without("sub"), bad),
        ("sub no agent id", set("sub", json!("bob.*")), bad),
        ("sub list", set("sub", json!(["bob"])), bad),
        ("27 two subjects", twice(&rig.key, r#""sub":"bob","sub":"alice""#), bad),
        ("27 two expiries", twice(&rig.key, r#""sub":"bob","exp":9999999999"#), bad),
    ];
    for (name, token, expected) in rows {
        let (status, body) = rig.post(&token, offer("bob", "m1", "alice~job").to_string()).await;
        assert_eq!((status, code(&body)), (401, expected), "{name}: {body}");
    }
    for (name, value) in [("exp", now as f64 + 60.5), ("iat", now as f64 - 0.5), ("nbf", now as f64 - 0.5)] {
        let (status, body) = rig.call("GET", "/v1/whoami", Some(&set(name, json!(value))), None).await;
        assert_eq!(status, 200, "{name} of {value}: {body}");
    }
    let among_others = set("aud", json!(["nats", "llmx"]));
    assert_eq!(rig.post(&among_others, offer("bob", "m1", "alice~job").to_string()).await.0, 202);
    assert_eq!(rig.logged().await.len(), 1);
}

#[tokio::test]
async fn a_peer_that_presents_new_tokens_too_fast_is_held_back_before_its_signatures_are_checked() {
    let rig = Rig::with(|config| {
        config.limits.verifications_per_s = 1;
        config.limits.verification_burst = 3;
    })
    .await;
    let known = rig.token("bob");
    assert_eq!(rig.post(&known, offer("bob", "m1", "alice~job").to_string()).await.0, 202);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let (_, body) = rig.post("made.up.token", "{}").await;
        codes.push(code(&body).to_owned());
    }
    assert_eq!(codes, ["unauthenticated", "unauthenticated", "rate_limited"]);
    assert_eq!(
        rig.post(&known, offer("bob", "m2", "alice~job").to_string()).await.0,
        202,
        "a remembered token is free"
    );
}

pub(crate) fn signed_with_header(key: &SigningKey, change: &dyn Fn(&mut Header)) -> String {
    let mut header = Header::new(Algorithm::from(key.algorithm()));
    header.kid = Some(key.kid().to_owned());
    change(&mut header);
    key.sign_with_header(&header, &claims("bob")).unwrap()
}

fn parts(token: &str) -> [String; 3] {
    let parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts.try_into().unwrap()
}

fn encoded(header: &Value) -> String {
    URL_SAFE_NO_PAD.encode(header.to_string())
}

fn jwk_of(key: &SigningKey) -> jsonwebtoken::jwk::Jwk {
    let set: Value = serde_json::from_str(&key_set(&[key])).unwrap();
    serde_json::from_value(set["keys"][0].clone()).unwrap()
}

/// Claims with a member that stands twice: signed as raw JSON, since no map can say it.
fn twice(key: &SigningKey, members: &str) -> String {
    let Claims { iss, aud, iat, exp, .. } = claims("bob");
    let text = format!(r#"{{"iss":"{iss}","aud":"{aud}","iat":{iat},"exp":{exp},{members}}}"#);
    key.sign(&serde_json::value::RawValue::from_string(text).unwrap()).unwrap()
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

/// The same signature with another last character that decodes to the same bytes when trailing bits are ignored.
fn with_trailing_bits(signature: &str) -> String {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (rest, last) = signature.split_at(signature.len() - 1);
    let index = ALPHABET.find(last).unwrap();
    format!("{rest}{}", &ALPHABET[index + 1..index + 2])
}

/// HMAC-SHA-256 by hand, so that a test can forge what no library will sign.
pub(crate) mod hmac_free {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use sha2::{Digest as _, Sha256};

    /// The signature part of an HS256 token.
    pub(crate) fn hs256(secret: &[u8], message: &[u8]) -> String {
        let mut key = [0_u8; 64];
        if secret.len() > key.len() {
            key[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            key[..secret.len()].copy_from_slice(secret);
        }
        let pad = |byte: u8| key.map(|part| part ^ byte);
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
        let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
        URL_SAFE_NO_PAD.encode(outer)
    }
}
