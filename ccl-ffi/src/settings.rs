//! The process's settings: its environment, its log, and whether it may use the driver.

use ccl_core::config::Config;
use ccl_core::watch::fork;
use ccl_core::{Error, Result};
use std::cell::Cell;
use std::sync::OnceLock;

/// The environment's configuration, read once per process; the log goes where it says.
pub(crate) fn config() -> Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let config = Config::from_env()?;
            // A program that has a log of its own keeps it.
            let _ = ccl_ze::log::install(&config);
            Ok(config)
        })
        .as_ref()
        .map_err(Clone::clone)
}

/// To be asked before the driver is used: its threads don't exist in a child that was forked after them.
pub(crate) fn may_use_driver() -> Result<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let now = fork::generation()?;
    if *FIRST.get_or_init(|| now) == now {
        return Ok(());
    }
    Err(Error::InvalidUsage(
        "this process was forked from one that had already used the library; start it anew instead (exec, or the start \
         method `spawn`)"
            .into(),
    ))
}

thread_local! {
    static DEVICE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Chooses the device of what this thread makes from now on.
pub(crate) fn set_device(index: u32) {
    DEVICE.set(Some(index));
}

/// The device that this thread chose.
pub(crate) fn device() -> Option<usize> {
    DEVICE.get().map(|index| index as usize)
}
