//! Benchmarks, each beside its ceiling in the same run (DESIGN.md section 7).

pub mod bare;
