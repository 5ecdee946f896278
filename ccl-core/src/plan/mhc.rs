//! An all-reduce that an mHC boundary follows in the same launch.
//!
//! Unfused is no plan of its own: an all-reduce with rows of `hidden` elements, then a boundary. All designs have its
//! bits, since ownership, the order of the reduction and that of the sums are the same.
//!
//! [`Fused::Owner`] (design C) is a mesh whose owners do the boundary's work on their columns: a round is a few whole
//! rows; see docs/protocol.md, "mHC by owners".

use std::fmt;

use super::geometry::Geometry;
use super::push::{Mode, PushPlan, Transport};
use super::select::{self, Choice, Pick};
use super::{Agreed, Request, plural};
use crate::config::{Algorithm, Config, TransportChoice};
use crate::device::DeviceFamily;
use crate::mhc::{Params, Variant};
use crate::protocol::{BLOCK_BYTES, BLOCK_WORDS, LineForm, MAX_RANKS, MAX_WIRES, Region, Shape, fingerprint_of};
use crate::{Error, Order, ReduceOp, Result};

/// How reduction and boundary share one launch. The discriminants are the kernels' argument `design`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Fused {
    /// Design A: every rank does the whole boundary after the reduction.
    Whole = 1,
    /// Design B, of [`Variant::V41`] only: y first, which needs no sums, and the sums after it.
    Delayed = 2,
    /// Design C: each owner does its columns, and what it adds up over them goes with the result.
    Owner = 3,
}

impl Fused {
    /// All of them.
    pub const ALL: [Fused; 3] = [Fused::Whole, Fused::Delayed, Fused::Owner];

    /// What a call is left to whose design isn't forced; none where the two had better go one after the other. By what is
    /// alike on all ranks.
    pub fn auto(params: &Params, agreed: &Agreed, config: &Config) -> Option<Self> {
        if agreed.native {
            return Some(Fused::Owner);
        }
        // As measured (docs/performance.md): by columns it takes 0.5 to 0.65 of the time that both take one after the other,
        // any other way longer than these.
        let measured = agreed.family == DeviceFamily::Cuda;
        (measured && MhcPlan::column_groups(params, agreed, config).is_some()).then_some(Fused::Whole)
    }

    /// The design with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|design| *design as u32 == number)
    }
}

impl fmt::Display for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fused::Whole => "a",
            Fused::Delayed => "b",
            Fused::Owner => "c",
        })
    }
}

/// Most rows of a round: what a device keeps sums of at once.
pub const MOST_ROUND_ROWS: u32 = 64;

/// Rows times streams whose coefficients a device kernel's work-group keeps: a batch.
const BATCH_STREAMS: u32 = 128;
/// Bytes of the memory that a device kernel's work-groups share. The kernels have the same numbers (`fused.h`).
pub const SHARED_BYTES: usize = 4 << 20;
/// Bytes at its beginning that are 0 between calls. What follows takes the sums of two batches.
pub const SHARED_HEAD_BYTES: usize = 1024;
const SUMS_OF_BATCH: u64 = (SHARED_BYTES - SHARED_HEAD_BYTES) as u64 / 4 / 2;
/// Bytes behind that, 0 before the first call: by columns, sums with the number of their call. A group has a tile's.
pub const PAIR_BYTES: usize = MAX_WIRES * 16 * (2 + 8 + 1) * 8;

/// Words that travel for a row: its mixes and the sum of squares.
pub const fn row_sums(params: &Params) -> usize {
    match params.variant {
        Variant::Post => 0,
        _ => params.mixes() + 1,
    }
}

/// An all-reduce of `rows` rows of `hidden` elements, and the boundary after it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MhcPlan {
    /// The boundary.
    pub params: Params,
    /// Who does what of it.
    pub design: Fused,
    /// [`Fused::Owner`]: a mesh of `round_rows` rows, on one wire less than a slot has parts. Else the all-reduce itself.
    pub reduce: PushPlan,
    /// [`Fused::Owner`]: rows of all rounds but the last, which may have fewer. Else the rows of a batch after the reduction.
    pub round_rows: u32,
    /// Work-groups: those of the wires, then, in device kernels, those that help to add up. Of [`Fused::Owner`] a multiple of
    /// the wires. By columns those that there are at least.
    pub groups: u32,
    /// [`Fused::Whole`]: each block of columns of a tile of rows is the work of groups that get its x from all ranks by
    /// themselves (docs/protocol.md, "mHC by columns").
    pub columns: bool,
}

