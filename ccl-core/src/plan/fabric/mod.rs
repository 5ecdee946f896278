//! A described box, and the execution of plans on it in virtual time. **Predictions**, not measurements.
//!
//! [`simulate`] takes every step of every rank and wire from the plan itself and plays it as discrete events: work-groups
//! that wait, compute and store, and transfers that queue at links. Nothing in it looks at a clock, draws a number or adds
//! fractions: time is a whole number of picoseconds, and a result is the same on every machine.
//!
//! What it does not know: packets and their headers, stores that stall a work-group when a link is full (they queue
//! instead), what a release costs before the flag of a bulk message, ranks that start apart, anything else on the links.

mod links;
mod simulate;
mod work;

pub use simulate::{Report, Stuck, simulate};

use super::select::Pick;
use super::{Agreed, Plan, Request};
use crate::config::{Algorithm, Config};
use crate::device::DeviceFamily;
use crate::protocol::{LineForm, TAG_LIMIT};
use crate::topology::Slots;
use crate::{DataType, Order, ReduceOp, Result};

/// A port that all transfers between switches go through, in whatever direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RootPort {
    /// GB/s of all transfers through it together.
    pub gbps: f64,
    /// Devices below one switch. What they send each other doesn't pass the port; with 1, everything does.
    pub switch: usize,
}

/// What connects the devices of one host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fabric {
    /// For people.
    pub name: &'static str,
    /// The table that it stands for.
    pub family: DeviceFamily,
    /// GB/s that one device stores into one other.
    pub pair_gbps: f64,
    /// GB/s that one device stores into all others together, and receives from them.
    pub port_gbps: f64,
    /// Share of the port that is left when several devices store into one at the same time.
    pub incast: f64,
    /// Microseconds from a store to its sight by a poll on the other side.
    pub hop_us: f64,
    /// Of these, microseconds from the arrival in memory to the sight by a poll.
    pub poll_us: f64,
    /// What transfers share on their way, if anything. The closed form knows nothing of it.
    pub root: Option<RootPort>,
    /// GB/s of a device's own memory.
    pub local_gbps: f64,
    /// Microseconds from the append of a launch to its first instruction, and from its last to its event.
    pub launch_us: f64,
    /// Work-groups that run at once.
    pub compute_units: u32,
    /// GB/s that one work-group moves.
    pub unit_gbps: f64,
}

impl Fabric {
    /// Two to eight Arc Pro B70 on PCIe 5.0 x8. Link and local bandwidth were measured by others on such a box; the rest is
    /// assumed.
    pub const B70_PCIE: Fabric = Fabric {
        name: "B70, PCIe 5.0 x8",
        family: DeviceFamily::IntelPcie,
        pair_gbps: 28.65,
        port_gbps: 28.65,
        incast: 0.85,
        hop_us: 1.5,
        poll_us: 0.5,
        root: None,
        local_gbps: 579.0,
        launch_us: 5.0,
        compute_units: 32,
        unit_gbps: 4.0,
    };

    /// Data Center GPU Max with Xe Link, every pair linked directly. All of it is assumed from data sheets.
    pub const PVC_XELINK: Fabric = Fabric {
        name: "PVC, Xe Link",
        family: DeviceFamily::IntelXelink,
        pair_gbps: 20.0,
        port_gbps: 140.0,
        incast: 1.0,
        hop_us: 1.2,
        poll_us: 0.4,
        root: None,
        local_gbps: 2000.0,
        launch_us: 5.0,
        compute_units: 64,
        unit_gbps: 6.0,
    };

    /// H200 with NVLink through switches. All of it is assumed from data sheets.
    pub const H200_NVLINK: Fabric = Fabric {
        name: "H200, NVLink",
        family: DeviceFamily::Cuda,
        pair_gbps: 380.0,
        port_gbps: 380.0,
        incast: 0.95,
        hop_us: 1.0,
        poll_us: 0.4,
        root: None,
        local_gbps: 3800.0,
        launch_us: 3.0,
        compute_units: 64,
        unit_gbps: 12.0,
    };

    /// The same, four to a switch, the switches joined by x16 ports at the processor. Not measured by anybody we know.
    pub const B70_TWO_SWITCHES: Fabric = Fabric {
        name: "B70, PCIe 5.0 x8, switches of 4",
        root: Some(RootPort { gbps: 114.6, switch: 4 }),
        ..Fabric::B70_PCIE
    };

    /// The same below one x16 root port that everything between devices goes through. Not measured by anybody we know.
    pub const B70_ROOT_PORT: Fabric = Fabric {
        name: "B70, PCIe 5.0 x8, one root port",
        root: Some(RootPort { gbps: 57.3, switch: 1 }),
        ..Fabric::B70_PCIE
    };

    /// All boxes: what a simulation tells apart.
    pub const BOXES: [Fabric; 5] =
        [Fabric::B70_PCIE, Fabric::B70_TWO_SWITCHES, Fabric::B70_ROOT_PORT, Fabric::PVC_XELINK, Fabric::H200_NVLINK];

    /// One for each family: what the closed form ([`super::cost`]) tells apart.
    pub const ALL: [Fabric; 3] = [Fabric::B70_PCIE, Fabric::PVC_XELINK, Fabric::H200_NVLINK];

    /// Whether what `from` sends `to` goes through the root port.
    pub fn passes_root(&self, from: usize, to: usize) -> bool {
        self.root.is_some_and(|root| from / root.switch != to / root.switch)
    }

    /// What `n` ranks of the box agree on that have lines of `form` and the default slots.
    pub fn agreed(&self, n: usize, form: LineForm) -> Agreed {
        let slot_tiles = Config::default().staging_tiles;
        let (family, max_wires) = (self.family, self.compute_units);
        Agreed {
            n,
            form,
            slot_tiles,
            push_tiles: Slots::USUAL.push_tiles,
            bulk_bytes: 0,
            family,
            native: false,
            max_wires,
            tag_limit: TAG_LIMIT,
        }
    }

    /// The plan of a sum of `bytes` of bfloat16 on `n` ranks of the box: by `pick`, or by what the table says.
    pub fn plan(&self, pick: Option<Pick>, n: usize, bytes: u64, form: LineForm) -> Result<Plan> {
        let (dtype, op, order) = (DataType::Bfloat16, ReduceOp::Sum, Order::Ring);
        let request = Request { count: bytes.div_ceil(2), dtype, op, order, period: None, registered: None };
        let allreduce = match pick {
            None => Algorithm::Auto,
            Some(Pick::OneShot) => Algorithm::OneShot,
            Some(Pick::Mesh) => Algorithm::Mesh,
            Some(Pick::Ring) => Algorithm::Ring,
        };
        super::plan(&request, &self.agreed(n, form), &Config { allreduce, ..Config::default() })
    }
}
