//! Benchmarks of the collective library.
