//! Configuration: what can be set, and what holds where nobody sets it. How an environment says it is in [`VARIABLES`].

mod variables;

pub use variables::{VARIABLES, Variable, environment_markdown};

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::protocol::MAX_WIRES;
use crate::{Order, Result};

/// An enumeration of words that a variable accepts.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$entry:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$entry])* $variant,)+ }

        impl $name {
            const WORDS: &[&str] = &[$($word),+];

            fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($name::$variant => $word,)+ })
            }
        }
    };
}

words! {
    /// Which driver's devices are used.
    DeviceChoice {
        /// Intel's if there is one, else the software driver.
        Auto = "auto",
        /// The software driver.
        Soft = "soft",
        /// Intel's driver; without one, an error.
        Intel = "intel",
        /// Whatever driver with kernels of ours the system's loader offers; without one, an error.
        Loader = "loader",
    }
}

words! {
    /// What happens once a collective fails.
    OnError {
        /// The process ends with one message.
        Abort = "abort",
        /// The failure is logged and returned to every later caller.
        Log = "log",
    }
}

words! {
    /// Kind of Level Zero events.
    EventChoice {
        /// Counter-based ones where the driver has them.
        Auto = "auto",
        /// Counter-based ones; without them, an error.
        Counter = "counter",
        /// Regular ones.
        Regular = "regular",
    }
}

words! {
    /// Algorithm of an all-reduce.
    Algorithm {
        /// By the table of the device's family.
        Auto = "auto",
        /// 2(n-1) hops of chunks.
        Ring = "ring",
        /// Everybody sends each owner its share, which sends everybody the result.
        Mesh = "mesh",
        /// Everybody sends everybody its whole message.
        OneShot = "oneshot",
        /// Registered buffers are read and written where they are.
        Direct = "direct",
    }
}

words! {
    /// How the data of a push algorithm travels.
    TransportChoice {
        /// In bulk where that may be and pays, else on lines.
        Auto = "auto",
        /// Data and flag in one store.
        Lines = "lines",
        /// Data, then a flag.
        Bulk = "bulk",
    }
}

words! {
    /// How IPC descriptors travel between processes.
    IpcExchange {
        /// Over the control sockets.
        Sockets = "sockets",
    }
}

words! {
    /// What is verified while collectives run.
    Check {
        /// Arguments only, as always.
        Off = "off",
        /// Also that each buffer lies within one allocation of the device's context, before anything is enqueued.
        Local = "local",
        /// Also, on the device and at the start of every call (a replayed one too), that all ranks make the same call.
        Global = "global",
    }
}

words! {
    /// Least severity that is logged.
    LogLevel {
        /// Failures.
        Error = "error",
        /// And what a user should know.
        Warn = "warn",
        /// And what was chosen.
        Info = "info",
        /// And what happens.
        Debug = "debug",
        /// And every step of it.
        Trace = "trace",
    }
}

