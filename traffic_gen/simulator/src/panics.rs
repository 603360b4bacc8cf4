//! Panics of the run's tasks. The runtime keeps them to itself, one task dies and the others go on; a run must not.

use std::cell::RefCell;
use std::sync::Once;

/// Most panics described; the rest of a run that has one is of little interest.
const PANICS_MAX: usize = 8;

thread_local! {
    static SEEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Begins to notice panics of this thread. They are not printed: the trace holds them.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_ours = SEEN.with_borrow_mut(|seen| match seen {
                Some(seen) if seen.len() < PANICS_MAX => {
                    seen.push(panic.to_string());
                    true
                }
                Some(_) => true,
                None => false,
            });
            if !is_ours {
                before(panic);
            }
        }));
    });
    SEEN.set(Some(Vec::new()));
}

/// Ends the watch and says what was seen.
pub(super) fn seen() -> Vec<String> {
    SEEN.take().unwrap_or_default()
}
