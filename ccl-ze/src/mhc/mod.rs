//! mHC boundaries on a communicator's device: alone, and after the all-reduce that they finish.

mod fused;
mod launch;

pub(crate) use fused::{Addresses, FUSED_ARGS, FusedCalls, FusedLaunch};
#[cfg(feature = "soft")]
pub(crate) use fused::{FusedArgs, unpack_fused};

#[cfg(feature = "test-hooks")]
pub(crate) use launch::COUNTER_BYTES;
#[cfg(feature = "soft")]
pub(crate) use launch::unpack;
pub(crate) use launch::{DTYPES, Launch, MHC_ARGS, STREAMS, Workspace, memory};

use crate::communicator::{CallOptions, Communicator};
use crate::completion::Completion;
use crate::endpoint::Executable;
use crate::saving::Boundary;
use crate::stream::Stream;
use ccl_core::corpus::AllReduce;
use ccl_core::device::Edges;
use ccl_core::mhc::{Buffers, Design, Params, Variant};
use ccl_core::plan::Request;
use ccl_core::plan::mhc::{Fused, MhcPlan};
use ccl_core::{Error, ReduceOp, Result};
use level_zero_sys::ze_event_handle_t;

impl Communicator {
    /// Makes the device ready for mHC boundaries: compiles their kernels, and allocates what they share (4 MiB), so that
    /// no call has to. To be called before the first boundary, by this rank alone; once more does nothing.
    pub fn prepare_mhc(&self) -> Result<()> {
        self.core().endpoint().prepare_mhc(&self.core().info().agreed, self.config())
    }

    /// The counters by which work-groups of eager boundaries meet: words that are 0 between calls.
    #[cfg(feature = "test-hooks")]
    pub fn mhc_counters(&self) -> Option<(*mut u32, usize)> {
        self.core().endpoint().mhc_counters()
    }

    /// Appends an mHC boundary to `stream`, without a reduction: x, if the variant has it, is whole on this rank. The number
    /// of ranks has a part in the order of its sums, so that it has the bits of [`Self::all_reduce_mhc`].
    ///
    /// Nothing is enqueued when an error is returned, unless that says so ([`CallOptions::signal`]). Boundaries take turns with
    /// this process's other collectives on the device, as those do with one another.
    ///
    /// # Safety
    /// `buffers` must have the shapes that `params` says, in memory of the device, until the completion says that the call is
    /// over, or as long as what records the stream may be replayed; the events must be live, of the device's context.
    pub unsafe fn mhc(
        &self,
        params: &Params,
        buffers: &Buffers,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        self.check_mhc(params, buffers, false)?;
        // SAFETY: passed on to the caller; checked above.
        unsafe { self.append_mhc(params, buffers, stream, options) }
    }

    /// Sums x over all ranks, each of its rows cut alike, and takes the sum through an mHC boundary with post, on every rank.
    ///
    /// What only the boundary needs is where it always is; the sum itself goes to `x_out`, or nowhere if that is null. By
    /// [`Design::Unfused`] it has to be somewhere: where there is no `x_out`, that is `y`, until y is written; post alone has
    /// none, and wants an `x_out`.
    ///
    /// Whatever is refused is refused before anything is enqueued. Only where the driver itself fails between the two
    /// launches of [`Design::Unfused`] is the reduction under way all the same, on this rank as on the others, and the
    /// boundary's outputs stay as they are. After a failure the outputs are not defined.
    ///
    /// # Safety
    /// As for [`Self::mhc`].
    pub unsafe fn all_reduce_mhc(
        &self,
        params: &Params,
        buffers: &Buffers,
        design: Design,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        self.check_mhc(params, buffers, true)?;
        if !params.variant.has_post() {
            return Err(Error::InvalidArgument(format!("mHC: a reduction before {}, which has no x", params.variant)));
        }
        if design == Design::B && params.variant != Variant::V41 {
            return Err(Error::NotImplemented(format!("mHC {} by design b: y needs the sums", params.variant)));
        }
        // Nothing travels: whatever the design, the boundary is all there is.
        let alone = self.world_size() == 1 || params.rows == 0;
        let fused = match design {
            Design::Unfused => None,
            _ if alone => None,
            Design::A => Some(Fused::Whole),
            Design::B => Some(Fused::Delayed),
            Design::C => Some(Fused::Owner),
            Design::Auto => Fused::auto(params, &self.core().info().agreed, self.config()),
        };
        let Some(by) = fused else {
            // SAFETY: passed on to the caller; checked above.
            return unsafe { self.unfused(params, buffers, stream, options) };
        };
        match self.ready(params, buffers, by) {
            // SAFETY: as above.
            Ok(executable) => unsafe { self.fused(params, buffers, by, &executable, stream, options) },
            // What can't be planned, or doesn't run on devices of this kind, is refused on all ranks alike.
            Err(Error::NotImplemented(_)) if design == Design::Auto => {
                // SAFETY: as above.
                unsafe { self.unfused(params, buffers, stream, options) }
            }
            Err(error) => Err(error),
        }
    }

