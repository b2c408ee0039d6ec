//! The slot process: one loop around one `poll`.
//!
//! It watches four descriptors that stay the same from task to task: the socket, a signalfd for SIGCHLD, and
//! the read ends of two pipes that all tasks of the slot write to. Keeping the pipes (and our own copies of
//! their write ends) saves four descriptors per task and the wake-ups for closing them. It is safe because a
//! task is over only when none of its processes is alive. A signalfd is used rather than a pidfd, because it
//! needs no descriptor per task and works on the older kernels that clusters have.
//!
//! A report waits up to `report_hold_ns` while the next task runs and more are queued, so that short tasks
//! share system calls and wake-ups of the executor: on a busy machine, a wake-up per task cost a quarter of
//! the rate. A slot that is idle or has nothing queued sends at once.
//!
//! The set-up of a sandbox is synchronous, but the socket is read between the blocks of a long copy.

use crate::account::leave_keys;
use crate::capture::Capture;
use crate::container;
use crate::error::Error;
use crate::exec_args::{ExecArgs, Helper};
use crate::program::{self, Finder, NotStarted};
use crate::protocol::{
    Account, ByteString, Container, ContainerKind, Decoder, ExitKind, NotStartedKind, OutputState, Program,
    RunReport, RunSpec, SlotCommand, SlotConfig, SlotReport, Times, Usage, encode_frame,
};
use crate::sandbox::{Pool, Sandbox};
use crate::spawn::Spawner;
use crate::stage::{self, SetupError, Staged, Unprepared};
use crate::warm::{self, WarmAnswer, WarmProgram};
use crate::{new_files, shell, sys, tree};
use eyas_text::shown_bytes;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const READ_BYTES: usize = 64 << 10;
/// Limit on what is kept of one stream, whatever a spec asks for, so that a report fits into a frame.
const CAPTURE_BYTES_MAX: u32 = 16 << 20;
/// With this many bytes unsent, no further task is started until the executor reads.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Turns this process into a slot process that communicates over the socket `fd`. Call it first in `main`,
/// while the process has one thread. Ends the process when the socket closes.
pub fn slot_main(fd: RawFd) -> ! {
    let code = match prepare_process(fd).and_then(serve) {
        Ok(()) => 0,
        Err(error) => {
            eyas_text::say!("eyas slot process {}: {error}", std::process::id());
            1
        }
    };
    std::process::exit(code)
}

struct Kernel {
    socket: OwnedFd,
    children: OwnedFd,
}

/// A handler that does nothing.
extern "C" fn heed_nothing(_: libc::c_int) {}

/// A file that grows beyond this process's limit (`ulimit -f`) is an error of the write, and does not end the process. Programs that
/// it starts are ended by the signal as usual: a handler, unlike an ignored signal, is not inherited.
pub fn survive_file_size_limit() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, heed_nothing as *const () as libc::sighandler_t) };
}

/// Session, reaper, signals, descriptors.
fn prepare_process(fd: RawFd) -> Result<Kernel, Error> {
    let failed = |error| Error::system("prepare", "the slot process", error);
    // SAFETY: this process has one thread and no signal handlers that matter; the descriptors made here are
    // owned by nobody else.
    unsafe {
        // Keeps a terminal's Ctrl-C away from tasks: ending them is the executor's decision.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"eyas-slot".as_ptr());
        sys::check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)).map_err(failed)?;
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        // A batch system that takes its node back signals all processes of the job. This one ends when its executor does,
        // which may have a grace period. A handler, unlike an ignored signal, is not inherited by programs.
        for signal in [libc::SIGTERM, libc::SIGUSR2] {
            libc::signal(signal, heed_nothing as *const () as libc::sighandler_t);
        }
        survive_file_size_limit();
        // Standard streams may be closed; our own descriptors must not get their numbers.
        while sys::open_at(libc::AT_FDCWD, c"/dev/null", libc::O_RDWR, 0).map_err(failed)?.as_raw_fd() <= 2 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
        let socket = sys::check(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)).map_err(failed)?;
        let socket = OwnedFd::from_raw_fd(socket);
        if fd > 2 {
            libc::close(fd);
        } else {
            let null = sys::open_at(libc::AT_FDCWD, c"/dev/null", libc::O_RDWR, 0).map_err(failed)?;
            sys::check(libc::dup2(null.as_raw_fd(), fd)).map_err(failed)?;
        }
        // Descriptors that our parent leaked must not reach tasks. Old kernels do not know the call.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        let mut mask = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(mask.as_mut_ptr());
        libc::sigaddset(mask.as_mut_ptr(), libc::SIGCHLD);
        sys::check(libc::sigprocmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut()))
            .map_err(failed)?;
        let children = libc::signalfd(-1, mask.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        let children = OwnedFd::from_raw_fd(sys::check(children).map_err(failed)?);
        Ok(Kernel { socket, children })
    }
}

/// Sets the soft limit, which programs inherit. It is a courtesy to them: if it fails, they have a higher
/// limit.
fn limit_descriptors(most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer, and alive when it is read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = most.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Waits for the configuration, then runs tasks until the socket closes.
fn serve(kernel: Kernel) -> Result<(), Error> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; READ_BYTES].into_boxed_slice();
    let config = loop {
        match decoder.next_message()? {
            Some(SlotCommand::Configure(config)) => break config,
            Some(_) => return Err(Error::protocol("the first command", "it is not `Configure`")),
            None => {}
        }
        match receive(&kernel.socket, &mut buffer, 0) {
            Ok(0) => return Ok(()),
            Ok(n) => decoder.extend(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::system("read", "the slot socket", error)),
        }
    };
    if let Some(most) = config.descriptors_max {
        limit_descriptors(most);
    }
    let Kernel { socket, children } = kernel;
    match Parts::new(&config) {
        Ok(parts) => Slot::new(socket, children, config, parts, decoder, buffer).run(),
        Err(error) => {
            let mut frame = Vec::new();
            encode_frame(&SlotReport::Refused { message: error.to_string() }, &mut frame)?;
            send(socket.as_raw_fd(), &frame, 0)
                .map_err(|error| Error::system("write to", "the slot socket", error))?;
            Ok(())
        }
    }
}