/// Steps of a round of [`Fused::Owner`], in order. The discriminants are the steps that a failure is told with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MhcPhase {
    /// Stores own input of the peer's columns into its [`Region::Input`].
    Send,
    /// Waits for all peers' parts of the own columns, reduces them and stores the result into every peer's
    /// [`Region::Result`]; post and sums of the own columns. Each wire counts itself then, data or not.
    Reduce,
    /// By the wire that counts itself last: stores the own columns' sums into every peer's [`Region::Result`], as one
    /// more wire.
    Sums,
    /// Waits for the peer's result; post of its columns.
    Gather,
    /// Waits for all ranks' sums, adds them in rank order: coefficients, and y of the wire's columns.
    Finish,
}

/// One thing that one wire of one rank does in [`Fused::Owner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MhcStep {
    /// Round of the call.
    pub round: u32,
    /// Phase of the round.
    pub phase: MhcPhase,
    /// Wire; in [`MhcPhase::Sums`] any.
    pub wire: u32,
    /// The rank at the other end, or the own one where it is about all.
    pub peer: usize,
    /// Words of the message: of each, in [`MhcPhase::Reduce`] and [`MhcPhase::Finish`].
    pub words: u32,
}

impl MhcPlan {
    /// The plan of a design. Refuses by name what it can't be.
    pub fn new(params: &Params, design: Fused, order: Order, agreed: &Agreed, config: &Config) -> Result<Self> {
        params.check()?;
        let refuse = |why: &str| {
            let Params { variant, dtype, .. } = params;
            Err(Error::NotImplemented(format!(
                "mHC {variant} of {dtype} by design {design} on {} ranks: {why}",
                agreed.n
            )))
        };
        if agreed.n < 2 || agreed.n > MAX_RANKS || params.rows == 0 {
            return refuse("it takes at least 2 ranks and a row");
        }
        if !params.variant.has_post() {
            return refuse("the variant has no reduced input");
        }
        if !agreed.native && config.transport == TransportChoice::Bulk {
            return refuse("device kernels of it go by lines, and CCLX_TRANSPORT=bulk");
        }
        if !agreed.native && batch_rows(params) == 0 {
            return refuse("a row has more blocks than there is room for their sums");
        }
        if design == Fused::Delayed && params.variant != Variant::V41 {
            return refuse("y needs the sums, which this design computes after it");
        }
        let request = Request {
            count: params.rows * params.hidden,
            dtype: params.dtype,
            op: ReduceOp::Sum,
            order,
            period: Some(params.hidden),
            registered: None,
        };
        if design == Fused::Owner {
            Self::by_owners(params, &request, agreed, config)
        } else {
            Self::whole(params, design, &request, agreed, config)
        }
    }

    fn whole(params: &Params, design: Fused, request: &Request, agreed: &Agreed, config: &Config) -> Result<Self> {
        let geometry = Geometry::new(agreed.n, request.count, request.period, request.dtype.size())?;
        // Device kernels of it go by lines.
        let transport = if agreed.native { config.transport } else { TransportChoice::Lines };
        let config = Config { transport, ..config.clone() };
        if design == Fused::Whole
            && let Some(groups) = Self::column_groups(params, agreed, &config)
        {
            return Self::by_columns(params, request, agreed, &config, groups);
        }
        // What a fused kernel follows is a push algorithm; where the table says ring, a mesh.
        let choice = match select::select(request, &geometry, agreed, &config)? {
            Choice::Ring { .. } => {
                let mesh = Config { allreduce: Algorithm::Mesh, ..config.clone() };
                select::select(request, &geometry, agreed, &mesh)?
            }
            push => push,
        };
        let Choice::Push { mode, transport, wires } = choice else {
            return Err(Error::NotImplemented(format!("mHC by design {design} after {choice:?}")));
        };
        let reduce = PushPlan::new(request, agreed, mode, transport, wires)?;
        // Of a batch each work-group has some blocks of columns.
        let (rows, groups) = match agreed.native {
            true => (params.rows, wires),
            false => {
                let useful = params.blocks().min(MAX_WIRES) as u32;
                (batch_rows(params).min(params.rows), wires.max(most_groups(agreed, &config).min(useful)))
            }
        };
        let round_rows = u32::try_from(rows).unwrap_or(u32::MAX);
        Self { params: *params, design, reduce, round_rows, groups, columns: false }.within(agreed)
    }

