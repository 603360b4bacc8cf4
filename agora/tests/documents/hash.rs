//! The spellings of a hash.

use agora::DocumentHash;
use proptest::prelude::*;
use schemas::Code;

/// Text, standard base64, hexadecimal digits.
const VECTORS: [(&str, &str, &str); 3] = [
    ("", "2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    (crate::WEATHER, crate::WEATHER_HASH, "29ce366cd3ab497facf362cbbc4b395fa5d22b6e"),
    (
        "---\nname: n14\ndescription: d\nmultiround: false\n---\n",
        "/18GkglH2+/7FFDdfi49llwj0uU=",
        "ff5f06920947dbeffb1450dd7e2e3d965c23d2e5",
    ),
];

#[test]
fn the_name_of_a_document_is_the_base64_of_the_sha1_of_its_text() {
    for (text, base64, _) in VECTORS {
        let hash = DocumentHash::of_bytes(text.as_bytes());
        assert_eq!(hash.to_string(), base64);
        assert_eq!(base64.len(), 28);
        assert_eq!(serde_json::to_value(hash).unwrap(), base64);
    }
}

#[test]
fn every_spelling_of_a_hash_becomes_the_one_on_the_wire() {
    for (_, base64, hex) in VECTORS {
        let url = base64.replace('+', "-").replace('/', "_");
        let unpadded = [base64.trim_end_matches('='), url.trim_end_matches('=')];
        for spelling in [base64, &url, hex, &hex.to_uppercase(), unpadded[0], unpadded[1]] {
            let hash = DocumentHash::try_new(spelling).unwrap();
            assert_eq!(hash.to_string(), base64, "{spelling}");
            assert_eq!(hash.key(), unpadded[1]);
            assert_eq!(serde_json::from_value::<DocumentHash>(spelling.into()).unwrap(), hash);
        }
    }
}

#[test]
fn what_is_no_hash_is_refused() {
    for text in [
        "",
        "negotiation",
        "Kc42bNOrSX+s82LLvEs5X6XSK2",
        // Bits beyond the 160.
        "Kc42bNOrSX+s82LLvEs5X6XSK25=",
        // 160 bits, a 21st byte.
        "Kc42bNOrSX+s82LLvEs5X6XSK24A",
        // Both alphabets in one.
        "/18GkglH2-_7FFDdfi49llwj0uU=",
        " Kc42bNOrSX+s82LLvEs5X6XSK24=",
        "Kc42bNOrSX+s82LLvEs5X6XSK24==",
        "29ce366cd3ab497facf362cbbc4b395fa5d22b6",
        "29ce366cd3ab497facf362cbbc4b395fa5d22b6g",
        "../../../../../../../../etc/passwd",
    ] {
        assert_eq!(DocumentHash::try_new(text).unwrap_err().code, Code::BadFormat, "{text}");
    }
}

proptest! {
    #[test]
    fn a_key_has_only_characters_of_subjects_and_file_names_and_is_read_back(bytes in any::<[u8; 32]>()) {
        let hash = DocumentHash::of_bytes(&bytes);
        let key = hash.key();
        prop_assert!(key.len() == 27 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        prop_assert_eq!(DocumentHash::try_new(&key).unwrap(), hash);
        prop_assert_eq!(DocumentHash::try_new(&hash.to_string()).unwrap(), hash);
    }
}
