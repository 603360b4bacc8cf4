//! WebAssembly modules as routines (docs/spec/agora.md#ag-56), interpreted within limits of computing steps, memory and time.
//!
//! A module imports nothing: it sees its request and its own memory, and neither clock, files, network nor randomness. It
//! exports
//!
//! | export | type | is |
//! |---|---|---|
//! | `memory` | memory | where request and result lie |
//! | `alloc` | `(length: i32) -> i32` | where the request of so many bytes is to be put |
//! | `run` | `(at: i32, length: i32) -> i64` | carries the request out; the result, UTF-8, lies at the upper 32 bits and is as long as the lower 32 bits say |
//!
//! A trap is how it says that it cannot. Every run has a new instance, so a run leaves nothing behind for the next, and a
//! thread of its own, which on Linux has the lowest priority there is: however many modules compute, other work of the machine
//! comes first.
//!
//! Start reading at [`WasmRoutine::try_new`], then [`sandbox`].

pub mod sandbox;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agents::routine::{Routine, RoutineFault, RoutineRequest};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::document::RoutineKind;
use tokio::sync::{Semaphore, oneshot};

pub use sandbox::{Sandbox, WasmLimits};

/// The price of a parcel, as `agents::routine::native::parcel_price` computes it: the module of `modules/parcel_price.wat`.
pub const PARCEL_PRICE: &[u8] = include_bytes!("../modules/parcel_price.wasm");
/// A module that does what the limits are for, as the first letter of its request says: the module of `modules/hostile.wat`.
pub const HOSTILE: &[u8] = include_bytes!("../modules/hostile.wasm");
/// Runs of one module at a time. A run that is given up keeps its place until its next slice of steps ends.
pub const WASM_RUNS_MAX: usize = 16;
/// The nice value of a thread that runs a module: all others come first.
#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;
/// Bytes of a module.
pub const MODULE_BYTES_MAX: usize = 1024 * 1024;

/// A module that cannot be a routine.
#[derive(Debug, thiserror::Error)]
pub enum WasmRoutineError {
    /// It is larger than [`MODULE_BYTES_MAX`].
    #[error("the module has {0} bytes, {MODULE_BYTES_MAX} at most are read")]
    TooLarge(usize),
    /// It is no valid WebAssembly, or beyond what the interpreter takes.
    #[error("no module: {0}")]
    Invalid(String),
    /// It wants something from outside.
    #[error("the module imports `{module}` `{name}`, and nothing can be imported; build it without a host (no WASI)")]
    Import {
        /// Name of the module it is imported from.
        module: String,
        /// Name of what is imported.
        name: String,
    },
    /// An export is missing or of another type.
    #[error("the module does not export {0}")]
    Export(&'static str),
    /// Its memory is larger from the start than it may become.
    #[error("the module begins with {0} bytes of memory, more than its limit")]
    Memory(u64),
}

/// A module, ready to be run.
#[derive(Clone)]
pub struct WasmRoutine {
    sandbox: Arc<Sandbox>,
    places: Arc<Semaphore>,
}

impl WasmRoutine {
    /// Reads and compiles a module. Nothing of it runs yet.
    ///
    /// # Errors
    /// [`WasmRoutineError`].
    pub fn try_new(module: &[u8], limits: WasmLimits) -> Result<Self, WasmRoutineError> {
        let sandbox = Arc::new(Sandbox::try_new(module, limits)?);
        Ok(Self { sandbox, places: Arc::new(Semaphore::new(WASM_RUNS_MAX)) })
    }

    /// What runs it, for whoever can wait.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl Routine for WasmRoutine {
    fn kind(&self) -> RoutineKind {
        RoutineKind::Wasm
    }

    fn run(&self, request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let (sandbox, place) = (Arc::clone(&self.sandbox), Arc::clone(&self.places).try_acquire_owned());
        async move {
            let place = place.map_err(|_| RoutineFault::Busy)?;
            let watch = GivenUp::default();
            let is_given_up = Arc::clone(&watch.0);
            let (told, result) = oneshot::channel();
            let running = thread::Builder::new().name("module".to_owned()).spawn(move || {
                yield_to_others();
                let ran = sandbox.run(&request.text, || is_given_up.load(Ordering::Relaxed));
                // Its place is free before anybody can ask for the next run.
                drop(place);
                // Whoever waited may have gone.
                let _ = told.send(ran);
            });
            running.map_err(|_| RoutineFault::Busy)?;
            result.await.unwrap_or_else(|_| Err(RoutineFault::Failed("the interpreter panicked".to_owned())))
        }
        .boxed()
    }
}

/// Gives the calling thread the lowest priority. Where the system does not let it, it runs as before.
#[cfg(target_os = "linux")]
fn yield_to_others() {
    // Of Linux's `setpriority`, "this process" is the calling thread.
    let _ = rustix::process::setpriority_process(None, NICE_MAX);
}

#[cfg(not(target_os = "linux"))]
const fn yield_to_others() {}

/// Tells a run that nobody waits for it any more, when it is dropped.
#[derive(Debug, Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for WasmRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmRoutine").field("limits", &self.sandbox.limits()).finish_non_exhaustive()
    }
}
