//! The known names nearest to one that is not known: what a refusal suggests.

/// Names a refusal suggests.
const SUGGESTED_MAX: usize = 3;
/// Characters of a wanted name that are compared: more than any name has.
const WANTED_CHARS_MAX: usize = 256;
/// Names compared on either side of the one looked for, in alphabetical order. It bounds what a refusal costs.
pub(crate) const AROUND_MAX: usize = 128;

/// The names that take the fewest changes of a letter to become the wanted one; of equals, the first in the alphabet.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: String = wanted.chars().take(WANTED_CHARS_MAX).collect();
    let mut by_distance: Vec<_> =
        names.take(2 * AROUND_MAX).map(|name| (strsim::osa_distance(&wanted, name), name)).collect();
    by_distance.sort_unstable();
    by_distance.into_iter().take(SUGGESTED_MAX).map(|(_, name)| name).collect()
}
