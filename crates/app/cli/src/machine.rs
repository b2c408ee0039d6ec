//! A line about the machine: without it no figure has a meaning.

use serde::Serialize;

#[derive(Serialize)]
pub struct Machine {
    processor: String,
    n_cores: usize,
    memory_bytes: u64,
    kernel: String,
    /// Load average over one minute, before and after.
    load_before: f64,
    load_after: f64,
    eyas_version: &'static str,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn load() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|t| t.parse().ok()).unwrap_or(f64::NAN)
}

impl Machine {
    pub fn here() -> Machine {
        let info = read("/proc/cpuinfo");
        let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
        Machine {
            processor: model.map_or("unknown processor", |(_, name)| name).trim().to_string(),
            n_cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            memory_bytes: eyas_runtime::machine::memory_bytes(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            load_before: load(),
            load_after: f64::NAN,
            eyas_version: env!("CARGO_PKG_VERSION"),
        }
    }

    pub fn n_cores(&self) -> usize {
        self.n_cores
    }

    pub fn ended(mut self) -> Machine {
        self.load_after = load();
        self
    }

    pub fn line(&self) -> String {
        format!(
            "{} cores ({}), {}, Linux {}, load {:.1} before and {:.1} after, eyas {}",
            self.n_cores,
            self.processor,
            crate::print::size(self.memory_bytes),
            self.kernel,
            self.load_before,
            self.load_after,
            self.eyas_version,
        )
    }
}