/// Everything that the environment decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `CCLX_DEVICE`
    pub device: DeviceChoice,
    /// `CCLX_ORDER`
    pub order: Order,
    /// `CCLX_TIMEOUT_MS`
    pub timeout: Duration,
    /// `CCLX_ON_ERROR`; unset, the API that is in use decides.
    pub on_error: Option<OnError>,
    /// `CCLX_ALLOW_SHARED_DEVICE`
    pub allow_shared_device: bool,
    /// `CCLX_STAGING_TILES`
    pub staging_tiles: u32,
    /// `CCLX_PUSH_TILES`; 0, unset: what suits the devices ([`Slots`](crate::topology::Slots)).
    pub push_tiles: u32,
    /// `CCLX_BULK_BYTES`; 0, unset: likewise.
    pub bulk_bytes: u32,
    /// `CCLX_MAX_WIRES`
    pub max_wires: u32,
    /// `CCLX_GRANULE` in bytes; 0, as wide as the links allow.
    pub granule: u32,
    /// `CCLX_EVENTS`
    pub events: EventChoice,
    /// `CCLX_CHECK`
    pub check: Check,
    /// `CCLX_CAPTURE`
    pub capture: Option<PathBuf>,
    /// `CCLX_CAPTURE_LIMIT` in MiB
    pub capture_limit: u32,
    /// `CCLX_WITNESS`
    pub witness: Option<PathBuf>,
    /// `CCLX_WITNESS_SHARE` in percent
    pub witness_share: u32,
    /// `CCLX_WITNESS_OVERHEAD` in percent
    pub witness_overhead: Option<u32>,
    /// `CCLX_WITNESS_REPORT`
    pub witness_report: Option<PathBuf>,
    /// `CCLX_WITNESS_CORPUS`
    pub witness_corpus: Option<PathBuf>,
    /// `CCLX_LIBRARY`
    pub library: Option<PathBuf>,
    /// `CCLX_REPORT`
    pub report: Option<PathBuf>,
    /// `CCL_ALLREDUCE`
    pub allreduce: Algorithm,
    /// `CCLX_TRANSPORT`
    pub transport: TransportChoice,
    /// `CCL_TOPO_P2P_ACCESS`
    pub p2p_access: bool,
    /// `CCL_ZE_IPC_EXCHANGE`
    pub ipc_exchange: IpcExchange,
    /// `CCL_KVS_CONNECTION_TIMEOUT`
    pub connection_timeout: Duration,
    /// `CCL_LOG_LEVEL`
    pub log_level: LogLevel,
    /// `CCL_LOG_FILE`
    pub log_file: Option<PathBuf>,
    /// `LOCAL_RANK`
    pub local_rank: Option<u32>,
    /// `LOCAL_WORLD_SIZE`
    pub local_world_size: Option<u32>,
    /// The `CCL_` variables that are set and have no effect here, sorted.
    pub ignored: Vec<String>,
}

impl Default for Config {
    /// What holds when no variable is set.
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            order: Order::Ring,
            timeout: Duration::from_millis(60_000),
            on_error: None,
            allow_shared_device: false,
            // A slot of 1 MiB with the widest lines (1.9 MiB with the narrowest) stays in a second-level cache; the
            // 14 slots of 8 ranks take 14 MiB (26 MiB).
            staging_tiles: 256,
            push_tiles: 0,
            bulk_bytes: 0,
            max_wires: MAX_WIRES as u32,
            granule: 0,
            events: EventChoice::Auto,
            check: Check::Off,
            capture: None,
            capture_limit: 1024,
            witness: None,
            witness_share: 100,
            witness_overhead: None,
            witness_report: None,
            witness_corpus: None,
            library: None,
            report: None,
            allreduce: Algorithm::Auto,
            transport: TransportChoice::Auto,
            p2p_access: true,
            ipc_exchange: IpcExchange::Sockets,
            connection_timeout: Duration::from_secs(120),
            log_level: LogLevel::Warn,
            log_file: None,
            local_rank: None,
            local_world_size: None,
            ignored: Vec::new(),
        }
    }
}

impl Config {
    /// Whether every value is one that its variable accepts; a configuration need not come from the environment.
    pub fn check(&self) -> Result<()> {
        // Written as text they lose what is below their unit.
        let up = |time: Duration, unit: Duration| time.saturating_add(unit - Duration::from_nanos(1));
        let rounded = Config {
            timeout: up(self.timeout, Duration::from_millis(1)),
            connection_timeout: up(self.connection_timeout, Duration::from_secs(1)),
            ..self.clone()
        };
        let mut copy = self.clone();
        for variable in VARIABLES {
            if let Some(value) = variable.value(&rounded) {
                variable.parse(&mut copy, &value)?;
            }
        }
        Ok(())
    }

    /// The `CCL_` variables that are set and have no effect here, sorted.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The variables that must be alike on all ranks, with their values: what [`Config::hash`] covers.
    pub fn alike(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        VARIABLES.iter().filter(|v| v.alike).map(|v| (v.name, v.value(self).unwrap_or_default()))
    }

    /// Differs between two ranks if a variable that must be alike does (but for a chance of 1 in 2^64).
    pub fn hash(&self) -> u64 {
        let mut hash = Sha256::new();
        for (name, value) in self.alike() {
            // Neither a name nor such a value holds these separators.
            hash.update(format!("{name}={value}\n"));
        }
        let digest = hash.finalize();
        digest.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte))
    }
}
