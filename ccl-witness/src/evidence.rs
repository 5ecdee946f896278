//! Convicted all-reduces as a corpus (docs/corpus.md): what went in and what came out, for anybody to compute again.

use crate::call::{Call, What};
use crate::real;
use crate::watched::{Kept, Seat};
use ccl_core::corpus::{AllReduce, ElementType, EventData, Kind, Origin, Role, TensorData, Writer};
use ccl_core::plan::Request;
use ccl_core::{Error, Order, Result};

/// This rank's part of the corpus, begun with the first conviction.
#[derive(Default)]
pub(crate) struct Evidence {
    writer: Option<Writer>,
    failed: bool,
}

impl Evidence {
    /// Whether calls are to be saved at all.
    pub(crate) fn is_wanted() -> bool {
        real::config().as_ref().is_ok_and(|config| config.witness_corpus.is_some())
    }

    /// Saves a call that some rank convicted; whether it was.
    pub(crate) fn save(&mut self, kept: &Kept, seat: Seat, name: u32) -> Result<bool> {
        if self.failed {
            return Ok(false);
        }
        let saved = self.try_save(kept, seat, name);
        self.failed = saved.is_err();
        saved
    }

    fn try_save(&mut self, kept: &Kept, seat: Seat, name: u32) -> Result<bool> {
        let Kept { number, call, data: Ok((input, output)) } = kept else { return Ok(false) };
        if self.writer.is_none() {
            self.writer = Some(begin(seat, name)?);
        }
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let Some(what) = event(call, *number)? else {
            writer
                .not_captured(&format!("call #{number}, {}: only all-reduces are events of a corpus", call.name()))?;
            return Ok(false);
        };
        let shape = [call.count as u64];
        let tensor = |name, role, address: usize, bytes| TensorData {
            name,
            role,
            dtype: ElementType::Data(call.dtype),
            shape: &shape,
            address: address as u64,
            bytes,
        };
        writer.write(&EventData {
            call: what,
            tensors: &[
                tensor("input", Role::Input, call.send, input),
                tensor("output", Role::Output, call.recv, output),
            ],
            links: &[],
        })
    }
}

fn begin(seat: Seat, name: u32) -> Result<Writer> {
    let config = real::config().as_ref().map_err(|error| Error::InvalidArgument(error.clone()))?;
    let directory = config.witness_corpus.clone().ok_or_else(|| Error::Internal("no folder for a corpus".into()))?;
    Writer::create(Origin {
        directory,
        communicator: format!("w-{name:08x}"),
        rank: seat.rank,
        ranks: seat.n,
        // Alike on all ranks, who may have it from different paths.
        library: "witnessed".into(),
        driver: real::path(),
        device: "host buffers".into(),
        limit: u64::from(config.capture_limit) << 20,
    })
}

/// The call as an event; none of a collective that a corpus does not know.
fn event(call: &Call, number: u64) -> Result<Option<Kind>> {
    let (What::AllReduce, crate::call::Op::Known(op)) = (call.what, call.op) else { return Ok(None) };
    // In which order a library adds that is not ours is not known. In rank order a sum of few roundings is closest.
    let request =
        Request { count: call.count as u64, dtype: call.dtype, op, order: Order::Rank, period: None, registered: None };
    AllReduce::new(&request, format!("call #{number} of a witnessed library, whose order is not known"))
        .map(|call| Some(Kind::AllReduce(call)))
}
