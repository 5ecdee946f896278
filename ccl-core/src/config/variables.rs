//! The one table of environment variables: what is parsed, what docs/environment.md is generated from, and what
//! [`Config::hash`] covers. Nothing else in the library reads the environment.

use std::fmt;
use std::time::Duration;

use super::{Algorithm, Check, Config, DeviceChoice, EventChoice, IpcExchange, LogLevel, OnError, TransportChoice};
use crate::plan::ring::MAX_SLOT_TILES;
use crate::protocol::{BULK_UNIT, MAX_WIRES};
use crate::{Error, Result};

/// What a variable accepts.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One of `accepted`; those in `absent` have a meaning that this build does not have.
    Word { accepted: &'static [&'static str], absent: &'static [&'static str] },
    /// 0 or 1.
    Flag,
    /// A whole decimal number in this range.
    Number { least: u32, most: u32 },
    /// Any text but none.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Word { accepted, .. } => f.write_str(&accepted.join("|")),
            Kind::Flag => f.write_str("0|1"),
            Kind::Number { least, most } => write!(f, "a whole number from {least} to {most}"),
            Kind::Text => f.write_str("a text that isn't empty"),
        }
    }
}

/// Most tiles of a push line slot: 16 ranks then have 256 MiB of them at most.
const MAX_PUSH_TILES: u32 = 512;
/// Most bytes of a bulk slot: 16 ranks then have 1 GiB of them.
const MAX_BULK_BYTES: u32 = 16 << 20;

/// Puts an accepted text into its field; false if the text is not acceptable after all.
type Set = fn(&mut Config, &str) -> bool;
/// The field as text, `None` where it is unset.
type Show = fn(&Config) -> Option<String>;

/// An environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// One line that says what it does.
    pub help: &'static str,
    /// Whether ranks that differ in it are refused at init.
    pub alike: bool,
    kind: Kind,
    set: Set,
    show: Show,
}

const fn words(accepted: &'static [&'static str]) -> Kind {
    Kind::Word { accepted, absent: &[] }
}

