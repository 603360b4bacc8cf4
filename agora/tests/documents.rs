//! Documents as agents and foreign servers write them: names, front matter, sources, requests, references. The vectors of
//! hashes and sources were written by Python's `hashlib`, `base64` and `urllib.parse.quote`.

mod documents {
    mod front_matter;
    mod hash;
    mod reference;
    mod selection;
    mod source;
    mod transaction;
}

use agora::{Origin, ProtocolDocument};
use data_encoding::HEXLOWER;
use schemas::{Code, Digest, Refusal};

/// A document of ours.
const WEATHER: &str = "---\nname: Weather by city\ndescription: Answers the temperature of a city on a day.\nmultiround: \
                       false\n---\n\nSend a JSON object with `city` and `date` (ISO 8601).\n";
const WEATHER_HASH: &str = "Kc42bNOrSX+s82LLvEs5X6XSK24=";

fn refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> (Code, String) {
    let refusal = outcome.expect_err("a refusal");
    (refusal.code, refusal.pointer.unwrap_or_default())
}

#[test]
fn a_document_bears_both_digests_and_what_it_says_of_itself() {
    let document = ProtocolDocument::try_new(WEATHER, Origin::Own).unwrap();
    assert_eq!(document.hash().to_string(), WEATHER_HASH);
    let sha256 = "e78f4aa1ff8422bb2f73efacdbcc25e60a535f130699c06aafac09f0a41e6a7c";
    assert_eq!(document.sha256(), Digest::try_new(sha256).unwrap());
    assert_eq!(document.text(), WEATHER);
    assert_eq!(document.front_matter().name, "Weather by city");
    assert!(!document.front_matter().multiround);
}

#[test]
fn a_document_at_the_limit_is_read_and_one_byte_more_is_refused() {
    let padded = |bytes: usize| format!("{WEATHER}{}", "x".repeat(bytes - WEATHER.len()));
    assert!(ProtocolDocument::try_new(&padded(32 * 1024), Origin::Own).is_ok());
    let refusal = refused(ProtocolDocument::try_new(&padded(32 * 1024 + 1), Origin::Own));
    assert_eq!(refusal, (Code::TooLarge, "/document".to_owned()));
}

#[test]
fn a_text_under_the_hash_of_another_is_refused_with_its_own() {
    let hash = ProtocolDocument::try_new(WEATHER, Origin::Own).unwrap().hash();
    assert!(ProtocolDocument::verified(WEATHER, hash, Origin::Own).is_ok());
    let refusal = ProtocolDocument::verified(&format!("{WEATHER}."), hash, Origin::Own).unwrap_err();
    assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::NotAllowed, Some("/hash")));
}

#[test]
fn a_sha1_collision_is_one_name_for_two_digests() {
    // The first 320 bytes of the two documents of https://shattered.io: they collide by themselves.
    const SHATTERED: [&str; 2] = [include_str!("documents/shattered-1.hex"), include_str!("documents/shattered-2.hex")];
    let [one, other] =
        SHATTERED.map(|text| HEXLOWER.decode(text.split_whitespace().collect::<String>().as_bytes()).unwrap());
    assert_ne!(one, other);
    let names = [&one, &other].map(|bytes| agora::DocumentHash::of_bytes(bytes));
    assert_eq!(names[0], names[1]);
    assert_ne!(Digest::of_bytes(&one), Digest::of_bytes(&other));
}
