//! Says what is wrong with a plan by columns.
//!
//! It has one round, in which everybody waits for what everybody sent before it waited, so that no order of steps has to be
//! tried. What matters is where lines lie: each block has room for its words, in a place of its own for each sender and
//! generation, within the slots. What is stored at one place by calls one after another is the business of the model
//! (`tests/model_push.rs`).

use super::mhc::{MOST_COLUMN_RANKS, MhcPlan, TILE_STREAMS, column_lines};
use super::push::{Mode, Transport};
use super::verify::check_geometry;
use crate::protocol::{BLOCK_WORDS, GENERATIONS, MAX_WIRES};

/// Verifies that every block of every row has lines of its own in every receiver's slots, that its chunk is the same in all
/// rows, and that there are as many work-groups as blocks of tiles. The error says what is wrong.
pub fn verify(plan: &MhcPlan) -> Result<(), String> {
    check(plan, |tag, sender, row, block| plan.column_offset(tag, sender, row, block))
}

/// With `offset` for [`MhcPlan::column_offset`].
fn check(plan: &MhcPlan, offset: impl Fn(u32, usize, u64, usize) -> usize) -> Result<(), String> {
    let (reduce, params) = (&plan.reduce, &plan.params);
    let Transport::Lines(form) = reduce.transport else { return Err("not on lines".into()) };
    if reduce.mode != Mode::OneShot || reduce.rounds != 1 {
        return Err(format!("{:?} of {} rounds, not a one-shot of one", reduce.mode, reduce.rounds));
    }
    if !(2..=MOST_COLUMN_RANKS).contains(&reduce.n) {
        return Err(format!("{} ranks", reduce.n));
    }
    let (rows, blocks) = (params.rows, params.blocks());
    let groups = rows.div_ceil(TILE_STREAMS / u64::from(params.streams)) * blocks as u64;
    if u64::from(plan.groups) != groups || groups > MAX_WIRES as u64 || !(1..=plan.groups).contains(&reduce.wires) {
        return Err(format!("{} groups, {} of which clear, for {groups} blocks of tiles", plan.groups, reduce.wires));
    }
    let geometry = &reduce.geometry;
    check_geometry(geometry, reduce.wires)?;
    if geometry.count() != rows * params.hidden || geometry.block_elements() != params.block() as u64 {
        return Err(format!("{} elements in blocks of {}", geometry.count(), geometry.block_elements()));
    }
    let lines = column_lines(form);
    if lines * form.payload_words() < BLOCK_WORDS {
        return Err(format!("{lines} lines have no room for a block"));
    }
    let (first, end) = (reduce.layout.push_offset(), reduce.layout.flags_offset());
    let mut places = Vec::new();
    for (row, block) in (0..rows).flat_map(|row| (0..blocks).map(move |block| (row, block))) {
        let chunk = geometry.chunk_of(row * params.hidden + (block * params.block()) as u64);
        if chunk != block % reduce.n {
            return Err(format!("block {block} of row {row} is of chunk {chunk}"));
        }
        for (sender, tag) in (0..reduce.n).flat_map(|sender| (0..GENERATIONS as u32).map(move |tag| (sender, tag))) {
            let at = offset(tag, sender, row, block);
            if at < first || at + lines * form.granule() > end || !at.is_multiple_of(form.granule()) {
                return Err(format!("block {block} of row {row} lies at {at}, push slots at {first}..{end}"));
            }
            places.push((at, sender, tag, row, block));
        }
    }
    places.sort_unstable();
    match places.windows(2).find(|two| two[1].0 < two[0].0 + lines * form.granule()) {
        Some(two) => Err(format!("two blocks share a line (place, sender, tag, row, block): {two:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::config::{Algorithm, Config};
    use crate::device::DeviceFamily;
    use crate::mhc::{Params, Variant};
    use crate::plan::Agreed;
    use crate::plan::mhc::Fused;
    use crate::protocol::{LineForm, Region};
    use crate::{DataType, Order};

    fn plan(params: &Params, n: usize, form: LineForm, family: DeviceFamily, push_tiles: u32) -> Option<MhcPlan> {
        let agreed = Agreed { push_tiles, family, ..Agreed::ring(n, form, 256) };
        let config = Config { allreduce: Algorithm::OneShot, ..Config::default() };
        let plan = MhcPlan::new(params, Fused::Whole, Order::Ring, &agreed, &config).ok()?;
        plan.columns.then_some(plan)
    }

    #[test]
    fn plans_by_columns_are_sound() {
        let mut plans = 0;
        let ranks_and_forms = || (2..=8).flat_map(|n| LineForm::ALL.map(|form| (n, form)));
        for (family, tiles) in [(DeviceFamily::IntelPcie, 16), (DeviceFamily::Cuda, 80), (DeviceFamily::Software, 16)] {
            for (n, form) in ranks_and_forms() {
                for rows in [1, 2, 3, 4, 5, 8, 13, 16, 31, 64, 113, 200, 256] {
                    for (hidden, dtype, streams) in [
                        (64, DataType::Float16, 2),
                        (100, DataType::Float32, 4),
                        (128, DataType::Bfloat16, 4),
                        (640, DataType::Float32, 8),
                        (1056, DataType::Bfloat16, 2),
                        (4096, DataType::Bfloat16, 4),
                    ] {
                        let params = Params::new(Variant::V4, dtype, rows, hidden, streams);
                        let Some(plan) = plan(&params, n, form, family, tiles) else { continue };
                        assert_eq!(plan.verify(), Ok(()), "{family}: {plan}");
                        plans += 1;
                    }
                }
            }
        }
        assert!(plans > 1_000, "{plans} plans");
    }

    /// Of this shape the plain one-shot would take two rounds, which columns don't: its lines are cut for wires and chunks.
    #[test]
    fn columns_are_not_judged_as_a_plain_one_shot() {
        let params = Params::new(Variant::V4, DataType::Bfloat16, 113, 128, 4);
        let plan = plan(&params, 2, LineForm::L8, DeviceFamily::IntelPcie, 16).unwrap();
        assert!(crate::plan::verify_push::verify(&plan.reduce).is_err(), "{plan}");
        assert_eq!(plan.verify(), Ok(()));
    }

    #[test]
    fn each_fault_is_told() {
        let params = Params::new(Variant::V4, DataType::Bfloat16, 3, 640, 4);
        let good = plan(&params, 3, LineForm::L16, DeviceFamily::Cuda, 16).unwrap();
        let told = |plan: &MhcPlan, what: &str| {
            let wrong = plan.verify().unwrap_err();
            assert!(wrong.contains(what), "{wrong}, not: {what}");
        };
        assert_eq!(good.verify(), Ok(()));
        let with = |change: fn(&mut MhcPlan)| {
            let mut plan = good;
            change(&mut plan);
            plan
        };
        told(&with(|plan| plan.reduce.rounds = 2), "not a one-shot of one");
        told(&with(|plan| plan.reduce.mode = Mode::Mesh), "not a one-shot of one");
        told(&with(|plan| plan.reduce.transport = Transport::Bulk), "not on lines");
        told(&with(|plan| plan.groups -= 1), "groups");
        told(&with(|plan| plan.reduce.wires = plan.groups + 1), "groups");
        told(&with(|plan| plan.params.hidden += 128), "groups");
        told(&with(|plan| plan.reduce.n = 9), "9 ranks");
        told(&with(|plan| plan.params.rows = 2), "elements");
        // The last sender's last row lies behind a slot of fewer tiles than the lines of three rows take.
        told(&with(|plan| plan.reduce.layout.push_tiles = 0), "push slots");
        let placed = |offset: &dyn Fn(u32, usize, u64, usize) -> usize| check(&good, offset).unwrap_err();
        let shared = |wrong: String| assert!(wrong.contains("share a line"), "{wrong}");
        shared(placed(&|_, sender, row, block| good.column_offset(0, sender, row, block)));
        shared(placed(&|tag, _, row, block| good.column_offset(tag, 0, row, block)));
        shared(placed(&|tag, sender, _, block| good.column_offset(tag, sender, 0, block)));
        // A row's lines one after another, as if no block began a line.
        shared(placed(&|tag, sender, row, block| {
            let slot = good.reduce.layout.push_slot(Region::Input, tag as usize, sender);
            slot + (row as usize * params.blocks() + block) * (column_lines(LineForm::L16) - 1) * 16
        }));
    }
}
