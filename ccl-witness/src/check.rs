//! Judges a call from what all ranks have kept of it.

use crate::bounds::{Judged, judge, load, show};
use crate::call::{Call, Op, What};
use crate::report::Conviction;
use crate::watched::Seat;
use ccl_core::DataType;
use ccl_core::types::Factor;

/// What came of a call.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) elements: u64,
    pub(crate) open: u64,
    /// The ranks' results are not the same, bit for bit.
    pub(crate) unlike: bool,
    /// The first wrong element of each rank.
    pub(crate) wrong: Vec<Conviction>,
    /// Ranks that don't fit together: no fault of the library.
    pub(crate) misfit: Option<String>,
}

/// A call that is being judged: by `seat`, with `came` of each rank and this rank's own output.
pub(crate) struct Case<'a> {
    pub(crate) number: u64,
    pub(crate) call: &'a Call,
    pub(crate) seat: Seat,
    pub(crate) factors: &'a [Factor],
    pub(crate) came: &'a [Vec<u8>],
    pub(crate) output: &'a [u8],
}

/// One rank's result, and where it begins.
struct Result<'a> {
    rank: usize,
    bytes: &'a [u8],
    first: u64,
}

impl Case<'_> {
    pub(crate) fn judge(&self) -> Outcome {
        match self.call.what {
            What::AllReduce => self.all_reduce(),
            What::Other(what) if what.reduces() => self.reduction_here(),
            What::Other(_) => self.movement(),
        }
    }

    fn size(&self) -> usize {
        self.call.dtype.size()
    }

    /// This rank's share of every rank's result.
    fn all_reduce(&self) -> Outcome {
        let Seat { rank, n } = self.seat;
        let share = self.call.share(n, rank);
        if let Some(odd) = self.came.iter().position(|came| came.len() != 2 * share.len()) {
            return misfit(odd, self.came[odd].len(), 2 * share.len());
        }
        let parts: Vec<_> = self.came.iter().map(|came| came.split_at(share.len())).collect();
        let inputs: Vec<&[u8]> = parts.iter().map(|(input, _)| *input).collect();
        let first = (share.start / self.size()) as u64;
        let results = parts.iter().enumerate().map(|(rank, (_, bytes))| Result { rank, bytes, first });
        let mut outcome = self.reduced(&inputs, &results.collect::<Vec<_>>());
        outcome.unlike = parts.iter().any(|(_, output)| *output != parts[0].1);
        outcome
    }

    /// This rank's own result, of everybody's piece for it; nothing where none is.
    fn reduction_here(&self) -> Outcome {
        let Seat { rank, n } = self.seat;
        let place = self.call.received(n, rank, rank);
        if let Some(odd) = self.came.iter().position(|came| came.len() != place.len()) {
            return misfit(odd, self.came[odd].len(), place.len());
        }
        if place.is_empty() {
            return Outcome::default();
        }
        let inputs: Vec<&[u8]> = self.came.iter().map(|came| &**came).collect();
        self.reduced(&inputs, &[Result { rank, bytes: &self.output[place], first: 0 }])
    }

    fn reduced(&self, inputs: &[&[u8]], results: &[Result<'_>]) -> Outcome {
        let (size, dtype, op) = (self.size(), self.call.dtype, self.call.op);
        let mut outcome = Outcome::default();
        let mut firsts: Vec<Option<Conviction>> = results.iter().map(|_| None).collect();
        let mut elements = vec![0u64; inputs.len()];
        let count = inputs.first().map_or(0, |input| input.len() / size);
        for i in 0..count {
            let at = i * size..(i + 1) * size;
            for (element, input) in elements.iter_mut().zip(inputs) {
                *element = load(&input[at.clone()]);
            }
            let mut known: Option<(u64, Judged)> = None;
            for (result, first) in results.iter().zip(&mut firsts) {
                let got = load(&result.bytes[at.clone()]);
                // Most often all ranks have the same.
                let judged = match &known {
                    Some((bits, judged)) if *bits == got => judged.clone(),
                    _ => judge(dtype, op, &elements, self.factors, got),
                };
                outcome.elements += 1;
                outcome.open += u64::from(judged == Judged::Open);
                if let Judged::Wrong(expected) = &judged {
                    let new =
                        || self.conviction(result.rank, result.first + i as u64, got, expected.clone(), &elements);
                    first.get_or_insert_with(new).wrong_elements += 1;
                }
                known = Some((got, judged));
            }
        }
        outcome.wrong = firsts.into_iter().flatten().collect();
        outcome
    }

    /// What this rank got, from whom it came.
    fn movement(&self) -> Outcome {
        let Seat { rank, n } = self.seat;
        let size = self.size();
        let mut outcome = Outcome::default();
        for (from, came) in self.came.iter().enumerate() {
            let place = self.call.received(n, rank, from);
            if came.len() != place.len() {
                return misfit(from, came.len(), place.len());
            }
            outcome.elements += (came.len() / size) as u64;
            let (got, first) = (&self.output[place.clone()], (place.start / size) as u64);
            if got == came {
                continue;
            }
            let pairs = || got.chunks_exact(size).zip(came.chunks_exact(size)).enumerate();
            let wrong_elements = pairs().filter(|(_, (got, sent))| got != sent).count() as u64;
            if let Some((i, (got, sent))) = pairs().find(|(_, (got, sent))| got != sent) {
                let show = |bytes: &[u8]| show(self.call.dtype, load(bytes));
                outcome.wrong.push(Conviction {
                    call: self.number,
                    what: self.call.name(),
                    rank,
                    element: first + i as u64,
                    got: show(got),
                    expected: show(sent),
                    inputs: format!("rank {from} sent it"),
                    wrong_elements,
                });
            }
        }
        outcome
    }

    fn conviction(&self, rank: usize, element: u64, got: u64, expected: String, inputs: &[u64]) -> Conviction {
        let dtype = self.call.dtype;
        let list = |bits: &[u64]| bits.iter().map(|bits| show(dtype, *bits)).collect::<Vec<_>>().join(", ");
        let mut told = format!("the ranks gave {}", list(inputs));
        if self.call.factor().is_some() && matches!(self.call.op, Op::Known(_)) {
            let factors: Vec<_> = self.factors.iter().map(|factor| show(factor.dtype(), factor.bits())).collect();
            told += &format!(", times {}", factors.join(", "));
        }
        let (call, what, got) = (self.number, self.call.name(), show(dtype, got));
        Conviction { call, what, rank, element, got, expected, inputs: told, wrong_elements: 0 }
    }
}

fn misfit(rank: usize, gave: usize, wanted: usize) -> Outcome {
    let text = format!("rank {rank} gives {gave} bytes where another takes {wanted}");
    Outcome { misfit: Some(text), ..Outcome::default() }
}

/// The factors of all ranks, from their headers.
pub(crate) fn factors(told: impl Iterator<Item = Option<(u32, u64)>>) -> Vec<Factor> {
    told.map(|told| {
        let known = told.and_then(|(dtype, bits)| Some(Factor::new(DataType::from_abi(dtype)?, bits)));
        known.unwrap_or(Factor::new(DataType::Uint8, 0))
    })
    .collect()
}
