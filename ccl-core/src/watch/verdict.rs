//! Who is to blame for a collective that does not finish: a pure function of what the ranks answered.

use super::call::{arguments, is_private, name};
use crate::protocol::Shape;

/// Where another rank stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It did not answer in time.
    Silent {
        /// Its process.
        pid: u32,
    },
    /// It said goodbye.
    Left,
    /// It answered.
    At {
        /// Collectives entered.
        entered: u64,
        /// Collectives finished.
        done: u64,
        /// The latest collective whose arguments are known, by its number (0 if none).
        shape: (u64, Shape),
        /// The collective of another communicator that its device is in, or nothing.
        elsewhere: String,
    },
}

/// The sentence about collective `number`, called `name`, given every other rank's standing.
pub(super) fn blame(number: u64, name: &str, others: &[(usize, Standing)]) -> String {
    let culprits: Vec<_> = others.iter().filter_map(|(rank, standing)| accuse(number, name, *rank, standing)).collect();
    if !culprits.is_empty() {
        return culprits.join("; ");
    }
    let finished: Vec<_> = others
        .iter()
        .filter(|(_, standing)| matches!(standing, Standing::At { done, .. } if *done >= number))
        .map(|(rank, _)| rank.to_string())
        .collect();
    if finished.is_empty() {
        format!("every rank has entered {name} and none has finished it")
    } else {
        format!("every rank has entered {name}; finished by rank {}", finished.join(", "))
    }
}

/// The sentence about a call between some ranks only, called `name`: where those stand that can't do their part, else
/// where all stand. The ranks number only the collectives that all are in, so that nobody is behind.
pub(super) fn private(others: &[(usize, Standing)]) -> String {
    let gone = |(rank, standing): &(usize, Standing)| match standing {
        Standing::Silent { pid } => Some(format!("rank {rank} (process {pid}) does not answer (stopped?)")),
        Standing::Left => Some(format!("rank {rank} has left (it said goodbye)")),
        Standing::At { .. } => None,
    };
    let gone: Vec<_> = others.iter().filter_map(gone).collect();
    if !gone.is_empty() {
        return gone.join("; ");
    }
    others.iter().filter_map(|(rank, standing)| whereabouts(*rank, standing)).collect::<Vec<_>>().join("; ")
}

/// What a rank that answered is in.
fn whereabouts(rank: usize, standing: &Standing) -> Option<String> {
    let Standing::At { entered, done, shape: (call, shape), elsewhere } = standing else { return None };
    let what = match (entered > done, call == entered) {
        (true, true) if is_private(shape) => format!("in {} ({})", name(shape), arguments(shape)),
        (true, true) => format!("in {} #{entered} ({})", name(shape), arguments(shape)),
        (true, false) => format!("in #{entered}"),
        (false, _) => "in no call".to_owned(),
    };
    let elsewhere = if elsewhere.is_empty() { String::new() } else { format!(" and in {elsewhere}") };
    Some(format!("rank {rank} is {what}{elsewhere}"))
}

/// The sentence about collective `number` that ranks entered with different arguments, given every rank's shape where it
/// is known, and where the others stand. Those whom fewest agree with come first, those whose shape isn't known last.
pub(super) fn odd(number: u64, shapes: &[(usize, Option<Shape>)], others: &[(usize, Standing)]) -> String {
    let groups = agreeing(shapes);
    // What looks the same differs in what a short text leaves out.
    let alike = |shape: &Shape| groups.iter().filter(|(of, _)| arguments(of) == arguments(shape)).count() > 1;
    let one_kind = groups.windows(2).all(|pair| name(&pair[0].0) == name(&pair[1].0));
    let mut told: Vec<_> = groups
        .iter()
        .map(|(shape, ranks)| {
            let detail =
                if alike(shape) { format!(", fingerprint {:#010x}", shape.fingerprint) } else { String::new() };
            let what = if one_kind { "it" } else { name(shape) };
            format!("{} made {what} with {}{detail}", listed(ranks), arguments(shape))
        })
        .collect();
    told.extend(shapes.iter().filter(|(_, shape)| shape.is_none()).map(|(rank, _)| {
        let standing = others.iter().find(|(other, _)| other == rank).map(|(_, standing)| standing);
        let told = standing.and_then(|at| accuse(number, "it", *rank, at).or_else(|| whereabouts(*rank, at)));
        told.unwrap_or_else(|| format!("what rank {rank} made is not known"))
    }));
    format!("ranks disagree on call #{number}: {}", told.join("; "))
}

