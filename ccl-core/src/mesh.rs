//! Control sockets between all ranks.
