//! A Level Zero driver that runs on the CPU.
