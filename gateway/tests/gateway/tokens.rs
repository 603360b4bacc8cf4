//! BAD_INPUTS.md section A as far as it needs no attacker's own server; key rotation; the development secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use gateway::{AuthConfig, Gateway, GatewayError, GatewayMetrics, KeyError, KeySource, Secret};
use hmac_free::hs256;
use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::rig::{ISSUER, Rig, claims, code, config, offer};

#[tokio::test]
async fn each_algorithm_verifies_with_its_own_key() {
    for algorithm in [KeyAlgorithm::EdDsa, KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
        let key = SigningKey::generate(algorithm).unwrap();
        let rig = Rig::on(bus::memory::open(bus::memory::MemoryOptions::default()), key, |_| {}).await;
        assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~job")).await.0, 202, "{algorithm:?}");
    }
}

#[tokio::test]
async fn forged_and_foreign_tokens_are_refused_and_nothing_is_logged() {
    let rig = Rig::start().await;
    let good = rig.token("bob");
    let parts: Vec<&str> = good.split('.').collect();
    let [head, body, signature] = parts.as_slice() else { panic!("{good}") };
    let kid = rig.key.kid();
    let stranger = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let es256 = SigningKey::generate(KeyAlgorithm::Es256).unwrap();
    let header = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = |change: &dyn Fn(&mut Header)| signed_with_header(&rig.key, change);
    let mut rows: Vec<(&str, String)> = Vec::new();
    for none in ["none", "None", "nOnE", "NONE"] {
        rows.push(("1 alg none", format!("{}.{body}.", header(json!({ "alg": none, "typ": "JWT", "kid": kid })))));
        rows.push((
            "1 alg none, signed",
            format!("{}.{body}.{signature}", header(json!({ "alg": none, "typ": "JWT", "kid": kid }))),
        ));
    }
    rows.push(("2 empty signature", format!("{head}.{body}.")));
    rows.push(("3 two parts", format!("{head}.{body}")));
    rows.push(("4 four parts", format!("{good}.x")));
    rows.push(("4 five parts", format!("{good}.x.y")));
    let as_hs256 = format!("{}.{body}", header(json!({ "alg": "HS256", "typ": "JWT", "kid": kid })));
    let public = key_set(&[&rig.key]);
    for secret in ["", "secret", "password", public.as_str(), kid] {
        rows.push((
            "5, 7 HS256 with something public",
            format!("{as_hs256}.{}", hs256(secret.as_bytes(), as_hs256.as_bytes())),
        ));
    }
    rows.push((
        "6 key of another algorithm",
        format!("{}.{body}.{signature}", header(json!({ "alg": "RS256", "typ": "JWT", "kid": kid }))),
    ));
    rows.push(("8 own jwk", signed_with_header(&stranger, &|header| header.jwk = Some(jwk_of(&stranger)))));
    rows.push((
        "8 own jwk under a known kid",
        signed_with_header(&stranger, &|header| {
            header.jwk = Some(jwk_of(&stranger));
            header.kid = Some(kid.to_owned());
        }),
    ));
    rows.push(("9 jku", signed(&|header| header.jku = Some("http://127.0.0.1:1/jwks".to_owned()))));
    rows.push(("10 x5u", signed(&|header| header.x5u = Some("http://127.0.0.1:1/cert".to_owned()))));
    rows.push(("10 x5c", signed(&|header| header.x5c = Some(vec!["AAAA".to_owned()]))));
    for wild in ["../../etc/passwd", "' OR 1=1 --", "a\0b", "http://127.0.0.1/", "", &"k".repeat(3000)] {
        rows.push(("11 wild kid", signed(&|header| header.kid = Some(wild.to_owned()))));
    }
    rows.push(("11 no kid", signed(&|header| header.kid = None)));
    rows.push(("14 crit", signed(&|header| header.crit = Some(vec!["exp".to_owned()]))));
    rows.push(("15 b64 false", signed(&|header| header.extras.insert("b64", false))));
    let es_head = header(json!({ "alg": "ES256", "typ": "JWT", "kid": es256.kid() }));
    rows.push(("16 r = s = 0", format!("{es_head}.{body}.{}", URL_SAFE_NO_PAD.encode([0_u8; 64]))));
    rows.push((
        "17 DER signature",
        format!("{es_head}.{body}.{}", URL_SAFE_NO_PAD.encode([0x30, 6, 2, 1, 1, 2, 1, 1])),
    ));
    rows.push(("19 padding", format!("{head}.{body}.{signature}=")));
    rows.push(("19 white space", format!("{head}.{body} .{signature}")));
    rows.push(("19 other alphabet", format!("{head}.{}+/.{signature}", &body[2..])));
    rows.push(("19 trailing bits", format!("{head}.{body}.{}", with_trailing_bits(signature))));
    rows.push(("25 id token", signed(&|header| header.typ = Some("id_token".to_owned()))));
    rows.push(("25 no typ", signed(&|header| header.typ = None)));
    rows.push(("25 nested", signed(&|header| header.cty = Some("JWT".to_owned()))));
    rows.push(("28 too long", format!("{head}.{}.{signature}", "A".repeat(5000))));
    rows.push(("28 nested claims", rig.key.sign(&nested(100)).unwrap()));
    rows.push((
        "29 JSON serialisation",
        json!({ "protected": head, "payload": body, "signature": signature }).to_string(),
    ));
    rows.push(("another's signature", stranger.sign(&claims("bob")).unwrap()));
    rows.push(("not a token", "hello".to_owned()));
    for (name, token) in rows {
        let (status, body) = rig.post(&token, offer("bob", "m1", "alice~job").to_string()).await;
        assert_eq!((status, code(&body)), (401, "unauthenticated"), "{name}: {body}");
        assert!(!body.to_string().contains(&token), "{name}: the answer repeats the token");
    }
    assert!(rig.logged().await.is_empty());
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
        ("20 exp missing", without("exp"), bad),
        ("20 exp text", set("exp", json!("9999999999")), bad),
        ("20 exp fraction", set("exp", json!(now as f64 + 60.5)), bad),
        ("20 exp huge", set("exp", json!(1e300)), bad),
        ("20 exp negative", set("exp", json!(-1)), bad),
        ("20 exp null", set("exp", Value::Null), bad),
        ("21 nbf future", set("nbf", json!(now + 600)), expired),
        ("21 iat future", set("iat", json!(now + 600)), expired),
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
    let among_others = set("aud", json!(["nats", "llmx"]));
    assert_eq!(rig.post(&among_others, offer("bob", "m1", "alice~job").to_string()).await.0, 202);
    assert_eq!(rig.logged().await.len(), 1);
}

