//! Ways into a process, and what they set in its environment.

use super::place::Place;
use ccl_core::linker;
use std::ffi::{OsStr, OsString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Audit where it works, else preload
    Auto,
    /// LD_AUDIT
    Audit,
    /// LD_PRELOAD and a folder of links
    Preload,
    /// A folder of links, first in LD_LIBRARY_PATH
    Folder,
    /// CCL_PLUGIN, underneath oneCCL's own library
    Plugin,
}

impl Choice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::Audit => "audit",
            Choice::Preload => "preload",
            Choice::Folder => "folder",
            Choice::Plugin => "plugin",
        }
    }
}

/// A way, with what it sets.
pub(crate) struct Route {
    pub(crate) choice: Choice,
    variables: Vec<(OsString, OsString)>,
    /// Why it isn't the first choice.
    because: Option<String>,
}

impl Route {
    /// The way that was asked for, tried out; `scratch` is for its links.
    pub(crate) fn choose(choice: Choice, place: &Place, scratch: &Path) -> Result<Route, String> {
        if choice != Choice::Auto {
            let route = Self::of(choice, place, scratch)?;
            route.tried(place)?;
            return Ok(route);
        }
        match Self::of(Choice::Audit, place, scratch).and_then(|route| route.tried(place).map(|()| route)) {
            Ok(route) => Ok(route),
            Err(reason) => {
                let mut route = Self::of(Choice::Preload, place, scratch)?;
                route.tried(place)?;
                route.because = Some(reason);
                Ok(route)
            }
        }
    }

    fn of(choice: Choice, place: &Place, scratch: &Path) -> Result<Route, String> {
        let mut route = Route { choice, variables: Vec::new(), because: None };
        route.set("CCLX_LIBRARY", &place.library);
        match choice {
            Choice::Auto | Choice::Audit => {
                let audit = place.audit.as_ref().ok_or_else(|| {
                    format!(
                        "there is no libcclx_audit.so beside {}; --route preload goes without",
                        place.library.display()
                    )
                })?;
                route.put_first("LD_AUDIT", audit, ":")?;
            }
            Choice::Preload => {
                route.put_first("LD_PRELOAD", &place.library, ": ")?;
                route.put_first("LD_LIBRARY_PATH", &links(place, scratch)?, ":;")?;
            }
            Choice::Folder => route.put_first("LD_LIBRARY_PATH", &links(place, scratch)?, ":;")?,
            Choice::Plugin => route.set("CCL_PLUGIN", &place.library),
        }
        // torch 2.11 to 2.13 have both of oneCCL's interfaces in them, and take C++ unless told; others don't look at it.
        if std::env::var_os("USE_CCL_V2").is_none() {
            route.set("USE_CCL_V2", "1");
        }
        Ok(route)
    }

