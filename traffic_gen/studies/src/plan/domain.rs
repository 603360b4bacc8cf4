//! Domain files that the bargains of a grid are about.

use std::path::PathBuf;

use agents::bargain::Domain;
use schemas::Digest;
use serde::{Deserialize, Serialize};
use traffic_gen::bargain::load::Catalog;

use super::file::read_text;

/// A domain file, and what it held when the plan was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainFile {
    /// Its path.
    pub file: PathBuf,
    /// Name of the domain.
    pub name: String,
    /// Digest of its text.
    pub document: Digest,
}

impl DomainFile {
    /// Reads a file that bargains can be about.
    ///
    /// # Errors
    /// Why they cannot.
    pub fn read(path: &str) -> Result<Self, String> {
        let (document, domain) = parse(path)?;
        let name = domain.name.clone();
        Catalog::try_new(vec![domain]).map_err(|error| error.to_string())?;
        Ok(Self { file: path.into(), name, document })
    }
}

/// What they are called in a report: the name, and enough of the digest to tell documents of one name apart.
pub fn label(files: &[DomainFile]) -> String {
    let named = |DomainFile { name, document, .. }: &DomainFile| format!("{name} {:.8}", document.to_string());
    files.iter().map(named).collect::<Vec<_>>().join("+")
}

/// The catalog of these files.
///
/// # Errors
/// What has changed since the plan was read; two that a call cannot tell apart.
pub fn catalog(files: &[DomainFile]) -> Result<Catalog, String> {
    let read = |DomainFile { file, document, .. }: &DomainFile| {
        let path = file.display();
        let (found, domain) = parse(&file.to_string_lossy()).map_err(|fault| format!("{path}: {fault}"))?;
        if found == *document { Ok(domain) } else { Err(format!("{path} has changed since the plan was read")) }
    };
    let domains = files.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    let catalog = Catalog::try_new(domains).map_err(|error| error.to_string())?;
    for place in 0..catalog.len() {
        let earlier = (0..place).find(|other| {
            catalog.name(*other) == catalog.name(place) || catalog.rules(*other).issues == catalog.rules(place).issues
        });
        if let Some(earlier) = earlier {
            let [one, other] = [earlier, place].map(|place| files[place].file.display());
            return Err(format!("{one} and {other} have the same name or the same issues"));
        }
    }
    Ok(catalog)
}

fn parse(path: &str) -> Result<(Digest, Domain), String> {
    let text = read_text(path)?;
    let domain = Domain::parse(&text).map_err(|fault| fault.to_string())?;
    Ok((Digest::of_bytes(text.as_bytes()), domain))
}
