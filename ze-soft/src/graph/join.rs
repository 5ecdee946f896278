//! Whether all forks of a recording were joined again.

use super::Node;
use super::capture::Member;

/// The nodes that `seeds` come after, and `seeds` themselves.
fn covered(nodes: &[Node], seeds: impl Iterator<Item = usize>) -> Vec<bool> {
    let mut covered = vec![false; nodes.len()];
    for seed in seeds {
        covered[seed] = true;
    }
    // A node only depends on nodes recorded before it.
    for index in (0..nodes.len()).rev() {
        if covered[index] {
            for before in &nodes[index].after {
                covered[before.node] = true;
            }
        }
    }
    covered
}

/// The first list that was forked and not joined: the list it was forked from must wait for something that comes after
/// all its work, and what comes of that must lead back to the list on which the recording began.
pub(super) fn unjoined(nodes: &[Node], members: &[Member]) -> Option<usize> {
    let of_list = |list: usize| nodes.iter().enumerate().filter(move |(_, node)| node.list == list);
    let home = covered(nodes, of_list(0).map(|(index, _)| index));
    members.iter().enumerate().skip(1).find_map(|(list, member)| {
        let waits = of_list(member.parent?).flat_map(|(_, node)| &node.after);
        let joins: Vec<usize> = waits.map(|before| before.node).filter(|&before| nodes[before].list == list).collect();
        let joined = covered(nodes, joins.iter().copied());
        let all = of_list(list).all(|(index, node)| !node.is_work() || (joined[index] && home[index]));
        (joins.is_empty() || !all).then_some(list)
    })
}
