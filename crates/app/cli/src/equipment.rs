//! Gpus and named resources on the command line: of a node, of the whole cluster, and of a task.

use eyas_terms::needs::{AMOUNT_MAX, Equipment, GPUS_MAX, Needs, PARTS, check_name};
use std::collections::BTreeMap;
use std::path::Path;

/// `NAME=N`: so many of a named resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Amount {
    pub name: String,
    pub n: u32,
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.n)
    }
}

/// Reads `NAME=N`.
pub fn amount(text: &str) -> Result<Amount, String> {
    let (name, n) = text.split_once('=').ok_or("write NAME=N, such as licence.vcs=4")?;
    check_name(name)?;
    match n.parse() {
        Ok(n) if (1..=AMOUNT_MAX).contains(&n) => Ok(Amount { name: name.into(), n }),
        _ => Err(format!("the number after `=` is a whole number from 1 to {AMOUNT_MAX}")),
    }
}

/// The amounts by name; `Err` names one that is there twice.
pub fn by_name(amounts: &[Amount]) -> Result<BTreeMap<String, u32>, String> {
    let mut all = BTreeMap::new();
    for Amount { name, n } in amounts {
        if all.insert(name.clone(), *n).is_some() {
            return Err(format!("the resource `{name}` is given twice"));
        }
    }
    Ok(all)
}

/// The gpus of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gpus {
    /// All that the machine has, or those that the batch system gave this process.
    Auto,
    Number(u32),
}

impl std::fmt::Display for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Gpus::Auto => f.write_str("auto"),
            Gpus::Number(n) => write!(f, "{n}"),
        }
    }
}

/// Reads a number of gpus, or `auto`.
pub fn gpus(text: &str) -> Result<Gpus, String> {
    match text.parse() {
        Ok(n) if n <= GPUS_MAX => Ok(Gpus::Number(n)),
        _ if text == "auto" => Ok(Gpus::Auto),
        _ => Err(format!("write a whole number up to {GPUS_MAX}, or auto")),
    }
}

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
    fn amounts_and_gpus_are_read_as_they_are_written() {
        assert_eq!(amount("licence.vcs=4").map(|a| a.to_string()), Ok("licence.vcs=4".into()));
        for wrong in ["licence", "=3", "a=0", "a=-1", "two words=1", "gpus=2"] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
        assert_eq!(gpus("auto"), Ok(Gpus::Auto));
        assert_eq!(gpus("2"), Ok(Gpus::Number(2)));
        assert!(gpus("-1").is_err() && gpus("many").is_err());
        assert!(by_name(&[amount("a=1").expect("one"), amount("a=2").expect("two")]).is_err());
    }

    #[test]
    fn a_task_of_half_a_cpu_counts_as_one_for_whoever_knows_no_parts() {
        let (cpus, needs) = needs_of_task(500, Some(250), &[]).expect("a task");
        assert_eq!((cpus, needs.cpu_parts, needs.gpu_parts), (1, 500, 250));
        let (cpus, needs) = needs_of_task(2000, None, &[]).expect("a task");
        assert_eq!((cpus, needs.is_empty()), (2, true));
        assert!(needs_of_task(1000, Some(1500), &[]).is_err());
    }
}