/// Whether `late` ranks, of whom it isn't known yet, decide which call most ranks have made.
pub(super) fn is_undecided(shapes: &[(usize, Option<Shape>)], late: usize) -> bool {
    let mut sizes = agreeing(shapes).into_iter().rev().map(|(_, ranks)| ranks.len());
    let (most, next) = (sizes.next().unwrap_or(0), sizes.next().unwrap_or(0));
    // One call alone is no disagreement: whoever made another has not said so yet.
    late > 0 && (next == 0 || most <= next + late)
}

/// The ranks by what they made, the fewest first.
fn agreeing(shapes: &[(usize, Option<Shape>)]) -> Vec<(Shape, Vec<usize>)> {
    let mut groups: Vec<(Shape, Vec<usize>)> = Vec::new();
    for (rank, shape) in shapes {
        let Some(shape) = shape else { continue };
        match groups.iter_mut().find(|(of, _)| of.fingerprint == shape.fingerprint) {
            Some((_, ranks)) => ranks.push(*rank),
            None => groups.push((*shape, vec![*rank])),
        }
    }
    groups.sort_by_key(|(_, ranks)| ranks.len());
    groups
}

/// "rank 1", "ranks 0, 2".
fn listed(ranks: &[usize]) -> String {
    let s = if ranks.len() == 1 { "" } else { "s" };
    let ranks: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("rank{s} {}", ranks.join(", "))
}

