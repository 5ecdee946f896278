//! mHC boundaries on an endpoint.

use super::{Executable, Kind, ZeEndpoint};
use crate::hooks;
use crate::mhc::{self, Workspace};
use crate::recording::Recording;
use ccl_core::config::Config;
use ccl_core::mhc::{Buffers, Params};
use ccl_core::plan::Agreed;
use ccl_core::plan::mhc::{Fused, MhcPlan};
use ccl_core::{Error, Result};

impl ZeEndpoint {
    /// See [`crate::Communicator::prepare_mhc`].
    pub(crate) fn prepare_mhc(&self, agreed: &Agreed, config: &Config) -> Result<()> {
        if self.mhc.get().is_none() {
            let made = Workspace::new(&self.gpu, &self.stream, agreed, config)?;
            // Of two that come at once one has made it in vain.
            self.mhc.get_or_init(|| made);
        }
        Ok(())
    }

    /// See [`crate::Communicator::mhc_counters`].
    #[cfg(feature = "test-hooks")]
    pub(crate) fn mhc_counters(&self) -> Option<(*mut u32, usize)> {
        let workspace = self.mhc.get()?;
        Some((workspace.memory().address.cast(), mhc::COUNTER_BYTES / 4))
    }

    /// A boundary made ready. What it is of has been checked.
    pub(crate) fn mhc(&self, params: &Params, n: usize, buffers: &Buffers) -> Result<Executable> {
        let kind = match self.mhc.get() {
            None => return Err(Error::InvalidUsage("an mHC boundary before prepare_mhc".into())),
            Some(_) if params.rows == 0 => Kind::Empty,
            Some(workspace) => Kind::Mhc(workspace.launch(params, n, buffers)?),
        };
        Ok(Executable { kind })
    }

    /// A boundary in a recording has memory of the recording's: replays run beside eager boundaries, and no busy words are
    /// in the way. A native kernel needs none.
    pub(super) fn of_recording(&self, recording: &Recording, executable: &Executable) -> Result<Option<Executable>> {
        match &executable.kind {
            Kind::Mhc(launch) if !self.gpu.facts.native || hooks::on(self.hooks, hooks::BOUNDARIES_OF_KERNELS) => {
                let memory = recording.workspace(&self.gpu, || mhc::memory(&self.gpu, &self.stream))?;
                Ok(Some(Executable { kind: Kind::Mhc(launch.with_memory(memory)) }))
            }
            _ => Ok(None),
        }
    }

    /// The same after an all-reduce of `rank`, in one launch.
    pub(crate) fn fused(
        &self,
        params: &Params,
        design: Fused,
        plan: impl FnOnce() -> Result<MhcPlan>,
        rank: usize,
        buffers: &Buffers,
    ) -> Result<Executable> {
        let workspace = self.mhc.get();
        let workspace = workspace.ok_or_else(|| Error::InvalidUsage("an mHC boundary before prepare_mhc".into()))?;
        let addresses = mhc::Addresses {
            state: self.state.address as u64,
            host: self.host.memory.address as u64,
            peers: self.table.address as u64,
        };
        let ready = workspace.fused.ready(&self.gpu, params, design, plan)?;
        let launch = workspace.fused.launch(&ready, rank, buffers, addresses, workspace.memory());
        Ok(Executable { kind: Kind::Fused(launch) })
    }
}

