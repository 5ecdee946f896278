//! Types, plans, bootstrap and communicator of the collective library: no driver, no ABI.