    /// Sets a variable of the command's.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.variables.push((name.into(), value.as_ref().to_owned()));
    }

    /// Puts a path before what a list holds.
    fn put_first(&mut self, name: &str, path: &Path, separators: &str) -> Result<(), String> {
        if path.as_os_str().as_bytes().iter().any(|byte| separators.as_bytes().contains(byte)) {
            return Err(format!(
                "{}: {name} can't hold this path; move it to one without blanks and colons",
                path.display()
            ));
        }
        let mut list = path.as_os_str().to_owned();
        if let Some(rest) = std::env::var_os(name).filter(|rest| !rest.is_empty()) {
            list.push(":");
            list.push(rest);
        }
        self.set(name, list);
        Ok(())
    }

    /// Has a process of this program, started this way, tell what it would get. Whether a plugin is taken shows only where
    /// oneCCL's own library is.
    fn tried(&self, place: &Place) -> Result<(), String> {
        if self.choice == Choice::Plugin {
            return Ok(());
        }
        let program = std::env::current_exe().map_err(|error| format!("the path of ccl: {error}"))?;
        let mut command = Command::new(program);
        command.arg(super::PROBE_COMMAND).envs(self.variables());
        let output = command.output().map_err(|error| format!("a process that tries the route: {error}"))?;
        let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && PathBuf::from(&found).canonicalize().ok() == place.library.canonicalize().ok() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let found = if found.is_empty() { said } else { format!("libccl.so.2 is found in {found}") };
        Err(format!("route {} does not take here: {found}", self.choice.name()))
    }

    /// Names the library that makes the calls, beneath the witness.
    pub(crate) fn witness(&mut self) -> Result<(), String> {
        const VARIABLE: &str = "CCLX_WITNESS";
        if self.choice == Choice::Plugin {
            return Err("--witness needs a route that puts it in oneCCL's place; the plugin is beneath it".into());
        }
        if let Some(named) = std::env::var_os(VARIABLE) {
            // Else it is the command's calls that fail, one by one, and few programs say why.
            let path = PathBuf::from(&named)
                .canonicalize()
                .map_err(|error| format!("{VARIABLE}={}: {error}", named.display()))?;
            if !path.is_file() || path.file_name().is_some_and(|name| name == super::place::WITNESS) {
                return Err(format!("{VARIABLE}={}: no library that could make the calls", named.display()));
            }
            self.set(VARIABLE, path);
        } else {
            let real = crate::installed::real_library().ok_or_else(|| {
                format!("--witness: no library of oneCCL's was found; name its libccl.so.2 with {VARIABLE}")
            })?;
            self.set(VARIABLE, real);
        }
        Ok(())
    }

    /// What the command's environment gets.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (&**name, &**value))
    }

    /// For a person, and for a shell.
    pub(crate) fn as_text(&self, command: &[OsString]) -> String {
        let mut text = format!("# route {}\n", self.choice.name());
        if let Some(reason) = &self.because {
            text += &format!("# since {reason}\n");
        }
        for (name, value) in self.variables() {
            text += &format!("{}={} \\\n", name.to_string_lossy(), quoted(value));
        }
        let words: Vec<_> = command.iter().map(|word| quoted(word)).collect();
        text + &words.join(" ") + "\n"
    }

    pub(crate) fn in_words(&self, place: &Place) -> String {
        let library = place.library.display();
        let what = match self.choice {
            Choice::Auto | Choice::Audit => format!("every lookup of libccl.so.2 finds {library}"),
            Choice::Preload => format!("{library} is loaded first; absolute paths of another libccl stay as they are"),
            Choice::Folder => {
                format!(
                    "{library} is found first by name; absolute paths and programs with a DT_RPATH stay as they are"
                )
            }
            Choice::Plugin => format!("oneCCL's own library passes its calls on to {library}"),
        };
        let because = self.because.as_ref().map(|reason| format!(" (since {reason})")).unwrap_or_default();
        format!("route {}: {what}{because}", self.choice.name())
    }
}

/// A folder in which oneCCL's names lead to the library.
fn links(place: &Place, scratch: &Path) -> Result<PathBuf, String> {
    let folder = scratch.join("lib");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir(&folder).map_err(failed)?;
    for name in ["libccl.so", "libccl.so.2"] {
        std::os::unix::fs::symlink(&place.library, folder.join(name)).map_err(failed)?;
    }
    Ok(folder)
}

/// A word for a shell.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=+,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The file that this process gets where it asks for `libccl.so.2`.
pub(crate) fn found_here() -> Result<PathBuf, String> {
    // SAFETY: a terminated name; whatever it is found in was made to be loaded by programs that ask for it.
    let library = unsafe { libc::dlopen(c"libccl.so.2".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(linker::last_error());
    }
    // SAFETY: a library that is loaded, and a terminated name.
    let address: *mut c_void = unsafe { libc::dlsym(library, c"onecclGetVersion".as_ptr()) };
    if address.is_null() {
        return Err("the libccl.so.2 that is found has no onecclGetVersion".into());
    }
    linker::file_of(address as usize).ok_or_else(|| "the linker does not know where libccl.so.2 came from".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        for (word, text) in [("a/b=c", "a/b=c"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'")] {
            assert_eq!(quoted(OsStr::new(word)), text);
        }
    }
}
