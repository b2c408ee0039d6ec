//! The parts of a cluster, for tests of this crate. The binary `eyas` has the same.

use eyas_client::JoinFile;
use eyas_runtime::dispatcher::DispatcherOptions;
use eyas_runtime::executor::{DataPlane, ExecutorOptions};
use eyas_terms::needs::Equipment;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

const SLOT_ARGUMENT: &str = "__slot";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = words.iter().position(|word| word == name);
        at.and_then(|at| words.get(at + 1)).cloned().ok_or(format!("{name} is missing"))
    };
    let until_stdin_closes = words.iter().any(|word| word == "--until-stdin-closes");
    let tokio = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match words.first().map(String::as_str) {
        Some(SLOT_ARGUMENT) => eyas_runner::slot_main(0),
        Some("dispatcher") => {
            let options = DispatcherOptions {
                until_stdin_closes,
                ..DispatcherOptions::local(&PathBuf::from(option("--dir")?))
            };
            Ok(tokio()?.block_on(eyas_runtime::dispatcher::run(options))?)
        }
        Some("executor") => {
            let options = ExecutorOptions {
                target: JoinFile::named(option("--join")?.into()).read()?,
                dir: option("--dir")?.into(),
                name: option("--name")?,
                slots: option("--slots")?.parse()?,
                cache_bytes: 1 << 20,
                memory_bytes: 1 << 20,
                cache_memory_bytes: 0,
                equipment: Equipment::default(),
                gpu_names: vec![],
                eviction: "lru".into(),
                data_listen: "127.0.0.1:0".into(),
                data_plane: DataPlane::Signed,
                home_local: vec![],
                home_on: vec![],
                hosts: vec![],
                exe: std::env::current_exe()?,
                slot_args: vec![SLOT_ARGUMENT.into()],
                until_stdin_closes,
                walltime: None,
                grace: Duration::ZERO,
                home_wait: Duration::ZERO,
                container_command: None,
                line_shell: None,
                system_users: None,
            };
            Ok(tokio()?.block_on(eyas_runtime::executor::run(options))?)
        }
        _ => Err("this is for tests of clusters".into()),
    }
}
