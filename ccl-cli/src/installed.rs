//! Libraries of oneCCL and of torch that are installed here, where a process would look for them.

use serde::Serialize;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a helper program may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A library of oneCCL's name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Library {
    #[serde(serialize_with = "crate::output::path")]
    pub(crate) path: PathBuf,
    /// Where it was found.
    pub(crate) place: String,
    /// It is this project's.
    pub(crate) ours: bool,
}

/// A torch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Torch {
    #[serde(serialize_with = "crate::output::path")]
    pub(crate) folder: PathBuf,
    pub(crate) version: String,
    /// It was built for Intel GPUs.
    pub(crate) xpu: bool,
    /// What it takes of oneCCL, in words.
    pub(crate) api: String,
    /// That is the C++ API alone.
    pub(crate) out_of_reach: bool,
}

/// Names by which programs ask.
const NAMES: [&str; 2] = ["libccl.so.2", "libccl.so"];

/// Folders with what they are, in the order in which the dynamic linker would look, then others in which oneCCL is installed.
fn folders(python: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for folder in list("LD_LIBRARY_PATH", &[':', ';']) {
        all.push(("LD_LIBRARY_PATH".into(), folder));
    }
    for path in python {
        all.push((format!("beside torch in {}", path.display()), path.join("torch/lib")));
        // Where a wheel's own libraries go: the prefix's folder of libraries.
        if let Some(lib) = path.parent().and_then(Path::parent) {
            all.push((format!("the Python environment of {}", path.display()), lib.to_owned()));
        }
    }
    if let Some(root) = std::env::var_os("CCL_ROOT") {
        all.push(("CCL_ROOT".into(), PathBuf::from(root).join("lib")));
    }
    all.push(("oneAPI".into(), "/opt/intel/oneapi/ccl/latest/lib".into()));
    all
}

/// All that are found, each file once.
pub(crate) fn libraries(python: &[PathBuf]) -> Vec<Library> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for path in list("LD_PRELOAD", &[':', ' ']) {
        if path.to_string_lossy().contains("libccl") {
            found.push(("LD_PRELOAD".into(), path));
        }
    }
    for (place, folder) in folders(python) {
        found.extend(NAMES.iter().map(|name| (place.clone(), folder.join(name))));
    }
    found.extend(cached().into_iter().map(|path| ("the linker's cache".to_owned(), path)));
    let mut all: Vec<Library> = Vec::new();
    for (place, path) in found {
        let Ok(real) = path.canonicalize() else { continue };
        let known = all.iter().any(|library| library.path.canonicalize().ok().as_ref() == Some(&real));
        if !known && real.is_file() && !is_version_1(&real) {
            all.push(Library { ours: is_ours(&real), path, place });
        }
    }
    all
}

/// The first library of oneCCL's own.
pub(crate) fn real_library() -> Option<PathBuf> {
    libraries(&python_path()).into_iter().find(|library| !library.ours).map(|library| library.path)
}

fn is_version_1(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so.1"))
}

/// It exports what only this library does.
pub(crate) fn is_ours(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let name = b"\0cclxCommLookup\0";
    bytes.windows(name.len()).any(|window| window == name)
}

/// torch's folders among those where Python looks.
pub(crate) fn torches(python: &[PathBuf]) -> Vec<Torch> {
    let found = python.iter().filter_map(|path| {
        let folder = path.join("torch");
        let text = std::fs::read_to_string(folder.join("version.py")).ok()?;
        let line = text.lines().find(|line| line.starts_with("__version__"))?;
        let version = line.split(['\'', '"']).nth(1)?.to_owned();
        let xpu = folder.join("lib/libtorch_xpu.so").exists();
        let (api, out_of_reach) = (api_of(&version, xpu), xpu && is_out_of_reach(&version));
        Some(Torch { folder, version, xpu, api, out_of_reach })
    });
    found.collect()
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split(['.', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn is_out_of_reach(version: &str) -> bool {
    matches!(numbers(version), (2, 8..=10))
}

/// What a torch of this version takes of oneCCL.
fn api_of(version: &str, xpu: bool) -> String {
    let text = match numbers(version) {
        _ if !xpu => "not built for Intel GPUs: it does not use oneCCL",
        (2, 8..=10) => "oneCCL's C++ API only, which this library can't stand in for: torch 2.11 or later is needed",
        (2, 11..=13) => "oneCCL's C API if USE_CCL_V2=1 (`ccl run` sets it), else the C++ API",
        (2, 14..) => "oneCCL's C API",
        (0..=2, _) => "before oneCCL was part of torch",
        _ => "a version that is not known here",
    };
    text.into()
}

/// Where the first `python3`, or `python`, of PATH looks for modules.
pub(crate) fn python_path() -> Vec<PathBuf> {
    const ASK: &str = "import sys; print('\\n'.join(sys.path))";
    for program in ["python3", "python"] {
        let mut command = Command::new(program);
        command.args(["-B", "-c", ASK]).current_dir("/");
        if let Some(text) = output(&mut command) {
            return text.lines().filter(|line| line.starts_with('/')).map(PathBuf::from).collect();
        }
    }
    Vec::new()
}

/// Files of these names in the linker's cache.
fn cached() -> Vec<PathBuf> {
    let programs = ["/sbin/ldconfig", "ldconfig"];
    let text = programs.iter().find_map(|program| output(Command::new(program).arg("-p"))).unwrap_or_default();
    let line = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        NAMES.contains(&name.split(' ').next()?).then(|| PathBuf::from(path))
    };
    text.lines().filter_map(line).collect()
}

/// What a program prints, if it ends well and in time.
fn output(command: &mut Command) -> Option<String> {
    // What is put into other processes has no business in these.
    for name in ["LD_AUDIT", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut out = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        _ = out.read_to_end(&mut text);
        text
    });
    let until = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                _ = child.kill();
                _ = child.wait();
                return None;
            }
        }
    };
    let text = reader.join().ok()?;
    status.success().then(|| String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn list(name: &str, separators: &[char]) -> Vec<PathBuf> {
    let text = std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    text.split(separators).filter(|part| !part.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_torch_takes() {
        for (version, part) in [
            ("2.8.0+xpu", "C++ API only"),
            ("2.10.1+xpu", "C++ API only"),
            ("2.11.0+xpu", "USE_CCL_V2=1"),
            ("2.13.0.dev20260801+xpu", "USE_CCL_V2=1"),
            ("2.14.0+xpu", "oneCCL's C API"),
            ("2.7.1", "before"),
            ("3.0.0", "not known"),
        ] {
            assert!(api_of(version, true).contains(part), "{version}: {}", api_of(version, true));
        }
        assert!(api_of("2.14.0+cpu", false).contains("not built"));
        assert!(is_out_of_reach("2.9.0+xpu") && !is_out_of_reach("2.11.0+xpu"));
    }
}
