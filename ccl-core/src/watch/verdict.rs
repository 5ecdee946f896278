//! Who is to blame for a collective that does not finish: a pure function of what the ranks answered.

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

fn accuse(number: u64, name: &str, rank: usize, standing: &Standing) -> Option<String> {
    match standing {
        Standing::Silent { pid } => Some(format!("rank {rank} (process {pid}) does not answer (stopped?)")),
        Standing::Left => Some(format!("rank {rank} has left (it said goodbye)")),
        Standing::At { entered, done, elsewhere } if *entered < number => {
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

    #[test]
    fn the_odd_rank_is_named() {
        let at = |entered, done| Standing::At { entered, done, elsewhere: String::new() };
        let name = "all_reduce #7";
        assert_eq!(
            blame(7, name, &[(0, at(7, 6)), (2, at(6, 6))]),
            "rank 2 has not entered all_reduce #7 (it finished #6)"
        );
        assert_eq!(
            blame(7, name, &[(0, Standing::Silent { pid: 9 }), (2, at(6, 5))]),
            "rank 0 (process 9) does not answer (stopped?); rank 2 has not entered all_reduce #7 (it is still in #6)"
        );
        let elsewhere = Standing::At { entered: 6, done: 6, elsewhere: "all_reduce #1 of communicator b".into() };
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
