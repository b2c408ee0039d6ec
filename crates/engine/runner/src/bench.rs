//! How fast programs can be started: by slot processes, and by a bare loop for comparison.

use crate::error::Error;
use crate::protocol::{
    CaptureLimits, Decoder, ExitKind, Program, RunSpec, SlotCommand, SlotConfig, SlotReport, encode_frame,
};
use crate::{spawn_slot, sys};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

const PROGRAM: &std::ffi::CStr = c"/bin/true";

/// What a benchmark measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpawnRate {
    pub tasks_per_s: f64,
    /// CPU time of all processes together, including programs and the feeder. Unlike the rate, it hardly
    /// depends on other work of the machine.
    pub cpu_ns_per_task: u64,
}

struct Stopwatch {
    begun_ns: u64,
    cpu_begun_ns: u64,
}

impl Stopwatch {
    fn start() -> Self {
        Self { begun_ns: sys::monotonic_ns(), cpu_begun_ns: sys::cpu_ns() }
    }

    /// The wall clock stops here; the CPU clock when the caller has waited for its children.
    fn wall_ns(&self) -> u64 {
        (sys::monotonic_ns() - self.begun_ns).max(1)
    }

    fn rate(&self, n: u32, wall_ns: u64) -> SpawnRate {
        SpawnRate {
            tasks_per_s: f64::from(n) * 1e9 / wall_ns as f64,
            cpu_ns_per_task: (sys::cpu_ns() - self.cpu_begun_ns) / u64::from(n.max(1)),
        }
    }
}

/// Starts of `/bin/true` by `spawners` forked processes, each in a bare loop of `posix_spawn` and
/// `waitpid` with nothing redirected. `n` starts in all, at least 1.
pub fn bare_spawn_rate(n: u32, spawners: u32) -> Result<SpawnRate, Error> {
    let failed = |error| Error::system("run", "the bare spawn loop", error);
    let watch = Stopwatch::start();
    let mut pids = Vec::new();
    for i in 0..spawners {
        let share = n / spawners + u32::from(i < n % spawners);
        // SAFETY: the child calls `posix_spawn`, `waitpid` and `_exit` only.
        match sys::check(unsafe { libc::fork() }).map_err(failed)? {
            0 => bare_loop(share),
            pid => pids.push(pid),
        }
    }
    let mut all_well = true;
    for pid in pids {
        let mut status = 0;
        // SAFETY: `status` is a valid place.
        sys::check(unsafe { libc::waitpid(pid, &mut status, 0) }).map_err(failed)?;
        all_well &= status == 0;
    }
    if !all_well {
        return Err(failed(io::Error::other("`/bin/true` could not be started")));
    }
    Ok(watch.rate(n, watch.wall_ns()))
}

fn bare_loop(n: u32) -> ! {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    let argv = [PROGRAM.as_ptr().cast_mut(), std::ptr::null_mut()];
    for _ in 0..n {
        let mut pid = 0;
        let mut status = 0;
        // SAFETY: program and `argv` are NUL-terminated; `environ` is this process's own environment.
        unsafe {
            let spawned = libc::posix_spawn(
                &mut pid,
                PROGRAM.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                argv.as_ptr(),
                environ,
            );
            if spawned != 0 || libc::waitpid(pid, &mut status, 0) != pid || status != 0 {
                libc::_exit(1);
            }
        }
    }
    // SAFETY: ends the forked child without running what belongs to its parent.
    unsafe { libc::_exit(0) }
}

struct Lane {
    slot: crate::SlotHandle,
    decoder: Decoder,
    n_under_way: u32,
}