/// Stores what a text was parsed into, if it was.
fn put<T>(field: &mut T, value: Option<T>) -> bool {
    let parsed = value.is_some();
    if let Some(value) = value {
        *field = value;
    }
    parsed
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

fn flag(text: &str) -> Option<bool> {
    matches!(text, "0" | "1").then_some(text == "1")
}

/// All variables that the library reads, in the order of the documentation.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "CCLX_DEVICE",
        help: "Driver whose devices are used; `auto` takes Intel's if there is one, else the software driver.",
        alike: false,
        kind: words(DeviceChoice::WORDS),
        set: |c, text| put(&mut c.device, DeviceChoice::from_word(text)),
        show: |c| Some(c.device.to_string()),
    },
    Variable {
        name: "CCLX_ORDER",
        help: "Order of summation of calls that don't name one; part of the result.",
        alike: true,
        kind: words(&["ring", "rank"]),
        set: |c, text| put(&mut c.order, text.parse().ok()),
        show: |c| Some(c.order.to_string()),
    },
    Variable {
        name: "CCLX_TIMEOUT_MS",
        help: "Milliseconds after which a collective that makes no end is given up.",
        alike: false,
        kind: Kind::Number { least: 1, most: u32::MAX },
        set: |c, text| put(&mut c.timeout, number(text).map(|ms| Duration::from_millis(ms.into()))),
        show: |c| Some(c.timeout.as_millis().to_string()),
    },
    Variable {
        name: "CCLX_ON_ERROR",
        help: "Whether a failed collective ends the process; unset, it does under the C ABI and not under the Rust API.",
        alike: false,
        kind: words(OnError::WORDS),
        set: |c, text| put(&mut c.on_error, OnError::from_word(text).map(Some)),
        show: |c| c.on_error.map(|v| v.to_string()),
    },
    Variable {
        name: "CCLX_ALLOW_SHARED_DEVICE",
        help: "Lets several ranks use one device.",
        alike: true,
        kind: Kind::Flag,
        set: |c, text| put(&mut c.allow_shared_device, flag(text)),
        show: |c| Some(u8::from(c.allow_shared_device).to_string()),
    },
    Variable {
        name: "CCLX_STAGING_TILES",
        help: "Tiles of 3840 data bytes in a staging slot; a rank has 2(n-1) slots, and longer messages go in rounds.",
        alike: true,
        kind: Kind::Number { least: 1, most: MAX_SLOT_TILES },
        set: |c, text| put(&mut c.staging_tiles, number(text)),
        show: |c| Some(c.staging_tiles.to_string()),
    },
    Variable {
        name: "CCLX_PUSH_TILES",
        help: "Tiles of 3840 data bytes in a slot of the one-shot and mesh algorithms by lines; a rank has 4n slots. Unset, 16; 80 on NVIDIA's GPUs.",
        alike: true,
        kind: Kind::Number { least: 1, most: MAX_PUSH_TILES },
        set: |c, text| put(&mut c.push_tiles, number(text)),
        show: |c| (c.push_tiles != 0).then(|| c.push_tiles.to_string()),
    },
    Variable {
        name: "CCLX_BULK_BYTES",
        help: "Bytes of a bulk slot, rounded down to whole pages; a rank has 6n where flags may follow data. Unset, 253952; 8388608 on NVIDIA's GPUs.",
        alike: true,
        kind: Kind::Number { least: BULK_UNIT, most: MAX_BULK_BYTES },
        set: |c, text| put(&mut c.bulk_bytes, number(text)),
        show: |c| (c.bulk_bytes != 0).then(|| c.bulk_bytes.to_string()),
    },
    Variable {
        name: "CCLX_MAX_WIRES",
        help: "Most work-groups that one collective uses.",
        alike: true,
        kind: Kind::Number { least: 1, most: MAX_WIRES as u32 },
        set: |c, text| put(&mut c.max_wires, number(text)),
        show: |c| Some(c.max_wires.to_string()),
    },
    Variable {
        name: "CCLX_GRANULE",
        help: "Bytes of a line on the wire; 0 takes the widest that every device is known to keep whole and no link is seen to tear, on NVIDIA's GPUs 16 at most.",
        alike: true,
        kind: words(&["0", "8", "16", "64"]),
        set: |c, text| put(&mut c.granule, number(text)),
        show: |c| Some(c.granule.to_string()),
    },
    Variable {
        name: "CCLX_EVENTS",
        help: "Kind of Level Zero events; `auto` takes counter-based ones where the driver has them.",
        alike: false,
        kind: words(EventChoice::WORDS),
        set: |c, text| put(&mut c.events, EventChoice::from_word(text)),
        show: |c| Some(c.events.to_string()),
    },
    Variable {
        name: "CCLX_CHECK",
        help: "Verification while collectives run: `local` checks that buffers lie within an allocation, `global` also \
               compares the ranks' calls with one another.",
        alike: true,
        kind: Kind::Word { accepted: Check::WORDS, absent: &["result"] },
        set: |c, text| put(&mut c.check, Check::from_word(text)),
        show: |c| Some(c.check.to_string()),
    },
    Variable {
        name: "CCLX_CAPTURE",
        help: "Folder that the inputs and outputs of eager calls are saved in, for `ccl verify`; each call then waits.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.capture, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.capture.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCLX_CAPTURE_LIMIT",
        help: "MiB that a communicator's calls may take there on each rank; what comes later is not saved.",
        alike: false,
        kind: Kind::Number { least: 1, most: u32::MAX },
        set: |c, text| put(&mut c.capture_limit, number(text)),
        show: |c| Some(c.capture_limit.to_string()),
    },
    Variable {
        name: "CCLX_WITNESS",
        help: "File of the library whose calls `libcclx_witness.so` passes on and compares.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.witness, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.witness.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCLX_WITNESS_SHARE",
        help: "Percent of the calls that the witness compares; 0 compares none and only passes them on.",
        alike: false,
        kind: Kind::Number { least: 0, most: 100 },
        set: |c, text| put(&mut c.witness_share, number(text)),
        show: |c| Some(c.witness_share.to_string()),
    },
    Variable {
        name: "CCLX_WITNESS_OVERHEAD",
        help: "Percent of the time that the witness may take; it compares fewer calls until it does. Unset, no bound.",
        alike: false,
        kind: Kind::Number { least: 1, most: 100 },
        set: |c, text| put(&mut c.witness_overhead, number(text).map(Some)),
        show: |c| c.witness_overhead.map(|v| v.to_string()),
    },
    Variable {
        name: "CCLX_WITNESS_REPORT",
        help: "File to which the witness appends a line of JSON for each rank of each communicator.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.witness_report, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.witness_report.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCLX_WITNESS_CORPUS",
        help: "Folder in which the witness saves the all-reduces that it convicts, as a corpus.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.witness_corpus, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.witness_corpus.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCLX_LIBRARY",
        help: "Absolute path of the library that `ccl run` and its audit library put in oneCCL's place, and that Python's `cclx` loads; unset, the one beside them.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.library, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.library.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCLX_REPORT",
        help: "Folder that each process notes in which library it has and what it runs on; set by `ccl run`.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.report, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.report.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "CCL_ALLREDUCE",
        help: "Algorithm of all-reduce; `auto` chooses by ranks and size, any other is taken or refused.",
        alike: true,
        kind: Kind::Word {
            accepted: Algorithm::WORDS,
            absent: &["rabenseifner", "nreduce", "double_tree", "recursive_doubling", "2d", "topo"],
        },
        set: |c, text| put(&mut c.allreduce, Algorithm::from_word(text)),
        show: |c| Some(c.allreduce.to_string()),
    },
    Variable {
        name: "CCLX_TRANSPORT",
        help: "How one-shot and mesh travel: on lines that carry their flag, or in bulk, where a flag may follow its data.",
        alike: true,
        kind: words(TransportChoice::WORDS),
        set: |c, text| put(&mut c.transport, TransportChoice::from_word(text)),
        show: |c| Some(c.transport.to_string()),
    },
    Variable {
        name: "CCL_TOPO_P2P_ACCESS",
        help: "0 keeps the mailboxes in host memory even where devices reach each other's memory.",
        alike: true,
        kind: Kind::Flag,
        set: |c, text| put(&mut c.p2p_access, flag(text)),
        show: |c| Some(u8::from(c.p2p_access).to_string()),
    },
    Variable {
        name: "CCL_ZE_IPC_EXCHANGE",
        help: "How IPC descriptors travel between processes.",
        alike: true,
        kind: Kind::Word { accepted: IpcExchange::WORDS, absent: &["pidfd", "drmfd"] },
        set: |c, text| put(&mut c.ipc_exchange, IpcExchange::from_word(text)),
        show: |c| Some(c.ipc_exchange.to_string()),
    },
    Variable {
        name: "CCL_KVS_CONNECTION_TIMEOUT",
        help: "Seconds within which all ranks must have joined.",
        alike: false,
        kind: Kind::Number { least: 1, most: u32::MAX },
        set: |c, text| put(&mut c.connection_timeout, number(text).map(|s| Duration::from_secs(s.into()))),
        show: |c| Some(c.connection_timeout.as_secs().to_string()),
    },
    Variable {
        name: "CCL_LOG_LEVEL",
        help: "Least severity that is logged.",
        alike: false,
        kind: words(LogLevel::WORDS),
        set: |c, text| put(&mut c.log_level, LogLevel::from_word(text)),
        show: |c| Some(c.log_level.to_string()),
    },
    Variable {
        name: "CCL_LOG_FILE",
        help: "File that the log is appended to; unset, it goes to standard error.",
        alike: false,
        kind: Kind::Text,
        set: |c, text| put(&mut c.log_file, (!text.is_empty()).then(|| Some(text.into()))),
        show: |c| c.log_file.as_ref().map(|path| path.display().to_string()),
    },
    Variable {
        name: "LOCAL_RANK",
        help: "Number of this process among those of its host, as launchers set it; chooses the device.",
        alike: false,
        kind: Kind::Number { least: 0, most: u16::MAX as u32 },
        set: |c, text| put(&mut c.local_rank, number(text).map(Some)),
        show: |c| c.local_rank.map(|v| v.to_string()),
    },
    Variable {
        name: "LOCAL_WORLD_SIZE",
        help: "Number of processes on this host, as launchers set it.",
        alike: false,
        kind: Kind::Number { least: 1, most: u16::MAX as u32 },
        set: |c, text| put(&mut c.local_world_size, number(text).map(Some)),
        show: |c| c.local_world_size.map(|v| v.to_string()),
    },
];