    /// Work-groups of a boundary by columns, one for each block of each tile of rows; none where it can't be, or where its
    /// all-reduce alone isn't one that everybody sends everybody: it is, on lines, in one round, and all groups run at once.
    fn column_groups(params: &Params, agreed: &Agreed, config: &Config) -> Option<u32> {
        let Agreed { n, form, push_tiles, bulk_bytes, family, native, .. } = *agreed;
        let bytes = params.rows.checked_mul(params.hidden)?.checked_mul(params.dtype.size() as u64)?;
        let one_shot = match config.allreduce {
            Algorithm::OneShot => true,
            Algorithm::Auto => select::pick(family, n, bytes) == Pick::OneShot,
            Algorithm::Ring | Algorithm::Mesh | Algorithm::Direct => false,
        };
        let by_lines = !native || bulk_bytes == 0 || config.transport == TransportChoice::Lines;
        if !one_shot || !by_lines || !params.variant.has_pre() || !(2..=MOST_COLUMN_RANKS).contains(&n) {
            return None;
        }
        let blocks = params.blocks() as u64;
        let groups = params.rows.div_ceil(TILE_STREAMS / u64::from(params.streams)).checked_mul(blocks)?;
        let lines = params.rows.checked_mul(blocks * column_lines(form) as u64)?;
        let room = u64::from(push_tiles) * form.lines_per_tile() as u64;
        let most = u64::from(most_groups(agreed, config));
        (groups <= most && lines <= room && room > 0).then_some(groups as u32)
    }

    fn by_columns(params: &Params, request: &Request, agreed: &Agreed, config: &Config, groups: u32) -> Result<Self> {
        let (mode, transport) = (Mode::OneShot, Transport::Lines(agreed.form));
        let bytes = request.count * params.dtype.size() as u64;
        let most = most_groups(agreed, config).min(PushPlan::most_wires(agreed, mode, transport).max(1));
        // Those that clear what a slot has; columns have places of their own in it.
        let wires = select::wires_for(agreed.family, bytes).min(groups).min(most);
        let reduce = PushPlan { rounds: 1, ..PushPlan::new(request, agreed, mode, transport, wires)? };
        let (design, round_rows) = (Fused::Whole, params.rows as u32);
        Self { params: *params, design, reduce, round_rows, groups, columns: true }.within(agreed)
    }

    /// By columns: byte offset, in the receiver's staging memory, of the first line of a row's block that `sender` stores in
    /// the round with this tag.
    pub const fn column_offset(&self, tag: u32, sender: usize, row: u64, block: usize) -> usize {
        let form = self.reduce.layout.form;
        let line = (row as usize * self.params.blocks() + block) * column_lines(form);
        self.reduce.layout.push_slot(Region::Input, crate::protocol::generation(tag), sender) + line * form.granule()
    }

    fn by_owners(params: &Params, request: &Request, agreed: &Agreed, config: &Config) -> Result<Self> {
        let Agreed { n, form, push_tiles, bulk_bytes, family, .. } = *agreed;
        let bulk = bulk_bytes > 0 && config.transport != TransportChoice::Lines;
        let lines = push_tiles > 0 && config.transport != TransportChoice::Bulk;
        let refuse = |why: String| Err(Error::NotImplemented(format!("mHC by design c on {n} ranks: {why}")));
        // On a GPU a line is one trip less, and rows are short.
        let transport = match (bulk && agreed.native, lines) {
            (true, false) => Transport::Bulk,
            (true, true) if family == DeviceFamily::Software => Transport::Bulk,
            (_, true) => Transport::Lines(form),
            (false, false) => return refuse("not every rank can push to every other".into()),
        };
        let elem = params.dtype.size();
        let row = Geometry::new(n, params.hidden, Some(params.hidden), elem)?;
        let row_bytes = params.hidden * elem as u64;
        let wanted = match family {
            // One thread plays all wires.
            DeviceFamily::Software if agreed.native => 1,
            DeviceFamily::Software => 2,
            _ => select::wires_for(family, row_bytes),
        };
        let most = most_groups(agreed, config).min(MAX_WIRES as u32 - 1);
        let mut wires = wanted.min(most).min(row.blocks_in_chunk(0).max(1) as u32);
        let layout = agreed.layout();
        loop {
            // Of each row a wire of a device kernel has the same columns, so that it reads no more of `fn` than theirs.
            let deals = |wires: u32| (0..n).all(|chunk| row.blocks_in_chunk(chunk).is_multiple_of(u64::from(wires)));
            while !agreed.native && params.rows > 1 && !deals(wires) {
                wires -= 1;
            }
            // Sums go as one more wire.
            let part = match transport {
                Transport::Bulk => bulk_bytes / (wires + 1) / BLOCK_BYTES as u32 * BLOCK_BYTES as u32,
                Transport::Lines(form) => push_tiles * form.lines_per_tile() as u32 / (wires + 1),
            };
            let capacity = words_of(transport, part);
            let fits = |rows: u64| {
                let blocks = (rows * row.blocks_in_chunk(0)).div_ceil(u64::from(wires));
                blocks * BLOCK_WORDS as u64 <= capacity && rows * row_sums(params) as u64 <= capacity
            };
            let of_round = if agreed.native { u64::from(MOST_ROUND_ROWS) } else { batch_rows(params) };
            match (1..=of_round.min(params.rows)).rev().find(|rows| fits(*rows)) {
                Some(rows) => {
                    let rounds = u32::try_from(params.rows.div_ceil(rows))
                        .map_err(|_| Error::NotImplemented(format!("mHC of {} rows", params.rows)))?;
                    let geometry = Geometry::new(n, rows * params.hidden, Some(params.hidden), elem)?;
                    let Request { dtype, op, order, .. } = *request;
                    let reduce = PushPlan {
                        n,
                        dtype,
                        op,
                        order,
                        geometry,
                        mode: Mode::Mesh,
                        transport,
                        wires,
                        part,
                        rounds,
                        layout,
                    };
                    let shares = match agreed.native || !params.variant.has_pre() {
                        true => 1,
                        false => (most_groups(agreed, config).min(groups_for(family)) / wires).clamp(1, MOST_SHARES),
                    };
                    let (design, round_rows, groups) = (Fused::Owner, rows as u32, wires * shares);
                    let columns = false;
                    return Self { params: *params, design, reduce, round_rows, groups, columns }.within(agreed);
                }
                // Fewer wires leave each a larger part.
                None if wires > 1 => wires /= 2,
                None => {
                    let variable = if transport == Transport::Bulk { "CCLX_BULK_BYTES" } else { "CCLX_PUSH_TILES" };
                    return refuse(format!("a slot has no room for a row of {}; raise {variable}", params.hidden));
                }
            }
        }
    }