    /// The plan by which [`Self::all_reduce_mhc`] goes if the design is forced; it prints as one line.
    pub fn plan_mhc(&self, params: &Params, design: Fused) -> Result<MhcPlan> {
        MhcPlan::new(params, design, self.config().order, &self.core().info().agreed, self.config())
    }

    fn ready(&self, params: &Params, buffers: &Buffers, design: Fused) -> Result<Executable> {
        let has_place = design == Fused::Owner && self.core().info().agreed.native;
        if !has_place && buffers.x_out.is_null() && !params.variant.has_pre() {
            return Err(Error::InvalidArgument("mHC: post alone by this design wants x_out (x itself will do)".into()));
        }
        let plan = || self.plan_mhc(params, design);
        self.core().endpoint().fused(params, design, plan, self.rank(), buffers)
    }

    /// # Safety
    /// As for [`Self::mhc`]; `executable` was made of the rest.
    unsafe fn fused(
        &self,
        params: &Params,
        buffers: &Buffers,
        by: Fused,
        executable: &Executable,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let Some(saving) = self.saving() else {
            // SAFETY: passed on to the caller.
            return unsafe { self.launch_mhc(executable, stream, options) };
        };
        let plan = self.plan_mhc(params, by)?;
        let call = Boundary { params, buffers, sum: Some(AllReduce::new(&self.sum_of(params), plan)?) };
        let submit = |buffers: &Buffers, after: &[ze_event_handle_t]| {
            // It may have been given an x_out.
            let executable = self.ready(params, buffers, by)?;
            // SAFETY: as above.
            unsafe { self.launch_mhc(&executable, stream, CallOptions { after, ..options }) }
        };
        // SAFETY: as above.
        unsafe { saving.around_mhc(call, self.gpu(), stream, options, submit) }
    }

    /// The all-reduce before a boundary.
    fn sum_of(&self, params: &Params) -> Request {
        let sum = self.request(params.rows * params.hidden, params.dtype, ReduceOp::Sum);
        Request { period: Some(params.hidden), ..sum }
    }

    /// # Safety
    /// As for [`Self::mhc`].
    unsafe fn launch_mhc(
        &self,
        executable: &Executable,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let edges = Edges { after: options.after, signal: options.signal };
        // SAFETY: passed on to the caller.
        unsafe { self.core().launch(executable, stream, edges) }.map(Completion::of_call)
    }

    fn check_mhc(&self, params: &Params, buffers: &Buffers, reduces: bool) -> Result<()> {
        if let Some(error) = self.fault() {
            return Err(error);
        }
        params.check()?;
        buffers.check(params, reduces)
    }

    /// # Safety
    /// As for [`Self::mhc`]; what is passed has been checked.
    unsafe fn unfused(
        &self,
        params: &Params,
        buffers: &Buffers,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let reduced = if !buffers.x_out.is_null() { buffers.x_out } else { buffers.y };
        if params.rows > 0 && (reduced.is_null() || !params.variant.has_pre() && buffers.x_out.is_null()) {
            return Err(Error::InvalidArgument(
                "mHC: post alone after a reduction wants x_out (x itself will do)".into(),
            ));
        }
        // Before anything is enqueued.
        self.core().endpoint().mhc(params, self.world_size(), buffers)?;
        stream.check_device(self.gpu())?;
        let sum = self.sum_of(params);
        let before = CallOptions { signal: None, ..options };
        // SAFETY: passed on to the caller. The boundary below comes after it: by the stream's order, or as the next of this
        // device's calls.
        let _summed = unsafe { self.all_reduce_with(&sum, buffers.x, reduced, stream, before)? };
        let whole = Buffers { x: reduced, ..*buffers };
        // SAFETY: as above.
        unsafe { self.append_mhc(params, &whole, stream, CallOptions { after: &[], signal: options.signal }) }
    }

    /// # Safety
    /// As above.
    unsafe fn append_mhc(
        &self,
        params: &Params,
        buffers: &Buffers,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let executable = self.core().endpoint().mhc(params, self.world_size(), buffers)?;
        let submit = |after: &[ze_event_handle_t]| {
            // SAFETY: passed on to the caller.
            unsafe { self.launch_mhc(&executable, stream, CallOptions { after, ..options }) }
        };
        match self.saving() {
            None => submit(options.after),
            Some(saving) => {
                let call = Boundary { params, buffers, sum: None };
                // SAFETY: as above.
                unsafe { saving.around_mhc(call, self.gpu(), stream, options, |_, after| submit(after)) }
            }
        }
    }
}
