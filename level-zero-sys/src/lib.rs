//! Declarations of the Level Zero API and a table of its functions, loaded at run time.
//!
//! This crate binds and nothing more. It makes no choice for its user: no driver is picked, no call is retried, nothing
//! is logged. It reads no environment variable to be configured by; [`Loader::open`] looks at `LD_LIBRARY_PATH` only to
//! refuse one that would make the system search the current folder. What can fail returns an error that names the
//! symbol, file or path at fault; nothing panics.
//!
//! - Types, constants and structures carry the specification's names and stand at the crate's root. A structure's
//!   `Default` is all zero but for `stype`, which is set.
//! - [`Table`] holds one pointer per function; [`FUNCTIONS`] lists them. [`Table::load_with`] fills it from anything
//!   that resolves names, [`Loader`] from the system's `libze_loader.so.1`.
//! - [`ddi`] holds the tables through which the loader asks a driver for its functions.

#[macro_use]
mod macros;

#[doc(hidden)]
pub mod abi;
pub mod ddi;
mod functions;
mod loader;
mod table;
mod types;

pub use functions::*;
pub use loader::{LoadError, Loader};
pub use table::MissingSymbol;
pub use types::*;
