//! Which algorithm a call goes by: a table as data for each family of devices, and the rules around it.
//!
//! All of it is a pure function of what is alike on all ranks. The rows of the software device are measured, and those of
//! two NVIDIA GPUs; the other GPUs' are what [`super::fabric`] simulates to be the fastest, a prediction that no run has
//! confirmed.

use super::geometry::Geometry;
use super::push::{Mode, PushPlan, Transport};
use super::{Agreed, Request};
use crate::config::{Algorithm, Config, TransportChoice};
use crate::device::DeviceFamily;
use crate::protocol::MAX_WIRES;
use crate::{Error, Order, ReduceOp, Result};

/// An algorithm that a row can name. Direct calls need no row: where they can be, and are long enough, they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pick {
    /// Everybody sends everybody everything.
    OneShot,
    /// Everybody sends each owner its share.
    Mesh,
    /// Chunks go round.
    Ring,
}

impl Pick {
    /// All of them.
    pub const ALL: [Pick; 3] = [Pick::OneShot, Pick::Mesh, Pick::Ring];
}

/// Up to how many bytes what is picked, for groups of so many ranks and for those larger than in the row before.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Most ranks.
    pub ranks: usize,
    /// Most bytes of a message.
    pub bytes: u64,
    /// What is picked.
    pub pick: Pick,
}

const fn row(ranks: usize, bytes: u64, pick: Pick) -> Row {
    Row { ranks, bytes, pick }
}

const ANY: u64 = u64::MAX;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// In ascending order of ranks, then bytes; the last row for each number of ranks takes any message.
const SOFTWARE: &[Row] = &[
    row(2, 16 * KIB, Pick::OneShot),
    row(2, ANY, Pick::Mesh),
    row(4, 8 * KIB, Pick::OneShot),
    row(4, ANY, Pick::Mesh),
    row(16, 4 * KIB, Pick::OneShot),
    row(16, ANY, Pick::Mesh),
];

const INTEL_PCIE: &[Row] = &[
    row(2, 32 * KIB, Pick::OneShot),
    row(2, ANY, Pick::Ring),
    row(4, 8 * KIB, Pick::OneShot),
    row(4, 128 * KIB, Pick::Mesh),
    row(4, ANY, Pick::Ring),
    row(16, 512, Pick::OneShot),
    row(16, 192 * KIB, Pick::Mesh),
    row(16, ANY, Pick::Ring),
];

const INTEL_XELINK: &[Row] = &[
    row(2, 32 * KIB, Pick::OneShot),
    row(2, ANY, Pick::Ring),
    row(4, 16 * KIB, Pick::OneShot),
    row(4, ANY, Pick::Mesh),
    row(16, 512, Pick::OneShot),
    row(16, ANY, Pick::Mesh),
];

/// Those of 2 ranks were measured.
const CUDA: &[Row] = &[
    row(2, 256 * KIB, Pick::OneShot),
    row(2, ANY, Pick::Mesh),
    row(4, 32 * KIB, Pick::OneShot),
    row(4, 256 * KIB, Pick::Mesh),
    row(4, ANY, Pick::Ring),
    row(6, KIB, Pick::OneShot),
    row(6, 512 * KIB, Pick::Mesh),
    row(6, ANY, Pick::Ring),
    row(16, KIB, Pick::OneShot),
    row(16, MIB, Pick::Mesh),
    row(16, ANY, Pick::Ring),
];

/// The rows of a family.
pub const fn table(family: DeviceFamily) -> &'static [Row] {
    match family {
        DeviceFamily::Software => SOFTWARE,
        DeviceFamily::IntelPcie => INTEL_PCIE,
        DeviceFamily::IntelXelink => INTEL_XELINK,
        DeviceFamily::Cuda => CUDA,
    }
}

/// What the table says.
pub fn pick(family: DeviceFamily, n: usize, bytes: u64) -> Pick {
    let fits = |row: &&Row| n <= row.ranks && bytes <= row.bytes;
    table(family).iter().find(fits).map_or(Pick::Ring, |row| row.pick)
}

/// From so many bytes on, data and flag go apart where they may. On GPUs a line is one trip less for short messages; on a
/// processor the two stores travel side by side, and bulk has less to do.
const fn bulk_from(family: DeviceFamily) -> u64 {
    match family {
        DeviceFamily::Software => 0,
        DeviceFamily::IntelPcie | DeviceFamily::IntelXelink => 64 * KIB,
        // Measured: 512 KiB take 9.3 us on lines and 12.6 in bulk.
        DeviceFamily::Cuda => MIB,
    }
}