/// Tasks `/bin/true` through `slots` slot processes (`exe` with `args`, see
/// [`spawn_slot`]), kept `ahead` tasks ahead, from the first command to the last report. `n` tasks in all;
/// sandboxes are made in `sandbox_root`.
pub fn slot_spawn_rate(
    exe: &Path,
    args: &[impl AsRef<OsStr>],
    sandbox_root: &Path,
    n: u32,
    slots: u32,
    ahead: u32,
) -> Result<SpawnRate, Error> {
    let failed = |error| Error::system("run", "the slot benchmark", error);
    let mut lanes = Vec::new();
    for _ in 0..slots {
        let slot = spawn_slot(exe, args, SlotConfig::new(sandbox_root))?;
        lanes.push(Lane { slot, decoder: Decoder::new(), n_under_way: 0 });
    }
    let mut buffer = vec![0; 64 << 10];
    for lane in &mut lanes {
        match read_report(lane, &mut buffer)? {
            SlotReport::Ready { .. } => {}
            other => return Err(failed(io::Error::other(format!("a slot did not become ready: {other:?}")))),
        }
    }
    let watch = Stopwatch::start();
    let (mut n_sent, mut n_done) = (0, 0);
    for lane in &mut lanes {
        feed(lane, &mut n_sent, n, ahead).map_err(failed)?;
    }
    let mut fds: Vec<_> = lanes
        .iter()
        .map(|lane| libc::pollfd { fd: lane.slot.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    while n_done < n {
        // SAFETY: `fds` is valid for its length.
        sys::check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) }).map_err(failed)?;
        for (lane, fd) in lanes.iter_mut().zip(&fds) {
            if fd.revents == 0 {
                continue;
            }
            let n_read = lane.slot.stream.read(&mut buffer).map_err(failed)?;
            if n_read == 0 {
                return Err(failed(io::Error::from(io::ErrorKind::UnexpectedEof)));
            }
            lane.decoder.extend(&buffer[..n_read]);
            while let Some(report) = lane.decoder.next_message::<SlotReport>()? {
                if let SlotReport::Ended(report) = report {
                    if report.exit != ExitKind::Exited(0) {
                        return Err(failed(io::Error::other(format!("a task failed: {:?}", report.exit))));
                    }
                    n_done += 1;
                    lane.n_under_way -= 1;
                }
            }
            feed(lane, &mut n_sent, n, ahead).map_err(failed)?;
        }
    }
    let wall_ns = watch.wall_ns();
    for Lane { mut slot, .. } in lanes {
        drop(slot.stream);
        slot.process.wait().map_err(failed)?;
    }
    Ok(watch.rate(n, wall_ns))
}

/// Fills a lane up to `ahead` tasks with one write; not for a single missing task, so that batches form.
fn feed(lane: &mut Lane, n_sent: &mut u32, n: u32, ahead: u32) -> io::Result<()> {
    let missing = (ahead - lane.n_under_way).min(n - *n_sent);
    if missing == 0 || lane.n_under_way > ahead / 2 {
        return Ok(());
    }
    let mut frames = Vec::new();
    for _ in 0..missing {
        let spec = RunSpec {
            key: u64::from(*n_sent),
            program: Program::Exec(vec!["/bin/true".into()]),
            env: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            walltime_ns: None,
            memory_bytes: None,
            capture: CaptureLimits::default(),
            keep_sandbox: false,
            tee: [None, None],
            prints_whole: false,
            account: None,
            container: None,
            watched: None,
        };
        encode_frame(&SlotCommand::Start(Box::new(spec)), &mut frames).map_err(io::Error::other)?;
        *n_sent += 1;
        lane.n_under_way += 1;
    }
    lane.slot.stream.write_all(&frames)
}

fn read_report(lane: &mut Lane, buffer: &mut [u8]) -> Result<SlotReport, Error> {
    loop {
        if let Some(report) = lane.decoder.next_message()? {
            return Ok(report);
        }
        let failed = |error| Error::system("read", "the slot socket", error);
        match lane.slot.stream.read(buffer).map_err(failed)? {
            0 => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            n => lane.decoder.extend(&buffer[..n]),
        }
    }
}
