//! Files that a person names: read as text, and no further than such a file can be long.

use std::io::{self, Read as _};
use std::path::Path;

/// Reads a text of at most so many bytes.
///
/// # Errors
/// The file's; [`io::ErrorKind::InvalidData`] when it is longer, or no text.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}