struct Queued {
    spec: RunSpec,
    received_ns: u64,
}

/// Why eyas ends a task that has not ended by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Walltime,
    Memory,
    Cancel,
}

struct Running {
    spec: RunSpec,
    sandbox: Sandbox,
    staged: Staged,
    pid: libc::pid_t,
    times: Times,
    usage: Usage,
    free_bytes: Option<u64>,
    /// The time at which the start is to be reported, if it has not been.
    start_report_at_ns: Option<u64>,
    stop: Option<Stop>,
    /// A program that stays ended in place of an answer.
    is_unanswered: bool,
    /// It closed its connection before, and was ended for that.
    has_hung_up: bool,
    walltime_at_ns: Option<u64>,
    kill_at_ns: Option<u64>,
    memory_at_ns: Option<u64>,
    /// Resident memory of the slot process when it started the task: the floor of what the kernel reports.
    slot_rss_bytes: u64,
    /// The most that was seen of what the kernel reports as resident and that does not count against a limit.
    of_files_max_bytes: u64,
}

impl Running {
    /// Kills the program, and what has started it.
    fn kill(&self) {
        if let Some(program) = self.program_in_container() {
            sys::kill(-program, libc::SIGKILL);
        }
        kill_task(self.pid);
    }

    /// The program, where another one that has to live on has started it.
    fn program_in_container(&self) -> Option<libc::pid_t> {
        let container = self.spec.container.as_ref()?;
        (container.kind == ContainerKind::Bubblewrap).then(|| container::program_of(self.pid))?
    }
}

struct Slot {
    socket: OwnedFd,
    children: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The user whose programs had the streams last.
    streams_of: Option<u32>,
    config: SlotConfig,
    pid: u32,
    decoder: Decoder,
    buffer: Box<[u8]>,
    unsent: Vec<u8>,
    n_sent: usize,
    /// Reports wait for further ones until then; `None` when there is nothing to report.
    report_at_ns: Option<u64>,
    pool: Pool,
    spawner: Spawner,
    finder: Finder,
    exec_args: ExecArgs,
    capture_out: Capture,
    capture_err: Capture,
    queue: VecDeque<Queued>,
    running: Option<Running>,
    /// A program that stays from task to task. It runs the task that runs, if it is there.
    warm: Option<WarmProgram>,
    unreleased: Vec<(u64, Sandbox)>,
    /// The task whose sandbox is being made, and whether it was cancelled meanwhile.
    preparing: Option<(u64, bool)>,
    /// Why reading commands ended while a sandbox was made.
    ended: Option<Option<Error>>,
    /// The kernel's counts of the bytes that this process, and those that it has waited for, read and write.
    io: Option<File>,
}

/// The executor has closed the socket.
struct Closed;

/// The parts of a slot whose creation may fail.
struct Parts {
    stdout: OwnedFd,
    stderr: OwnedFd,
    pool: Pool,
    spawner: Spawner,
}

impl Parts {
    fn new(config: &SlotConfig) -> Result<Self, Error> {
        let failed = |error| Error::system("prepare", "the slot process", error);
        let (stdout, stdout_write) = pipe().map_err(failed)?;
        let (stderr, stderr_write) = pipe().map_err(failed)?;
        let pool = Pool::new(config.sandbox_root.as_path()).map_err(|error| {
            Error::system("use the sandbox directory", config.sandbox_root.to_string(), error)
        })?;
        Ok(Self { stdout, stderr, pool, spawner: Spawner::new(stdout_write, stderr_write).map_err(failed)? })
    }
}

impl Slot {
    fn new(
        socket: OwnedFd,
        children: OwnedFd,
        config: SlotConfig,
        parts: Parts,
        decoder: Decoder,
        buffer: Box<[u8]>,
    ) -> Self {
        let Parts { stdout, stderr, pool, spawner } = parts;
        let mut slot = Self {
            socket,
            children,
            stdout,
            stderr,
            streams_of: None,
            pid: std::process::id(),
            decoder,
            buffer,
            unsent: Vec::new(),
            n_sent: 0,
            report_at_ns: None,
            pool,
            spawner,
            finder: Finder::default(),
            exec_args: ExecArgs::new(&config.base_env),
            capture_out: Capture::default(),
            capture_err: Capture::default(),
            queue: VecDeque::new(),
            running: None,
            warm: None,
            unreleased: Vec::new(),
            preparing: None,
            ended: None,
            io: File::open("/proc/self/io").ok(),
            config,
        };
        slot.report(&SlotReport::Ready { pid: slot.pid as i32 });
        slot
    }

