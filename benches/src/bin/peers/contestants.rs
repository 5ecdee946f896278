//! Who is compared, and how its ranks are started.

use crate::data::Type;
use crate::floors;
use ccl_core::bootstrap::{RootOptions, UniqueId};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a contestant is compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Ours,
    Peer,
    Floor,
}

/// The ranks of one library; between its turns they sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Group {
    Ours,
    Impi,
    Mpich,
    Gloo,
    Oneccl,
    Floors,
}

/// One row of the comparison: a group in one of its ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contestant {
    pub(crate) group: Group,
    pub(crate) variant: &'static str,
    pub(crate) title: &'static str,
    pub(crate) role: Role,
    pub(crate) types: &'static [Type],
}

const BOTH: &[Type] = &Type::ALL;

pub(crate) const CONTESTANTS: [Contestant; 10] = [
    Contestant { group: Group::Ours, variant: "staged", title: "ours", role: Role::Ours, types: BOTH },
    Contestant { group: Group::Ours, variant: "registered", title: "ours, registered", role: Role::Ours, types: BOTH },
    Contestant { group: Group::Impi, variant: "own", title: "Intel MPI", role: Role::Peer, types: BOTH },
    Contestant {
        group: Group::Impi,
        variant: "op",
        title: "Intel MPI, AVX2 op",
        role: Role::Peer,
        types: &[Type::Bfloat16],
    },
    Contestant { group: Group::Mpich, variant: "own", title: "MPICH", role: Role::Peer, types: BOTH },
    Contestant { group: Group::Gloo, variant: "own", title: "gloo", role: Role::Peer, types: BOTH },
    Contestant { group: Group::Oneccl, variant: "own", title: "oneCCL CPU", role: Role::Peer, types: BOTH },
    Contestant { group: Group::Floors, variant: "direct", title: "floor D", role: Role::Floor, types: BOTH },
    Contestant { group: Group::Floors, variant: "staged", title: "floor Fs", role: Role::Floor, types: BOTH },
    Contestant { group: Group::Floors, variant: "barrier", title: "flag barrier", role: Role::Floor, types: BOTH },
];

impl Group {
    pub(crate) const ALL: [Group; 6] =
        [Group::Ours, Group::Impi, Group::Mpich, Group::Gloo, Group::Oneccl, Group::Floors];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Ours => "ours",
            Group::Impi => "impi",
            Group::Mpich => "mpich",
            Group::Gloo => "gloo",
            Group::Oneccl => "oneccl",
            Group::Floors => "floors",
        }
    }

    /// Files below the bed without which it can't be started.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Group::Ours | Group::Floors => &[],
            Group::Impi => &["bin/impi", "impi/bin/mpiexec.hydra", "impi/lib/libmpi.so.12"],
            Group::Mpich => &["bin/mpich", "mpich/bin/mpiexec.hydra", "mpich/lib/libmpi.so.12"],
            Group::Gloo => &["bin/libdata.so", "torch/torch/__init__.py", "python"],
            Group::Oneccl => &[
                "bin/oneccl",
                "oneccl/lib/libccl.so.2",
                "oneccl/lib/ccl/cpu/lib/libccl.so.1",
                "impi/bin/mpiexec.hydra",
            ],
        }
    }

    /// What of it is missing. An absent peer is a failure: without it "faster than every peer" means nothing.
    pub(crate) fn missing(self, bed: &Path) -> Vec<PathBuf> {
        self.needs().iter().map(|file| bed.join(file)).filter(|file| !file.exists()).collect()
    }
}

/// What the ranks are started with.
pub(crate) struct Setting<'a> {
    pub(crate) ranks: usize,
    pub(crate) max_bytes: usize,
    pub(crate) bed: &'a Path,
    /// The folder of the scripts, `benches/peers`.
    pub(crate) scripts: &'a Path,
    pub(crate) socket: &'a Path,
}

/// Processes of a group, ended with it.
pub(crate) struct Started {
    children: Vec<Child>,
    /// Kept for as long as ranks may want it.
    _floors: Option<OwnedFd>,
}

