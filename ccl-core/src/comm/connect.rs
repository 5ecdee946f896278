//! Staging memory is opened, mapped by every rank and tried out.

use super::gather_flags;
use crate::config::{Algorithm, Config, TransportChoice};
use crate::device::{Device, Endpoint, Place};
use crate::error::{Error, Result};
use crate::mesh::sys::{self, Bell};
use crate::mesh::{Delivery, Mesh, Parcel};
use crate::plan::{self, Agreed, Request};
use crate::protocol::{CommState, MAX_RANKS, STAGING_HEAD_BYTES};
use crate::types::{DataType, Order, ReduceOp};
use crate::watch::Alarm;
use std::os::fd::AsFd;

/// Connects the ranks, in `place` or, where direct access turns out not to work, in host memory.
pub(super) fn connect<D: Device>(device: &D, mesh: &Mesh, agreed: &Agreed, place: &mut Place) -> Result<D::Endpoint> {
    let bytes = agreed.layout().bytes();
    let mut opened = open(device, mesh, *place, bytes);
    if *place == Place::Device && !works(&opened) {
        if mesh.rank() == 0 {
            tracing::warn!(
                "direct access between devices does not work here ({}); all ranks use staging in host memory",
                describe_failure(&opened)
            );
        }
        *place = Place::Host;
        // The device endpoint goes first: its memory is not needed any more.
        drop(opened);
        opened = open(device, mesh, *place, bytes);
    }
    let (endpoint, shown) = opened?;
    if let Some((from, to)) = shown.broken().next() {
        return Err(Error::Device {
            call: "pattern test".into(),
            detail: format!("stores of rank {from} do not arrive at rank {to} even through host memory"),
        });
    }
    Ok(endpoint)
}

/// Elements of a call of the litmus test: a few hundred lines in flight at once.
const LITMUS_COUNT: u64 = 8192;
/// How long a rank waits for a line in the litmus test.
const LITMUS_LIMIT_MS: u64 = 10_000;

/// What a litmus test shows of the ranks' links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Litmus {
    /// All that was agreed on holds.
    Holds,
    /// Lines of the agreed form arrive torn.
    Torn,
    /// Lines hold; but a flag that was stored after data is seen before them.
    Unordered,
}

/// What one rank has seen of its calls in the litmus test.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Seen {
    Torn,
    Whole,
    /// They waited in vain for a rank, which may have failed: that says nothing about lines, on any rank.
    Late,
    /// They failed, which says as little.
    Failed,
}

/// Whether lines of the agreed form arrive whole on every rank, and data before the flag that follows them, as far as
/// calls with changing data can show.
pub(super) fn litmus<E: Endpoint>(
    endpoint: &mut E,
    mesh: &Mesh,
    agreed: &Agreed,
    config: &Config,
    state: &CommState,
) -> Result<Litmus> {
    let state = CommState {
        base: 0,
        tag_limit: agreed.tag_limit,
        spin_limit_ms: LITMUS_LIMIT_MS.min(state.spin_limit_ms),
        bulk_bytes: agreed.bulk_bytes,
        granule: agreed.form.granule() as u32,
        ..*state
    };
    endpoint.activate(&state, agreed.form)?;
    let alarm = endpoint.alarm();
    let request = Request {
        count: LITMUS_COUNT,
        dtype: DataType::Float32,
        op: ReduceOp::Sum,
        order: Order::Ring,
        period: None,
        registered: None,
    };
    let by = |allreduce, transport| {
        let config = Config { allreduce, transport, ..config.clone() };
        let plan = plan::plan(&request, agreed, &config)?;
        mesh.barrier("litmus test")?;
        let (outcome, lost) = while_all_are_there(mesh, &*alarm, || endpoint.litmus(&request, &plan, mesh.rank()))?;
        let seen = match outcome {
            // Its calls were aborted. The next step names the rank.
            _ if lost => Seen::Failed,
            Ok(true) => Seen::Whole,
            Ok(false) => Seen::Torn,
            Err(Error::Timeout { .. }) => Seen::Late,
            Err(_) => Seen::Failed,
        };
        let all = mesh.all_gather(&[seen as u8], "litmus test")?;
        let first = |seen: Seen| all.iter().position(|other| *other == [seen as u8]);
        // Whoever waited did so for the one that failed, whose reason is everybody's.
        let worst = [Seen::Failed, Seen::Late].into_iter().find_map(|worst| Some((worst, first(worst)?)));
        if let Some((_, rank)) = worst.filter(|(worst, _)| *worst != seen) {
            // That rank leaves now, and tells why.
            mesh.barrier("litmus test")?;
            return Err(Error::Internal(format!(
                "rank {rank} could not finish the litmus test and went on all the same"
            )));
        }
        // A failure of this rank's own is told as such.
        outcome?;
        Ok(first(Seen::Torn).is_none())
    };
    // The ring's lines go to the next rank, a one-shot's to all. A form that was asked for is taken as it is.
    let asked_for = config.granule != 0;
    if !asked_for
        && (!by(Algorithm::Ring, TransportChoice::Lines)?
            || agreed.push_tiles > 0 && !by(Algorithm::OneShot, TransportChoice::Lines)?)
    {
        return Ok(Litmus::Torn);
    }
    if agreed.bulk_bytes > 0 && !by(Algorithm::Mesh, TransportChoice::Bulk)? {
        return Ok(Litmus::Unordered);
    }
    Ok(Litmus::Holds)
}

