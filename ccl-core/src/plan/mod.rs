//! Plans: pure functions from rank-invariant inputs to data that a device executes.
//!
//! Selection looks only at what is alike on all ranks: the call's arguments, what was agreed at init, and those
//! configuration variables whose hash is compared at init. Two ranks on two algorithms would be a hang.

pub mod cache;
pub mod channel;
pub mod cost;
pub mod fabric;
pub mod geometry;
pub mod mhc;
pub mod mhc_cost;
pub mod push;
pub mod ring;
pub mod select;
pub mod verify;
pub mod verify_channel;
pub mod verify_columns;
pub mod verify_mhc;
pub mod verify_push;

use std::fmt;

use crate::config::Config;
use crate::device::DeviceFamily;
use crate::protocol::{Layout, LineForm, MAX_RANKS, MAX_WIRES, TAG_LIMIT};
use crate::{DataType, Error, Order, ReduceOp, Result};

use geometry::Geometry;
use push::{PushPlan, Transport};
use ring::RingPlan;
use select::Choice;

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Elements of each rank's message.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// Order of summation.
    pub order: Order,
    /// Elements of a row, if ownership starts anew with each.
    pub period: Option<u64>,
    /// Where the buffers lie in collectively registered ones: alike on all ranks, as everything here.
    pub registered: Option<Registered>,
}

impl Request {
    /// Whether it is the same as `other`, which is in one row and multiplies nothing, on buffers that aren't registered.
    #[inline(always)]
    pub(crate) fn is_plainly(&self, other: &Request) -> bool {
        let Request { count, dtype, op, order, period, registered } = *self;
        debug_assert!(
            other.period.is_none() && other.registered.is_none() && !matches!(other.op, ReduceOp::PreMulSum(_))
        );
        count == other.count
            && dtype == other.dtype
            && op.code() == other.op.code()
            && order == other.order
            && period.is_none()
            && registered.is_none()
    }

    /// Whether a kernel runs for it among `n` ranks: a message is at most copied where there is nothing to reduce, and
    /// nothing is to be multiplied.
    pub const fn computes(&self, n: usize) -> bool {
        self.count > 0 && (n > 1 || matches!(self.op, ReduceOp::PreMulSum(_)))
    }
}

/// A buffer of a call as a place in a registered one. Alike on all ranks: that is what they agree on by registering, and
/// what a caller vouches for with the offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegisteredRange {
    /// Number of the registration, counted alike on all ranks.
    pub registration: u32,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// Both buffers of a call as places in registered ones; equal if it is in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registered {
    /// Input.
    pub send: RegisteredRange,
    /// Output.
    pub recv: RegisteredRange,
}

/// What all ranks agreed on at init.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Ranks.
    pub n: usize,
    /// Lines on the wire: the narrowest that any link needs.
    pub form: LineForm,
    /// Tiles of a slot of the ring.
    pub slot_tiles: u32,
    /// Tiles of a push line slot; 0 if not every rank can push to every other.
    pub push_tiles: u32,
    /// Bytes of a bulk slot; 0 if data and flag may not be stored apart. Direct calls need it as well.
    pub bulk_bytes: u32,
    /// What kind of device it is for the selection of algorithms.
    pub family: DeviceFamily,
    /// Whether every rank's kernels are native functions: there are more of them.
    pub native: bool,
    /// Most work-groups that run at once on every rank's device.
    pub max_wires: u32,
    /// Highest tag.
    pub tag_limit: u32,
}

impl Agreed {
    /// What suffices for rings.
    pub const fn ring(n: usize, form: LineForm, slot_tiles: u32) -> Self {
        Self {
            n,
            form,
            slot_tiles,
            push_tiles: 0,
            bulk_bytes: 0,
            family: DeviceFamily::Software,
            native: false,
            max_wires: MAX_WIRES as u32,
            tag_limit: TAG_LIMIT,
        }
    }

