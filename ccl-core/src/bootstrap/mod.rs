//! Bootstrap: how the ranks of one host find each other.
