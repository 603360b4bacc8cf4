//! One module and its runs: no task, no thread, nothing shared between runs but compiled code.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use agents::routine::{RESULT_CHARS_MAX, RoutineFault};
use wasmi::errors::{ErrorKind, MemoryError};
use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Error, ExternType, Instance, Memory, Module, Store, StoreLimits,
    StoreLimitsBuilder, TrapCode, TypedFunc, TypedResumableCall, WasmParams, WasmResults,
};

use crate::{MODULE_BYTES_MAX, WasmRoutineError};

/// Steps between two looks at the clock: about a millisecond. Whatever runs before `run`, as a start function does, has so
/// many in all.
const SLICE_FUEL: u64 = 1_000_000;
/// Elements of a table.
const TABLE_ELEMENTS_MAX: usize = 10_000;
/// Calls within calls.
const RECURSION_MAX: usize = 1_000;
/// Bytes of a result: every character can have four.
const RESULT_BYTES_MAX: usize = 4 * RESULT_CHARS_MAX;
/// Bytes of a page of memory.
const PAGE_BYTES: u64 = 65_536;

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WasmLimits {
    /// Computing steps, as the interpreter counts them.
    pub fuel: u64,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Time, by this machine's clock.
    pub time: Duration,
}

impl Default for WasmLimits {
    fn default() -> Self {
        // About a second of one core; the memory of sixteen runs is that of a small process.
        Self { fuel: 1_000_000_000, memory_bytes: 16 * 1024 * 1024, time: Duration::from_secs(2) }
    }
}

/// A compiled module.
pub struct Sandbox {
    engine: Engine,
    module: Module,
    limits: WasmLimits,
}

impl Sandbox {
    /// Reads, checks and compiles a module.
    ///
    /// # Errors
    /// [`WasmRoutineError`].
    pub fn try_new(module: &[u8], limits: WasmLimits) -> Result<Self, WasmRoutineError> {
        if module.len() > MODULE_BYTES_MAX {
            return Err(WasmRoutineError::TooLarge(module.len()));
        }
        let mut config = Config::default();
        config
            .consume_fuel(true)
            .compilation_mode(CompilationMode::Eager)
            .enforced_limits(EnforcedLimits::strict())
            .set_max_recursion_depth(RECURSION_MAX)
            .wasm_multi_memory(false)
            .wasm_memory64(false);
        let engine = Engine::new(&config);
        let invalid = |error: Error| WasmRoutineError::Invalid(error.to_string());
        let module = Module::new(&engine, module).map_err(invalid)?;
        check(&module, limits)?;
        Ok(Self { engine, module, limits })
    }

    /// What each run may use.
    #[must_use]
    pub fn limits(&self) -> WasmLimits {
        self.limits
    }

    /// Runs the module on a request, in an instance of its own. `is_given_up` is asked now and then; the run ends once it
    /// is true.
    ///
    /// # Errors
    /// [`RoutineFault`]: a trap, a limit, or a result that is no text.
    pub fn run(&self, request: &str, is_given_up: impl Fn() -> bool) -> Result<String, RoutineFault> {
        let limiter = StoreLimitsBuilder::new()
            .memory_size(self.limits.memory_bytes)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .trap_on_grow_failure(true)
            .build();
        let mut store = Store::new(&self.engine, limiter);
        store.limiter(|limiter| limiter);
        let meter = Meter { left: self.limits.fuel, ends: Instant::now() + self.limits.time, is_given_up };
        let mut running = Running { store, meter };
        running.refuel(SLICE_FUEL)?;
        let instance = Instance::new(&mut running.store, &self.module, &[]).map_err(fault)?;
        let memory = instance.get_memory(&running.store, "memory").ok_or(RoutineFault::Unreadable)?;
        let alloc = instance.get_typed_func::<i32, i32>(&running.store, "alloc").map_err(fault)?;
        let run = instance.get_typed_func::<(i32, i32), i64>(&running.store, "run").map_err(fault)?;
        let length = i32::try_from(request.len()).map_err(|_| RoutineFault::TooLong)?;
        let at = running.call(alloc, length)?;
        let start = usize::try_from(at.cast_unsigned()).map_err(|_| RoutineFault::Unreadable)?;
        memory.write(&mut running.store, start, request.as_bytes()).map_err(|_| RoutineFault::Unreadable)?;
        let place = running.call(run, (at, length))?;
        read(&running.store, memory, place.cast_unsigned())
    }
}

