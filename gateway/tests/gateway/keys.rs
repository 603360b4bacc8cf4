//! Verification keys: which sets are used, how they rotate, where they are fetched from.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::memory::{self, MemoryOptions};
use gateway::keys::{KeyAlgorithm, SigningKey, key_set};
use gateway::{AuthConfig, Gateway, GatewayConfig, GatewayError, GatewayMetrics, KeyError, KeySource, Secret};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::admission::loop_until;
use crate::rig::{ISSUER, Rig, claims, config, offer};
use crate::tokens::hmac_free::hs256;
use crate::tokens::signed_with_header;

#[tokio::test]
async fn each_algorithm_verifies_with_its_own_key() {
    for algorithm in [KeyAlgorithm::EdDsa, KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
        let key = SigningKey::generate(algorithm).unwrap();
        let rig = Rig::on(memory::open(MemoryOptions::default()), key, |_| {}).await;
        assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~job")).await.0, 202, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_key_set_of_doubtful_keys_alone_is_refused_and_a_secret_refuses_any() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let good: Value = serde_json::from_str(&key_set(&[&key])).unwrap();
    let good = good["keys"][0].clone();
    let n = |bytes: usize| URL_SAFE_NO_PAD.encode(vec![0xff_u8; bytes]);
    let rsa = |n: String, e: &[u8]| json!({ "kty": "RSA", "kid": "r", "n": n, "e": URL_SAFE_NO_PAD.encode(e) });
    let unfit = |error: &KeyError| matches!(error, KeyError::Unfit { .. });
    type Is = Box<dyn Fn(&KeyError) -> bool>;
    let rows: Vec<(&str, Value, Is)> = vec![
        (
            "13 duplicate kid",
            json!([good, { "kty": "OKP", "crv": "Ed25519", "kid": good["kid"], "x": URL_SAFE_NO_PAD.encode([9; 32]) }]),
            Box::new(|error| matches!(error, KeyError::DuplicateKid(_))),
        ),
        (
            "no kid",
            json!([{ "kty": "OKP", "crv": "Ed25519", "x": good["x"] }]),
            Box::new(|error| *error == KeyError::MissingKid),
        ),
        (
            "symmetric, beside a good one",
            json!([good, { "kty": "oct", "kid": "s", "k": "AAAA" }]),
            Box::new(|error| matches!(error, KeyError::Secret(_))),
        ),
        (
            "private, beside a good one",
            json!([good, { "kty": "OKP", "crv": "Ed25519", "kid": "p", "x": good["x"], "d": "AAAA" }]),
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
async fn a_key_that_is_not_understood_is_skipped_and_the_others_verify() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let set: Value = serde_json::from_str(&key_set(&[&key])).unwrap();
    let good = &set["keys"][0];
    let coordinate = URL_SAFE_NO_PAD.encode([7; 32]);
    let odd = [
        json!({ "kty": "RSA", "kid": "short", "n": URL_SAFE_NO_PAD.encode([0xff; 128]), "e": "AQAB" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": good["x"] }),
        json!({ "kty": "EC", "crv": "P-256", "kid": "e", "alg": "ECDH-ES", "x": coordinate, "y": coordinate }),
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": "rfc9864", "x": good["x"], "alg": "Ed25519" }),
        json!({ "kty": "AKP", "kid": "post-quantum", "alg": "ML-DSA-44", "pub": "AAAA" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": 5, "x": good["x"] }),
        json!("a key"),
        good.clone(),
    ];
    for odd in odd {
        for keys in [json!([odd, good]), json!([good, odd])] {
            let source = KeySource::Inline(json!({ "keys": keys }).to_string());
            let change = |config: &mut GatewayConfig| config.auth.keys = source;
            let rig = Rig::on(memory::open(MemoryOptions::default()), key.clone(), change).await;
            let (status, body) = rig.call("GET", "/v1/whoami", Some(&rig.token("bob")), None).await;
            assert_eq!(status, 200, "{keys}: {body}");
        }
    }
}

#[tokio::test]
async fn of_two_keys_under_one_name_neither_verifies() {
    let (key, other) =
        (SigningKey::generate(KeyAlgorithm::EdDsa).unwrap(), SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let mut set: Value = serde_json::from_str(&key_set(&[&key, &other, &key])).unwrap();
    let double = json!({ "kty": "OKP", "crv": "Ed25519", "kid": key.kid(), "x": set["keys"][1]["x"] });
    set["keys"].as_array_mut().unwrap().push(double);
    let source = KeySource::Inline(set.to_string());
    let rig = Rig::on(memory::open(MemoryOptions::default()), key, |config| config.auth.keys = source).await;
    let mut statuses = Vec::new();
    for token in [rig.token("bob"), other.sign(&claims("bob")).unwrap()] {
        statuses.push(rig.call("GET", "/v1/whoami", Some(&token), None).await.0);
    }
    assert_eq!(statuses, [401, 200]);
}

#[tokio::test]
async fn a_new_key_verifies_once_the_window_is_over_though_its_first_token_came_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let old = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let new = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    std::fs::write(&path, key_set(&[&old])).unwrap();
    let source = KeySource::File(path.clone());
    let rig = Rig::on(memory::open(MemoryOptions::default()), old, |config| {
        config.auth.keys = source;
        config.auth.refresh_s = Some(3600);
    })
    .await;
    let token = new.sign(&claims("bob")).unwrap();
    let whoami = async |token: &str| rig.call("GET", "/v1/whoami", Some(token), None).await.0;
    assert_eq!(whoami(&token).await, 401, "not yet published");
    std::fs::write(&path, key_set(&[&rig.key, &new])).unwrap();
    assert_eq!(whoami(&token).await, 401, "the file was read a moment ago");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let stranger = signed_with_header(&rig.key, &|header| header.kid = Some("made-up".to_owned()));
    assert_eq!(whoami(&stranger).await, 401);
    assert_eq!(whoami(&token).await, 200);
    assert_eq!(whoami(&rig.token("bob")).await, 200);
}

#[tokio::test]
async fn keys_rotate_without_a_restart_and_a_removed_key_verifies_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let old = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let new = SigningKey::generate(KeyAlgorithm::Es256).unwrap();
    let rig = with_key_file(&path, &old).await;
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
async fn a_key_file_that_would_block_changes_nothing_and_is_read_again_when_it_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (old, new) =
        (SigningKey::generate(KeyAlgorithm::EdDsa).unwrap(), SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let rig = with_key_file(&path, &old).await;
    let (old_token, new_token) = (old.sign(&claims("bob")).unwrap(), new.sign(&claims("bob")).unwrap());
    let message = offer("bob", "m1", "alice~job").to_string();

    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    until_metric(&rig, "failed").await;
    assert_eq!(rig.post(&new_token, message.clone()).await.0, 401, "answered, though its kid is unknown");
    assert_eq!(rig.post(&old_token, message.clone()).await.0, 202);

    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, key_set(&[&new])).unwrap();
    until_status(&rig, &new_token, &message, 202).await;
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
async fn a_flood_of_unknown_kids_costs_the_issuer_one_request_at_most() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let (url, fetches) = issuer(key_set(&[&key])).await;
    let rig = Rig::on(memory::open(MemoryOptions::default()), key, |config| {
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

/// A gateway that reads its keys from a file, every second.
async fn with_key_file(path: &Path, key: &SigningKey) -> Rig {
    std::fs::write(path, key_set(&[key])).unwrap();
    let source = KeySource::File(path.to_path_buf());
    Rig::on(memory::open(MemoryOptions::default()), key.clone(), |config| {
        config.auth.keys = source;
        config.auth.refresh_s = Some(1);
    })
    .await
}

async fn start(auth: AuthConfig) -> Result<(), GatewayError> {
    let mut config = GatewayConfig::new(auth);
    config.listen = None;
    let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
    Gateway::start(memory::open(MemoryOptions::default()), config, metrics).await.map(drop)
}

async fn until_status(rig: &Rig, token: &str, message: &str, wanted: u16) {
    loop_until(|| async {
        let (status, _) = rig.post(token, message).await;
        if status != wanted {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (status == wanted).then_some(())
    })
    .await;
}

async fn until_metric(rig: &Rig, result: &str) {
    loop_until(|| async {
        let failed = rig.metric("exchange_jwks_refresh_total", &[("result", result)]);
        if failed == 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (failed > 0.0).then_some(())
    })
    .await;
}
