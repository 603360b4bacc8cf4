//! Sources as the package `agora-protocol` reads and writes them.

use agora::DocumentSource;
use proptest::prelude::*;
use schemas::Code;

/// A text and what `urllib.parse.quote` makes of it.
const QUOTED: [(&str, &str); 3] = [
    ("", ""),
    (" ~/a_b.c-d+e", "%20~/a_b.c-d%2Be"),
    (
        "---\nname: Grüße\ndescription: \"naïve — 温度 ~/a_b.c-d\"\nmultiround: true\n---\nbody & more? 100%\n",
        "---%0Aname%3A%20Gr%C3%BC%C3%9Fe%0Adescription%3A%20%22na%C3%AFve%20%E2%80%94%20%E6%B8%A9%E5%BA%A6%20~/a_b.c-d%22%0Amultiround%3A%20true%0A---%0Abody%20%26%20more%3F%20100%25%0A",
    ),
];
const BASE64: &str = "LS0tCm5hbWU6IEdyw7zDn2UKZGVzY3JpcHRpb246ICJuYcOvdmUg4oCUIOa4qeW6piB+L2FfYi5jLWQiCm11bHRpcm91bmQ6IHRydWUKLS0tCmJvZHkgJiBtb3JlPyAxMDAlCg==";

#[test]
fn a_text_is_written_as_python_quotes_it_and_read_back() {
    for (text, quoted) in QUOTED {
        let written = format!("data:text/plain;charset=utf-8,{quoted}");
        assert_eq!(DocumentSource::of_text(text).to_string(), written);
        assert_eq!(DocumentSource::try_new(&written).unwrap(), DocumentSource::of_text(text));
    }
    let (text, _) = QUOTED[2];
    let base64 = format!("data:text/plain;charset=utf-8;base64,{BASE64}");
    assert_eq!(DocumentSource::try_new(&base64).unwrap(), DocumentSource::of_text(text));
}

#[test]
fn what_the_python_package_leaves_as_it_is_stays_as_it_is() {
    for (encoded, text) in [("100%", "100%"), ("%zz%4", "%zz%4"), ("a+b", "a+b"), ("a b", "a b"), ("%41%6a%6A", "Ajj")]
    {
        let source = DocumentSource::try_new(&format!("data:text/plain;charset=utf-8,{encoded}")).unwrap();
        assert_eq!(source, DocumentSource::of_text(text));
    }
}

#[test]
fn a_source_in_another_form_is_refused_with_its_code() {
    let long = format!("data:text/plain;charset=utf-8,{}", "x".repeat(3 * 32 * 1024 + 64));
    let far = format!("https://a.example/{}", "x".repeat(2048));
    for (text, code) in [
        ("data:text/plain,hello", Code::BadFormat),
        ("data:,hello", Code::BadFormat),
        ("data:text/plain;charset=iso-8859-1,hello", Code::BadFormat),
        ("data:text/html;charset=utf-8,hello", Code::BadFormat),
        ("data:text/plain;charset=utf-8;base64,aGVsbG8", Code::BadFormat),
        ("data:text/plain;charset=utf-8;base64,_-8=", Code::BadFormat),
        ("data:text/plain;charset=utf-8;base64,gA==", Code::BadFormat),
        ("data:text/plain;charset=utf-8,%80", Code::BadFormat),
        ("file:///etc/passwd", Code::NotAllowed),
        ("gopher://a.example/1", Code::NotAllowed),
        ("a.example/weather.txt", Code::NotAllowed),
        ("", Code::NotAllowed),
        (&long, Code::TooLarge),
        (&far, Code::TooLarge),
    ] {
        assert_eq!(DocumentSource::try_new(text).unwrap_err().code, code, "{}", &text[..text.len().min(60)]);
    }
}

proptest! {
    #[test]
    fn every_text_survives_its_own_source(text in "\\PC{0,200}") {
        prop_assert_eq!(DocumentSource::try_new(&DocumentSource::of_text(&text).to_string()).unwrap(), DocumentSource::Data(text));
    }
}