    fn within(self, agreed: &Agreed) -> Result<Self> {
        let (rounds, limit) = (self.reduce.rounds, agreed.tag_limit);
        if rounds > limit {
            return Err(Error::NotImplemented(format!(
                "mHC in {rounds} rounds, more than the {limit} tags that there are"
            )));
        }
        Ok(self)
    }

    /// Rounds of the call.
    pub const fn rounds(&self) -> u32 {
        self.reduce.rounds
    }

    /// What the call is, as the device tells it. Everything that must be alike on all ranks is in the fingerprint.
    pub fn shape(&self, kind: u32) -> Shape {
        Shape::new(self.params.rows * self.params.hidden, self.params.hidden, self.factor(), kind, self.reduce.rounds)
    }

    /// What stands where other calls have a factor: the design above all parameters.
    pub fn factor(&self) -> u64 {
        let words = self.params.key().into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
        let design = self.design as u32 | if self.columns { BY_COLUMNS } else { 0 };
        u64::from(design) << 32 | u64::from(words.fold(0, fingerprint_of))
    }

    /// [`Fused::Owner`]: the rows of `round`: the first, and how many.
    pub fn rows(&self, round: u32) -> (u64, u32) {
        let first = u64::from(round) * u64::from(self.round_rows);
        (first, (self.params.rows - first).min(u64::from(self.round_rows)) as u32)
    }

    /// [`Fused::Owner`]: ownership of the rows of `round`, numbered from its first.
    pub fn geometry(&self, round: u32) -> Geometry {
        self.geometry_of(self.rows(round).1)
    }

    fn geometry_of(&self, rows: u32) -> Geometry {
        // As valid as that of a full round.
        let count = u64::from(rows) * self.params.hidden;
        Geometry::new(self.reduce.n, count, Some(self.params.hidden), self.reduce.geometry.elem())
            .unwrap_or(self.reduce.geometry)
    }

    /// [`Fused::Owner`]: words of `chunk` on `wire` in `round`; 0 where it has nothing.
    pub fn words(&self, chunk: usize, wire: u32, round: u32) -> u32 {
        let geometry = self.geometry(round);
        let blocks = geometry.wire_blocks(chunk, self.reduce.wires, wire);
        geometry.wire_words(chunk, self.reduce.wires, wire, 0, blocks) as u32
    }

    /// [`Fused::Owner`]: words of a rank's sums in `round`.
    pub fn sum_words(&self, round: u32) -> u32 {
        self.rows(round).1 * row_sums(&self.params) as u32
    }

    /// [`Fused::Owner`]: byte offset, in the receiver's staging memory, of what `sender` stores on `wire` in the round with
    /// this tag. Wire `wires` is that of the sums.
    pub const fn offset(&self, region: Region, tag: u32, sender: usize, wire: u32) -> usize {
        match self.reduce.transport {
            Transport::Bulk => self.reduce.bulk_offset(region, tag, sender, wire),
            Transport::Lines(_) => self.reduce.segment_offset(region, tag, sender, wire, 0),
        }
    }

