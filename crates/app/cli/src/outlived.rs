//! Blocks that outlive the provider that started them: who ends them.

use crate::provide::{blocks_outlive, command_lines, launch_of, shared_state};
use crate::provider::ProviderArgs;
use crate::{Fault, batch};
use clap::Parser;
use eyas_runtime::provider::{Commands, Haste, Share, Source, block_prefix, end_blocks};
use std::path::Path;

/// The words that a provider is started with: `provider`, in the place of a program's name, and its options.
#[derive(Parser)]
struct Words {
    #[command(flatten)]
    args: ProviderArgs,
}

/// The options of a provider that was started with these words, if its blocks may outlive it.
fn outlived(words: &[String]) -> Option<ProviderArgs> {
    if words.first()? != "provider" {
        return None;
    }
    let args = Words::try_parse_from(words).ok()?.args;
    blocks_outlive(args.provide.provider).then_some(args)
}

/// Whether blocks may outlive the provider that was started with these words.
pub fn may_leave_blocks(words: &[String]) -> bool {
    outlived(words).is_some()
}

/// Ends the blocks of a cluster whose provider was killed; `words` are what it was started with. Gives a sentence for each block that
/// may be left. `haste` is given what cuts off its commands.
pub fn end_left(words: &[String], cluster: &str, haste: &mut dyn FnMut(Haste)) -> Result<Vec<String>, Fault> {
    let Some(args) = outlived(words) else { return Ok(vec![]) };
    let join = args.join.join.clone().unwrap_or_default();
    let dir = join.parent().unwrap_or(Path::new(".")).to_path_buf();
    let share = Share::of(&shared_state()?, cluster);
    let launch = launch_of(&args.provide, &args.node)?;
    let prefix = block_prefix(cluster);
    let left = if args.provide.provider.is_batch() {
        // The Python process works in the folder, which may be gone.
        std::fs::create_dir_all(share.dir())?;
        let source = batch::source(cluster, &args.provide, &args.node, launch, share.clone(), dir.clone());
        haste(source.haste());
        end_blocks(source, &prefix, &dir)
    } else {
        let source =
            Commands::new(cluster, command_lines(&args.provide)?, launch, share.clone(), dir.clone());
        haste(source.haste());
        end_blocks(source, &prefix, &dir)
    };
    share.remove();
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_provider_tell_whether_its_blocks_may_outlive_it() {
        let may =
            |words: &[&str]| may_leave_blocks(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        let provider = ["provider", "--join", "/c/join.json", "--dir", "/c", "--nodes", "0..2"];
        let with = |more: &[&str]| may(&[&provider[..], more].concat());
        assert!(with(&["--provider=command", "--start=a", "--list=b", "--stop=c", "--cache", "1GiB"]));
        assert!(with(&["--provider=slurm", "--walltime=3600000ms"]));
        assert!(!with(&["--provider=local"]) && !with(&["--provider=ssh", "--hosts=h"]) && !with(&[]));
        assert!(!with(&["--provider=command", "--unknown"]));
        assert!(
            !may(&["provider", "--provider=command"]) && !may(&["up", "--provider=command"]) && !may(&[])
        );
    }
}
