//! Which library a process that asks for oneCCL's gets here, and why.

use super::report::{OneCcl, Problem};
use super::text::Page;
use crate::installed::{self, is_ours};
use crate::run::found_here;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a process gets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Bound {
    /// None where there is none to be found.
    #[serde(serialize_with = "crate::output::path_if_any")]
    path: Option<PathBuf>,
    /// It is this project's.
    ours: bool,
    /// Why this one, or why none.
    because: String,
}

/// To be asked in a process of its own: the library is loaded.
pub(super) fn bound() -> Bound {
    match found_here() {
        Ok(path) => Bound { ours: is_ours(&path), because: reason(&path), path: Some(path) },
        Err(because) => Bound { path: None, ours: false, because },
    }
}

/// What of the environment leads to this file.
fn reason(path: &Path) -> String {
    let same = |other: &Path| other.canonicalize().ok() == path.canonicalize().ok();
    let list = installed::list;
    if list("LD_AUDIT", &[':']).iter().any(|audit| audit.ends_with("libcclx_audit.so")) {
        "LD_AUDIT has libcclx_audit.so, which leads every lookup there".into()
    } else if list("LD_PRELOAD", &[':', ' ']).iter().any(|preloaded| same(preloaded)) {
        "it is in LD_PRELOAD under the name libccl.so.2".into()
    } else if let Some(folder) =
        list("LD_LIBRARY_PATH", &[':', ';']).iter().find(|folder| same(&folder.join("libccl.so.2")))
    {
        format!("{} is in LD_LIBRARY_PATH", folder.display())
    } else {
        "the linker's cache or its default folders have it".into()
    }
}

pub(super) fn look(bound: super::report::Attempt<Bound>) -> OneCcl {
    let python = installed::python_path();
    OneCcl { libraries: installed::libraries(&python), torches: installed::torches(&python), bound }
}

pub(super) fn problems(section: &OneCcl) -> Vec<Problem> {
    let mut all = Vec::new();
    for torch in section.torches.iter().filter(|torch| torch.out_of_reach) {
        all.push(Problem {
            about: "oneccl",
            text: format!(
                "torch {} in {} uses oneCCL's C++ API, which this library has not.",
                torch.version,
                torch.folder.display()
            ),
            fix: "Take torch 2.11 or later.".into(),
        });
    }
    if let Some(error) = &section.bound.error {
        all.push(Problem {
            about: "oneccl",
            text: format!("A process that asks for libccl.so.2 does not get on here: {error}."),
            fix: "Look at LD_AUDIT, LD_PRELOAD and LD_LIBRARY_PATH, and at the library that they name.".into(),
        });
    }
    all
}

pub(super) fn write(page: &mut Page, section: &OneCcl) {
    page.section("oneCCL, in whose place this library can be (docs/preload.md)");
    for library in &section.libraries {
        let whose = if library.ours { "this library" } else { "oneCCL's" };
        page.line(whose, format!("{} ({})", library.path.display(), library.place));
    }
    if section.libraries.is_empty() {
        page.line("libccl.so.2", "none installed that was found");
    }
    for torch in &section.torches {
        page.line("torch", format!("{} in {}: {}", torch.version, torch.folder.display(), torch.api));
    }
    if section.torches.is_empty() {
        page.line("torch", "none where the first python3 of PATH looks");
    }
    let Some(bound) = &section.bound.result else {
        page.line("a process gets", "it is not known which: see the problems");
        return;
    };
    match &bound.path {
        Some(path) => {
            let whose = if bound.ours { "this library" } else { "NOT this library; `ccl run` would put it there" };
            page.line("a process gets", format!("{}, {whose}", path.display()));
            page.line("since", &bound.because);
        }
        None => page.line("a process gets", "none; `ccl run` would give it this library"),
    }
    page.line("", "A program with a DT_RPATH, or one that names a path, goes by that unless LD_AUDIT leads elsewhere.");
}
