//! Where this library's files are.

use std::path::{Path, PathBuf};

/// The files of the library.
pub(crate) struct Place {
    /// What takes oneCCL's place.
    pub(crate) library: PathBuf,
    /// The audit library, if it is beside it.
    pub(crate) audit: Option<PathBuf>,
}

const LIBRARY: &str = "libcclx.so";
pub(crate) const WITNESS: &str = "libcclx_witness.so";
const AUDIT: &str = "libcclx_audit.so";

impl Place {
    /// The file of CCLX_LIBRARY, else one beside this program.
    pub(crate) fn find() -> Result<Place, String> {
        let program = std::env::current_exe().and_then(|path| path.canonicalize());
        let folder = program.ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
        Self::from(std::env::var_os("CCLX_LIBRARY").map(PathBuf::from), &folder)
    }

    /// The same with the witness, which passes calls on, in the library's stead.
    pub(crate) fn find_witness() -> Result<Place, String> {
        let place = Self::find()?;
        let witness = place.library.with_file_name(WITNESS);
        if !witness.is_file() {
            return Err(format!(
                "there is no {WITNESS} beside {}: build it with `cargo build --release -p ccl-witness`",
                place.library.display()
            ));
        }
        Ok(Place { library: witness, ..place })
    }

    /// Whether it is the witness that takes oneCCL's place.
    pub(crate) fn is_witness(&self) -> bool {
        self.library.file_name().is_some_and(|name| name == WITNESS)
    }

    fn from(named: Option<PathBuf>, folder: &Path) -> Result<Place, String> {
        if let Some(path) = named {
            if !path.is_absolute() || !path.is_file() {
                return Err(format!("CCLX_LIBRARY={}: no absolute path of a file", path.display()));
            }
            return Ok(Place { audit: beside(&path).or_else(|| among(folder, AUDIT)), library: path });
        }
        let library = among(folder, LIBRARY).ok_or_else(|| {
            format!(
                "there is no {LIBRARY} in {}, its folder deps, or ../lib: build it with `cargo build --release -p ccl-ffi -p \
                 ccl-audit`, or name it with CCLX_LIBRARY",
                folder.display()
            )
        })?;
        Ok(Place { audit: beside(&library).or_else(|| among(folder, AUDIT)), library })
    }
}

fn beside(library: &Path) -> Option<PathBuf> {
    Some(library.with_file_name(AUDIT)).filter(|path| path.is_file())
}

/// Beside the program, in an installation's folder of libraries, or where cargo leaves what others depend on.
fn among(folder: &Path, name: &str) -> Option<PathBuf> {
    let folders = [folder.to_owned(), folder.join("../lib"), folder.join("../lib/cclx"), folder.join("deps")];
    folders.iter().find_map(|folder| folder.join(name).canonicalize().ok().filter(|path| path.is_file()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn beside_the_program_or_where_it_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (bin, lib, deps) = (root.join("bin"), root.join("lib"), root.join("bin/deps"));
        for folder in [&bin, &lib, &deps] {
            std::fs::create_dir(folder).unwrap();
        }
        assert!(Place::from(None, &bin).err().unwrap().contains("CCLX_LIBRARY"));
        for folder in [&deps, &lib, &bin] {
            std::fs::write(folder.join(LIBRARY), "").unwrap();
            let place = Place::from(None, &bin).unwrap();
            assert_eq!((place.library, place.audit), (folder.join(LIBRARY), None));
        }
        std::fs::write(lib.join(AUDIT), "").unwrap();
        assert_eq!(Place::from(None, &bin).unwrap().audit, Some(lib.join(AUDIT)));
        let named = Place::from(Some(lib.join(LIBRARY)), &bin).unwrap();
        assert_eq!((named.library, named.audit), (lib.join(LIBRARY), Some(lib.join(AUDIT))));
        for wrong in ["libcclx.so", "/nowhere/libcclx.so"] {
            assert!(Place::from(Some(wrong.into()), &bin).err().unwrap().contains(wrong));
        }
    }
}
