//! The decode loop of an inference engine: one token is recorded, then replayed for each new one, and held against the same
//! work without a graph, bit for bit.
//!
//! `cargo run --release --example decode_loop`
//!
//! Two ranks, threads of this process, share the model. What an engine computes between the collectives is played by
//! copies: each all-reduce has a producer before it and a consumer after it.

use ccl_core::{DataType, Error, ReduceOp, Result, bootstrap};
use ccl_ze::{Buffer, CallOptions, Communicator, Stream};

const RANKS: usize = 2;
const LAYERS: usize = 8;
const HIDDEN: usize = 2048;
const TOKENS: usize = 200;

/// What a token works on.
struct Model {
    hidden: Buffer<f32>,
    partial: Vec<Buffer<f32>>,
}

impl Model {
    /// All work of one token, on `stream`: the same whether it runs at once or is captured.
    fn forward(&mut self, comm: &Communicator, stream: &Stream) -> Result<()> {
        for partial in &mut self.partial {
            let (hidden, sum, bytes) = (self.hidden.as_ptr(), partial.as_ptr(), HIDDEN * size_of::<f32>());
            // SAFETY: both buffers hold that many bytes and live longer than the graph.
            unsafe { stream.copy(sum.cast(), hidden.cast(), bytes, &[])? };
            // Nobody waits for it: what follows on the stream comes after it, in each replay too.
            drop(comm.all_reduce_in_place(partial, ReduceOp::Sum, stream)?);
            // SAFETY: as above.
            unsafe { stream.copy(hidden.cast(), sum.cast(), bytes, &[])? };
        }
        Ok(())
    }
}

/// The input of a token; ranks hold different parts.
fn input(token: usize, rank: usize) -> Vec<f32> {
    (0..HIDDEN).map(|i| ((token * 37 + rank * 11 + i * 5) % 257) as f32 / 263.0).collect()
}

fn rank(comm: &Communicator) -> Result<usize> {
    let (stream, copies) = (comm.stream(0)?, comm.stream(1)?);
    let partial = (0..LAYERS).map(|_| comm.alloc(HIDDEN)).collect::<Result<_>>()?;
    let mut model = Model { hidden: comm.alloc(HIDDEN)?, partial };

    stream.begin_capture()?;
    model.forward(comm, &stream)?;
    let token = stream.end_capture()?.instantiate()?;

    let mut wrong = 0;
    let (mut replayed, mut eager) = (vec![0.0; HIDDEN], vec![0.0; HIDDEN]);
    for number in 0..TOKENS {
        let input = input(number, comm.rank());
        model.hidden.write(&copies, &input)?;
        // SAFETY: all that was captured is in the model, which outlives the wait.
        unsafe { token.launch(&stream, CallOptions::default())? }.wait()?;
        model.hidden.read(&copies, &mut replayed)?;

        model.hidden.write(&copies, &input)?;
        model.forward(comm, &stream)?;
        stream.synchronize()?;
        model.hidden.read(&copies, &mut eager)?;
        wrong += replayed.iter().zip(&eager).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    }
    Ok(wrong)
}

fn main() -> Result<()> {
    let results: Vec<Result<usize>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = bootstrap::local(RANKS)?
            .into_iter()
            .enumerate()
            .map(|(device, mesh)| scope.spawn(move || rank(&Communicator::builder()?.device(device).init_local(mesh)?)))
            .collect();
        let failed = || Error::Internal("a rank panicked".into());
        Ok::<_, Error>(ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err(failed()))).collect())
    })?;
    let wrong: usize = results.into_iter().sum::<Result<usize>>()?;
    println!(
        "{TOKENS} tokens of {LAYERS} all-reduces ({HIDDEN} {}) on {RANKS} ranks: {wrong} elements differ between \
         replay and eager calls",
        DataType::Float32
    );
    if wrong == 0 { Ok(()) } else { Err(Error::Internal("replays differ from eager calls".into())) }
}
