//! A folder that keeps what the runtime compiled: it takes tens of seconds for a large module, in every process anew.

use super::runtime::Runtime;
use crate::config;
use crate::module::hex;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};
use std::ffi::CStr;
use std::fs::{self, File};
use std::path::PathBuf;

/// How many bytes behind the binary tell whether it is whole.
const HASH: usize = 32;

/// Where one program is kept, or is to be. While it lives, no other process compiles that program: so that of those
/// that start together one does the work.
pub(super) struct Place {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Place {
    /// The place of a program; `None` without a folder that can be written to.
    pub(super) fn of(image: &[u8], options: &CStr, runtime: &Runtime) -> Option<Self> {
        let folder = config::get().opencl_cache.as_ref()?;
        let mut hash = Sha256::new();
        for part in [image, options.to_bytes_with_nul(), runtime.name.as_bytes()] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let name = hex(&hash.finalize().into());
        let open = || {
            fs::create_dir_all(folder)?;
            let file = File::create(folder.join(format!("{name}.lock")))?;
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
        };
        match open() {
            Ok(_lock) => Some(Self { path: folder.join(name), _lock }),
            Err(error) => {
                let error: std::io::Error = error;
                eprintln!("ze-soft: nothing is kept in ZE_SOFT_OPENCL_CACHE={}: {error}", folder.display());
                None
            }
        }
    }

    /// What is kept there, if that is whole: a runtime may not survive a damaged binary.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let mut binary = fs::read(&self.path).ok()?;
        let kept = binary.split_off(binary.len().checked_sub(HASH)?);
        (Sha256::digest(&binary).as_slice() == kept).then_some(binary)
    }

    pub(super) fn write(&self, mut binary: Vec<u8>) {
        let hash = Sha256::digest(&binary);
        binary.extend_from_slice(&hash);
        // Under another name first: a process that is killed leaves no half of it.
        let half = self.path.with_extension("half");
        if let Err(error) = fs::write(&half, &binary).and_then(|()| fs::rename(&half, &self.path)) {
            eprintln!("ze-soft: {} could not be written: {error}", self.path.display());
        }
    }
}
