//! Which spans are kept, and where they go.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Span, TraceId};

/// Trace ids are random in 56 bits.
const RANDOM_BITS: u32 = 56;
/// Failed spans kept each second beside the sampled ones: enough to see what goes wrong, and no more when everything does.
const ERRORS_PER_S: u64 = 50;

/// Takes finished spans. Must not block: it is called on the way of messages.
pub trait Spans: Send + Sync {
    /// Takes one.
    fn take(&self, span: Span);
}

/// Hands finished spans on, as far as they are kept. Cheap to clone; the default keeps nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// Traces whose random part is below are kept.
    below: u64,
    spans: Arc<dyn Spans>,
    errors: Budget,
}

impl Tracer {
    /// Keeps nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Keeps `ratio` of all traces, 0 to 1; and of what fails in the others, up to 50 a second.
    pub fn new(ratio: f64, spans: Arc<dyn Spans>) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2^56, of which 2^53 steps are ample"
        )]
        let below = (ratio.clamp(0.0, 1.0) * (1_u64 << RANDOM_BITS) as f64) as u64;
        Self(Some(Arc::new(Inner { below, spans, errors: Budget::new() })))
    }

    /// Whether anything is kept at all: what spans are made from need not be remembered otherwise.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a trace is among the sampled ones.
    pub fn keeps(&self, trace: TraceId) -> bool {
        self.0.as_ref().is_some_and(|inner| trace.random_part() < inner.below)
    }

    /// Hands on a span if its trace is kept, or it failed and the bound allows one more. `make` is called only then.
    pub fn record(&self, trace: TraceId, is_failed: bool, make: impl FnOnce() -> Span) {
        if let Some(inner) = &self.0
            && (trace.random_part() < inner.below || is_failed && inner.errors.take())
        {
            inner.spans.take(make());
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.is_on()).finish()
    }
}

/// So many each second.
struct Budget {
    since: Instant,
    /// The second in its upper half, how many in its lower.
    used: AtomicU64,
}

impl Budget {
    fn new() -> Self {
        Self { since: Instant::now(), used: AtomicU64::new(0) }
    }

    fn take(&self) -> bool {
        self.take_at(self.since.elapsed())
    }

    fn take_at(&self, elapsed: Duration) -> bool {
        let second = elapsed.as_secs() & u64::from(u32::MAX);
        let next = |used: u64| {
            let (in_second, count) = (used >> 32, used & u64::from(u32::MAX));
            match in_second {
                same if same == second && count >= ERRORS_PER_S => None,
                same if same == second => Some(used + 1),
                _ => Some((second << 32) | 1),
            }
        };
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::SystemTime;

    use schemas::NegotiationId;

    use super::*;
    use crate::trace::{Kind, SpanId, TraceContext};

    #[derive(Default)]
    struct Kept(Mutex<Vec<Span>>);

    impl Spans for Kept {
        fn take(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }
    }

    fn span(number: u32) -> Span {
        let negotiation = NegotiationId::try_new(&format!("alice~{number}")).unwrap();
        let context = TraceContext::of(None, &negotiation);
        Span::new("fold cfp", Kind::Consumer, context, SpanId::of(&negotiation), SystemTime::now())
    }

    fn kept(ratio: f64, record: impl Fn(&Tracer, Span)) -> usize {
        let kept = Arc::new(Kept::default());
        let tracer = Tracer::new(ratio, kept.clone());
        (0..10_000).for_each(|number| record(&tracer, span(number)));
        kept.0.lock().unwrap().len()
    }

    #[test]
    fn the_share_that_was_asked_for_is_kept() {
        let record = |tracer: &Tracer, span: Span| tracer.record(span.context.trace, false, || span);
        assert_eq!(kept(0.0, record), 0);
        assert_eq!(kept(1.0, record), 10_000);
        assert!((50..200).contains(&kept(0.01, record)));
    }

    #[test]
    fn what_fails_is_kept_besides_and_bounded() {
        let record = |tracer: &Tracer, span: Span| tracer.record(span.context.trace, true, || span);
        let count = kept(0.0, record);
        assert!((1..=1_000).contains(&count), "{count}");
        let budget = Budget::new();
        let taken = |s| (0..1_000).filter(|_| budget.take_at(Duration::from_secs(s))).count() as u64;
        assert_eq!((taken(5), taken(5), taken(6)), (ERRORS_PER_S, 0, ERRORS_PER_S));
    }

    #[test]
    fn a_tracer_that_is_off_makes_nothing() {
        let off = Tracer::off();
        let trace = span(0).context.trace;
        assert!(!off.is_on() && !off.keeps(trace));
        off.record(trace, true, || panic!("nobody wants it"));
    }
}
