//! Whether ranks that play their device themselves have a processor each, so that a waiting one may spin.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The processors on which this thread may run, as many as it may use at the same time.
pub(crate) fn of_this_thread() -> Vec<u32> {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    match sched_getaffinity(Pid::from_raw(0)) {
        // A group's quota may allow fewer than there are.
        Ok(set) => (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
            .take(usable)
            .map(|cpu| cpu as u32)
            .collect(),
        Err(_) => (0..usable as u32).collect(),
    }
}

/// Whether each rank can have a processor of its own, of those that it may use. How many there are does not tell: ranks
/// may be bound to one each, or all to the same.
pub(crate) fn suffice(ranks: &[&[u32]]) -> bool {
    /// Finds `rank` a processor, for which others may have to take another of theirs.
    fn place(rank: usize, ranks: &[&[u32]], taken: &mut Vec<(u32, usize)>, asked: &mut Vec<u32>) -> bool {
        for &cpu in ranks[rank] {
            if asked.contains(&cpu) {
                continue;
            }
            asked.push(cpu);
            match taken.iter().position(|&(other, _)| other == cpu) {
                None => {
                    taken.push((cpu, rank));
                    return true;
                }
                Some(at) => {
                    let holder = taken[at].1;
                    if place(holder, ranks, taken, asked) {
                        // The holder has another one now, whose entry is apart.
                        taken.retain(|&entry| entry != (cpu, holder));
                        taken.push((cpu, rank));
                        return true;
                    }
                }
            }
        }
        false
    }
    let mut taken = Vec::with_capacity(ranks.len());
    (0..ranks.len()).all(|rank| place(rank, ranks, &mut taken, &mut Vec::new()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_bound_to_a_processor_each_have_enough() {
        assert!(suffice(&[&[0], &[1]]));
        assert!(suffice(&[&[7], &[3], &[5]]));
        assert!(!suffice(&[&[1], &[1]]), "two on one");
        assert!(!suffice(&[&[0, 1], &[0, 1], &[0, 1]]), "three on two");
        assert!(suffice(&[&[0, 1], &[0, 1]]));
        // The first has to give up what it would take first, and so in turn.
        assert!(suffice(&[&[0, 1], &[0]]));
        assert!(suffice(&[&[0, 1], &[0, 2], &[1, 0], &[2, 3]]));
        assert!(!suffice(&[&[0, 1], &[0], &[1]]));
        assert!(!suffice(&[&[], &[1]]));
    }

    /// Against trying all ways of giving each rank a processor.
    #[test]
    fn it_is_what_trying_everything_finds() {
        fn any(ranks: &[Vec<u32>], used: &mut Vec<u32>) -> bool {
            let Some((first, rest)) = ranks.split_first() else { return true };
            first.iter().any(|cpu| {
                if used.contains(cpu) {
                    return false;
                }
                used.push(*cpu);
                let found = any(rest, used);
                used.pop();
                found
            })
        }
        let mut word = 0x9E37_79B9u32;
        let (mut yes, mut no) = (0, 0);
        for _ in 0..500 {
            let ranks: Vec<Vec<u32>> = (0..4)
                .map(|_| {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (0..5).filter(|cpu| word >> (27 - 3 * cpu) & 7 < 3).collect()
                })
                .collect();
            let slices: Vec<&[u32]> = ranks.iter().map(Vec::as_slice).collect();
            let is = any(&ranks, &mut Vec::new());
            assert_eq!(suffice(&slices), is, "{ranks:?}");
            if is { yes += 1 } else { no += 1 }
        }
        assert!(yes > 50 && no > 50, "{yes} {no}");
    }

    #[test]
    fn this_thread_has_processors() {
        let cpus = of_this_thread();
        assert!(!cpus.is_empty() && cpus.len() <= std::thread::available_parallelism().unwrap().get());
        let mut one = CpuSet::new();
        one.set(*cpus.last().unwrap() as usize).unwrap();
        let last = *cpus.last().unwrap();
        std::thread::spawn(move || {
            nix::sched::sched_setaffinity(Pid::from_raw(0), &one).unwrap();
            assert_eq!(of_this_thread(), [last]);
        })
        .join()
        .unwrap();
    }
}