/// From so many bytes on, calls on registered buffers go straight from buffer to buffer. On a processor the second barrier
/// that this takes costs more than short messages' copies; on NVIDIA's GPUs, measured, as much as 2 MiB through staging memory.
const fn direct_from(family: DeviceFamily) -> u64 {
    match family {
        DeviceFamily::Software => 2 * KIB,
        DeviceFamily::Cuda => 2 * MIB,
        DeviceFamily::IntelPcie | DeviceFamily::IntelXelink => 0,
    }
}

/// Wires for a message, by its bytes: the last row that it reaches. More wires share the work among more cores, but
/// each has its own hops to start: one thread plays all of them.
const SOFTWARE_WIRES: &[(u64, u32)] =
    &[(0, 1), (32 << 10, 2), (128 << 10, 4), (512 << 10, 8), (2 << 20, 16), (8 << 20, 32), (32 << 20, 64)];

/// Of GPUs: each has cores of its own, and one alone is slower than a link.
const GPU_WIRES: &[(u64, u32)] =
    &[(0, 1), (2 * KIB, 2), (3 * KIB, 4), (6 * KIB, 8), (12 * KIB, 16), (32 * KIB, 32), (128 * KIB, 64)];

/// The rows of a family's wires.
const fn wires_by_bytes(family: DeviceFamily) -> &'static [(u64, u32)] {
    match family {
        DeviceFamily::Software => SOFTWARE_WIRES,
        DeviceFamily::IntelPcie | DeviceFamily::IntelXelink | DeviceFamily::Cuda => GPU_WIRES,
    }
}

/// Wires for a message of so many bytes, as far as device and slots allow.
pub(super) fn wires_for(family: DeviceFamily, bytes: u64) -> u32 {
    wires_by_bytes(family).iter().rev().find(|(from, _)| bytes >= *from).map_or(1, |(_, wires)| *wires)
}

/// What was selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A ring on so many wires.
    Ring {
        /// Work-groups.
        wires: u32,
    },
    /// A push algorithm.
    Push {
        /// Which.
        mode: Mode,
        /// By what.
        transport: Transport,
        /// Work-groups.
        wires: u32,
    },
}

/// Selects for a message that has elements, on at least two ranks. Refuses by name what was asked for and can't be.
pub fn select(request: &Request, geometry: &Geometry, agreed: &Agreed, config: &Config) -> Result<Choice> {
    let bytes = geometry.count() * geometry.elem() as u64;
    let context = Context { request, geometry, agreed, config, bytes };
    let push = |mode| context.push(mode);
    if agreed.n == 1 {
        // Nobody to send to, and no order: whatever is asked for.
        return Ok(Choice::Ring { wires: context.wires(agreed.slot_tiles) });
    }
    match config.allreduce {
        Algorithm::Ring => context.ring(),
        Algorithm::Mesh => push(Mode::Mesh),
        Algorithm::OneShot => push(Mode::OneShot),
        Algorithm::Direct => push(Mode::Direct),
        Algorithm::Auto => {
            if bytes >= direct_from(agreed.family)
                && let Ok(direct) = push(Mode::Direct)
            {
                return Ok(direct);
            }
            let first = match pick(agreed.family, agreed.n, bytes) {
                Pick::OneShot => push(Mode::OneShot),
                Pick::Mesh => push(Mode::Mesh),
                Pick::Ring => context.ring(),
            };
            // What the table says can't be everywhere. A mesh does whatever a ring does, and in any order.
            first.or_else(|_| push(Mode::Mesh)).or_else(|_| context.ring())
        }
    }
}

struct Context<'a> {
    request: &'a Request,
    geometry: &'a Geometry,
    agreed: &'a Agreed,
    config: &'a Config,
    bytes: u64,
}