    /// Where everything lies in staging memory.
    pub const fn layout(&self) -> Layout {
        let Self { n, form, slot_tiles, push_tiles, bulk_bytes, .. } = *self;
        Layout { n, form, slot_tiles, push_tiles, bulk_bytes }
    }
}

/// What a device is to do for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// No element: only completion is signalled.
    Empty,
    /// One rank: a copy if out of place, else nothing.
    Local,
    /// A ring.
    Ring(RingPlan),
    /// One-shot, mesh or direct.
    Push(PushPlan),
}

/// The plan for `request`; refuses, before anything is enqueued, whatever this build does not execute.
pub fn plan(request: &Request, agreed: &Agreed, config: &Config) -> Result<Plan> {
    let Request { count, dtype, op, period, .. } = *request;
    let n = agreed.n;
    if n == 0 || agreed.slot_tiles == 0 || agreed.max_wires == 0 || agreed.tag_limit == 0 {
        return Err(Error::Internal(format!("a plan from nothing agreed: {agreed:?}")));
    }
    if n > MAX_RANKS {
        return Err(Error::NotImplemented(format!("all_reduce on {n} ranks; there are 1 to {MAX_RANKS}")));
    }
    // Whether it is of use for the elements.
    op.factor(dtype)?;
    // Also the judge of count and period, whatever the plan.
    let geometry = Geometry::new(n, count, period, dtype.size())?;
    if count == 0 {
        return Ok(Plan::Empty);
    }
    if !request.computes(n) {
        return Ok(Plan::Local);
    }
    let (plan, variable) = match select::select(request, &geometry, agreed, config)? {
        Choice::Ring { wires } => (Plan::Ring(RingPlan::new(request, agreed, wires)?), "CCLX_STAGING_TILES"),
        Choice::Push { mode, transport, wires } => {
            let variable = if transport == Transport::Bulk { "CCLX_BULK_BYTES" } else { "CCLX_PUSH_TILES" };
            (Plan::Push(PushPlan::new(request, agreed, mode, transport, wires)?), variable)
        }
    };
    if plan.rounds() > agreed.tag_limit {
        return Err(Error::NotImplemented(format!(
            "all_reduce of {count} elements of {dtype} in {} rounds, more than the {} tags that there are; \
             raise {variable}",
            plan.rounds(),
            agreed.tag_limit
        )));
    }
    Ok(plan)
}

impl Plan {
    /// Tags that a call by this plan spends: its rounds.
    pub const fn rounds(&self) -> u32 {
        match self {
            Plan::Empty | Plan::Local => 0,
            Plan::Ring(ring) => ring.rounds,
            Plan::Push(push) => push.rounds,
        }
    }

    /// Executes the plan of all ranks symbolically; the error says what is wrong with it. See [`verify`].
    pub fn verify(&self) -> std::result::Result<(), String> {
        match self {
            // Neither takes a step that could be wrong.
            Plan::Empty | Plan::Local => Ok(()),
            Plan::Ring(ring) => verify::verify(ring),
            Plan::Push(push) => verify_push::verify(push),
        }
    }
}

/// What the line for people says of any plan: the call, the ranks, and rows where there are several.
fn describe_call(
    f: &mut fmt::Formatter<'_>,
    n: usize,
    (dtype, op, order): (DataType, ReduceOp, Order),
    geometry: &Geometry,
) -> fmt::Result {
    write!(f, "{dtype} {op} order={order} n={n} count={}", geometry.count())?;
    if geometry.period() < geometry.count() {
        write!(f, " period={}", geometry.period())?;
    }
    Ok(())
}

