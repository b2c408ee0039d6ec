//! Gpus and named resources on the command line: of a node, of the whole cluster, and of a task.

use crate::args::{Amount, Gpus};
use eyas_cluster::values::by_name;
use eyas_terms::needs::{Equipment, Needs, PARTS};
use std::path::Path;

/// Reads a number of cpus or gpus of a task, in thousandths.
pub fn parts(text: &str) -> Result<u64, String> {
    eyas_tasklist::parse_parts(text).map_err(|e| e.to_string())
}

/// The whole cpus of a task, rounded up, and all that it needs beside.
pub fn needs_of_task(
    cpu_parts: u64,
    gpu_parts: Option<u64>,
    resources: &[Amount],
) -> Result<(u32, Needs), String> {
    let whole = u64::from(PARTS);
    let narrow = |parts: u64| u32::try_from(parts).unwrap_or(u32::MAX);
    let needs = Needs {
        cpu_parts: if cpu_parts.is_multiple_of(whole) { 0 } else { narrow(cpu_parts) },
        gpu_parts: gpu_parts.map_or(0, narrow),
        resources: by_name(resources)?,
    };
    needs.check()?;
    Ok((narrow(cpu_parts.div_ceil(whole)), needs))
}

/// The names by which a program knows the gpus of one of `n_nodes` nodes of this machine, of which this is number
/// `index`, counted from 0. Nodes of one machine get different gpus.
pub fn gpu_names(gpus: Option<Gpus>, index: u32, n_nodes: u32) -> Vec<String> {
    let of_machine = machine_gpus();
    let n = match gpus {
        None => 0,
        Some(Gpus::Number(n)) => n,
        Some(Gpus::Auto) => of_machine.len() as u32 / n_nodes.max(1),
    };
    let numbers = index * n..(index + 1) * n;
    // A batch system's own names count, if there are enough of them.
    numbers.map(|i| of_machine.get(i as usize).cloned().unwrap_or_else(|| i.to_string())).collect()
}

/// What a node has: its gpus by name, and its equipment.
pub fn of_node(names: &[String], resources: &[Amount]) -> Result<Equipment, String> {
    Ok(Equipment { gpus: names.len() as u32, resources: by_name(resources)? })
}

/// The names of the gpus that this process may use: what its surroundings say, else all of the machine.
fn machine_gpus() -> Vec<String> {
    for variable in ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
        if let Ok(list) = std::env::var(variable) {
            // A list ends at the first name that is none, as the makers of gpus have it.
            let names = list.split(',').map(str::trim);
            return names.take_while(|name| !name.is_empty() && *name != "-1").map(String::from).collect();
        }
    }
    let nvidia = entries("/proc/driver/nvidia/gpus").len();
    let amd = entries("/sys/class/kfd/kfd/topology/nodes").into_iter().filter(|node| {
        let properties = std::fs::read_to_string(node.join("properties")).unwrap_or_default();
        properties.lines().any(|line| line.starts_with("simd_count ") && !line.ends_with(" 0"))
    });
    let n = if nvidia > 0 { nvidia } else { amd.count() };
    (0..n).map(|i| i.to_string()).collect()
}

fn entries(dir: &str) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(Path::new(dir)).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_half_a_cpu_counts_as_one_for_whoever_knows_no_parts() {
        let (cpus, needs) = needs_of_task(500, Some(250), &[]).expect("a task");
        assert_eq!((cpus, needs.cpu_parts, needs.gpu_parts), (1, 500, 250));
        let (cpus, needs) = needs_of_task(2000, None, &[]).expect("a task");
        assert_eq!((cpus, needs.is_empty()), (2, true));
        assert!(needs_of_task(1000, Some(1500), &[]).is_err());
    }
}
