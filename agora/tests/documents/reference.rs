//! Documents that rest on others.

use std::collections::BTreeMap;

use agora::reference::resolve;
use agora::{DocumentHash, DocumentSource, Origin, ProtocolDocument, Reference};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemas::{Code, Refusal};

/// A name for a node of a graph made by hand: a circle of honest hashes cannot be made.
fn node(name: u64) -> Reference {
    Reference { hash: DocumentHash::of_bytes(&name.to_be_bytes()), sources: Vec::new() }
}

fn order(edges: &[(u64, &[u64])], first: u64) -> Result<Vec<u64>, Refusal> {
    let names: BTreeMap<DocumentHash, u64> = (0..64).map(|name| (node(name).hash, name)).collect();
    let mut asked = Vec::new();
    let resolved = resolve(node(first), |reference| {
        let name = names[&reference.hash];
        assert!(!asked.contains(&name), "{name} is obtained twice");
        asked.push(name);
        let to = edges.iter().find(|(from, _)| *from == name).map_or(&[][..], |(_, to)| to);
        Ok(to.iter().map(|&name| node(name)).collect())
    })?;
    Ok(resolved.iter().map(|hash| names[hash]).collect())
}

#[test]
fn what_a_document_rests_on_comes_before_it_and_once() {
    assert_eq!(order(&[], 1).unwrap(), [1]);
    assert_eq!(order(&[(1, &[2, 3]), (2, &[4]), (3, &[4, 2])], 1).unwrap(), [4, 2, 3, 1]);
    assert_eq!(order(&[(1, &[2, 2])], 1).unwrap(), [2, 1]);
}

#[test]
fn a_circle_of_documents_is_refused() {
    for edges in
        [vec![(1, &[1][..])], vec![(1, &[2][..]), (2, &[1])], vec![(1, &[2][..]), (2, &[3]), (3, &[4]), (4, &[2])]]
    {
        assert_eq!(order(&edges, 1).unwrap_err().code, Code::NotAllowed, "{edges:?}");
    }
}

#[test]
fn a_chain_of_four_is_resolved_and_one_of_five_is_not() {
    let chain: Vec<(u64, &[u64])> = vec![(1, &[2]), (2, &[3]), (3, &[4]), (4, &[5])];
    assert_eq!(order(&chain[..3], 1).unwrap(), [4, 3, 2, 1]);
    assert_eq!(order(&chain, 1).unwrap_err().code, Code::TooDeep);
}

#[test]
fn sixteen_documents_are_resolved_and_seventeen_are_not() {
    let eight: Vec<u64> = (2..10).collect();
    let (seven, one_more): (Vec<u64>, Vec<u64>) = ((10..17).collect(), (10..18).collect());
    assert_eq!(order(&[(1, &eight), (2, &seven)], 1).unwrap().len(), 16);
    assert_eq!(order(&[(1, &eight), (2, &one_more)], 1).unwrap_err().code, Code::OutOfRange);
}

#[test]
fn a_document_is_resolved_by_the_source_that_its_user_names() {
    let unit = "---\nname: Units\ndescription: d\nmultiround: false\n---\nDegrees are Celsius.";
    let unit = ProtocolDocument::try_new(unit, Origin::Own).unwrap();
    let naming = |source: &str| {
        let references = format!("references:\n  - hash: {}\n    sources: ['{source}']", unit.hash());
        format!("---\nname: Weather\ndescription: d\nmultiround: false\n{references}\n---\n")
    };
    let source = DocumentSource::of_text(unit.text());
    // The `---` of the document it holds would end the front matter.
    assert_eq!(ProtocolDocument::try_new(&naming(&source.to_string()), Origin::Own).unwrap_err().code, Code::BadFormat);
    let text = naming(&format!("data:text/plain;charset=utf-8;base64,{}", BASE64_STANDARD.encode(unit.text())));
    let weather = ProtocolDocument::try_new(&text, Origin::Own).unwrap();
    let first = Reference { hash: weather.hash(), sources: vec![DocumentSource::of_text(&text)] };
    let mut obtained = Vec::new();
    let resolved = resolve(first, |reference| {
        let Some(DocumentSource::Data(text)) = reference.sources.first() else {
            return Err(Refusal::new(Code::NotFound, "no source holds the document"));
        };
        let document = ProtocolDocument::verified(text, reference.hash, Origin::Foreign)?;
        let references = document.front_matter().references.clone();
        obtained.push(document);
        Ok(references)
    });
    assert_eq!(resolved.unwrap(), [unit.hash(), weather.hash()]);
    assert_eq!(obtained, [weather, unit]);
    let missing = resolve(node(1), |_| Err(Refusal::new(Code::NotFound, "no source holds the document")));
    assert_eq!(missing.unwrap_err().code, Code::NotFound);
}
