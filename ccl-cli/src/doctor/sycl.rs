//! The bridges to SYCL's runtimes: which there are, and which a program would need.

use ccl_ze::sycl::{RELEASES, beside, file_name};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Folders that are searched after those of LD_LIBRARY_PATH.
const USUAL: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib", "/opt/intel/oneapi/compiler/latest/lib"];

/// A version of the runtime, and its bridge.
#[derive(Debug, Serialize)]
pub(super) struct Bridge {
    /// The major version of libsycl.
    pub(super) release: u32,
    /// The bridge, if it is beside this program or on the search path.
    #[serde(serialize_with = "crate::output::path_if_any")]
    pub(super) bridge: Option<PathBuf>,
    /// The runtime, if it is on the search path. A program may load it from elsewhere.
    #[serde(serialize_with = "crate::output::path_if_any")]
    pub(super) runtime: Option<PathBuf>,
}

impl Bridge {
    /// What programs on this version of the runtime get.
    pub(super) fn text(&self) -> String {
        match (&self.bridge, &self.runtime) {
            (Some(bridge), _) => format!("{}, for programs that have loaded this runtime", bridge.display()),
            (None, Some(runtime)) => format!("no bridge for {}: its queues are refused", runtime.display()),
            (None, None) => "no bridge, and no such runtime on the search path".into(),
        }
    }
}

pub(super) fn look() -> Vec<Bridge> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .chain(USUAL.into_iter().map(PathBuf::from))
        .collect();
    RELEASES
        .into_iter()
        .map(|release| Bridge {
            release,
            bridge: beside(release)
                .filter(|path| path.exists())
                .or_else(|| find(&folders, Path::new(&file_name(release)))),
            runtime: find(&folders, Path::new(&format!("libsycl.so.{release}"))),
        })
        .collect()
}

fn find(folders: &[PathBuf], name: &Path) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_path_is_found_and_a_missing_bridge_told() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("libsycl.so.8"), "").unwrap();
        let folders = [folder.path().to_path_buf(), other.path().to_path_buf()];
        let runtime = find(&folders, Path::new("libsycl.so.8"));
        assert_eq!(runtime, Some(other.path().join("libsycl.so.8")));
        assert_eq!(find(&folders, Path::new("libsycl.so.9")), None);
        let told = Bridge { release: 8, bridge: None, runtime }.text();
        assert!(told.contains("no bridge for") && told.contains("refused"), "{told}");
    }
}