const fn plural(number: u32) -> &'static str {
    if number == 1 { "" } else { "s" }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plan::Empty => f.write_str("nothing to do: no elements"),
            Plan::Local => f.write_str("local copy: one rank"),
            Plan::Ring(ring) => ring.fmt(f),
            Plan::Push(push) => push.fmt(f),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::Factor;

    const AGREED: Agreed = Agreed { max_wires: 16, ..Agreed::ring(4, LineForm::L64, 256) };

    fn request(count: u64) -> Request {
        Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        }
    }

    fn ring(count: u64, agreed: &Agreed, config: &Config) -> RingPlan {
        match plan(&request(count), agreed, config).unwrap() {
            Plan::Ring(ring) => ring,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_three_kinds_of_plan() {
        let config = Config::default();
        assert_eq!(plan(&request(0), &AGREED, &config), Ok(Plan::Empty));
        let alone = Agreed { n: 1, ..AGREED };
        assert_eq!(plan(&request(5), &alone, &config), Ok(Plan::Local));
        // One rank alone multiplies, in either order.
        for order in [Order::Ring, Order::Rank] {
            let op = ReduceOp::PreMulSum(Factor::new(DataType::Bfloat16, 3));
            let plan = plan(&Request { op, order, ..request(100_000) }, &alone, &config).unwrap();
            assert_eq!(plan.verify(), Ok(()));
            let Plan::Ring(ring) = plan else { panic!("{plan}") };
            assert!(ring.steps(0).all(|step| step.store && !step.send && !step.receive && !step.reduce));
        }
        assert_eq!(ring(1, &AGREED, &config).rounds, 1);
    }

    #[test]
    fn every_type_and_reduction_has_a_plan() {
        let config = Config::default();
        for dtype in DataType::ALL {
            for op in ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum(Factor::new(dtype, 3))]) {
                let request = Request { dtype, op, ..request(100_003) };
                for form in LineForm::ALL {
                    let plan = plan(&request, &Agreed { form, slot_tiles: 5, ..AGREED }, &config).unwrap();
                    plan.verify().unwrap();
                    assert!(matches!(plan, Plan::Ring(ring) if (ring.dtype, ring.op) == (dtype, op)));
                }
            }
        }
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let config = Config::default();
        let cases = [
            (Request { order: Order::Rank, ..request(1) }, AGREED, "order=rank"),
            (request(1), Agreed { n: 17, ..AGREED }, "17 ranks"),
            (request(100_000_000), Agreed { tag_limit: 3, ..AGREED }, "CCLX_STAGING_TILES"),
            (request(1 << 60), AGREED, "rounds"),
        ];
        for (request, agreed, word) in cases {
            let Err(Error::NotImplemented(text)) = plan(&request, &agreed, &config) else {
                panic!("{request:?} was not refused")
            };
            assert!(text.contains(word), "{text}");
        }
        let factor = ReduceOp::PreMulSum(Factor::new(DataType::Int8, 3));
        for (request, word) in [
            (request(1 << 61), "beyond"),
            (Request { period: Some(0), ..request(0) }, "period"),
            (Request { op: factor, ..request(0) }, "a factor of int8 (bits 0x3) for elements of bfloat16"),
        ] {
            let Err(Error::InvalidArgument(text)) = plan(&request, &AGREED, &config) else {
                panic!("{request:?} was not refused")
            };
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn wires_grow_with_the_message_up_to_every_cap() {
        let config = Config::default();
        let mut last = 0;
        for shift in 0..30 {
            let wires = ring(1 << shift, &AGREED, &config).wires;
            assert!(wires >= last && wires <= 16);
            last = wires;
        }
        assert_eq!(last, 16);
        let large = 1 << 29;
        assert_eq!(ring(large, &Agreed { slot_tiles: 3, ..AGREED }, &config).wires, 3);
        assert_eq!(ring(large, &AGREED, &Config { max_wires: 2, ..Config::default() }).wires, 2);
        // Many rows, each of which has a block of chunk 0 alone, and rows that have several.
        assert_eq!(ring(1, &AGREED, &config).wires, 1);
        assert_eq!(ring(20_000, &Agreed { n: 16, ..AGREED }, &config).wires, 2);
    }
}
