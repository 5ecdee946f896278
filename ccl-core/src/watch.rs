//! The watch: notices dead peers, stuck collectives and device faults.
