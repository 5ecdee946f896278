//! The driver in use: its functions, and every call through one place that counts it and turns its code into an error.

use ccl_core::{Error, Result};
use level_zero_sys::{Loader, Table, ZE_RESULT_SUCCESS, result_name, ze_driver_handle_t, ze_result_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How the driver was reached.
#[derive(Clone, Debug)]
pub(crate) enum Via {
    /// Linked into this library: the software driver.
    #[cfg(feature = "soft")]
    Linked,
    /// Through the system's loader, which is kept loaded.
    Loader(#[expect(dead_code, reason = "keeps the library loaded")] Box<Loader>),
}

/// A driver's functions. Lives as long as any object made with them.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) table: Table,
    pub(crate) driver: ze_driver_handle_t,
    via: Via,
    /// Whether it is our software driver.
    pub(crate) software: bool,
    calls: AtomicU64,
    /// Whether the driver turned out to have no graphs, though its loader exports their functions.
    lacks_graphs: AtomicBool,
}

// SAFETY: function pointers and a driver handle, which Level Zero lets any thread use.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Calls a function of the table, counts it, and gives `Result<()>`. To be used inside `unsafe`.
macro_rules! ze {
    ($api:expr, $function:ident ( $($argument:expr),* $(,)? )) => {{
        let api: &$crate::api::Api = &$api;
        api.count();
        api.check(stringify!($function), (api.table.$function)($($argument),*))
    }};
}
/// The same for a function that not every driver has: its absence is an error that names it.
macro_rules! ze_optional {
    ($api:expr, $function:ident ( $($argument:expr),* $(,)? )) => {{
        let api: &$crate::api::Api = &$api;
        match api.table.$function {
            Some(function) => {
                api.count();
                api.check(stringify!($function), function($($argument),*))
            }
            None => Err($crate::api::Api::lacks(stringify!($function))),
        }
    }};
}
pub(crate) use {ze, ze_optional};

impl Api {
    /// Whether others in the process may use the same driver.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.via, Via::Loader(_))
    }

    pub(crate) fn new(table: Table, driver: ze_driver_handle_t, via: Via, software: bool) -> Self {
        Self { table, driver, via, software, calls: AtomicU64::new(0), lacks_graphs: AtomicBool::new(false) }
    }

    /// In plain words, for reports.
    pub(crate) fn route(&self) -> &'static str {
        match self.via {
            #[cfg(feature = "soft")]
            Via::Linked => "linked in",
            Via::Loader(_) => "through libze_loader.so.1",
        }
    }

    /// Whether the driver is linked in.
    pub(crate) fn is_linked(&self) -> bool {
        !matches!(self.via, Via::Loader(_))
    }

    /// Two threads that call at the same time may be counted as one: a number for reports is not worth an instruction
    /// that locks in every call.
    #[inline]
    pub(crate) fn count(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Level Zero calls made so far by this library in this process; exact as long as one thread makes them.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn lacks_graphs(&self) -> bool {
        self.lacks_graphs.load(Ordering::Relaxed)
    }

    pub(crate) fn note_no_graphs(&self) {
        self.lacks_graphs.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn check(&self, call: &'static str, result: ze_result_t) -> Result<()> {
        if result == ZE_RESULT_SUCCESS { Ok(()) } else { Err(self.error(call, result)) }
    }

    /// The error for a call's code, with the driver's own words if it has any.
    #[cold]
    pub(crate) fn error(&self, call: &'static str, result: ze_result_t) -> Error {
        let mut words = std::ptr::null();
        // SAFETY: a live driver handle and a place for the pointer; the string is the driver's, read at once.
        let said = unsafe { (self.table.zeDriverGetLastErrorDescription)(self.driver, &raw mut words) };
        let mut detail = result_name(result).to_owned();
        if said == ZE_RESULT_SUCCESS && !words.is_null() {
            // SAFETY: the driver gave a terminated string, valid until this thread's next failing call.
            let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
            if !words.is_empty() {
                detail = format!("{detail} ({words})");
            }
        }
        Error::Device { call: call.into(), detail }
    }

    #[cold]
    pub(crate) fn lacks(call: &'static str) -> Error {
        Error::NotImplemented(format!("this Level Zero driver lacks {call}"))
    }
}

/// The error of a call that was appended, where what comes behind it was not: its second signal, as a rule.
#[cold]
pub(crate) fn runs_all_the_same(error: Error) -> Error {
    match error {
        Error::Device { call, detail } => {
            let detail = format!("{detail}; the call runs all the same: its stream tells when its memory may go");
            Error::Device { call, detail }
        }
        other => other,
    }
}
