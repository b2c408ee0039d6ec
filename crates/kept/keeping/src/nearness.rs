//! In which order hosts are preferred for a program that reads kept data, and why.
//!
//! Input: for each host how many bytes of the inputs it holds, whether it takes programs now, and how busy it is; and a turn. Output:
//! an order of the hosts, each with what would have to move to it. The rules, first to last:
//!
//! * a host that takes programs now comes before one that does not;
//! * the fewer bytes have to move to a host, the earlier it comes;
//! * among those, a host with fewer processors and transfers under way comes first;
//! * hosts that are equal so far rotate: each turn begins with the next of them, by name.
//!
//! Source: the rank of compute sites in Multiple Name Resolution (`Wozniak06` §III-C.4: "for each potential compute host, compute the
//! network transfer required to perform computation on that host"), and the busy marks of §III-C.3, where a server "may also be
//! excluded if it is being used for file transfer". Deviations: the paper scales the rank to the inverse of the transfer; only the
//! order matters here, and the order is the same. A host that transfers files comes later, and is not excluded.

use crate::rotate_equal;
use std::fmt;

/// A host on which a program could run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    pub name: String,
    /// Bytes of the inputs that the sites on this host hold and would give.
    pub held_bytes: u64,
    /// Whether programs can start on the host now.
    pub takes_programs: bool,
    /// How many processors of the host are in use.
    pub n_busy: u32,
    /// How many transfers of files the stores on this host have under way.
    pub n_transfers: u32,
}

/// A host in the order of preference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranked {
    pub host: Host,
    /// Bytes that have to move to this host before the program has all inputs.
    pub moved_bytes: u64,
}

impl Ranked {
    /// Whether the program would find all inputs on this host and could start there.
    pub fn holds_all(&self) -> bool {
        self.moved_bytes == 0 && self.host.takes_programs
    }
}

impl fmt::Display for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ranked { host, moved_bytes } = self;
        match moved_bytes {
            0 => write!(f, "holds all inputs ({} B)", host.held_bytes)?,
            moved => write!(f, "holds {} B of the inputs, so {moved} B would move", host.held_bytes)?,
        }
        match host.n_busy {
            0 => f.write_str("; no processor is in use")?,
            1 => f.write_str("; 1 processor is in use")?,
            n => write!(f, "; {n} processors are in use")?,
        }
        match host.n_transfers {
            0 => {}
            1 => f.write_str("; 1 transfer of files is under way")?,
            n => write!(f, "; {n} transfers of files are under way")?,
        }
        match host.takes_programs {
            true => Ok(()),
            false => f.write_str("; it takes no programs now"),
        }
    }
}

/// The hosts in order of preference. `all_bytes` is the size of all inputs together; `turn` is one more for each choice.
pub fn rank(hosts: Vec<Host>, all_bytes: u64, turn: u64) -> Vec<Ranked> {
    let ranked = |host: Host| Ranked { moved_bytes: all_bytes.saturating_sub(host.held_bytes), host };
    let mut order: Vec<Ranked> = hosts.into_iter().map(ranked).collect();
    let key = |of: &Ranked| {
        let n_busy = u64::from(of.host.n_busy) + u64::from(of.host.n_transfers);
        (!of.host.takes_programs, of.moved_bytes, n_busy)
    };
    order.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.host.name.cmp(&b.host.name)));
    rotate_equal(&mut order, key, turn);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(name: &str, held_bytes: u64, takes_programs: bool, n_busy: u32) -> Host {
        Host { name: name.to_owned(), held_bytes, takes_programs, n_busy, n_transfers: 0 }
    }

    fn names(order: &[Ranked]) -> Vec<&str> {
        order.iter().map(|ranked| ranked.host.name.as_str()).collect()
    }

    #[test]
    fn bytes_come_before_load_and_a_host_that_is_down_comes_last() {
        let hosts = vec![
            host("down", 100, false, 0),
            host("empty", 0, true, 0),
            host("half", 50, true, 0),
            host("whole", 100, true, 7),
            host("other", 100, true, 7),
        ];
        let next = rank(hosts.clone(), 100, 1);
        assert_eq!(names(&next), ["whole", "other", "half", "empty", "down"]);
        let order = rank(hosts, 100, 0);
        assert_eq!(names(&order), ["other", "whole", "half", "empty", "down"]);
        assert_eq!(order.iter().filter(|ranked| ranked.holds_all()).count(), 2);
        assert_eq!(
            order[2].to_string(),
            "holds 50 B of the inputs, so 50 B would move; no processor is in use"
        );
        assert!(order[4].to_string().ends_with("it takes no programs now"));
    }

    #[test]
    fn transfers_count_as_programs_do() {
        let sends = Host { n_transfers: 2, ..host("sends", 100, true, 0) };
        let order = rank(vec![sends, host("runs", 100, true, 1)], 100, 0);
        assert_eq!(names(&order), ["runs", "sends"]);
        let text = "holds all inputs (100 B); no processor is in use; 2 transfers of files are under way";
        assert_eq!(order[1].to_string(), text);
    }

    /// Takes the best of the rest again and again, by the rules as the header says them.
    fn naive(mut rest: Vec<Host>, all_bytes: u64, turn: u64) -> Vec<String> {
        let is_before = |a: &Host, b: &Host| {
            if a.takes_programs != b.takes_programs {
                return a.takes_programs;
            }
            let (a_moves, b_moves) = (all_bytes - a.held_bytes, all_bytes - b.held_bytes);
            if a_moves != b_moves {
                return a_moves < b_moves;
            }
            a.n_busy + a.n_transfers < b.n_busy + b.n_transfers
        };
        let mut order = vec![];
        while !rest.is_empty() {
            let is_best = |host: &&Host| rest.iter().all(|other| !is_before(other, host));
            let mut best: Vec<String> = rest.iter().filter(is_best).map(|host| host.name.clone()).collect();
            rest.retain(|host| !best.contains(&host.name));
            best.sort();
            let n_best = best.len();
            best.rotate_left(turn as usize % n_best);
            order.extend(best);
        }
        order
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_rules(
            of in prop::collection::vec((0u64..4, any::<bool>(), 0u32..3, 0u32..2), 0..12), turn in 0u64..9,
        ) {
            let hosts: Vec<Host> = of
                .iter()
                .enumerate()
                .map(|(n, &(held, takes, busy, n_transfers))| {
                    Host { n_transfers, ..host(&format!("h{n:02}"), held, takes, busy) }
                })
                .collect();
            let order = rank(hosts.clone(), 3, turn);
            prop_assert_eq!(names(&order), naive(hosts, 3, turn));
        }
    }
}
