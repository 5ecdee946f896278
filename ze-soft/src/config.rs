//! The only reader of this driver's environment.
//!
//! | variable | values | default |
//! |---|---|---|
//! | `ZE_SOFT_DEVICES` | how many devices there are, 1 to 64 | 4 |
//! | `ZE_SOFT_ENGINE` | `native`: modules are native functions only; `opencl`: SPIR-V modules as well, which an OpenCL runtime for the CPU executes; `cuda`: SPIR-V modules only, which NVIDIA's GPUs execute | `native` |
//! | `ZE_SOFT_OPENCL_CACHE` | a folder that keeps what the OpenCL runtime compiles, for the next process | none: every process compiles |
//! | `ZE_SOFT_CUDA_MODULES` | a folder with the SPIR-V modules' counterparts for NVIDIA's GPUs, by the SHA-256 of the SPIR-V | none: the engine `cuda` has no modules |
//! | `ZE_SOFT_P2P` | `all`, `none`, or `ring`: a device reaches only the one before and the one after it | `all` |
//! | `ZE_SOFT_COMPUTE_UNITS` | the most work-groups of a cooperative launch, 1 to 65536 | 8; with the engine `cuda` the device's share of the GPU |
//! | `ZE_AFFINITY_MASK` | which devices are seen, as the specification says: `0,2`; `1.0` means device 1, which has no sub-devices | all |
//!
//! A value that can't be read costs one line on the standard error stream, and the default holds.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The most devices there can be.
pub(crate) const MAX_DEVICES: u32 = 64;

/// Which devices reach each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum P2p {
    All,
    None,
    Ring,
}

/// What executes kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Native,
    OpenCl,
    Cuda,
}

/// What the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) devices: u32,
    /// The devices that this process sees, ascending.
    pub(crate) visible: Vec<u32>,
    pub(crate) p2p: P2p,
    pub(crate) engine: Engine,
    pub(crate) opencl_cache: Option<PathBuf>,
    pub(crate) cuda_modules: Option<PathBuf>,
    /// If it was said.
    pub(crate) compute_units: Option<u32>,
}

impl Config {
    /// The most work-groups of a cooperative launch on a processor.
    pub(crate) fn compute_units(&self) -> u32 {
        self.compute_units.unwrap_or(8)
    }

    /// Whether device `a` reaches the memory of device `b`; devices are numbered as without an affinity mask.
    pub(crate) fn reaches(&self, a: u32, b: u32) -> bool {
        let next = |device: u32| (device + 1) % self.devices;
        a == b
            || match self.p2p {
                P2p::All => true,
                P2p::None => false,
                P2p::Ring => next(a) == b || next(b) == a,
            }
    }

    /// Reads the variables through `variable`; complaints go to `warn`.
    fn read(variable: impl Fn(&str) -> Option<String>, mut warn: impl FnMut(String)) -> Self {
        let mut number = |name: &str, default: u32, max: u32| match variable(name) {
            None => default,
            Some(text) => match text.trim().parse() {
                Ok(value) if (1..=max).contains(&value) => value,
                _ => {
                    warn(format!("{name}={text} is not a number from 1 to {max}; using {default}"));
                    default
                }
            },
        };
        let devices = number("ZE_SOFT_DEVICES", 4, MAX_DEVICES);
        let said = variable("ZE_SOFT_COMPUTE_UNITS").is_some();
        let compute_units = number("ZE_SOFT_COMPUTE_UNITS", 8, 65536);
        let compute_units = said.then_some(compute_units);
        let p2p = match variable("ZE_SOFT_P2P").as_deref().map(str::trim) {
            None | Some("all") => P2p::All,
            Some("none") => P2p::None,
            Some("ring") => P2p::Ring,
            Some(text) => {
                warn(format!("ZE_SOFT_P2P={text} is none of all, none, ring; using all"));
                P2p::All
            }
        };
        let engine = match variable("ZE_SOFT_ENGINE").as_deref().map(str::trim) {
            None | Some("native") => Engine::Native,
            Some("opencl") => Engine::OpenCl,
            Some("cuda") => Engine::Cuda,
            Some(text) => {
                warn(format!("ZE_SOFT_ENGINE={text} is none of native, opencl, cuda; using native"));
                Engine::Native
            }
        };
        let folder = |name| variable(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let (opencl_cache, cuda_modules) = (folder("ZE_SOFT_OPENCL_CACHE"), folder("ZE_SOFT_CUDA_MODULES"));
        let all = || (0..devices).collect();
        let visible = match variable("ZE_AFFINITY_MASK").as_deref().map(str::trim) {
            None | Some("") => all(),
            Some(text) => match parse_mask(text, devices) {
                Some(visible) => visible,
                None => {
                    warn(format!("ZE_AFFINITY_MASK={text} is not a list of device numbers; showing all devices"));
                    all()
                }
            },
        };
        if visible.is_empty() {
            warn(format!("ZE_AFFINITY_MASK names none of the {devices} devices: there is no device to use"));
        }
        Self { devices, visible, p2p, engine, opencl_cache, cuda_modules, compute_units }
    }
}

/// The devices that a mask shows: numbers beyond the last device are passed over; `None` if it isn't a mask.
fn parse_mask(text: &str, devices: u32) -> Option<Vec<u32>> {
    let mut visible = text
        .split(',')
        .map(|entry| {
            let (root, sub) = entry.trim().split_once('.').unwrap_or((entry.trim(), "0"));
            sub.parse::<u32>().ok()?;
            root.parse().ok()
        })
        .collect::<Option<Vec<u32>>>()?;
    visible.retain(|&device| device < devices);
    visible.sort_unstable();
    visible.dedup();
    Some(visible)
}

/// The configuration of this process, read on first use.
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        Config::read(
            |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
            |text| eprintln!("ze-soft: {text}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let mut warnings = Vec::new();
        let config = Config::read(
            |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()),
            |text| warnings.push(text),
        );
        (config, warnings)
    }

