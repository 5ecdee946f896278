//! Benchmarks live in `benches/`: `cargo bench -p ccl-benches`.
