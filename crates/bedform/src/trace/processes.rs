//! Finds the joint pattern of the processes of one run, and this process's part of it.
//!
//! A program of four processes reads an array in four parts. With six processes each part differs,
//! but the whole is the same. Traces of processes that read an array at the same time belong to one
//! run. If the reads of each are one walk, and the walks form a [`Global`] pattern, the knowledge
//! keeps it. A process of a parallel run finds its rank and the number of processes in its
//! environment, and derives its part.
//!
//! Traces have no ranks: parts are ordered by the place at which they start.

use bedform_patterns::{Global, Pattern, Walk, merge};

/// The most walks of all arrays that are compared.
pub(super) const PARTS_MAX: usize = 1 << 16;
/// The most global patterns kept of an array; the newest stay.
pub(super) const GLOBALS_MAX: usize = 16;
/// The most processes of a program.
const PROCESSES_MAX: usize = 1 << 20;

/// The variables with which launchers pass the rank and the number of processes.
const VARIABLES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// All reads of one array by one process.
#[derive(Debug, Clone)]
pub(super) struct ProcessWalk {
    /// The begin of the first read, in nanoseconds since 1970.
    pub(super) began_ns: u64,
    /// The begin of the last read, in nanoseconds since 1970.
    pub(super) ended_ns: u64,
    /// The places of the reads.
    pub(super) walk: Walk,
}

/// Returns the global patterns of the walks over one array.
pub(super) fn globals(mut parts: Vec<ProcessWalk>) -> Vec<Global> {
    parts.sort_by_key(|part| part.began_ns);
    let mut runs: Vec<(u64, Vec<Walk>)> = Vec::new();
    for ProcessWalk { began_ns, ended_ns, walk } in parts {
        match runs.last_mut() {
            Some((end, walks)) if began_ns <= *end => {
                *end = ended_ns.max(*end);
                walks.push(walk);
            }
            _ => runs.push((ended_ns, vec![walk])),
        }
    }
    let global = |(_, mut walks): (u64, Vec<Walk>)| {
        walks.sort_by(|one, other| one.start.cmp(&other.start));
        walks.dedup();
        merge(&walks)
    };
    runs.into_iter().filter_map(global).collect()
}

/// Returns this process's part of each pattern; empty unless a launcher started several processes.
pub(super) fn own_parts(globals: &[Global]) -> Vec<Pattern> {
    let Some((rank, size)) = rank_and_size(|name| std::env::var(name).ok()) else {
        return Vec::new();
    };
    let parts = globals.iter().filter_map(|global| global.split(size).into_iter().nth(rank));
    parts.map(Pattern::Walk).collect()
}

fn rank_and_size(variable: impl Fn(&str) -> Option<String>) -> Option<(usize, usize)> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let known = VARIABLES.iter().find_map(|(rank, size)| number(rank).zip(number(size)));
    known.filter(|(rank, size)| (2..=PROCESSES_MAX).contains(size) && rank < size)
}

#[cfg(test)]
mod tests {
    use bedform_patterns::{Level, Place};

    use super::*;

    fn rows(first: i64, count: u64) -> Walk {
        let row = |at: i64| Place::new([(at, at + 1), (0, 8)]);
        let step = row(0).step_to(&row(1)).unwrap();
        Walk { start: row(first), levels: vec![Level { step, count }] }
    }

    fn part(began_ns: u64, first: i64, count: u64) -> ProcessWalk {
        ProcessWalk { began_ns, ended_ns: began_ns + 10, walk: rows(first, count) }
    }

    #[test]
    fn parts_that_were_read_at_the_same_time_are_one_pattern_in_whichever_order_they_began() {
        let run = [part(7, 15, 15), part(3, 45, 15), part(0, 30, 15), part(9, 0, 15)];
        let found = globals(run.to_vec());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].walk(), &rows(0, 60));
        assert_eq!(found[0].split(6)[5], rows(50, 10));
    }

    #[test]
    fn parts_of_runs_one_after_the_other_are_not_put_together() {
        assert_eq!(globals(vec![part(0, 0, 15), part(20, 15, 15)]), []);
        assert_eq!(
            globals(vec![part(0, 0, 15), part(5, 15, 15), part(40, 0, 30), part(41, 30, 30)]).len(),
            2
        );
        // Two processes with the same reads.
        assert_eq!(globals(vec![part(0, 0, 15), part(5, 0, 15)]), []);
    }

    #[test]
    fn a_process_finds_its_rank_where_a_launcher_says_it_and_nowhere_else() {
        let said = |pairs: &[(&str, &str)]| {
            rank_and_size(|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(said(&[("PMI_RANK", "2"), ("PMI_SIZE", "6")]), Some((2, 6)));
        assert_eq!(said(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]), None);
        assert_eq!(said(&[("PMI_RANK", "6"), ("PMI_SIZE", "6")]), None);
        assert_eq!(said(&[("PMI_RANK", "x"), ("PMI_SIZE", "6")]), None);
        assert_eq!(said(&[("OMPI_COMM_WORLD_RANK", "1")]), None);
        assert_eq!(said(&[("PMI_RANK", "0"), ("PMI_SIZE", "18446744073709551615")]), None);
    }
}
