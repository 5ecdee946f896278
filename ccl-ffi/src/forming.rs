//! How communicators come to be: now, at the end of a group, or while the caller does something else.

use crate::abi::{CONFIG_MAGIC, OnecclConfig, UNDEFINED};
use crate::entry::{Code, IN_PROGRESS, SUCCESS};
use crate::group;
use crate::handle::{Live, OnecclComm};
use crate::host::HostPath;
use crate::lookup;
use crate::presence;
use crate::settings;
use ccl_core::bootstrap::UniqueId;
use ccl_core::config::Config;
use ccl_core::protocol::MAX_WIRES;
use ccl_core::{Error, Result};
use ccl_ze::{Builder, Communicator, PlaceInLine, hooks};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Where a communicator comes from.
pub(crate) enum From {
    Id { id: Box<UniqueId>, rank: usize, world_size: usize, device: Option<usize> },
    Parent { parent: Arc<Live>, color: Option<u32>, key: i32 },
}

/// What a communicator is to be.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) config: Config,
    pub(crate) blocking: bool,
}

/// A communicator that is to be made.
pub(crate) struct Making {
    from: From,
    wish: Wish,
    /// None where this rank has no part in it.
    handle: Option<&'static OnecclComm>,
}

/// When a communicator is made, in the order of the calls.
struct Turn {
    /// In the line for its device.
    place: Option<PlaceInLine>,
    /// This rank's count of the parent's splits; 0 without a parent.
    split: u64,
}

impl Wish {
    /// What a caller's configuration changes about `self`.
    ///
    /// # Safety
    /// `given` is null or points to as many bytes as it says.
    pub(crate) unsafe fn with(mut self, given: *const OnecclConfig) -> Result<Wish> {
        if given.is_null() {
            return Ok(self);
        }
        // SAFETY: its first fields are there in any version.
        let size = unsafe { (&raw const (*given).size).read() };
        if size == 0 {
            // What oneCCL itself passes for one that wasn't given.
            return Ok(self);
        }
        if size < size_of::<OnecclConfig>() {
            return Err(Error::InvalidArgument(format!("a configuration of {size} bytes; this version's has 56")));
        }
        // SAFETY: it has at least the bytes that this version knows.
        let given = unsafe { given.read() };
        if given.magic != CONFIG_MAGIC {
            return Err(Error::InvalidArgument(format!("a configuration marked {:#x}, not initialised", given.magic)));
        }
        // onecclPluginAny, or one of the user's.
        if ![0, 0xF8F8_F8F8].contains(&given.plugin) {
            return Err(Error::NotImplemented(format!(
                "plugin {:#x}: this library has no other within it",
                given.plugin
            )));
        }
        match given.blocking {
            UNDEFINED => {}
            0 => self.blocking = false,
            1 => self.blocking = true,
            other => return Err(Error::InvalidArgument(format!("blocking={other} (0 or 1)"))),
        }
        match given.max_ctas {
            UNDEFINED => {}
            most @ 1.. => self.config.max_wires = (most as u32).min(MAX_WIRES as u32),
            other => return Err(Error::InvalidArgument(format!("maxCTAs={other}"))),
        }
        let hints = [given.cga_cluster_size, given.min_ctas, given.split_share].iter().any(|hint| *hint != UNDEFINED);
        if hints || !given.net_name.is_null() {
            tracing::info!("cgaClusterSize, minCTAs, splitShare and netName are hints that have no effect here");
        }
        Ok(self)
    }
}

impl Making {
    /// A communicator to be, and its handle; none for a rank that names no colour.
    pub(crate) fn new(from: From, wish: Wish) -> Result<(Making, Option<&'static OnecclComm>)> {
        let part = !matches!(from, From::Parent { color: None, .. });
        let id = match &from {
            From::Id { id, .. } => Some(lookup::digest(id.as_bytes())),
            From::Parent { .. } => None,
        };
        let handle = if part { Some(OnecclComm::forming(&wish.config, id)?) } else { None };
        Ok((Making { from, wish, handle }, handle))
    }

    /// Makes it: at the end of this thread's group if there is one, on a thread of its own if the caller does not want to
    /// wait, else now.
    pub(crate) fn begin(self) -> Result<Code> {
        let Some(making) = group::defer(self) else { return Ok(SUCCESS) };
        let turn = making.turn();
        if making.wish.blocking {
            return making.run(turn).map(|()| SUCCESS);
        }
        making.spawn(turn)?;
        Ok(IN_PROGRESS)
    }