    /// [`Fused::Owner`]: what `rank` does, in an order that one thread can keep: by round, phase, wire.
    pub fn steps(&self, rank: usize) -> impl Iterator<Item = MhcStep> + use<> {
        let plan = *self;
        let PushPlan { n, wires, rounds, .. } = plan.reduce;
        let chunk_of = move |owner: usize| (owner + 1) % n;
        (0..rounds).flat_map(move |round| {
            let mut steps = Vec::new();
            let mut add = |phase, wire, peer, words| steps.push(MhcStep { round, phase, wire, peer, words });
            let peers = || (1..n).map(|distance| (rank + distance) % n);
            for (wire, peer) in (0..wires).flat_map(|wire| peers().map(move |peer| (wire, peer))) {
                match plan.words(chunk_of(peer), wire, round) {
                    0 => {}
                    words => add(MhcPhase::Send, wire, peer, words),
                }
            }
            (0..wires).for_each(|wire| add(MhcPhase::Reduce, wire, rank, plan.words(chunk_of(rank), wire, round)));
            let sums = plan.sum_words(round);
            if sums > 0 {
                peers().for_each(|peer| add(MhcPhase::Sums, wires - 1, peer, sums));
            }
            for (wire, peer) in (0..wires).flat_map(|wire| peers().map(move |peer| (wire, peer))) {
                match plan.words(chunk_of(peer), wire, round) {
                    0 => {}
                    words => add(MhcPhase::Gather, wire, peer, words),
                }
            }
            (0..wires).for_each(|wire| add(MhcPhase::Finish, wire, rank, sums));
            steps
        })
    }

    /// Executes the plan of all ranks symbolically; the error says what is wrong with it.
    pub fn verify(&self) -> std::result::Result<(), String> {
        match self.design {
            Fused::Owner => super::verify_mhc::verify(self),
            Fused::Whole if self.columns => super::verify_columns::verify(self),
            Fused::Whole | Fused::Delayed => super::verify_push::verify(&self.reduce),
        }
    }
}

/// Above the design in what stands for a factor.
const BY_COLUMNS: u32 = 1 << 8;
/// Rows times streams of a tile.
pub(super) const TILE_STREAMS: u64 = 16;
/// Most ranks by columns: what they give is in a work-group's local memory. The kernels have the same number (`fused.h`).
pub(super) const MOST_COLUMN_RANKS: usize = 8;

/// By columns: lines of a block of a row, which begins a line.
pub const fn column_lines(form: LineForm) -> usize {
    BLOCK_WORDS.div_ceil(form.payload_words())
}

/// Most work-groups that share one wire's part of the sums.
const MOST_SHARES: u32 = 4;

/// Work-groups that a device kernel by owners is given: of a row each reads a few kilobytes of `fn`.
const fn groups_for(family: DeviceFamily) -> u32 {
    match family {
        DeviceFamily::Software => 4,
        DeviceFamily::IntelPcie | DeviceFamily::IntelXelink | DeviceFamily::Cuda => 32,
    }
}

/// Most work-groups of a call: those that run at once on every rank, and that the user permits.
pub fn most_groups(agreed: &Agreed, config: &Config) -> u32 {
    agreed.max_wires.min(config.max_wires).clamp(1, MAX_WIRES as u32)
}

/// Rows of a device kernel's batch; 0 where one row's sums are too many.
fn batch_rows(params: &Params) -> u64 {
    let sums = (params.blocks() * row_sums(params)).max(1) as u64;
    u64::from(BATCH_STREAMS / params.streams).min(SUMS_OF_BATCH / sums)
}

/// Words of data that a wire's part of a slot holds.
pub(super) fn words_of(transport: Transport, part: u32) -> u64 {
    match transport {
        Transport::Bulk => u64::from(part) / 4,
        Transport::Lines(form) => u64::from(part) * form.payload_words() as u64,
    }
}

impl fmt::Display for MhcPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Params { variant, rows, hidden, streams, .. } = self.params;
        write!(f, "mHC {variant} by design {}, {rows} x {hidden}, {streams} streams, after ", self.design)?;
        self.reduce.fmt(f)?;
        if self.design == Fused::Owner {
            write!(f, " of {} row{}", self.round_rows, plural(self.round_rows))?;
        }
        if self.columns {
            f.write_str(" by columns")?;
        }
        if self.columns || self.groups != self.reduce.wires {
            write!(f, " by {} work-groups", self.groups)?;
        }
        Ok(())
    }
}