fn accuse(number: u64, name: &str, rank: usize, standing: &Standing) -> Option<String> {
    match standing {
        Standing::Silent { pid } => Some(format!("rank {rank} (process {pid}) does not answer (stopped?)")),
        Standing::Left => Some(format!("rank {rank} has left (it said goodbye)")),
        Standing::At { entered, done, elsewhere, .. } if *entered < number => {
            let where_it_is = if entered > done {
                format!("it is still in #{entered}")
            } else if *done == 0 {
                "it has entered none".to_owned()
            } else {
                format!("it finished #{done}")
            };
            let where_else = if elsewhere.is_empty() { String::new() } else { format!(" and is in {elsewhere}") };
            Some(format!("rank {rank} has not entered {name} ({where_it_is}{where_else})"))
        }
        Standing::At { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(count: u64) -> Shape {
        use crate::types::{DataType, Kind, Order, ReduceOp};
        Shape::new(count, count, 0, Kind::new(DataType::Float32, ReduceOp::Sum, Order::Ring).word(), 1)
    }

    #[test]
    fn ranks_that_disagree_are_named_the_fewest_first() {
        use crate::collective::{Collective, CollectiveCall};
        use crate::types::DataType;
        let (usual, other) = (sum(128), sum(100));
        assert_eq!(
            odd(
                3,
                &[(0, Some(usual)), (1, Some(other)), (2, None), (3, Some(usual))],
                &[(2, Standing::Silent { pid: 9 })]
            ),
            "ranks disagree on call #3: rank 1 made it with 100 float32 sum; ranks 0, 3 made it with 128 float32 sum; \
             rank 2 (process 9) does not answer (stopped?)"
        );
        let send = CollectiveCall::moving(Collective::Send { to: 3 }, 9, DataType::Int32).kind();
        let shape = (3, Shape::new(9, 0, 0, send, 0));
        let sending = Standing::At { entered: 3, done: 2, shape, elsewhere: String::new() };
        let text = odd(3, &[(0, Some(usual)), (1, Some(other)), (2, None), (3, None)], &[(2, sending)]);
        assert!(text.ends_with("; rank 2 is in send (9 int32 to rank 3); what rank 3 made is not known"), "{text}");
        let longer = Shape::new(128, 128, 0, usual.kind, 2);
        let text = odd(3, &[(0, Some(usual)), (1, Some(longer))], &[]);
        assert!(text.contains(&format!("{:#010x}", longer.fingerprint)), "{text}");
    }

    #[test]
    fn ranks_that_are_late_are_waited_for_while_they_decide() {
        let (a, b) = (Some(sum(128)), Some(sum(100)));
        let undecided =
            |made: &[Option<Shape>], late| is_undecided(&made.iter().copied().enumerate().collect::<Vec<_>>(), late);
        assert!(undecided(&[a, b, None], 1));
        assert!(undecided(&[a, a, b, None], 1), "they may be two and two");
        assert!(!undecided(&[a, a, a, b, None], 1));
        assert!(undecided(&[a, a, a, b, None, None], 2));
        assert!(!undecided(&[a, b], 0), "nobody is left who could decide");
        assert!(undecided(&[a, a, a, None], 1), "it is the odd one");
        assert!(!undecided(&[a, a, a], 0));
    }

    #[test]
    fn ranks_in_different_collectives_are_told_which() {
        use crate::collective::{Collective, CollectiveCall};
        use crate::types::DataType;
        let shape = |what| {
            let call = CollectiveCall::moving(what, 100, DataType::Int32);
            Shape::new(100, 0, 0, call.kind(), 0)
        };
        let (usual, other) = (shape(Collective::Broadcast { root: 2 }), shape(Collective::AllGather));
        assert_eq!(
            odd(5, &[(0, Some(usual)), (1, Some(usual)), (2, Some(other))], &[]),
            "ranks disagree on call #5: rank 2 made all_gather with 100 int32; ranks 0, 1 made broadcast with 100 int32 \
             root=2"
        );
        let at = |entered, done, what| Standing::At {
            entered,
            done,
            shape: (entered, shape(what)),
            elsewhere: String::new(),
        };
        assert_eq!(
            private(&[(1, at(4, 4, Collective::AllGather)), (2, at(4, 3, Collective::Receive { from: 0 }))]),
            "rank 1 is in no call; rank 2 is in receive (100 int32 from rank 0)"
        );
        assert_eq!(
            private(&[(1, Standing::Left), (2, at(4, 3, Collective::AllGather))]),
            "rank 1 has left (it said goodbye)"
        );
    }

    #[test]
    fn the_odd_rank_is_named() {
        let shape = (0, Shape::default());
        let at = |entered, done| Standing::At { entered, done, shape, elsewhere: String::new() };
        let name = "all_reduce #7";
        assert_eq!(
            blame(7, name, &[(0, at(7, 6)), (2, at(6, 6))]),
            "rank 2 has not entered all_reduce #7 (it finished #6)"
        );
        assert_eq!(
            blame(7, name, &[(0, Standing::Silent { pid: 9 }), (2, at(6, 5))]),
            "rank 0 (process 9) does not answer (stopped?); rank 2 has not entered all_reduce #7 (it is still in #6)"
        );
        let elsewhere =
            Standing::At { entered: 6, done: 6, shape, elsewhere: "all_reduce #1 of communicator b".into() };
        assert_eq!(
            blame(7, name, &[(2, elsewhere)]),
            "rank 2 has not entered all_reduce #7 (it finished #6 and is in all_reduce #1 of communicator b)"
        );
        assert_eq!(blame(7, name, &[(1, Standing::Left)]), "rank 1 has left (it said goodbye)");
        assert_eq!(blame(1, "x", &[(1, at(0, 0))]), "rank 1 has not entered x (it has entered none)");
        assert_eq!(blame(7, name, &[(1, at(7, 6))]), "every rank has entered all_reduce #7 and none has finished it");
        assert_eq!(
            blame(7, name, &[(1, at(7, 7)), (2, at(7, 6))]),
            "every rank has entered all_reduce #7; finished by rank 1"
        );
    }
}