impl Started {
    /// A word on those that have ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.children.iter_mut().find_map(|child| child.try_wait().ok().flatten()).map(|status| status.to_string())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(3);
        for child in &mut self.children {
            while std::time::Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            if matches!(child.try_wait(), Ok(None)) {
                // With what a launcher has started: each has a process group of its own.
                // SAFETY: takes numbers only; the child is not reaped, so its id is its own.
                unsafe { libc::killpg(child.id() as i32, libc::SIGKILL) };
                let _ = child.wait();
            }
        }
    }
}

/// Starts the ranks of a group.
pub(crate) fn start(group: Group, setting: &Setting<'_>) -> Result<Started, String> {
    let bed = setting.bed;
    let numbers = [setting.ranks.to_string(), setting.max_bytes.to_string()];
    let [ranks, max_bytes] = &numbers;
    let launcher = |library: &str| {
        let mut command = Command::new(bed.join(library).join("bin/mpiexec.hydra"));
        command.args(["-n", ranks]).arg(bed.join("bin").join(group.name())).args([group.name(), max_bytes]);
        command
    };
    let intel = |command: &mut Command| {
        // The ranks choose their cores themselves, alike for all contestants.
        command.env("I_MPI_ROOT", bed.join("impi")).env("I_MPI_FABRICS", "shm").env("I_MPI_PIN", "off");
    };
    let mut floors = None;
    let mut commands = Vec::new();
    match group {
        Group::Impi => {
            let mut command = launcher("impi");
            intel(&mut command);
            commands.push(command);
        }
        Group::Mpich => commands.push(launcher("mpich")),
        Group::Oneccl => {
            let mut command = launcher("impi");
            intel(&mut command);
            command.env("CCL_PLUGIN", "ONECCL_LEGACY_CPU").env("CCL_ATL_TRANSPORT", "mpi");
            // Its own threads would share the ranks' cores.
            command.env("CCL_WORKER_OFFLOAD", "0").env("CCL_LOG_LEVEL", "error");
            command.env(
                "LD_LIBRARY_PATH",
                std::env::join_paths([bed.join("oneccl/lib"), bed.join("impi/lib")]).map_err(|e| e.to_string())?,
            );
            commands.push(command);
        }
        Group::Gloo => {
            let python = std::fs::read_to_string(bed.join("python")).map_err(|error| error.to_string())?;
            let store = setting.socket.with_extension("store");
            for rank in 0..setting.ranks {
                let mut command = Command::new(python.trim());
                command.arg(setting.scripts.join("gloo.py")).args([group.name(), max_bytes, &rank.to_string(), ranks]);
                command.arg(&store).arg(bed.join("bin/libdata.so")).env("PYTHONPATH", bed.join("torch"));
                command.env("GLOO_SOCKET_IFNAME", "lo");
                commands.push(command);
            }
        }
        Group::Ours | Group::Floors => {
            let own = |rank: usize| -> Result<Command, String> {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(program);
                command.args(["rank", group.name(), &rank.to_string(), ranks, max_bytes]);
                Ok(command)
            };
            if group == Group::Floors {
                let memory = floors::share(setting.ranks, setting.max_bytes)?;
                for rank in 0..setting.ranks {
                    let mut command = own(rank)?;
                    command.env("PEERS_FLOORS", memory.as_raw_fd().to_string());
                    commands.push(command);
                }
                floors = Some(memory);
            } else {
                // This process, which is no rank, serves the rendezvous.
                let id = UniqueId::create(RootOptions::default()).map_err(|error| error.to_string())?;
                let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                for rank in 0..setting.ranks {
                    let mut command = own(rank)?;
                    command.env("PEERS_ID", &hex).env("LOCAL_RANK", rank.to_string());
                    command.env("LOCAL_WORLD_SIZE", ranks).env("ZE_SOFT_DEVICES", setting.ranks.max(2).to_string());
                    commands.push(command);
                }
            }
        }
    }
    let mut started = Started { children: Vec::new(), _floors: floors };
    for mut command in commands {
        command.env("PEERS_SOCKET", setting.socket).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        started.children.push(child);
    }
    Ok(started)
}