    #[test]
    fn defaults_need_no_environment() {
        let (config, warnings) = read(&[]);
        let (visible, p2p, engine) = (vec![0, 1, 2, 3], P2p::All, Engine::Native);
        let (opencl_cache, cuda_modules, compute_units) = (None, None, None);
        let expected = Config { devices: 4, visible, p2p, engine, opencl_cache, cuda_modules, compute_units };
        assert_eq!(config, expected);
        assert_eq!(config.compute_units(), 8);
        assert!(warnings.is_empty());
    }

    #[test]
    fn masks_follow_the_grammar() {
        let mask = |text| {
            let (config, warnings) = read(&[("ZE_AFFINITY_MASK", text)]);
            (config.visible, warnings.len())
        };
        assert_eq!(mask("2,0"), (vec![0, 2], 0));
        assert_eq!(mask("1.0,1.3, 3"), (vec![1, 3], 0));
        assert_eq!(mask(""), (vec![0, 1, 2, 3], 0));
        assert_eq!(mask("0,9"), (vec![0], 0));
        assert_eq!(mask("9"), (vec![], 1));
        assert_eq!(mask("gpu"), (vec![0, 1, 2, 3], 1));
        assert_eq!(mask("1,"), (vec![0, 1, 2, 3], 1));
        assert_eq!(mask("1.x"), (vec![0, 1, 2, 3], 1));
    }

    #[test]
    fn bad_values_are_named_and_replaced() {
        let (config, warnings) =
            read(&[("ZE_SOFT_DEVICES", "0"), ("ZE_SOFT_P2P", "mesh"), ("ZE_SOFT_COMPUTE_UNITS", "many")]);
        assert_eq!((config.devices, config.p2p, config.compute_units()), (4, P2p::All, 8));
        for (warning, name) in
            warnings.iter().zip(["ZE_SOFT_DEVICES=0", "ZE_SOFT_COMPUTE_UNITS=many", "ZE_SOFT_P2P=mesh"])
        {
            assert!(warning.contains(name), "{warning}");
        }
        assert_eq!(warnings.len(), 3);
    }

    #[test]
    fn an_engine_is_chosen_by_name() {
        let engine = |text| {
            let (config, warnings) = read(&[("ZE_SOFT_ENGINE", text)]);
            (config.engine, warnings.len())
        };
        assert_eq!(engine("native"), (Engine::Native, 0));
        assert_eq!(engine(" opencl"), (Engine::OpenCl, 0));
        assert_eq!(engine("cuda"), (Engine::Cuda, 0));
        assert_eq!(engine("vulkan"), (Engine::Native, 1));
    }

    #[test]
    fn ring_reaches_neighbours_only() {
        let (config, _) = read(&[("ZE_SOFT_DEVICES", "5"), ("ZE_SOFT_P2P", "ring")]);
        let reached: Vec<u32> = (0..5).filter(|&peer| config.reaches(0, peer)).collect();
        assert_eq!(reached, [0, 1, 4]);
        let (config, _) = read(&[("ZE_SOFT_P2P", "none")]);
        assert!(config.reaches(2, 2) && !config.reaches(2, 3));
    }
}