/// What a module must be, apart from valid.
fn check(module: &Module, limits: WasmLimits) -> Result<(), WasmRoutineError> {
    if let Some(import) = module.imports().next() {
        let (module, name) = (import.module().to_owned(), import.name().to_owned());
        return Err(WasmRoutineError::Import { module, name });
    }
    let Some(ExternType::Memory(memory)) = module.get_export("memory") else {
        return Err(WasmRoutineError::Export("`memory`"));
    };
    let bytes = memory.minimum().saturating_mul(PAGE_BYTES);
    if usize::try_from(bytes).map_or(true, |bytes| bytes > limits.memory_bytes) {
        return Err(WasmRoutineError::Memory(bytes));
    }
    let is = |name: &str, parameters: usize, result| {
        let Some(ExternType::Func(function)) = module.get_export(name) else { return false };
        function.params() == vec![wasmi::ValType::I32; parameters] && function.results() == [result]
    };
    if !is("alloc", 1, wasmi::ValType::I32) {
        return Err(WasmRoutineError::Export("`alloc` as a function (i32) -> i32"));
    }
    if !is("run", 2, wasmi::ValType::I64) {
        return Err(WasmRoutineError::Export("`run` as a function (i32, i32) -> i64"));
    }
    Ok(())
}

/// The result that lies where the upper half of `place` says, as long as the lower half says.
fn read(store: &Store<StoreLimits>, memory: Memory, place: u64) -> Result<String, RoutineFault> {
    let start = usize::try_from(place >> 32).map_err(|_| RoutineFault::Unreadable)?;
    let length = usize::try_from(place & u64::from(u32::MAX)).map_err(|_| RoutineFault::Unreadable)?;
    let end = start.checked_add(length).ok_or(RoutineFault::Unreadable)?;
    let bytes = memory.data(store).get(start..end).ok_or(RoutineFault::Unreadable)?;
    if length > RESULT_BYTES_MAX {
        return Err(RoutineFault::TooLong);
    }
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| RoutineFault::Unreadable)
}

/// What is left of a run's limits.
struct Meter<G> {
    left: u64,
    ends: Instant,
    is_given_up: G,
}

impl<G: Fn() -> bool> Meter<G> {
    /// Steps for the next slice, at least `wanted`.
    fn slice(&mut self, wanted: u64) -> Result<u64, RoutineFault> {
        if Instant::now() >= self.ends || (self.is_given_up)() {
            return Err(RoutineFault::TimedOut);
        }
        let slice = wanted.max(SLICE_FUEL).min(self.left);
        if slice < wanted || slice == 0 {
            return Err(RoutineFault::Exhausted("computing steps"));
        }
        self.left -= slice;
        Ok(slice)
    }
}

/// An instance that runs.
struct Running<G> {
    store: Store<StoreLimits>,
    meter: Meter<G>,
}

impl<G: Fn() -> bool> Running<G> {
    /// Gives the next slice of steps on top of what is left of the last.
    fn refuel(&mut self, wanted: u64) -> Result<(), RoutineFault> {
        let kept = self.store.get_fuel().map_err(fault)?;
        let slice = self.meter.slice(wanted.saturating_sub(kept))?;
        self.store.set_fuel(kept.saturating_add(slice)).map_err(fault)
    }

    /// Calls a function, slice by slice.
    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: TypedFunc<P, R>,
        parameters: P,
    ) -> Result<R, RoutineFault> {
        let mut call = function.call_resumable(&mut self.store, parameters).map_err(fault)?;
        loop {
            match call {
                TypedResumableCall::Finished(results) => return Ok(results),
                TypedResumableCall::OutOfFuel(stopped) => {
                    thread::yield_now();
                    self.refuel(stopped.required_fuel())?;
                    call = stopped.resume(&mut self.store).map_err(fault)?;
                }
                TypedResumableCall::HostTrap(_) => return Err(RoutineFault::Failed("a host function".to_owned())),
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
#[expect(clippy::wildcard_enum_match_arm, reason = "every other trap is told by its message")]
fn fault(error: Error) -> RoutineFault {
    if let ErrorKind::Memory(MemoryError::OutOfBoundsGrowth | MemoryError::ResourceLimiterDeniedAllocation) =
        error.kind()
    {
        return RoutineFault::Exhausted("memory");
    }
    if let Some(code) = error.as_trap_code() {
        return match code {
            TrapCode::OutOfFuel => RoutineFault::Exhausted("computing steps"),
            TrapCode::GrowthOperationLimited => RoutineFault::Exhausted("memory"),
            _ => RoutineFault::Failed(code.trap_message().to_owned()),
        };
    }
    RoutineFault::Failed(error.to_string())
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}
