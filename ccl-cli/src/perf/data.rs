//! The elements that are reduced, and what must come of them.
//!
//! Two kinds, by turns. *Exact* ones: element `i` of rank `r` in round `k` is drawn by a hash of the three such that no
//! step of the reduction rounds (but an average's division, which rounds once), so that one result is right to the bit
//! whatever the order, and is computed here at the speed of a loop. Integers have all their bits drawn and wrap. *Rough*
//! ones, for short messages: floats that round at every step, compared with the library's scalar reference of the same
//! order. Elements of other ranks, places and rounds differ, but for coincidences that a few elements rule out.

use ccl_core::plan::geometry::Geometry;
use ccl_core::protocol::MAX_RANKS;
use ccl_core::{DataType, Factor, Order, ReduceOp, Result, reference};
use ccl_ze::Element;

/// Byte that outputs and guards are filled with. As a float of any type it is negative and no integer.
pub(super) const POISON: u8 = 0xA5;

/// Longest message of rough elements: the reference takes its time.
const MOST_ROUGH: usize = 1 << 14;

/// What is reduced, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) dtype: DataType,
    pub(super) op: Op,
    pub(super) order: Order,
    pub(super) ranks: usize,
    pub(super) count: usize,
}

/// A reduction by its name: that with a factor has another on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Plain(ReduceOp),
    PreMulSum,
}

impl Op {
    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Op> {
        ReduceOp::ALL.into_iter().map(Op::Plain).chain([Op::PreMulSum])
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Plain(op) => op.name(),
            Op::PreMulSum => "premulsum",
        }
    }

    /// What `rank` asks the library for.
    pub(super) fn of_rank(self, dtype: DataType, rank: usize) -> ReduceOp {
        match self {
            Op::Plain(op) => op,
            Op::PreMulSum => ReduceOp::PreMulSum(Factor::new(dtype, with_type!(dtype, T => factor::<T>(rank).bits()))),
        }
    }
}

impl std::str::FromStr for Op {
    type Err = String;

    /// nccl-tests' name of the pre-multiplied sum too.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "premulsum" | "mulsum" => Ok(Op::PreMulSum),
            other => other.parse().map(Op::Plain).map_err(|error| format!("{error} premulsum")),
        }
    }
}

/// Runs an expression with a type that stands for a datatype.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DataType::Int8 => {
                type $T = i8;
                $body
            }
            DataType::Uint8 => {
                type $T = u8;
                $body
            }
            DataType::Int32 => {
                type $T = i32;
                $body
            }
            DataType::Uint32 => {
                type $T = u32;
                $body
            }
            DataType::Int64 => {
                type $T = i64;
                $body
            }
            DataType::Uint64 => {
                type $T = u64;
                $body
            }
            DataType::Float16 => {
                type $T = half::f16;
                $body
            }
            DataType::Float32 => {
                type $T = f32;
                $body
            }
            DataType::Float64 => {
                type $T = f64;
                $body
            }
            DataType::Bfloat16 => {
                type $T = half::bf16;
                $body
            }
        }
    };
}
use with_type;

/// An element type.
trait Value: Element {
    /// An input of an exact reduction, from random bits; `place` is the rank among those that reduce, by turns.
    fn draw(op: Op, random: u64, place: usize) -> Self;
    /// The exact reduction of all ranks' inputs, in the order of ranks.
    fn reduce(op: Op, inputs: impl Iterator<Item = Self>, ranks: usize) -> Self;
    /// An input of a reduction that rounds; integers don't.
    fn rough(random: u64) -> Self;
    fn small(value: u8) -> Self;
    fn bits(self) -> u64;
    fn show(self) -> String;
}

/// The factor of a rank's contribution.
fn factor<T: Value>(rank: usize) -> T {
    T::small(1 + (rank % 3) as u8)
}

macro_rules! integers {
    ($($ty:ty as $bits:ty),*) => { $(
        impl Value for $ty {
            fn draw(_: Op, random: u64, _: usize) -> Self {
                random as $ty
            }

            fn reduce(op: Op, inputs: impl Iterator<Item = Self>, ranks: usize) -> Self {
                match op {
                    Op::Plain(ReduceOp::Prod) => inputs.fold(1, <$ty>::wrapping_mul),
                    Op::Plain(ReduceOp::Max) => inputs.max().unwrap_or_default(),
                    Op::Plain(ReduceOp::Min) => inputs.min().unwrap_or_default(),
                    Op::Plain(ReduceOp::Avg) => inputs.fold(0, <$ty>::wrapping_add) / ranks as $ty,
                    Op::Plain(_) => inputs.fold(0, <$ty>::wrapping_add),
                    Op::PreMulSum => {
                        let multiplied = inputs.zip(0..).map(|(x, rank)| x.wrapping_mul(factor::<$ty>(rank)));
                        multiplied.fold(0, <$ty>::wrapping_add)
                    }
                }
            }

            fn rough(random: u64) -> Self {
                random as $ty
            }

            fn small(value: u8) -> Self {
                value as $ty
            }

            fn bits(self) -> u64 {
                (self as $bits).into()
            }

            fn show(self) -> String {
                self.to_string()
            }
        }
    )* };
}
integers!(i8 as u8, u8 as u8, i32 as u32, u32 as u32, i64 as u64, u64 as u64);

