//! Configuration: the one table of environment variables.