impl Variable {
    /// What the variable accepts, in words.
    pub fn accepts(&self) -> String {
        self.kind.to_string()
    }

    /// Its value in `config` as text, `None` if it is unset and nothing stands in for it.
    pub fn value(&self, config: &Config) -> Option<String> {
        (self.show)(config)
    }

    /// Parses `text` into `config`.
    pub(super) fn parse(&self, config: &mut Config, text: &str) -> Result<()> {
        let well_formed = match self.kind {
            Kind::Word { accepted, absent } => {
                if absent.contains(&text) {
                    return Err(Error::NotImplemented(format!("{}={text} (accepted: {})", self.name, self.kind)));
                }
                accepted.contains(&text)
            }
            // Only digits: no sign, no space, which parsing might let pass.
            Kind::Number { least, most } => {
                text.bytes().all(|b| b.is_ascii_digit()) && number(text).is_some_and(|v| (least..=most).contains(&v))
            }
            Kind::Flag | Kind::Text => true,
        };
        if well_formed && (self.set)(config, text) { Ok(()) } else { Err(self.refusal(text)) }
    }

    fn refusal(&self, text: &str) -> Error {
        Error::InvalidArgument(format!("{}='{text}' (accepted: {})", self.name, self.kind))
    }
}

impl Config {
    /// Reads this process's environment.
    pub fn from_env() -> Result<Self> {
        let mut vars = Vec::new();
        for (name, value) in std::env::vars_os() {
            // A name that isn't text is none of ours.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => vars.push((name, value)),
                Err(raw) => {
                    if let Some(variable) = VARIABLES.iter().find(|v| v.name == name) {
                        return Err(variable.refusal(&raw.to_string_lossy()));
                    }
                    vars.push((name, String::new()));
                }
            }
        }
        Self::from_vars(vars)
    }

    /// Asks `lookup` for each variable of the table. It can't see names that are not in the table: where a mistyped
    /// name has to be noticed, use [`Config::from_vars`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Self::from_vars(VARIABLES.iter().filter_map(|v| Some((v.name.to_owned(), lookup(v.name)?))))
    }

    /// Parses a whole environment. Variables that are no concern of ours pass; a `CCLX_` name that does not exist is
    /// an error, since a mistyped one must not be silent.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut config = Self::default();
        for (name, value) in vars {
            if let Some(variable) = VARIABLES.iter().find(|v| v.name == name) {
                variable.parse(&mut config, &value)?;
            } else if name.starts_with("CCLX_") {
                let known: Vec<_> = VARIABLES.iter().map(|v| v.name).filter(|n| n.starts_with("CCLX_")).collect();
                return Err(Error::InvalidArgument(format!(
                    "{name} is no known variable (known: {})",
                    known.join(" ")
                )));
            } else if name.starts_with("CCL_") && name != "CCL_PLUGIN" {
                // That one is for oneCCL's own library, and may be why this one is here.
                config.ignored.push(name);
            }
        }
        config.ignored.sort();
        Ok(config)
    }
}

/// docs/environment.md: the table for people.
pub fn environment_markdown() -> String {
    let defaults = Config::default();
    let mut page = String::from(
        "# Environment variables\n\n\
         Generated from the table in ccl-core/src/config/variables.rs; `UPDATE_DOCS=1 cargo test -p ccl-core --test config_docs`\n\
         writes it anew. A value that is not accepted is an error, as is a `CCLX_` variable that does not exist. Any\n\
         other `CCL_` variable is ignored, and said to be. Variables marked *alike* are compared at init: ranks that\n\
         differ are refused. The software driver has variables of its own, which begin with `ZE_SOFT_`.\n\n\
         | variable | accepts | default | alike | meaning |\n|---|---|---|---|---|\n",
    );
    for variable in VARIABLES {
        let accepts = variable.accepts().replace('|', ", ");
        let default = variable.value(&defaults).unwrap_or_else(|| "unset".into());
        let alike = if variable.alike { "alike" } else { "" };
        let absent = match variable.kind {
            Kind::Word { absent: [_, ..], .. } => {
                " Further values that are known by name are refused as not implemented."
            }
            _ => "",
        };
        page += &format!("| `{}` | {accepts} | {default} | {alike} | {}{absent} |\n", variable.name, variable.help);
    }
    page
}
