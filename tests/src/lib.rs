//! Tests that need several processes.