#[tokio::test]
async fn a_key_set_with_a_doubtful_key_is_refused_whole() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let good: Value = serde_json::from_str(&key_set(&[&key])).unwrap();
    let good = good["keys"][0].clone();
    let n = |bytes: usize| URL_SAFE_NO_PAD.encode(vec![0xff_u8; bytes]);
    let rsa = |n: String, e: &[u8]| json!({ "kty": "RSA", "kid": "r", "n": n, "e": URL_SAFE_NO_PAD.encode(e) });
    let unfit = |error: &KeyError| matches!(error, KeyError::Unfit { .. });
    type Is = Box<dyn Fn(&KeyError) -> bool>;
    let rows: Vec<(&str, Value, Is)> = vec![
        ("13 duplicate kid", json!([good, good]), Box::new(|error| matches!(error, KeyError::DuplicateKid(_)))),
        (
            "no kid",
            json!([{ "kty": "OKP", "crv": "Ed25519", "x": good["x"] }]),
            Box::new(|error| *error == KeyError::MissingKid),
        ),
        (
            "symmetric",
            json!([{ "kty": "oct", "kid": "s", "k": "AAAA" }]),
            Box::new(|error| matches!(error, KeyError::Secret(_))),
        ),
        (
            "private",
            json!([{ "kty": "OKP", "crv": "Ed25519", "kid": "p", "x": good["x"], "d": "AAAA" }]),
            Box::new(|error| matches!(error, KeyError::Secret(_))),
        ),
        ("18 RSA 1024", json!([rsa(n(128), &[1, 0, 1])]), Box::new(unfit)),
        ("18 RSA e = 1", json!([rsa(n(256), &[1])]), Box::new(unfit)),
        ("18 RSA e = 3", json!([rsa(n(256), &[3])]), Box::new(unfit)),
        (
            "alg of another type",
            json!([{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": good["x"], "alg": "HS256" }]),
            Box::new(unfit),
        ),
        ("short key", json!([{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "AAAA" }]), Box::new(unfit)),
        (
            "only for encryption",
            json!([{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": good["x"], "use": "enc" }]),
            Box::new(|error| *error == KeyError::Empty),
        ),
        ("empty", json!([]), Box::new(|error| *error == KeyError::Empty)),
        ("no list", json!("keys"), Box::new(|error| matches!(error, KeyError::Malformed(_)))),
    ];
    for (name, keys, is_expected) in rows {
        let source = KeySource::Inline(json!({ "keys": keys }).to_string());
        match start(AuthConfig::new(source, ISSUER)).await {
            Err(GatewayError::Keys(error)) => assert!(is_expected(&error), "{name}: {error:?}"),
            Err(error) => panic!("{name}: {error:?}"),
            Ok(()) => panic!("{name}: started"),
        }
    }
}

#[tokio::test]
async fn keys_rotate_without_a_restart_and_a_removed_key_verifies_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let old = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let new = SigningKey::generate(KeyAlgorithm::Es256).unwrap();
    std::fs::write(&path, key_set(&[&old])).unwrap();
    let source = KeySource::File(path.clone());
    let rig = Rig::on(bus::memory::open(bus::memory::MemoryOptions::default()), old.clone(), |config| {
        config.auth.keys = source;
        config.auth.refresh_s = Some(1);
    })
    .await;
    let (old_token, new_token) = (old.sign(&claims("bob")).unwrap(), new.sign(&claims("bob")).unwrap());
    let message = offer("bob", "m1", "alice~job").to_string();
    assert_eq!(rig.post(&old_token, message.clone()).await.0, 202);

    std::fs::write(&path, key_set(&[&old, &new])).unwrap();
    until_status(&rig, &new_token, &message, 202).await;
    assert_eq!(rig.post(&old_token, message.clone()).await.0, 202, "inside the overlap both verify");

    std::fs::write(&path, key_set(&[&new])).unwrap();
    until_status(&rig, &old_token, &message, 401).await;
    assert_eq!(rig.post(&new_token, message.clone()).await.0, 202);

    std::fs::write(&path, "not a key set").unwrap();
    until_metric(&rig, "failed").await;
    assert_eq!(rig.post(&new_token, message).await.0, 202, "a broken file leaves the keys in force");
}

#[tokio::test]
async fn the_development_secret_verifies_only_where_it_is_allowed() {
    let secret = "0123456789abcdef0123456789abcdef";
    let token = {
        let header =
            URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256", "typ": "JWT", "kid": gateway::DEV_SECRET_KID }).to_string());
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims("bob")).unwrap());
        let signed = format!("{header}.{body}");
        format!("{signed}.{}", hs256(secret.as_bytes(), signed.as_bytes()))
    };
    let message = offer("bob", "m1", "alice~job").to_string();
    let without = Rig::start().await;
    assert_eq!(without.post(&token, message.clone()).await.0, 401);
    let with = Rig::with(|config| config.auth.allow_hs256_dev_secret = Some(Secret(secret.to_owned()))).await;
    assert_eq!(with.post(&token, message).await.0, 202);

    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let mut short = config(&key).auth;
    short.allow_hs256_dev_secret = Some(Secret("password".to_owned()));
    assert!(matches!(start(short).await, Err(GatewayError::Config(_))));
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

#[tokio::test]
async fn a_flood_of_unknown_kids_costs_the_issuer_one_request_at_most() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let (url, fetches) = issuer(key_set(&[&key])).await;
    let rig = Rig::on(bus::memory::open(bus::memory::MemoryOptions::default()), key, |config| {
        config.auth.keys = KeySource::Url(url);
    })
    .await;
    assert_eq!(fetches.load(Ordering::Relaxed), 1, "the first reading");
    for number in 0..100 {
        let token = signed_with_header(&rig.key, &|header| header.kid = Some(format!("made-up-{number}")));
        assert_eq!(rig.post(&token, "{}").await.0, 401);
    }
    assert_eq!(fetches.load(Ordering::Relaxed), 1, "none within the window that the first one opened");
    assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~job")).await.0, 202);
}

#[tokio::test]
async fn keys_are_not_fetched_without_encryption_from_elsewhere() {
    for url in ["http://issuer.test/keys", "file:///etc/passwd", "ftp://issuer.test/keys", "not a url"] {
        let started = start(AuthConfig::new(KeySource::Url(url.to_owned()), ISSUER)).await;
        assert!(matches!(started, Err(GatewayError::Keys(KeyError::Unreadable(_)))), "{url}");
    }
}

/// An issuer on loopback that serves one key set and counts how often.
async fn issuer(document: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let fetches = Arc::new(AtomicUsize::new(0));
    let counter = fetches.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut request = [0; 2048];
            let _ = stream.read(&mut request).await;
            let length = document.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{document}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, fetches)
}

async fn start(auth: AuthConfig) -> Result<(), GatewayError> {
    let mut config = gateway::GatewayConfig::new(auth);
    config.listen = None;
    let metrics = std::sync::Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
    Gateway::start(bus::memory::open(bus::memory::MemoryOptions::default()), config, metrics).await.map(drop)
}

fn signed_with_header(key: &SigningKey, change: &dyn Fn(&mut Header)) -> String {
    let mut header = Header::new(Algorithm::from(key.algorithm()));
    header.kid = Some(key.kid().to_owned());
    change(&mut header);
    key.sign_with_header(&header, &claims("bob")).unwrap()
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

async fn until_status(rig: &Rig, token: &str, message: &str, wanted: u16) {
    crate::admission::loop_until(|| async {
        let (status, _) = rig.post(token, message).await;
        if status != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        (status == wanted).then_some(())
    })
    .await;
}

async fn until_metric(rig: &Rig, result: &str) {
    crate::admission::loop_until(|| async {
        let failed = rig.metric("exchange_jwks_refresh_total", &[("result", result)]);
        if failed == 0.0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        (failed > 0.0).then_some(())
    })
    .await;
}

/// HMAC-SHA-256 by hand, so that a test can forge what no library will sign.
mod hmac_free {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use sha2::{Digest as _, Sha256};

    /// The signature part of an HS256 token.
    pub(super) fn hs256(secret: &[u8], message: &[u8]) -> String {
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
