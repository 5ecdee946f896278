//! Rendezvous of the ranks of one host, without any network interface.
//!
//! One process makes a [`UniqueId`] and with it a rendezvous: a listener on an abstract AF_UNIX socket, served by a
//! thread. The id travels to the other ranks by the application's own means. Each rank then calls [`join`]; once all
//! are there, the root makes a socket pair for each pair of ranks and hands them out. What remains is a [`Mesh`]: no
//! file, no port, no thread.
//!
//! Ranks that are threads of one process need none of that: [`local`].

mod id;
mod joiner;
mod root;
mod wire;

pub use id::{UNIQUE_ID_BYTES, UniqueId};
pub use joiner::{decline, join};

use std::time::Duration;

use crate::mesh::{Mesh, Ranks, sys};
use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// Time that [`local`] meshes have for initialisation unless [`Mesh::set_deadline`] says otherwise.
const LOCAL_LIMIT: Duration = Duration::from_secs(120);

/// Limits of a rendezvous.
#[derive(Clone, Debug)]
pub struct RootOptions {
    /// How long the rendezvous waits for the first rank.
    pub idle_limit: Duration,
    /// How long it waits for the others after that, or longer if a rank that waits has a longer timeout.
    pub join_limit: Duration,
    /// How long a connection may take to say who it is.
    pub hello_limit: Duration,
    /// Most connections that have not said who they are; the oldest gives way to a new one.
    pub max_pending: usize,
    /// Test-only: that a rank was refused is told to that rank alone.
    #[doc(hidden)]
    pub untold: bool,
}

impl Default for RootOptions {
    fn default() -> Self {
        Self {
            idle_limit: Duration::from_secs(3600),
            join_limit: Duration::from_secs(120),
            hello_limit: Duration::from_secs(5),
            max_pending: 128,
            untold: false,
        }
    }
}

/// The meshes of `world_size` ranks that are threads of this process.
pub fn local(world_size: usize) -> Result<Vec<Mesh>> {
    check_world(world_size)?;
    let pids = vec![std::process::id(); world_size];
    let deadline = sys::after(LOCAL_LIMIT);
    let failed = |errno| Error::system("sockets between the ranks", sys::refused(errno, world_size));
    let all = socket_pairs(world_size).map_err(failed)?;
    let mesh = |(rank, sockets)| Mesh::new(rank, sockets, &pids, Ranks::Threads, deadline);
    Ok(all.into_iter().enumerate().map(mesh).collect())
}

/// For each rank its sockets by peer, none at its own place.
fn socket_pairs(world_size: usize) -> nix::Result<Vec<Vec<Option<std::os::fd::OwnedFd>>>> {
    let mut all: Vec<Vec<_>> = (0..world_size).map(|_| (0..world_size).map(|_| None).collect()).collect();
    for high in 1..world_size {
        let (lower, upper) = all.split_at_mut(high);
        for (low, sockets) in lower.iter_mut().enumerate() {
            let (one, other) = sys::pair()?;
            sockets[high] = Some(one);
            upper[0][low] = Some(other);
        }
    }
    Ok(all)
}

fn check_world(world_size: usize) -> Result<()> {
    if (1..=MAX_RANKS).contains(&world_size) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("a world of {world_size} ranks; this library has 1 to {MAX_RANKS}")))
}