/// `SIGNIFICAND` bits, the hidden one included. The limit of inputs is such that even all [`MAX_RANKS`] ranks together
/// stay below the first integer that the type can't hold.
macro_rules! floats {
    ($($ty:ty, $significand:literal, from $from:expr, to $to:expr, divide $divide:expr);*) => { $(
        impl Value for $ty {
            fn draw(op: Op, random: u64, place: usize) -> Self {
                const LIMIT: i64 = (1 << $significand) / MAX_RANKS as i64 - 1;
                let value = match op {
                    Op::Plain(ReduceOp::Prod) => exact_factor(random, place),
                    Op::PreMulSum => integer(random, LIMIT / 4) as f64,
                    Op::Plain(_) => integer(random, LIMIT) as f64,
                };
                $from(value)
            }

            fn reduce(op: Op, inputs: impl Iterator<Item = Self>, ranks: usize) -> Self {
                let values = inputs.map($to);
                match op {
                    Op::Plain(ReduceOp::Prod) => $from(values.fold(1.0, |a: f64, b: f64| a * b)),
                    Op::Plain(ReduceOp::Max) => $from(values.fold(f64::NEG_INFINITY, f64::max)),
                    Op::Plain(ReduceOp::Min) => $from(values.fold(f64::INFINITY, f64::min)),
                    Op::Plain(ReduceOp::Avg) => $divide(values.fold(0.0, |a: f64, b: f64| a + b), ranks),
                    Op::Plain(_) => $from(values.fold(0.0, |a: f64, b: f64| a + b)),
                    Op::PreMulSum => {
                        let multiplied = values.zip(0..).map(|(x, rank)| x * $to(factor::<$ty>(rank)));
                        $from(multiplied.fold(0.0, |a: f64, b: f64| a + b))
                    }
                }
            }

            fn rough(random: u64) -> Self {
                // From 2^-8 to 2^8, with as many digits as there is room for.
                $from(integer(random, 1 << 62) as f64 / 2f64.powi(54 + (random % 17) as i32))
            }

            fn small(value: u8) -> Self {
                $from(value.into())
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }

            fn show(self) -> String {
                self.to_string()
            }
        }
    )* };
}
floats! {
    f64, 53, from |value: f64| value, to |value: f64| value, divide |sum: f64, ranks: usize| sum / ranks as f64;
    f32, 24, from |value: f64| value as f32, to |value: f32| f64::from(value),
        divide |sum: f64, ranks: usize| sum as f32 / ranks as f32;
    // The quotient of two binary32 numbers has so many digits that rounding it again is rounding once.
    half::f16, 11, from half::f16::from_f64, to half::f16::to_f64,
        divide |sum: f64, ranks: usize| half::f16::from_f32(sum as f32 / ranks as f32);
    half::bf16, 8, from half::bf16::from_f64, to half::bf16::to_f64,
        divide |sum: f64, ranks: usize| half::bf16::from_f32(sum as f32 / ranks as f32)
}

/// A power of two, of either sign, up for one rank and down for the next, so that even [`MAX_RANKS`] of them multiply to
/// something that a binary16 number holds, and one rank's with one digit more.
fn exact_factor(random: u64, place: usize) -> f64 {
    let magnitude = match (random & 1, place % 2) {
        (0, _) => 1.0,
        (_, 0) => 2.0,
        _ => 0.5,
    };
    let digits = if place == 0 { 1.5 } else { 1.0 };
    let sign = if random & 2 == 0 { 1.0 } else { -1.0 };
    sign * magnitude * digits
}

fn integer(random: u64, limit: i64) -> i64 {
    let span = 2 * limit as u128 + 1;
    ((random as u128 * span) >> 64) as i64 - limit
}

/// Sets the inputs of a rank and a round apart from those of others.
fn salt(rank: usize, round: u32) -> u32 {
    mix((rank as u32).wrapping_mul(0x632B_E5AB) ^ round.wrapping_mul(0x85EB_CA77) ^ 0x27D4_EB2F)
}

const fn mix(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7FEB_352D);
    x = (x ^ x >> 15).wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// 64 bits for an element of the rank and round of `salt`.
#[inline]
const fn random(position: u64, salt: u32) -> u64 {
    let high = mix((position as u32 ^ (position >> 32) as u32).wrapping_mul(0x9E37_79B1) ^ salt);
    (high as u64) << 32 | mix(high ^ 0x5851_F42D) as u64
}

impl Shape {
    /// Bytes of a message.
    pub(super) fn bytes(&self) -> usize {
        self.count * self.dtype.size()
    }

    fn is_rough(&self, round: u32) -> bool {
        round % 2 == 1 && self.count <= MOST_ROUGH
    }