/// Runs `body`, in whose calls ranks wait for each other, and aborts those calls as soon as a rank is gone; whether that
/// was so.
fn while_all_are_there<T>(mesh: &Mesh, alarm: &dyn Alarm, body: impl FnOnce() -> T) -> Result<(T, bool)> {
    let over = Bell::new(mesh.world_size())?;
    std::thread::scope(|scope| {
        let lookout = sys::spawn_scoped(scope, "cclx-lookout", || {
            let lost = mesh.loses_a_rank_before(&over);
            if lost {
                alarm.abort();
            }
            lost
        })?;
        // Also if `body` panics, or the scope would wait for ever.
        let rung = over.rung_at_end();
        let done = body();
        drop(rung);
        let lost = lookout.join().map_err(|_| Error::Internal("a panic on the lookout for lost ranks".into()))?;
        Ok((done, lost))
    })
}

/// Between which ranks stores arrive.
struct Shown {
    /// For each rank, whether it could reach and store into all others.
    sent: Vec<bool>,
    /// For each rank, a bit for every other whose stores arrived there.
    arrived: Vec<u16>,
}

impl Shown {
    /// Pairs (from, to) of ranks between which stores do not arrive.
    fn broken(&self) -> impl Iterator<Item = (usize, usize)> {
        let n = self.sent.len();
        let pairs = (0..n).flat_map(move |from| (1..n).map(move |distance| (from, (from + distance) % n)));
        pairs.filter(|&(from, to)| !self.sent[from] || self.arrived[to] & 1 << from == 0)
    }
}

type Opened<E> = Result<(E, Shown)>;

/// Opens the endpoint, connects it with all others and shows by a pattern that stores arrive. Every rank takes the same
/// path through the exchanges, whatever fails where.
fn open<D: Device>(device: &D, mesh: &Mesh, place: Place, bytes: usize) -> Opened<D::Endpoint> {
    let (rank, n) = (mesh.rank(), mesh.world_size());
    let opened = device.open(place, bytes);
    if n == 1 {
        return opened.map(|endpoint| (endpoint, Shown { sent: vec![true], arrived: vec![0] }));
    }
    let exported = opened.and_then(|endpoint| endpoint.export().map(|export| (endpoint, export)));
    let all = gather_flags(mesh, exported.is_ok(), "staging memory")?;
    let (mut endpoint, (details, memory)) = exported?;
    if let Some(rank) = all.iter().position(|&ok| !ok) {
        return Err(Error::Internal(format!("rank {rank} could not allocate or export its staging memory")));
    }
    let parcels = vec![Parcel { bytes: &details, fds: vec![memory.as_fd()] }; n];
    let mut deliveries = mesh.exchange_fds(&parcels, "staging memory")?;
    drop(parcels);
    drop(memory);
    let mut failure = None;
    // From the next rank on, as the ring goes.
    for peer in (1..n).map(|distance| (rank + distance) % n) {
        let Delivery { bytes: details, fds } = std::mem::take(&mut deliveries[peer]);
        let memory = fds.into_iter().next();
        let memory = memory.ok_or_else(|| Error::Internal(format!("rank {peer} sent no staging memory")));
        if let Err(error) = memory.and_then(|memory| endpoint.import(peer, n, &details, memory)) {
            failure.get_or_insert(error);
        }
    }
    let mut arrived = u16::MAX;
    // Two patterns, so that neither an old one nor fresh memory can pass for the second.
    for seed in [0x5EED_0001u32, 0x9E37_79B9] {
        let seeds: Vec<u32> = (0..n as u32).map(|rank| seed.wrapping_mul(2 * rank + 1)).collect();
        for peer in (0..n).filter(|&peer| peer != rank) {
            if failure.is_none() {
                failure = endpoint.probe_send(peer, rank, n, seeds[rank]).err();
            }
        }
        mesh.barrier("pattern sent")?;
        match endpoint.probe_check(rank, &seeds) {
            Ok(there) => {
                let mask = |(peer, there): (usize, &bool)| if *there { 1 << peer } else { 0 };
                arrived &= there.iter().enumerate().map(mask).sum::<u16>();
            }
            // Kept for later: whoever leaves between two exchanges leaves the others in them.
            Err(error) => {
                arrived = 0;
                failure.get_or_insert(error);
            }
        }
        mesh.barrier("pattern checked")?;
    }
    let arrived = mesh.all_gather(&arrived.to_le_bytes(), "pattern arrived")?;
    let arrived = arrived.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u16::from_le_bytes)).collect();
    let sent = gather_flags(mesh, failure.is_none(), "pattern sent")?;
    match failure {
        // Told to the others by the flags; kept here for the message.
        Some(error) if place == Place::Host => Err(error),
        _ => Ok((endpoint, Shown { sent, arrived })),
    }
}

fn works<E>(opened: &Opened<E>) -> bool {
    opened.as_ref().is_ok_and(|(_, shown)| shown.broken().next().is_none())
}

fn describe_failure<E>(opened: &Opened<E>) -> String {
    match opened {
        Err(error) => error.to_string(),
        Ok((_, shown)) => {
            let pairs: Vec<_> = shown.broken().map(|(from, to)| format!("{from} -> {to}")).collect();
            format!("pattern test failed from rank to rank: {}", pairs.join(", "))
        }
    }
}

const _: () = assert!(STAGING_HEAD_BYTES.is_multiple_of(4096));
const _: () = assert!(MAX_RANKS <= 16, "a bit for each rank");
