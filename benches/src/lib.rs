//! Benchmarks: `cargo bench -p ccl-benches` of the host path, and `benches/peers/run.sh`, which compares this library
//! with others.
