//! What is told by `tracing`, of every test of this process.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// Everything told so far, at every level, by everybody.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<u8>>>);

/// Begins to listen, once for the process. With a subscriber of one thread only, events first met on another one could
/// stay disabled. What tests beside the caller's tell is heard too.
pub(crate) fn told() -> Told {
    static TOLD: OnceLock<Told> = OnceLock::new();
    TOLD.get_or_init(|| {
        let told = Told::default();
        let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        let subscriber = everything.with_writer(told.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        told
    })
    .clone()
}

impl Told {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Told {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
