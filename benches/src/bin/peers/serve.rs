//! A rank of this program: what `benches/peers/contestant.h` is for the peers, for this library and the floors.

use crate::data::{self, Type};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Something that can all-reduce.
pub(crate) trait Contestant {
    /// Makes `bytes` the input of the calls to come, and the output something else.
    fn set_input(&mut self, variant: &str, bytes: &[u8]) -> Result<(), String>;

    /// One finished all-reduce.
    fn all_reduce(&mut self, variant: &str, dtype: Type, bytes: usize) -> Result<(), String>;

    /// The output of the last call, or nothing if there is none to check.
    fn output(&mut self, variant: &str, to: &mut [u8]) -> Result<bool, String>;
}

/// This process onto its core: one rank a core, as far as they reach.
pub(crate) fn pin(rank: usize) -> Result<(), String> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|error| error.to_string())?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    let mut mine = CpuSet::new();
    mine.set(cpus[rank % cpus.len()]).map_err(|error| error.to_string())?;
    sched_setaffinity(Pid::from_raw(0), &mine).map_err(|error| error.to_string())
}

/// Serves the coordinator until it says quit or goes away.
pub(crate) fn serve(
    name: &str,
    rank: usize,
    ranks: usize,
    socket: &str,
    contestant: &mut dyn Contestant,
) -> Result<(), String> {
    let stream = UnixStream::connect(socket).map_err(|error| format!("{socket}: {error}"))?;
    let mut out = stream.try_clone().map_err(|error| error.to_string())?;
    let mut say = |line: String| out.write_all(line.as_bytes()).map_err(|error| error.to_string());
    say(format!("hello {name} {rank} {}\n", std::process::id()))?;
    let mut image = Vec::new();
    let mut times = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line == "quit" {
            break;
        }
        let done = Step::parse(&line)
            .ok_or_else(|| format!("a line that nobody understands: {line}"))
            .and_then(|step| step.run(rank, ranks, contestant, &mut image, &mut times));
        match done {
            Ok((median, least, wrong)) => say(format!("done {median} {least} {wrong}\n"))?,
            Err(error) => {
                say(format!("failed {}\n", error.replace('\n', " ")))?;
                return Err(error);
            }
        }
    }
    Ok(())
}

struct Step<'a> {
    variant: &'a str,
    dtype: Type,
    bytes: usize,
    warmup: usize,
    calls: usize,
    seed: u32,
}

impl Step<'_> {
    fn parse(line: &str) -> Option<Step<'_>> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["run", variant, dtype, count, warmup, calls, seed] = words[..] else { return None };
        let dtype = Type::ALL.into_iter().find(|known| known.name() == dtype)?;
        Some(Step {
            variant,
            dtype,
            bytes: count.parse::<usize>().ok()? * dtype.size(),
            warmup: warmup.parse().ok()?,
            calls: calls.parse().ok().filter(|calls| *calls > 0)?,
            seed: seed.parse().ok()?,
        })
    }

    fn run(
        &self,
        rank: usize,
        ranks: usize,
        contestant: &mut dyn Contestant,
        image: &mut Vec<u8>,
        times: &mut Vec<u64>,
    ) -> Result<(u64, u64, usize), String> {
        image.resize(self.bytes, 0);
        data::fill(image, self.dtype, rank, self.seed);
        contestant.set_input(self.variant, image)?;
        times.clear();
        times.reserve(self.calls);
        for _ in 0..self.warmup {
            contestant.all_reduce(self.variant, self.dtype, self.bytes)?;
        }
        let mut begun = Instant::now();
        for _ in 0..self.calls {
            contestant.all_reduce(self.variant, self.dtype, self.bytes)?;
            let now = Instant::now();
            times.push((now - begun).as_nanos() as u64);
            begun = now;
        }
        times.sort_unstable();
        // A result left over from the timed calls would be noticed.
        data::fill(image, self.dtype, rank, self.seed + 1);
        contestant.set_input(self.variant, image)?;
        contestant.all_reduce(self.variant, self.dtype, self.bytes)?;
        let checkable = contestant.output(self.variant, image)?;
        let wrong = if checkable { data::wrong(image, self.dtype, ranks, self.seed + 1) } else { 0 };
        Ok((times[(self.calls - 1) / 2], times[0], wrong))
    }
}
