//! The ranks of a launched run: each has a recording of its own, those after the first within the
//! first one's folder.

use std::path::Path;

use ridgeline_analysis::attribution;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::profile::ranks::{RankCost, Ranks};

use super::recording::load;
use crate::store::RANK;

/// So many are read; a run of thousands of ranks has as many traces.
const MOST_READ: usize = 64;

/// What the ranks cost of which `profile` is the first, with what a person should know about it.
/// Nothing where it is alone. It reads files and computes; it can take seconds.
pub fn read(folder: &Path, profile: &Profile) -> Option<(Ranks, Vec<String>)> {
    let mut numbers = ranks_in(folder);
    if numbers.is_empty() {
        return None;
    }
    let mut notes = Vec::new();
    let world_size = numbers.last()?.saturating_add(1);
    if numbers.len() >= MOST_READ {
        notes.push(format!("of {world_size} ranks the first {MOST_READ} were read"));
        numbers.truncate(MOST_READ - 1);
    }
    let mut ranks = vec![RankCost::new(0, profile)];
    for rank in numbers {
        let read = load(&folder.join(format!("{RANK}{rank}"))).map_err(|error| error.to_string());
        let profile = read.and_then(|recording| {
            attribution::attribute(&recording).map_err(|error| error.to_string())
        });
        match profile {
            Ok(profile) => ranks.push(RankCost::new(rank, &profile)),
            Err(why) => notes.push(format!("rank {rank} is left out: {why}")),
        }
    }
    Ranks::new(world_size, ranks).map(|ranks| (ranks, notes))
}

/// The numbers of the ranks after the first that have a folder, in order.
fn ranks_in(folder: &Path) -> Vec<u32> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(RANK)?.parse().ok())
        .filter(|number| *number > 0)
        .collect();
    numbers.sort_unstable();
    numbers
}
