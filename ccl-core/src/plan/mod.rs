//! Plans: pure functions from rank-invariant inputs to data that a device executes.