    fn run(&mut self) -> Result<(), Error> {
        let outcome = self.run_until_closed();
        self.end_everything();
        match outcome {
            Err(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// `Err(None)`: the executor has closed the socket, the usual end.
    fn run_until_closed(&mut self) -> Result<(), Option<Error>> {
        self.read_commands_decoded()?;
        loop {
            while self.can_start() {
                let Some(queued) = self.queue.pop_front() else { break };
                self.start(queued);
                if let Some(end) = self.ended.take() {
                    return Err(end);
                }
            }
            let now = sys::monotonic_ns();
            let is_report_due = self.report_at_ns.is_some_and(|at| at <= now || self.queue.is_empty());
            if self.running.is_none() || is_report_due {
                self.flush().map_err(|Closed| None)?;
            }
            if self.can_start() && !self.queue.is_empty() {
                // The flush has made the room that was missing above; no event would wake us for that.
                continue;
            }
            let events = self
                .wait(now)
                .map_err(|error| Some(Error::system("poll", "the slot's descriptors", error)))?;
            if events.stdout {
                read_stream(&self.stdout, &mut self.capture_out, &mut self.buffer);
            }
            if events.stderr {
                read_stream(&self.stderr, &mut self.capture_err, &mut self.buffer);
            }
            if events.room {
                self.flush().map_err(|Closed| None)?;
            }
            if events.socket {
                self.read_commands()?;
            }
            if events.children {
                self.on_children();
            }
            if events.warm {
                self.on_warm();
            }
            if events.timer {
                self.on_timer(sys::monotonic_ns());
            }
        }
    }

    fn can_start(&self) -> bool {
        self.running.is_none() && self.unsent.len() - self.n_sent < UNSENT_BYTES_MAX
    }

    fn wait(&self, now: u64) -> io::Result<Events> {
        let running = self.running.as_ref();
        let timers = running
            .map(|r| [r.walltime_at_ns, r.kill_at_ns, r.memory_at_ns, r.start_report_at_ns])
            .unwrap_or_default();
        let next_ns = timers.into_iter().chain([self.report_at_ns]).flatten().min();
        let timeout = next_ns.map(|at| at.saturating_sub(now)).map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        // A flush has met a full socket: continue when there is room.
        let wants_room = self.n_sent < self.unsent.len() && self.report_at_ns.is_none();
        let socket_events = if wants_room { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        let on = |fd: &OwnedFd, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        let program = self.warm.as_ref().filter(|_| self.running.is_some());
        let warm = program.map_or(-1, WarmProgram::socket);
        let sending = if program.is_some_and(WarmProgram::is_sending) { libc::POLLOUT } else { 0 };
        let mut fds = [
            on(&self.socket, socket_events),
            on(&self.children, libc::POLLIN),
            on(&self.stdout, libc::POLLIN),
            on(&self.stderr, libc::POLLIN),
            // A negative number is passed over.
            libc::pollfd { fd: warm, events: libc::POLLIN | sending, revents: 0 },
        ];
        let timeout_ptr =
            timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const libc::timespec);
        // SAFETY: `fds` and `timeout` live through the call.
        let result = unsafe { libc::ppoll(fds.as_mut_ptr(), 5, timeout_ptr, std::ptr::null()) };
        match sys::check(result) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(Events {
            socket: fds[0].revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0,
            room: fds[0].revents & libc::POLLOUT != 0,
            children: fds[1].revents != 0,
            stdout: fds[2].revents != 0,
            stderr: fds[3].revents != 0,
            warm: fds[4].revents != 0,
            timer: next_ns.is_some(),
        })
    }

    fn read_commands(&mut self) -> Result<(), Option<Error>> {
        match receive(&self.socket, &mut self.buffer, libc::MSG_DONTWAIT) {
            Ok(0) => return Err(None),
            Ok(n) => self.decoder.extend(&self.buffer[..n]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Err(None),
        }
        self.read_commands_decoded()
    }

    fn read_commands_decoded(&mut self) -> Result<(), Option<Error>> {
        let mut received_ns = 0;
        while let Some(command) = self.decoder.next_message()? {
            match command {
                SlotCommand::Configure(_) => {
                    return Err(Some(Error::protocol("a command", "`Configure` came a second time")));
                }
                SlotCommand::Start(spec) => {
                    if received_ns == 0 {
                        received_ns = sys::monotonic_ns();
                    }
                    self.queue.push_back(Queued { spec: *spec, received_ns });
                }
                SlotCommand::Cancel { key } => self.on_cancel(key),
                SlotCommand::Release { key } => {
                    if let Some(at) = self.unreleased.iter().position(|(owner, _)| *owner == key) {
                        let (_, sandbox) = self.unreleased.swap_remove(at);
                        self.pool.give_back(sandbox);
                    }
                }
                SlotCommand::Look { key } => self.on_look(key),
            }
        }
        Ok(())
    }

    /// Reports the output of `key` so far, if it runs.
    fn on_look(&mut self, key: u64) {
        let runs = self.running.as_ref().is_some_and(|running| running.spec.key == key);
        if runs {
            // One read takes everything that a pipe holds; reading until it is empty would never end with a
            // program that never pauses.
            read_stream(&self.stdout, &mut self.capture_out, &mut self.buffer);
            read_stream(&self.stderr, &mut self.capture_err, &mut self.buffer);
        }
        let printed = runs.then(|| Box::new((self.capture_out.so_far(), self.capture_err.so_far())));
        self.report(&SlotReport::Printed { key, printed });
        self.report_at_ns = Some(sys::monotonic_ns());
    }

    fn on_cancel(&mut self, key: u64) {
        if let Some((preparing, is_cancelled)) = &mut self.preparing
            && *preparing == key
        {
            *is_cancelled = true;
        } else if self.running.as_ref().is_some_and(|running| running.spec.key == key) {
            self.stop_running(Stop::Cancel);
        } else if let Some(at) = self.queue.iter().position(|queued| queued.spec.key == key) {
            let Some(Queued { received_ns, .. }) = self.queue.remove(at) else { return };
            let times = Times { received_ns, ..Times::default() };
            self.report_unstarted(key, times, ExitKind::Cancelled);
        }
    }

    /// Whether the task whose sandbox is being made should still be started. Reads the executor's commands
    /// meanwhile.
    fn still_wanted(&mut self) -> bool {
        if self.ended.is_none()
            && let Err(end) = self.read_commands()
        {
            self.ended = Some(end);
        }
        self.ended.is_none() && !self.preparing.is_some_and(|(_, is_cancelled)| is_cancelled)
    }

    /// Prepares and starts a task; when that fails, reports it as ended.
    fn start(&mut self, queued: Queued) {
        let Queued { mut spec, received_ns } = queued;
        self.choose_shell(&mut spec);
        let mut times = Times { received_ns, begun_ns: sys::monotonic_ns(), ..Times::default() };
        let mut sandbox = match self.pool.take() {
            Ok(sandbox) => sandbox,
            Err(error) => {
                let place = format!("cannot make a sandbox in {}", shown_bytes(&self.config.sandbox_root.0));
                let SetupError { kind, message } = SetupError::new(place, &error);
                return self.report_unstarted(spec.key, times, ExitKind::SetupFailed { kind, message });
            }
        };
        self.preparing = Some((spec.key, false));
        let account = spec.account.as_ref();
        let prepared =
            stage::prepare(&sandbox, &spec.inputs, &spec.outputs, account, &mut || self.still_wanted());
        self.preparing = None;
        let staged = match prepared {
            Ok(staged) => staged,
            Err(Unprepared::GivenUp) => {
                self.pool.give_back(sandbox);
                return self.report_unstarted(spec.key, times, ExitKind::Cancelled);
            }
            Err(Unprepared::Failed(SetupError { kind, message })) => {
                self.pool.give_back(sandbox);
                return self.report_unstarted(spec.key, times, ExitKind::SetupFailed { kind, message });
            }
        };
        let free_bytes = sys::room(sandbox.fd.as_raw_fd()).map(|(free_bytes, _)| free_bytes);
        times.setup_done_ns = sys::monotonic_ns();
        if let Err(error) = self.divide_users(account) {
            let SetupError { kind, message } =
                SetupError::new("cannot make pipes for what it prints".into(), &error);
            self.pool.give_back(sandbox);
            return self.report_unstarted(spec.key, times, ExitKind::SetupFailed { kind, message });
        }
        self.spawner.reset_streams();
        let limits = spec.capture;
        let limits = crate::CaptureLimits {
            head_bytes: limits.head_bytes.min(CAPTURE_BYTES_MAX),
            tail_bytes: limits.tail_bytes.min(CAPTURE_BYTES_MAX),
        };
        match open_copies(&spec, &sandbox) {
            Ok([out, err]) => {
                let spool = spec.prints_whole.then(|| self.pool.new_path());
                self.capture_out.reset(limits, out, spool);
                self.capture_err.reset(limits, err, None);
            }
            Err(SetupError { kind, message }) => {
                self.pool.give_back(sandbox);
                return self.report_unstarted(spec.key, times, ExitKind::SetupFailed { kind, message });
            }
        }
        if let Some(Err(error)) = account.map(|account| sandbox.give(account)) {
            let what = "cannot give the sandbox to its system user".to_string();
            let SetupError { kind, message } = SetupError::new(what, &error);
            self.pool.give_back(sandbox);
            return self.report_unstarted(spec.key, times, ExitKind::SetupFailed { kind, message });
        }
        let helper = match spec.container.as_ref().map(|container| self.contain(container, &spec, &sandbox)) {
            Some(Err(exit)) => {
                let kept = spec.keep_sandbox.then(|| ByteString::from(&sandbox.path));
                if kept.is_none() {
                    self.pool.give_back(sandbox);
                }
                let report = RunReport {
                    kept: kept.is_some(),
                    sandbox: kept,
                    ..unstarted_report(spec.key, times, exit)
                };
                return self.report(&SlotReport::Ended(Box::new(report)));
            }
            Some(Ok(helper)) => Some(helper),
            None => None,
        };
        match self.spawn(&spec, helper.as_ref(), &sandbox) {
            Ok(pid) => {
                let now = sys::monotonic_ns();
                times.spawned_ns = now;
                self.running = Some(Running {
                    sandbox,
                    staged,
                    pid,
                    times,
                    usage: Usage::default(),
                    free_bytes,
                    start_report_at_ns: Some(now.saturating_add(self.config.start_report_after_ns)),
                    stop: None,
                    is_unanswered: false,
                    has_hung_up: false,
                    walltime_at_ns: spec.walltime_ns.map(|limit| now.saturating_add(limit)),
                    kill_at_ns: None,
                    memory_at_ns: spec.memory_bytes.map(|_| now.saturating_add(self.config.memory_poll_ns)),
                    of_files_max_bytes: 0,
                    slot_rss_bytes: if spec.memory_bytes.is_some() { own_rss_max_bytes() } else { 0 },
                    spec,
                });
            }
            Err(NotStarted { kind, message }) => {
                let kept = spec.keep_sandbox.then(|| ByteString::from(&sandbox.path));
                if kept.is_none() {
                    self.pool.give_back(sandbox);
                }
                let exit = ExitKind::NotStarted { kind, message };
                let mut report = unstarted_report(spec.key, times, exit);
                report.inputs = staged.kinds;
                report.kept = kept.is_some();
                report.sandbox = kept;
                self.report(&SlotReport::Ended(Box::new(report)));
            }
        }
    }

    /// What runs the program of a task in the container.
    fn contain(
        &mut self,
        container: &Container,
        spec: &RunSpec,
        sandbox: &Sandbox,
    ) -> Result<Helper, ExitKind> {
        let sandboxes = self.config.sandbox_root.as_path();
        let node_folder = sandboxes.parent().unwrap_or(sandboxes);
        let place = container::ProgramPlace { sandbox: &sandbox.path, node_folder };
        container::wrap(container, spec, place, &mut self.finder, &self.exec_args)
    }

    /// Two users never have the same keyring, or the same pipes: a process of one of them could keep an end, and print into the output of the other one's
    /// programs.
    fn divide_users(&mut self, account: Option<&Account>) -> io::Result<()> {
        let uid = account.map(|account| account.uid);
        if uid == self.streams_of {
            return Ok(());
        }
        if account.is_some() {
            leave_keys()?;
        }
        let (stdout, stdout_write) = pipe()?;
        let (stderr, stderr_write) = pipe()?;
        self.spawner = Spawner::new(stdout_write, stderr_write)?;
        (self.stdout, self.stderr, self.streams_of) = (stdout, stderr, None);
        account.map_or(Ok(()), |account| self.spawner.give_streams(account))?;
        self.streams_of = uid;
        Ok(())
    }

    /// A line for the shell becomes the words that run it.
    fn choose_shell(&mut self, spec: &mut RunSpec) {
        // A line with a NUL byte is refused when the program is started.
        let Program::Shell(line) = &spec.program else { return };
        let words = match &spec.container {
            _ if line.contains(&0) => return,
            Some(_) => shell::words_inside(line),
            None => {
                let (_, path) = self.exec_args.program_and_path(spec);
                let finder = &mut self.finder;
                let mut find =
                    |path: &[u8]| Some(finder.find(b"bash", path, Path::new("/")).ok()?.into_bytes());
                shell::words(line, path, &mut find)
            }
        };
        spec.program = Program::Exec(words);
    }

    /// Starts the program of a task, or the `helper` that does.
    fn spawn(
        &mut self,
        spec: &RunSpec,
        helper: Option<&Helper>,
        sandbox: &Sandbox,
    ) -> Result<libc::pid_t, NotStarted> {
        match warm::is_warm(spec) {
            true => return self.give_to_warm(spec, sandbox),
            false => self.end_warm(),
        }
        self.start_program(spec, helper, sandbox, None)
    }

    /// Gives a task to the program that stays, which is started where it is not there.
    fn give_to_warm(&mut self, spec: &RunSpec, sandbox: &Sandbox) -> Result<libc::pid_t, NotStarted> {
        let path = sandbox.path.as_os_str().as_bytes();
        if let Some(program) = self.warm.as_mut().filter(|program| program.is_for(spec))
            && program.give(spec, path).is_ok()
        {
            return Ok(program.pid);
        }
        self.end_warm();
        let fail = |error: io::Error| {
            NotStarted::new(NotStartedKind::NoResources, format!("cannot reach the program: {error}"))
        };
        let (ours, its) = warm::sockets().map_err(fail)?;
        let start = warm::starting(spec, its.as_raw_fd());
        let pid = self.start_program(&start, None, sandbox, Some(its.as_raw_fd()))?;
        self.warm = WarmProgram::new(spec, pid, ours);
        // Where it has ended already, that is seen as its end.
        let _ = self.warm.as_mut().map(|program| program.give(spec, path));
        Ok(pid)
    }

    /// Ends the program that stays, and what it has started; no task runs.
    fn end_warm(&mut self) {
        let Some(program) = self.warm.take() else { return };
        program.kill();
        let give_up_ns = sys::monotonic_ns().saturating_add(self.config.reap_wait_ns);
        loop {
            kill_children(self.pid, program.pid);
            loop {
                match reap() {
                    Reaped::Child { .. } => {}
                    Reaped::NoChildren => return,
                    Reaped::NoneEnded => break,
                }
            }
            if sys::monotonic_ns() >= give_up_ns {
                return;
            }
            wait_for_child(&self.children);
        }
    }

    /// The program that stays has said something about its task.
    fn on_warm(&mut self) {
        let Some(program) = &mut self.warm else { return };
        // Where it has ended, that is read.
        let _ = program.send();
        match program.read() {
            WarmAnswer::None => {}
            // Its end follows.
            WarmAnswer::Gone => {
                let is_exiting = tree::is_exiting(program.pid);
                self.running.iter_mut().for_each(|running| running.has_hung_up |= !is_exiting);
                program.kill();
            }
            WarmAnswer::Ended(status, is_last, said) => {
                let left = program.end_leftovers(self.pid, self.config.reap_wait_ns);
                let (user_ns, system_ns) = program.cpu_ns();
                let Some(mut running) = self.running.take() else { return };
                running.usage.cpu_user_ns += user_ns;
                running.usage.cpu_system_ns += system_ns;
                running.times.exited_ns = sys::monotonic_ns();
                if !said.is_empty() {
                    read_stream_to_end(&self.stdout, &mut self.capture_out, &mut self.buffer);
                    self.capture_out.push(&said);
                }
                let is_stopped = running.stop.is_some();
                self.finish(running, status << 8, Left::Ended(left.0, left.1));
                if is_stopped || is_last {
                    self.end_warm();
                }
            }
        }
    }

    /// Starts the program of a task, or the `helper` that does. `kept`: a further descriptor that it has, by the same number.
    fn start_program(
        &mut self,
        spec: &RunSpec,
        helper: Option<&Helper>,
        sandbox: &Sandbox,
        kept: Option<RawFd>,
    ) -> Result<libc::pid_t, NotStarted> {
        let file = self.find_program(spec, helper, sandbox)?;
        let (pid_or_errno, file) = match (self.execute(&file, spec, helper, sandbox, kept)?, &spec.program) {
            // The program is no longer where the search found it before: search again with nothing
            // remembered.
            (Err(libc::ENOENT | libc::EACCES | libc::ENOTDIR), Program::Exec(_)) if self.finder.forget() => {
                let file = self.find_program(spec, helper, sandbox)?;
                (self.execute(&file, spec, helper, sandbox, kept)?, file)
            }
            (outcome, _) => (outcome, file),
        };
        pid_or_errno.map_err(|errno| program::explain(&file, &sandbox.path, errno))
    }

    fn find_program(
        &mut self,
        spec: &RunSpec,
        helper: Option<&Helper>,
        sandbox: &Sandbox,
    ) -> Result<CString, NotStarted> {
        let (program, path) = match helper {
            Some(helper) => (&helper.argv[0][..], self.exec_args.base_path()),
            None => self.exec_args.program_and_path(spec),
        };
        self.finder.find(program, path, &sandbox.path)
    }

    /// The inner result has the error number of `execve`.
    fn execute(
        &mut self,
        file: &CStr,
        spec: &RunSpec,
        helper: Option<&Helper>,
        sandbox: &Sandbox,
        kept: Option<RawFd>,
    ) -> Result<Result<libc::pid_t, i32>, NotStarted> {
        let path = sandbox.path.as_os_str().as_bytes();
        let account = spec.account.as_ref();
        let (argv, envp) = match helper {
            Some(helper) => self.exec_args.build_helper(helper, account, path)?,
            None => self.exec_args.build(spec, path)?,
        };
        let kept = helper.and_then(|helper| helper.open.as_ref()).map(AsRawFd::as_raw_fd).or(kept);
        let filter = spec
            .watched
            .as_ref()
            .map(|folder| crate::watched::meet(folder.as_path(), spec.key, &sandbox.path));
        let filter = filter.transpose().map_err(|error| {
            NotStarted::new(NotStartedKind::NoResources, format!("the program cannot be watched: {error}"))
        })?;
        let outcome =
            self.spawner.spawn(file, argv, envp, sandbox.fd.as_raw_fd(), kept, filter.as_ref(), account);
        Ok(outcome.map_err(|error| error.raw_os_error().unwrap_or(0)))
    }

    fn stop_running(&mut self, stop: Stop) {
        let Some(running) = &mut self.running else { return };
        if running.stop.is_some() {
            return;
        }
        running.stop = Some(stop);
        running.walltime_at_ns = None;
        running.memory_at_ns = None;
        // A program that exceeds its memory gets no time to take more.
        if stop == Stop::Memory || self.config.term_grace_ns == 0 {
            running.kill();
        } else {
            // What makes the container lives as long as the program in it.
            let pid = running.program_in_container().unwrap_or(running.pid);
            if !sys::kill(-pid, libc::SIGTERM) {
                // The program has left the process group that we gave it.
                sys::kill(pid, libc::SIGTERM);
            }
            // A stopped process would sleep through the grace period.
            sys::kill(-pid, libc::SIGCONT);
            running.kill_at_ns = Some(sys::monotonic_ns().saturating_add(self.config.term_grace_ns));
        }
    }

    fn on_timer(&mut self, now: u64) {
        let Some(running) = &mut self.running else { return };
        if running.start_report_at_ns.is_some_and(|at| at <= now) {
            running.start_report_at_ns = None;
            let Running { spec, pid, times, .. } = running;
            let started = SlotReport::Started { key: spec.key, pid: *pid, spawned_ns: times.spawned_ns };
            self.report(&started);
        }
        let Some(running) = &mut self.running else { return };
        if running.kill_at_ns.is_some_and(|at| at <= now) {
            running.kill_at_ns = None;
            running.kill();
        }
        if running.walltime_at_ns.is_some_and(|at| at <= now) {
            return self.stop_running(Stop::Walltime);
        }
        if let (Some(at), Some(limit_bytes)) = (running.memory_at_ns, running.spec.memory_bytes)
            && at <= now
        {
            let tree::Memory { held_bytes, of_files_bytes } = tree::memory_below(self.pid, limit_bytes);
            running.usage.tree_rss_max_bytes = running.usage.tree_rss_max_bytes.max(held_bytes);
            running.of_files_max_bytes = running.of_files_max_bytes.max(of_files_bytes);
            running.memory_at_ns = Some(now.saturating_add(self.config.memory_poll_ns));
            if held_bytes > limit_bytes {
                self.stop_running(Stop::Memory);
            }
        }
    }

    /// Reaps the processes that have ended; if the program itself is among them, finishes the task.
    fn on_children(&mut self) {
        let mut signals = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: reads at most one record into `signals`. Pending signals of one number are merged, and we
        // ask for all ended children anyway.
        unsafe { libc::read(self.children.as_raw_fd(), signals.as_mut_ptr().cast(), signals.len()) };
        let warm = self.warm.as_ref().map(|program| program.pid);
        let Some(mut running) = self.running.take() else {
            while let Reaped::Child { pid, .. } = reap() {
                self.warm.take_if(|program| program.pid == pid);
            }
            return;
        };
        let mut ended = None;
        let has_leftovers = loop {
            match reap() {
                Reaped::Child { pid, status, usage } => {
                    add_usage(&mut running.usage, &usage);
                    if pid == running.pid {
                        running.times.exited_ns = sys::monotonic_ns();
                        ended = Some(status);
                    }
                }
                Reaped::NoneEnded => break true,
                Reaped::NoChildren => break false,
            }
        };
        match ended {
            Some(status) => {
                running.is_unanswered = warm == Some(running.pid);
                self.warm = None;
                self.finish(running, status, if has_leftovers { Left::Some } else { Left::None });
            }
            None => self.running = Some(running),
        }
    }

    fn finish(&mut self, mut running: Running, status: libc::c_int, left: Left) {
        let (n_leftovers_killed, n_unkillable) = match left {
            Left::None => (0, 0),
            Left::Some => self.end_leftovers(&mut running),
            Left::Ended(n_killed, n_unkillable) => (n_killed, n_unkillable),
        };
        read_stream_to_end(&self.stdout, &mut self.capture_out, &mut self.buffer);
        read_stream_to_end(&self.stderr, &mut self.capture_err, &mut self.buffer);
        let Running {
            spec,
            sandbox,
            staged,
            mut times,
            usage,
            stop,
            is_unanswered,
            has_hung_up,
            slot_rss_bytes,
            of_files_max_bytes,
            free_bytes,
            ..
        } = running;
        // The kernel's own record counts what the program has mapped of files, too, which are most likely its inputs.
        let process_bytes = match spec.memory_bytes {
            Some(limit) if usage.process_rss_max_bytes > limit => {
                usage.process_rss_max_bytes
                    - of_files_max_bytes.max(bytes_of_inputs(&spec)).min(usage.process_rss_max_bytes)
            }
            _ => usage.process_rss_max_bytes,
        };
        let peak_bytes = usage.tree_rss_max_bytes.max(process_bytes);
        let is_over_memory = spec.memory_bytes.is_some_and(|limit| {
            process_bytes > limit.max(slot_rss_bytes) || usage.tree_rss_max_bytes > limit
        });
        let exit = match stop {
            Some(Stop::Walltime) => ExitKind::OverWalltime,
            Some(Stop::Cancel) => ExitKind::Cancelled,
            Some(Stop::Memory) => ExitKind::OverMemory { peak_bytes },
            None if is_over_memory => ExitKind::OverMemory { peak_bytes },
            None if has_hung_up => ExitKind::HungUp,
            None if libc::WIFSIGNALED(status) => {
                ExitKind::Signaled { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }
            }
            // It has not done its task, whatever it says by its end.
            None if is_unanswered => ExitKind::Unanswered { status: libc::WEXITSTATUS(status) },
            None => ExitKind::Exited(libc::WEXITSTATUS(status)),
        };
        let exit = match &spec.container {
            Some(container) => {
                let [out, err] = [self.capture_out.so_far(), self.capture_err.so_far()];
                container::exit_of(container, exit, &out.head, &err.head)
            }
            None => exit,
        };
        let names = || spec.inputs.iter().map(|input| &input.name).chain(&spec.outputs);
        if exit == ExitKind::Exited(0)
            && spec.outputs.iter().any(|name| name[..] == *new_files::ALL_NEW)
            && let Err(error) = new_files::collect(&sandbox, names())
        {
            eyas_text::say!("eyas slot process {}: cannot put new files together: {error}", self.pid);
        }
        let mut outputs: Vec<_> = spec
            .outputs
            .iter()
            .map(|name| stage::inspect_output(&sandbox, name, spec.account.as_ref()))
            .collect();
        for (copy, capture) in spec.tee.iter().zip([&mut self.capture_out, &mut self.capture_err]) {
            let error = capture.end_copy();
            let at = copy.as_ref().and_then(|copy| spec.outputs.iter().position(|name| name == copy));
            if let (Some(error), Some(at)) = (error, at) {
                outputs[at] = OutputState::NotAFile { what: format!("not whole: {error}") };
            }
        }
        let new_files = if exit == ExitKind::Exited(0) && spec.watched.is_none() {
            new_files::find(&sandbox, names())
        } else {
            None
        };
        // Measured before the sandbox is cleared, which frees room.
        let lacks_output = outputs.iter().any(|output| !output.is_there());
        let has_failed = exit != ExitKind::Exited(0) || lacks_output;
        let disk_was_full =
            has_failed && sys::room(sandbox.fd.as_raw_fd()).is_some_and(|(_, is_full)| is_full);
        let written_bytes = self.written_bytes();
        let parent = std::os::unix::process::parent_id();
        let slots = || tree::children_of(parent).into_iter().map(|pid| pid as u32);
        let all_written_bytes = if has_failed { tree::written_by_slots(slots()) } else { None };
        // What a watched program has made is found by its supervisor.
        let has_outputs = outputs.iter().any(OutputState::is_there) || spec.watched.is_some();
        let path = (spec.keep_sandbox || has_outputs).then(|| ByteString::from(&sandbox.path));
        let inputs_modified = staged.modified();
        if has_outputs && !spec.keep_sandbox {
            self.unreleased.push((spec.key, sandbox));
        } else if !spec.keep_sandbox && n_unkillable == 0 {
            self.pool.give_back(sandbox);
        } else if !spec.keep_sandbox {
            // Other processes may still be in the sandbox.
            let _ = crate::sandbox::remove_tree(&sandbox.path);
        }
        times.finished_ns = sys::monotonic_ns();
        let report = RunReport {
            key: spec.key,
            exit,
            times,
            usage,
            free_bytes,
            disk_was_full,
            written_bytes,
            all_written_bytes,
            stdout: self.capture_out.so_far(),
            stderr: self.capture_err.so_far(),
            printed_at: self.capture_out.take_spool().map(|path| ByteString::from(&path)),
            outputs,
            inputs: staged.kinds,
            inputs_modified,
            n_leftovers_killed,
            n_unkillable,
            new_files,
            sandbox: path,
            kept: spec.keep_sandbox,
        };
        self.report(&SlotReport::Ended(Box::new(report)));
    }

    /// See [`RunReport::written_bytes`].
    fn written_bytes(&mut self) -> Option<u64> {
        let io = self.io.as_ref()?;
        let n = io.read_at(&mut self.buffer, 0).ok()?;
        tree::written_bytes(std::str::from_utf8(&self.buffer[..n]).ok()?)
    }

    /// Kills the processes that the program left behind. All of them are below us, as we are the reaper of
    /// orphans. Returns how many were killed, and how many did not go.
    fn end_leftovers(&self, running: &mut Running) -> (u32, u32) {
        let give_up_ns = sys::monotonic_ns().saturating_add(self.config.reap_wait_ns);
        let mut n_killed = 0;
        loop {
            kill_children(self.pid, running.pid);
            loop {
                match reap() {
                    Reaped::Child { usage, .. } => {
                        n_killed += 1;
                        add_usage(&mut running.usage, &usage);
                    }
                    Reaped::NoChildren => return (n_killed, 0),
                    Reaped::NoneEnded => break,
                }
            }
            if sys::monotonic_ns() >= give_up_ns {
                return (n_killed, tree::children_of(self.pid).len() as u32);
            }
            wait_for_child(&self.children);
        }
    }

    /// The executor is gone: no process or sandbox of its tasks may remain.
    fn end_everything(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill();
            self.end_leftovers(&mut running);
            // Nobody has watched these objects since the executor went.
            running.staged.leave_links(self.config.sandbox_root.as_path());
            let _ = crate::sandbox::remove_tree(&running.sandbox.path);
        }
        self.end_warm();
        for (_, sandbox) in self.unreleased.drain(..) {
            let _ = crate::sandbox::remove_tree(&sandbox.path);
        }
        self.capture_out.reset(crate::CaptureLimits::default(), None, None);
        self.pool.clear();
    }

    fn report_unstarted(&mut self, key: u64, times: Times, exit: ExitKind) {
        self.report(&SlotReport::Ended(Box::new(unstarted_report(key, times, exit))));
    }

    fn report(&mut self, report: &SlotReport) {
        // The frame cannot be too long: the capture is bounded, and names have arrived in a frame, too.
        if let Err(error) = encode_frame(report, &mut self.unsent) {
            eyas_text::say!("eyas slot process {}: {error}", self.pid);
        }
        if self.report_at_ns.is_none() {
            self.report_at_ns = Some(sys::monotonic_ns().saturating_add(self.config.report_hold_ns));
        }
    }

    /// Sends the waiting reports, as far as the socket takes them.
    fn flush(&mut self) -> Result<(), Closed> {
        self.report_at_ns = None;
        while self.n_sent < self.unsent.len() {
            match send(self.socket.as_raw_fd(), &self.unsent[self.n_sent..], libc::MSG_DONTWAIT) {
                Ok(n) => self.n_sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Closed),
            }
        }
        self.unsent.clear();
        self.unsent.shrink_to(UNSENT_BYTES_MAX);
        self.n_sent = 0;
        Ok(())
    }
}

/// Processes that a program has left.
enum Left {
    None,
    /// They have yet to be ended.
    Some,
    /// So many were killed, and so many did not go; the program stays.
    Ended(u32, u32),
}

#[derive(Clone, Copy)]
struct Events {
    socket: bool,
    room: bool,
    children: bool,
    stdout: bool,
    stderr: bool,
    warm: bool,
    timer: bool,
}

fn unstarted_report(key: u64, mut times: Times, exit: ExitKind) -> RunReport {
    times.finished_ns = sys::monotonic_ns();
    RunReport {
        key,
        exit,
        times,
        usage: Usage::default(),
        stdout: Default::default(),
        stderr: Default::default(),
        printed_at: None,
        outputs: Vec::new(),
        inputs: Vec::new(),
        free_bytes: None,
        disk_was_full: false,
        written_bytes: None,
        all_written_bytes: None,
        inputs_modified: Vec::new(),
        n_leftovers_killed: 0,
        n_unkillable: 0,
        new_files: None,
        sandbox: None,
        kept: false,
    }
}

/// Opens the files in the sandbox that get everything that the program prints.
fn open_copies(spec: &RunSpec, sandbox: &Sandbox) -> Result<[Option<std::fs::File>; 2], SetupError> {
    let mut copies = [None, None];
    for (copy, name) in copies.iter_mut().zip(&spec.tee) {
        let Some(name) = name else { continue };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let opened =
            sys::c_string(name).and_then(|name| sys::open_at(sandbox.fd.as_raw_fd(), &name, flags, 0o600));
        let failed = |error| {
            SetupError::new(format!("cannot make {}, for what it prints", shown_bytes(&name.0)), &error)
        };
        let opened = opened.and_then(|file| {
            spec.account
                .as_ref()
                .map_or(Ok(()), |account| sys::give(file.as_fd(), account.uid, account.gid))
                .map(|()| file)
        });
        *copy = Some(std::fs::File::from(opened.map_err(failed)?));
    }
    Ok(copies)
}

enum Reaped {
    Child { pid: libc::pid_t, status: libc::c_int, usage: libc::rusage },
    NoneEnded,
    NoChildren,
}

fn reap() -> Reaped {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::uninit();
    // SAFETY: both places are valid; `usage` is filled when a child is returned.
    unsafe {
        match libc::wait4(-1, &mut status, libc::WNOHANG | libc::__WALL, usage.as_mut_ptr()) {
            0 => Reaped::NoneEnded,
            pid if pid > 0 => Reaped::Child { pid, status, usage: usage.assume_init() },
            _ => Reaped::NoChildren,
        }
    }
}

fn add_usage(total: &mut Usage, usage: &libc::rusage) {
    total.cpu_user_ns += sys::timeval_ns(usage.ru_utime);
    total.cpu_system_ns += sys::timeval_ns(usage.ru_stime);
    total.process_rss_max_bytes = total.process_rss_max_bytes.max(usage.ru_maxrss as u64 * 1024);
    total.disk_read_bytes += usage.ru_inblock as u64 * 512;
    total.disk_write_bytes += usage.ru_oublock as u64 * 512;
}

/// Size of all inputs that are files.
fn bytes_of_inputs(spec: &RunSpec) -> u64 {
    let sizes = spec.inputs.iter().filter_map(|input| std::fs::metadata(input.source.as_path()).ok());
    sizes.filter(std::fs::Metadata::is_file).map(|file| file.len()).sum()
}

fn own_rss_max_bytes() -> u64 {
    sys::usage_of(libc::RUSAGE_SELF).ru_maxrss as u64 * 1024
}

/// Kills the process group of a program that has not been reaped yet, and every other child of ours.
fn kill_task(pid: libc::pid_t) {
    sys::kill(-pid, libc::SIGKILL);
    kill_children(std::process::id(), pid);
}

/// Only direct children are killed one by one: they cannot be reaped by another process, so their ids cannot
/// have passed to a stranger. Their own children become ours when they die. For the same reason, the group is
/// killed at once while one of our children is in it; a fork bomb would otherwise be faster than we are.
fn kill_children(own_pid: u32, group: libc::pid_t) {
    let children = tree::children_of(own_pid);
    // SAFETY: no memory is involved.
    let group_of = |pid| unsafe { libc::getpgid(pid) };
    let own_group = group_of(0);
    for found in children.iter().map(|&pid| group_of(pid)) {
        // A program in a container leads a group of its own.
        if found == group || found > 0 && found != own_group {
            sys::kill(-found, libc::SIGKILL);
        }
    }
    for pid in children {
        sys::kill(pid, libc::SIGKILL);
    }
}

/// Waits for SIGCHLD, at most 10 ms: a process may become our child without a signal.
fn wait_for_child(children: &OwnedFd) {
    let mut fd = libc::pollfd { fd: children.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut signals = [0u8; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: `fd` and `signals` are valid places.
    unsafe {
        libc::poll(&mut fd, 1, 10);
        libc::read(children.as_raw_fd(), signals.as_mut_ptr().cast(), signals.len());
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors, which nobody else owns.
    unsafe {
        sys::check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        let ends = (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]));
        sys::check(libc::fcntl(fds[0], libc::F_SETFL, libc::O_NONBLOCK))?;
        Ok(ends)
    }
}

/// One read. Returns whether there may be more.
fn read_stream(stream: &OwnedFd, capture: &mut Capture, buffer: &mut [u8]) -> bool {
    // SAFETY: the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { libc::read(stream.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    if n > 0 {
        capture.push(&buffer[..n as usize]);
    }
    n == buffer.len() as isize
}

fn read_stream_to_end(stream: &OwnedFd, capture: &mut Capture, buffer: &mut [u8]) {
    while read_stream(stream, capture, buffer) {}
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

fn send(socket: RawFd, bytes: &[u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: `bytes` is valid for its length.
    let n = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}
