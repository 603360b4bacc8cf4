//! The frame of every line of exports and archives: `{"line":…,"chain":"…"}`.
//!
//! The frame is compared byte for byte and the chain covers the line, so no byte of a file can be altered unnoticed,
//! white space and line ends included.

use std::io::{self, BufRead, Read};

use schemas::Digest;

/// The chain before the first line.
pub(super) const CHAIN_START: Digest = Digest([0; 32]);

const PREFIX: &str = r#"{"line":"#;
const MIDDLE: &str = r#","chain":""#;
const SUFFIX: &str = "\"}\n";
/// Digits of a chain.
const CHAIN_LEN: usize = 64;
/// Longest line that is read: far above the largest record or negotiation, and a bound on what a damaged file costs.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A line taken out of its frame.
pub(super) struct Framed<'a> {
    /// The document.
    pub(super) line: &'a str,
    /// The chain as written.
    pub(super) chain: Digest,
    /// Whether that is the chain the lines so far give.
    pub(super) is_chained: bool,
}

/// Frames a document and moves the chain on. The document must be one line of JSON.
pub(super) fn frame(line: &str, chain: &mut Digest) -> String {
    *chain = chained(*chain, line);
    format!("{PREFIX}{line}{MIDDLE}{chain}{SUFFIX}")
}

/// Takes a line, with its line end, out of its frame.
///
/// # Errors
/// What is wrong with the frame.
pub(super) fn unframe(bytes: &[u8], before: Digest) -> Result<Framed<'_>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is no text: {error}"))?;
    let no_frame = || format!("it does not read {PREFIX}…{MIDDLE}…\"}}");
    let inner = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)).ok_or_else(no_frame)?;
    let at = inner.len().checked_sub(CHAIN_LEN).filter(|&at| inner.is_char_boundary(at)).ok_or_else(no_frame)?;
    let (line, chain) = inner.split_at(at);
    let line = line.strip_suffix(MIDDLE).ok_or_else(no_frame)?;
    let chain = Digest::try_new(chain).map_err(|error| format!("its chain is altered: {error}"))?;
    Ok(Framed { line, chain, is_chained: chain == chained(before, line) })
}

/// Reads up to and including the next line end; what comes back without one is the torn end of the file, and nothing at
/// all its end.
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', line)
}

/// The chain after a line.
fn chained(before: Digest, line: &str) -> Digest {
    Digest::of_parts(&[&before.0, line.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_altered_byte_of_a_line_is_noticed() {
        let mut chain = CHAIN_START;
        let line = frame(r#"{"record":{"seq":7,"text":"é"}}"#, &mut chain);
        let is_accepted = |bytes: &[u8]| unframe(bytes, CHAIN_START).is_ok_and(|framed| framed.is_chained);
        assert!(is_accepted(line.as_bytes()));
        for at in 0..line.len() {
            for value in 0..=u8::MAX {
                let mut altered = line.clone().into_bytes();
                let original = std::mem::replace(&mut altered[at], value);
                assert_eq!(is_accepted(&altered), original == value, "byte {at} as {value}");
            }
        }
    }

    #[test]
    fn a_line_without_its_end_is_not_taken() {
        let mut chain = CHAIN_START;
        let line = frame("1", &mut chain);
        for len in 0..line.len() {
            assert!(unframe(&line.as_bytes()[..len], CHAIN_START).is_err(), "{len} bytes");
        }
    }
}