impl Context<'_> {
    fn refuse<T>(&self, algorithm: &str, why: &str) -> Result<T> {
        let Request { dtype, op, order, .. } = self.request;
        Err(Error::NotImplemented(format!(
            "all_reduce of {dtype} {op} with order={order} by algorithm {algorithm} on {} ranks: {why}",
            self.agreed.n
        )))
    }

    fn ring(&self) -> Result<Choice> {
        if self.request.order == Order::Rank {
            return self.refuse("ring", "a ring adds as the chunks go round; there is order=ring");
        }
        Ok(Choice::Ring { wires: self.wires(self.agreed.slot_tiles) })
    }

    fn push(&self, mode: Mode) -> Result<Choice> {
        let Agreed { form, push_tiles, bulk_bytes, family, .. } = *self.agreed;
        let name = match mode {
            Mode::OneShot => "oneshot",
            Mode::Mesh => "mesh",
            Mode::Direct => "direct",
        };
        let (lines, bulk) = match self.config.transport {
            TransportChoice::Auto => (push_tiles > 0, bulk_bytes > 0),
            TransportChoice::Lines => (push_tiles > 0, false),
            TransportChoice::Bulk => (false, bulk_bytes > 0),
        };
        let transport = match mode {
            Mode::Direct if self.request.registered.is_none() => {
                return self.refuse(name, "buffers are not registered");
            }
            Mode::Direct if bulk_bytes == 0 => return self.refuse(name, "device memory is not coherent between ranks"),
            Mode::Direct if matches!(self.request.op, ReduceOp::PreMulSum(_)) => {
                return self.refuse(name, "whoever reduces doesn't know the others' factors");
            }
            Mode::Direct => Transport::Bulk,
            _ if bulk && (!lines || self.bytes >= bulk_from(family)) => Transport::Bulk,
            _ if lines => Transport::Lines(form),
            _ if self.config.transport == TransportChoice::Bulk => {
                return self.refuse(name, "CCLX_TRANSPORT=bulk, and data and flag may not be stored apart here");
            }
            _ => return self.refuse(name, "not every rank can push to every other"),
        };
        let most = PushPlan::most_wires(self.agreed, mode, transport);
        if most == 0 {
            return self.refuse(name, "a push slot has too few tiles for so many ranks; raise CCLX_PUSH_TILES");
        }
        // One thread plays all wires of the software device: more of them would only be more flags.
        let most = if family == DeviceFamily::Software && transport == Transport::Bulk { 1 } else { most };
        Ok(Choice::Push { mode, transport, wires: self.wires(most) })
    }

    /// Wires for the message: by its bytes, no more than run at once, than there is room for, or than have a block to carry.
    fn wires(&self, room: u32) -> u32 {
        let wanted = wires_for(self.agreed.family, self.bytes);
        // Chunk 0 has the most blocks: each row deals from it.
        let useful = self.geometry.blocks_in_chunk(0).clamp(1, MAX_WIRES as u64) as u32;
        wanted.min(self.agreed.max_wires).min(self.config.max_wires).min(room).min(useful)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::plan::{Plan, Registered, RegisteredRange, plan};
    use crate::protocol::LineForm;
    use crate::{DataType, Factor};

    const AGREED: Agreed = Agreed { push_tiles: 16, bulk_bytes: 65_536, ..Agreed::ring(4, LineForm::L64, 256) };
    const REQUEST: Request = Request {
        count: 100_000,
        dtype: DataType::Float32,
        op: ReduceOp::Sum,
        order: Order::Ring,
        period: None,
        registered: None,
    };

    fn registered() -> Option<Registered> {
        let at = |offset| RegisteredRange { registration: 1, offset };
        Some(Registered { send: at(0), recv: at(1 << 20) })
    }

    fn by(algorithm: Algorithm, transport: TransportChoice) -> Config {
        Config { allreduce: algorithm, transport, ..Config::default() }
    }

    #[test]
    fn every_table_is_in_order_and_has_an_answer() {
        for family in DeviceFamily::ALL {
            let rows = table(family);
            assert!(rows.is_sorted_by_key(|row| (row.ranks, row.bytes)), "{family}");
            for (at, row) in rows.iter().enumerate() {
                let last = rows.get(at + 1).is_none_or(|next| next.ranks > row.ranks);
                assert_eq!(row.bytes == ANY, last, "{family}: {row:?}");
            }
            assert_eq!(rows.last().unwrap().ranks, 16);
        }
    }

    #[test]
    fn what_is_forced_is_taken_or_refused_by_name() {
        use TransportChoice::{Auto, Bulk, Lines};
        let lines = Transport::Lines(LineForm::L64);
        for (algorithm, transport, expected) in [
            (Algorithm::OneShot, Auto, (Mode::OneShot, Transport::Bulk)),
            (Algorithm::OneShot, Lines, (Mode::OneShot, lines)),
            (Algorithm::Mesh, Bulk, (Mode::Mesh, Transport::Bulk)),
            (Algorithm::Mesh, Lines, (Mode::Mesh, lines)),
        ] {
            for order in [Order::Ring, Order::Rank] {
                let plan = plan(&Request { order, ..REQUEST }, &AGREED, &by(algorithm, transport)).unwrap();
                let Plan::Push(push) = plan else { panic!("{plan}") };
                assert_eq!((push.mode, push.transport), expected);
                assert_eq!(Plan::Push(push).verify(), Ok(()));
            }
        }
        let direct = Request { registered: registered(), ..REQUEST };
        let plan_of = plan(&direct, &AGREED, &by(Algorithm::Direct, Auto)).unwrap();
        assert!(matches!(plan_of, Plan::Push(PushPlan { mode: Mode::Direct, rounds: 1, .. })), "{plan_of}");
        let premul = ReduceOp::PreMulSum(Factor::new(DataType::Float32, 3));
        let nobody = Agreed { push_tiles: 0, bulk_bytes: 0, ..AGREED };
        let in_rank_order = Request { order: Order::Rank, ..REQUEST };
        for (request, agreed, config, words) in [
            (in_rank_order, AGREED, by(Algorithm::Ring, Auto), "order=rank by algorithm ring"),
            (in_rank_order, nobody, by(Algorithm::Auto, Auto), "order=rank by algorithm ring"),
            (REQUEST, nobody, by(Algorithm::Mesh, Auto), "mesh on 4 ranks: not every rank can push"),
            (REQUEST, nobody, by(Algorithm::OneShot, Auto), "oneshot on 4 ranks: not every rank can push"),
            (REQUEST, nobody, by(Algorithm::OneShot, Bulk), "CCLX_TRANSPORT=bulk"),
            (REQUEST, AGREED, by(Algorithm::Direct, Auto), "direct on 4 ranks: buffers are not registered"),
            (direct, nobody, by(Algorithm::Direct, Auto), "not coherent"),
            (Request { op: premul, ..direct }, AGREED, by(Algorithm::Direct, Auto), "factors"),
        ] {
            let text = plan(&request, &agreed, &config).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn what_is_chosen_can_always_be() {
        for family in DeviceFamily::ALL {
            for (push_tiles, bulk_bytes) in [(0, 0), (16, 0), (16, 65_536)] {
                for n in 2..=16 {
                    let agreed = Agreed { n, family, push_tiles, bulk_bytes, ..AGREED };
                    for shift in 0..32 {
                        for order in [Order::Ring, Order::Rank] {
                            let request = Request { count: 1 << shift, order, ..REQUEST };
                            let plan = plan(&request, &agreed, &Config::default());
                            let refused = push_tiles == 0 && order == Order::Rank;
                            assert_eq!(plan.is_err(), refused, "{family} {n} 2^{shift} {plan:?}");
                            assert!(plan.is_err() || push_tiles > 0 || matches!(plan, Ok(Plan::Ring(_))));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_registered_call_is_direct_where_it_can_be() {
        let request = Request { registered: registered(), ..REQUEST };
        let chosen = |agreed: Agreed| plan(&request, &agreed, &Config::default()).unwrap();
        let is_direct = |plan: Plan| matches!(plan, Plan::Push(PushPlan { mode: Mode::Direct, .. }));
        assert!(is_direct(chosen(AGREED)));
        assert!(!is_direct(chosen(Agreed { bulk_bytes: 0, ..AGREED })));
        // Of few bytes only where it is asked for, or where nothing says that it takes longer.
        let agreed = Agreed { family: DeviceFamily::Software, ..AGREED };
        let size = request.dtype.size() as u64;
        for (bytes, algorithm, direct) in
            [(2047, Algorithm::Auto, false), (2048, Algorithm::Auto, true), (size, Algorithm::Direct, true)]
        {
            let request = Request { count: bytes / size, ..request };
            let config = Config { allreduce: algorithm, ..Config::default() };
            assert_eq!(is_direct(plan(&request, &agreed, &config).unwrap()), direct, "{bytes} bytes, {algorithm:?}");
        }
        let request = Request { count: 1, ..request };
        let on = |family| plan(&request, &Agreed { family, ..AGREED }, &Config::default()).unwrap();
        assert!(is_direct(on(DeviceFamily::IntelPcie)) && !is_direct(on(DeviceFamily::Cuda)));
    }
}
