//! MI and SW under each provisioning policy: node time against response time (Raicu09 §2.1, §5).
//!
//! The paper names the policies and measures one of them ("dynamic") against a static pool. Here each policy has the same machine,
//! the same placement (`good-cache-compute` as the paper has it, with caches that hold all files) and the same release of nodes, so that
//! rows differ by the policy alone. The static pool is there from the beginning.

use super::paper::{dynamic, machine};
use super::{Chapter, Experiment, Load};
use crate::workload::mi::MiConfig;
use crate::workload::sw::SwConfig;
use eyas_core::placement::good_cache_compute;
use eyas_core::provisioning::{NAMES, ProvisionConfig, growth};
use eyas_sim::machine::Faults;

const S: u64 = 1_000_000_000;
/// §5.2: nodes go after 30 s without work.
const RELEASE_NS: u64 = 30 * S;

/// The workloads, as the beginning of the experiments' names and as readers see them.
pub const WORKLOADS: [(&str, &str); 2] = [("mi", "MI, up to 64 nodes"), ("sw", "SW, up to 100 nodes")];

/// The name of the experiment of a workload and a policy.
pub fn name(workload: &str, policy: &str) -> String {
    format!("nodes-{workload}-{policy}")
}

pub fn experiments() -> Vec<Experiment> {
    let mut list = vec![];
    for (workload, _) in WORKLOADS {
        let (machine, load) = match workload {
            "mi" => (machine("tg-anl-64", None), Load::Mi(MiConfig::default())),
            _ => (machine("tg-anl-100", None), Load::Sw(SwConfig::default())),
        };
        for policy in NAMES {
            let mut scheduling = dynamic(good_cache_compute::NAME, &machine, Some(RELEASE_NS));
            scheduling.provision = match policy {
                growth::STATIC => None,
                _ => scheduling.provision.map(|config| ProvisionConfig { policy: policy.into(), ..config }),
            };
            list.push(Experiment {
                name: name(workload, policy),
                chapter: Chapter::Provisioning,
                what: policy.into(),
                figure: "",
                machine: machine.clone(),
                scheduling,
                faults: Faults::default(),
                load: load.clone(),
                keeps_series: false,
                is_quick: false,
                said: vec![],
            });
        }
    }
    list
}
