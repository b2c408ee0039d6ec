//! What a block elsewhere runs: a script in the folder that nodes share.

use super::Share;
use super::launch::{Launch, quoted};
use eyas_core::provisioning::blocks::BlockConfig;
use eyas_text::line_of;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use std::path::Path;
use std::time::Duration;

const S: u64 = 1_000_000_000;
/// How much of a block's output is looked at for its last line.
const WORDS_MAX: u64 = 16 << 10;

/// What the names of a cluster's blocks begin with.
pub fn prefix(cluster: &str) -> String {
    format!("eyas-{cluster}-")
}

/// What blocks elsewhere are like: gentle to whoever is asked for them. `cluster`: its id, which is in their names.
pub fn block_config(cluster: &str, list_every: Duration, nodes_per_block: u32) -> BlockConfig {
    let list_every_ns = list_every.as_nanos() as u64;
    BlockConfig {
        prefix: prefix(cluster),
        nodes_per_block,
        submit_every_ns: S,
        list_every_ns,
        unlisted_max: 2,
        join_within_ns: 120 * S,
        end_within_ns: list_every_ns.max(10 * S),
        reuses_numbers: false,
        number_max: u32::MAX,
        ended_max: 0,
    }
}

/// What starts the executor of the block with that name. Where a block holds several nodes, each of them runs it, and calls itself
/// after the block and its host.
pub(super) fn text(launch: &Launch, share: &Share, name: &str, is_one_of_several: bool) -> String {
    let path = |path: &Path| quoted(&path.to_string_lossy());
    let mut text = String::from("#!/bin/sh\n");
    let _ = writeln!(text, "# The executor {name} of an eyas cluster.");
    // Where Slurm plays several nodes on one host, its own name for each tells them apart.
    const HOST: &str =
        "$(printf %s \"${SLURMD_NODENAME:-$(uname -n)}\" | cut -d. -f1 | tr -d '\\n' | tr -c A-Za-z0-9- -)";
    let node = match is_one_of_several {
        true => {
            let _ = writeln!(text, "eyas_node={name}.{HOST}");
            let _ = writeln!(text, "exec >> {}/\"$eyas_node\".log 2>&1", path(share.dir()));
            "$eyas_node"
        }
        false => {
            let _ = writeln!(text, "exec >> {} 2>&1", path(&share.log(name)));
            name
        }
    };
    let join = path(&share.join());
    let _ = writeln!(text, "[ -e {join} ] || {{ echo 'the cluster has ended'; exit 0; }}");
    let _ = writeln!(text, "{}", launch.script(&join, node, false));
    text
}

/// The same for a node that sees no folder of this machine: the key comes by standard input, the program's path in a variable, and what
/// is printed goes to whoever started the script.
pub(super) fn carried_text(launch: &Launch, name: &str) -> String {
    let script = launch.script_with("\"$EYAS_PROGRAM\"", "-", name, true);
    format!("# The executor {name} of an eyas cluster.\n{script}\n")
}

/// The last line of a file that is not empty, of its last kilobytes.
pub(super) fn last_line(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(std::io::SeekFrom::Start(size.saturating_sub(WORDS_MAX))).ok()?;
    let mut bytes = vec![];
    file.take(WORDS_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line_of(line.trim()).to_string())
}