    /// Fills `message` with the input of `rank` in `round`.
    pub(super) fn write_input(&self, message: &mut [u8], rank: usize, round: u32) {
        with_type!(self.dtype, T => self.write::<T>(message, rank, round));
    }

    fn write<T: Value>(&self, message: &mut [u8], rank: usize, round: u32) {
        let (salt, rough) = (salt(rank, round), self.is_rough(round));
        for (position, element) in (0..).zip(elements::<T>(message)) {
            let random = random(position, salt);
            *element = if rough { T::rough(random) } else { T::draw(self.op, random, rank) };
        }
    }

    /// Compares every element, of a message from `first` on, with what the reduction must give in `round`, to the bit.
    pub(super) fn check_output(&self, message: &[u8], round: u32, first: u64) -> Finding {
        if message.is_empty() {
            // Nothing lies at no particular address: it can't be taken for elements.
            return Finding::default();
        }
        if self.is_rough(round) {
            return match self.reference(round) {
                Ok(right) => with_type!(self.dtype, T => {
                    let right: &[T] = bytemuck::cast_slice(&right);
                    compare::<T>(message, "", first, |position| right[position as usize])
                }),
                Err(error) => Finding { wrong: self.count as u64, first: Some(error.to_string()) },
            };
        }
        let salts: Vec<u32> = (0..self.ranks).map(|rank| salt(rank, round)).collect();
        with_type!(self.dtype, T => compare::<T>(message, "", first, |position| {
            let inputs = salts.iter().enumerate().map(|(rank, salt)| T::draw(self.op, random(position, *salt), rank));
            T::reduce(self.op, inputs, self.ranks)
        }))
    }

    /// What the library's scalar reference makes of the inputs of all ranks.
    fn reference(&self, round: u32) -> Result<Vec<u8>> {
        let geometry = Geometry::new(self.ranks, self.count as u64, None, self.dtype.size())?;
        let input = |rank: usize| {
            // 8-byte elements want to lie as such.
            let mut words = vec![0u64; self.bytes().div_ceil(8)];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            self.write_input(&mut bytes[..self.bytes()], rank, round);
            if self.op == Op::PreMulSum {
                with_type!(self.dtype, T => for element in elements::<T>(&mut bytes[..self.bytes()]) {
                    let bits = reference::multiply(self.dtype, element.bits(), factor::<T>(rank).bits());
                    *element = from_bits(bits);
                });
            }
            words
        };
        let inputs: Vec<Vec<u64>> = (0..self.ranks).map(input).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|words| &bytemuck::cast_slice(words)[..self.bytes()]).collect();
        let op = match self.op {
            Op::Plain(op) => op,
            // Each rank's factor is in its contribution.
            Op::PreMulSum => ReduceOp::Sum,
        };
        Ok(reference::all_reduce(&inputs, self.dtype, op, self.order, &geometry))
    }

    /// Compares every element with the input of `rank` in `round`, from its element `first` on, to the bit.
    pub(super) fn check_input(&self, message: &[u8], rank: usize, round: u32, first: u64) -> Finding {
        let (salt, rough) = (salt(rank, round), self.is_rough(round));
        let which = format!(" of the input of rank {rank}");
        with_type!(self.dtype, T => compare::<T>(message, &which, first, |position| {
            let random = random(position, salt);
            if rough { T::rough(random) } else { T::draw(self.op, random, rank) }
        }))
    }
}

fn elements<T: Value>(message: &mut [u8]) -> &mut [T] {
    if message.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(message) }
}

fn from_bits<T: Value>(bits: u64) -> T {
    bytemuck::pod_read_unaligned(&bits.to_ne_bytes()[..size_of::<T>()])
}

/// What a check found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Finding {
    /// Elements that are not what they should be.
    pub(super) wrong: u64,
    /// The first of them, in words.
    pub(super) first: Option<String>,
}

impl Finding {
    fn note(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first.get_or_insert_with(describe);
    }

    /// Both together.
    pub(super) fn add(&mut self, other: Finding) {
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }
}

/// Compares guard bytes with the poison that they were filled with.
pub(super) fn check_guard(guard: &[u8], side: &str) -> Finding {
    let mut finding = Finding::default();
    for (position, byte) in guard.iter().enumerate().filter(|(_, byte)| **byte != POISON) {
        finding.note(|| format!("guard byte {position} {side} the message was overwritten with {byte:#04x}"));
    }
    finding
}

fn compare<T: Value>(message: &[u8], which: &str, first: u64, expected: impl Fn(u64) -> T) -> Finding {
    let mut finding = Finding::default();
    let message: &[T] = if message.is_empty() { &[] } else { bytemuck::cast_slice(message) };
    for (position, element) in (first..).zip(message) {
        let right = expected(position);
        if element.bits() != right.bits() {
            finding.note(|| format!("element {position}{which} is {}, not {}", element.show(), right.show()));
        }
    }
    finding
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