    /// The next turn, to be taken in the order of the calls. Only once it is going to be made: ranks whose counts of splits
    /// differ could not split.
    fn turn(&self) -> Turn {
        let (what, parent, split) = match &self.from {
            From::Id { rank, world_size, .. } => (format!("rank {rank} of {world_size} (from a unique id)"), None, 0),
            From::Parent { parent, .. } => {
                let (name, rank) = (parent.name, parent.comm.rank());
                (format!("a split of communicator {name:08x}"), Some((name, rank)), parent.comm.next_split())
            }
        };
        let lines_up = !hooks::makings_at_once() && settings::may_use_driver().is_ok();
        Turn { place: lines_up.then(|| PlaceInLine::take(what, parent)), split }
    }

    fn spawn(self, turn: Turn) -> Result<std::thread::JoinHandle<Result<()>>> {
        let handle = self.handle;
        let late = hooks::how_late_a_making_is();
        let body = move || {
            std::thread::sleep(late);
            self.run(turn)
        };
        let thread = std::thread::Builder::new().name("cclx-init".into()).spawn(body);
        thread.map_err(|error| {
            let error = Error::system("a thread that makes a communicator", error);
            // Nobody else will say so.
            handle.map(|handle| handle.formed(Err(error.clone())));
            error
        })
    }

    /// Makes several at once: they may be ranks of one group. The first failure.
    pub(crate) fn run_all(all: Vec<Making>) -> Result<()> {
        let turns: Vec<_> = all.iter().map(Making::turn).collect();
        let threads: Vec<_> = all.into_iter().zip(turns).map(|(making, turn)| making.spawn(turn)).collect();
        let panicked = |_| Err(Error::Internal("a panic while a communicator was made".into()));
        let ends: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.and_then(|thread| thread.join().unwrap_or_else(panicked)))
            .collect();
        ends.into_iter().collect()
    }

    fn run(self, turn: Turn) -> Result<()> {
        let Making { from, wish, handle } = self;
        let made = catch_unwind(AssertUnwindSafe(|| Self::form(from, &wish, handle, turn)))
            .unwrap_or_else(|_| Err(Error::Internal("a panic while a communicator was made".into())));
        match (handle, made) {
            (Some(handle), Ok(Some(live))) => handle.formed(Ok(live)),
            (Some(handle), Ok(None)) => handle.formed(Err(Error::Internal("a split left this rank out".into()))),
            (Some(handle), Err(error)) => handle.formed(Err(error)),
            (None, made) => made.map(drop),
        }
    }

    fn form(from: From, wish: &Wish, handle: Option<&'static OnecclComm>, turn: Turn) -> Result<Option<Live>> {
        settings::may_use_driver()?;
        let config = wish.config.clone();
        let ledger = handle.map(|handle| handle.ledger.clone());
        let told = ledger.clone();
        let on_fault = move |error: &Error| {
            if let Some(ledger) = &told {
                ledger.failed(error);
            }
        };
        let in_line = |builder: Builder| match turn.place {
            Some(place) => builder.place(place),
            None => builder,
        };
        let comm = match from {
            From::Id { id, rank, world_size, device } => {
                let mut builder = Communicator::builder_with(config).on_fault(on_fault);
                if let Some(device) = device {
                    builder = builder.device(device);
                }
                Some(in_line(builder).init(&id, rank, world_size)?)
            }
            From::Parent { parent, color, key } => {
                let builder = in_line(parent.comm.again().config(config).on_fault(on_fault));
                parent.comm.split_as(turn.split, color, key, builder)?
            }
        };
        let Some(comm) = comm else { return Ok(None) };
        let seen = comm.describe();
        if let Some(ledger) = ledger {
            ledger.introduce(comm.rank(), comm.world_size(), seen.name);
            presence::formed(comm.rank(), comm.world_size(), &seen);
            tracing::info!("{} is on {} ({}), device {}", ledger.who(), seen.device, seen.driver, seen.device_index);
        }
        let host = Mutex::new(HostPath::new(&comm)?);
        Ok(Some(Live {
            name: seen.name,
            wish: wish.clone(),
            host,
            queues: Mutex::default(),
            operations: Mutex::default(),
            registered: Mutex::default(),
            comm,
        }))
    }
}
