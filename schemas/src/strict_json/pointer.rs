//! Where a fault stands in a document, as far as its sender is told.

/// Longest pointer that is repeated to the sender, in bytes; the schemas' own are under 80. A longer one, or one with
/// other than printable ASCII, can only come from the sender's own member names: it is cut at the container.
const POINTER_LEN_MAX: usize = 256;

/// A JSON pointer (RFC 6901), built from the fault up to the root.
#[derive(Default)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    pub(crate) fn prepend(&mut self, token: &str) {
        self.0.push(escape(token));
    }

    pub(crate) fn into_text(self) -> String {
        cut(self.0.iter().rev().map(String::as_str))
    }
}

pub(crate) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// Joins a pointer's tokens, up to the first that is not repeated to the sender.
pub(crate) fn cut<'t>(tokens: impl Iterator<Item = &'t str>) -> String {
    let mut text = String::new();
    for token in tokens {
        let is_printable = token.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_printable || text.len() + token.len() >= POINTER_LEN_MAX {
            break;
        }
        text.push('/');
        text.push_str(token);
    }
    text
}