#[cfg(all(test, feature = "soft", feature = "test-hooks"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::communicator::Communicator;
    use ccl_core::comm::StartState;
    use ccl_core::config::{Algorithm, Check, DeviceChoice, TransportChoice};
    use ccl_core::mhc::Variant;
    use ccl_core::{DataType, Order, bootstrap};

    /// What every recording of a boundary goes by, on a list or a SYCL queue: memory that is neither an eager boundary's nor
    /// another recording's.
    #[test]
    fn recorded_boundaries_have_memory_of_their_recording() {
        for (hooks, kernels) in [(hooks::BOUNDARIES_OF_KERNELS, true), (hooks::TRACE, false)] {
            let start = StartState { hooks, ..StartState::default() };
            let config = Config { device: DeviceChoice::Soft, ..Config::default() };
            let mesh = bootstrap::local(1).unwrap().remove(0);
            let comm = Communicator::builder_with(config).start(start).init_local(mesh).unwrap();
            comm.prepare_mhc().unwrap();
            let endpoint = comm.core().endpoint();
            let params = Params::new(Variant::V4, DataType::Float32, 3, 64, 4);
            let eager = endpoint.mhc(&params, 1, &Buffers::default()).unwrap();
            let memory = |executable: &Executable| match &executable.kind {
                Kind::Mhc(launch) => {
                    let address = launch.memory.address as u64;
                    assert!(launch.arguments.contains(&address), "the kernel is told of it");
                    address
                }
                _ => panic!("not a boundary"),
            };
            let recordings = [Recording::new(), Recording::new()];
            let recorded = |which: usize| endpoint.for_recording(&recordings[which], &eager).unwrap();
            let all = [0, 0, 1].map(|which| recorded(which).as_ref().map(memory));
            if !kernels {
                assert_eq!(all, [None; 3], "native kernels share nothing");
                continue;
            }
            assert_eq!(all[0], all[1], "boundaries of one recording take turns");
            assert!(all[0].is_some() && all[2].is_some() && all[0] != all[2]);
            assert!(!all.contains(&Some(memory(&eager))));
        }
    }

    /// Work-groups of a launch by columns, of a block whose mixes are worth three parts, among `n` ranks.
    fn groups_by_columns(comm: &Communicator, n: usize, config: &Config, in_place: bool) -> u32 {
        let endpoint = comm.core().endpoint();
        let agreed = Agreed { n, push_tiles: 16, bulk_bytes: 0, ..comm.core().info().agreed };
        let workspace = Workspace::new(&endpoint.gpu, &endpoint.stream, &agreed, config).unwrap();
        let params = Params::new(Variant::V4, DataType::Bfloat16, 1, 128, 4);
        let plan = || MhcPlan::new(&params, Fused::Whole, Order::Ring, &agreed, config);
        assert!(plan().unwrap().columns);
        let ready = workspace.fused.ready(&endpoint.gpu, &params, Fused::Whole, plan).unwrap();
        let residual_out = if in_place { std::ptr::null_mut() } else { 64 as *mut _ };
        let buffers = Buffers { residual_out, y: 128 as *mut _, x_out: 192 as *mut _, ..Buffers::default() };
        let addresses = mhc::Addresses { state: 0, host: 0, peers: 0 };
        workspace.fused.launch(&ready, 0, &buffers, addresses, workspace.memory()).groups
    }

    fn by_columns(max_wires: u32, check: Check) -> Config {
        let (allreduce, transport) = (Algorithm::OneShot, TransportChoice::Lines);
        Config { device: DeviceChoice::Soft, allreduce, transport, max_wires, check, ..Config::default() }
    }

    #[test]
    fn columns_in_parts_have_no_more_groups_than_a_collective_may() {
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let comm = Communicator::builder_with(by_columns(64, Check::Off)).init_local(mesh).unwrap();
        let groups = |max_wires| groups_by_columns(&comm, 2, &by_columns(max_wires, Check::Off), false);
        assert_eq!([64, 3, 2, 1].map(groups), [3, 3, 2, 1]);
        let in_place = groups_by_columns(&comm, 2, &by_columns(64, Check::Off), true);
        assert_eq!(in_place, 1, "nobody reads what another wrote over");
    }

    /// There the first group has to send to the previous rank itself (docs/protocol.md, "Checked mode").
    #[test]
    fn checked_columns_of_three_ranks_and_more_go_in_one_part() {
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let comm = Communicator::builder_with(by_columns(64, Check::Off)).init_local(mesh).unwrap();
        for (check, groups) in [(Check::Off, [3; 4]), (Check::Local, [3; 4]), (Check::Global, [3, 1, 1, 1])] {
            let found = [2, 3, 4, 8].map(|n| groups_by_columns(&comm, n, &by_columns(64, check), false));
            assert_eq!(found, groups, "{check}");
        }
    }
}
