//! `eyas-lab bench access`: files of data sets that a program opens where they are, beside the same files without eyas.
//!
//! One file lies at a site of this machine, one at a store on loopback, one at a store behind a relay that holds each answer back. Times of
//! whole commands have all in them: the start of the program, the view of the files, the comparison with the digest. Files are read
//! from the page cache, and once more when it has nothing of them; by the first command after the put, which knows them to be right; by the
//! first one that knows nothing of them; and by one that comes within an hour, for which the comparison is remembered.

use super::net::relay;
use super::table::{Row, Table};
use super::{Common, Random, failed, median, note};
use clap::Args;
use eyas_catalog::{Caller, Catalog, Holding, Key};
use eyas_cli::{Exit, Fault, local};
use eyas_data::Digest;
use eyas_site::{Remote, Stores};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct AccessArgs {
    /// Megabytes of the file that is read from its beginning to its end
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    megabytes: u64,
    /// Reads of 4 KiB at random places
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    reads: u32,
    /// Milliseconds by which the relay in front of a store holds each answer back
    #[arg(long, default_value_t = 1.0)]
    delay: f64,
    /// Number of times that each is measured; figures are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    times: u32,
    #[command(flatten)]
    common: Common,
}

const PIECE: u64 = 4096;
/// How long a file has not changed when a comparison is remembered.
const SETTLED_AFTER: Duration = Duration::from_secs(62);
/// How long a process may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn bench(args: &AccessArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let delay = Duration::try_from_secs_f64(args.delay / 1e3).map_err(failed)?;
        let scene = Scene::new(dir, args.megabytes, delay)?;
        let mut table =
            Table::new(format!("a file of {} MB, folder and store on this machine", args.megabytes));
        sequential(&scene, args, &mut table)?;
        random(&scene, args, "far", &mut table)?;
        random(&scene, args, "slow", &mut table)?;
        search(&scene, args, &mut table)?;
        Ok(table)
    })
}

/// A catalog with the site `here`, which has the data set `near`, and the stores `far` and `slow` with data sets of their names.
struct Scene {
    dir: PathBuf,
    plain: PathBuf,
    delay: Duration,
    _stores: Vec<Running>,
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: a plain call; nobody has waited for the process yet.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new(dir: &Path, megabytes: u64, delay: Duration) -> Result<Scene, Fault> {
        note("making the files");
        let plain = dir.join("plain");
        noise(&plain, megabytes)?;
        let mut stores = vec![];
        for name in ["far", "slow"] {
            let mut store = eyas(dir)?;
            store.args(["store", "--name", name, "--listen", "127.0.0.1:0", "--dir"]).arg(dir.join(name));
            stores.push(Running(store.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?));
            wait_for(|| dir.join(name).join("join.json").exists(), "the store")?;
        }
        let scene = Scene { dir: dir.to_owned(), plain, delay, _stores: stores };
        scene.run(&["data", "init", "--dir", "here"])?;
        scene.run(&["data", "site", "--join", "far/join.json"])?;
        let mut join: serde_json::Value = serde_json::from_str(&scene.join_of("slow")?).map_err(failed)?;
        let address = join["address"].as_str().ok_or_else(|| failed("a join file has no address"))?;
        join["address"] = behind(address, delay)?.to_string().into();
        std::fs::write(dir.join("slow/join.json"), join.to_string())?;
        scene.run(&["data", "site", "--join", "slow/join.json"])?;
        scene.run(&["data", "put", "plain", "--label", "near", "--site", "here"])?;
        // Other bytes each, or one store would be read in place of the other.
        for (n, name) in (1..).zip(["far", "slow"]) {
            let source = dir.join(format!("of-{name}"));
            std::fs::create_dir(&source)?;
            noise(&source.join("plain"), megabytes.min(256) + n)?;
            scene.run(&["data", "put", &format!("of-{name}"), "--label", name, "--site", name])?;
        }
        Ok(scene)
    }

    fn join_of(&self, store: &str) -> Result<String, Fault> {
        Ok(std::fs::read_to_string(self.dir.join(store).join("join.json"))?)
    }

    /// The next command compares files with their digests, as the first one does.
    fn forget_compared(&self) {
        let _ = std::fs::remove_dir_all(caches(&self.dir));
    }

    fn run(&self, words: &[&str]) -> Result<(), Fault> {
        let done = eyas(&self.dir)?.args(words).current_dir(&self.dir).output().map_err(failed)?;
        match done.status.success() {
            true => Ok(()),
            false => {
                Err(failed(format!("eyas {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr))))
            }
        }
    }

    /// The object of the data set at the site of this machine.
    fn object(&self) -> Result<PathBuf, Fault> {
        let digest = Digest::of(&std::fs::read(&self.plain)?).to_string();
        Ok(self.dir.join("here/objects").join(&digest[..2]).join(digest))
    }
}

/// Where commands note which files they have compared.
fn caches(dir: &Path) -> PathBuf {
    dir.join("caches")
}

/// The address of a relay in front of a server.
fn behind(address: &str, delay: Duration) -> Result<SocketAddr, Fault> {
    let to = address.to_socket_addrs()?.next().ok_or_else(|| failed("a server has no address"))?;
    let public = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let found = public.local_addr()?;
    thread::spawn(move || relay(&public, to, delay));
    Ok(found)
}

/// The times of round trips of one byte over a connection of its own, in milliseconds: what the link itself takes.
fn round_trips(delay: Option<Duration>, n: u32) -> Result<Vec<f64>, Fault> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = server.local_addr()?;
    thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = server.accept()?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte)? > 0 {
            stream.write_all(&byte)?;
        }
        Ok(())
    });
    let address = delay.map_or(Ok(address), |delay| behind(&address.to_string(), delay))?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut times = vec![];
    for _ in 0..n {
        let began = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn eyas(dir: &Path) -> Result<Command, Fault> {
    let mut command = Command::new(local::program()?);
    command.env("XDG_CACHE_HOME", caches(dir));
    command.env("EYAS_DATA", format!("sqlite:{}", dir.join("catalog.db").display())).current_dir(dir);
    Ok(command)
}

/// Writes a file of random bytes, on the disk.
fn noise(path: &Path, megabytes: u64) -> Result<(), Fault> {
    let mut random = blake3::Hasher::new().update(&megabytes.to_le_bytes()).finalize_xof();
    let mut file = File::create(path)?;
    let mut piece = vec![0; 1_000_000];
    for _ in 0..megabytes {
        random.fill(&mut piece);
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}

fn wait_for(is_there: impl Fn() -> bool, what: &str) -> Result<(), Fault> {
    let began = Instant::now();
    while !is_there() {
        if began.elapsed() > PATIENCE {
            return Err(failed(format!("{what} did not begin within {} s", PATIENCE.as_secs())));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Takes a file out of the page cache.
fn forget(path: &Path) -> Result<(), Fault> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open until the call is over.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// Runs a command of the shell; how long it took, in milliseconds.
fn timed(mut command: Command, line: &str) -> Result<f64, Fault> {
    let began = Instant::now();
    let done = command.args(["sh", "-c", line]).stdout(Stdio::null()).output().map_err(failed)?;
    match done.status.success() {
        true => Ok(began.elapsed().as_secs_f64() * 1e3),
        false => Err(failed(format!("`{line}`: {}", String::from_utf8_lossy(&done.stderr)))),
    }
}

/// The same in the folder of the benchmark, without eyas and through it.
fn plainly(scene: &Scene) -> Command {
    let mut env = Command::new("env");
    env.current_dir(&scene.dir);
    env
}

fn through(scene: &Scene) -> Result<Command, Fault> {
    let mut command = eyas(&scene.dir)?;
    command.args(["access", "--"]);
    Ok(command)
}

fn sequential(scene: &Scene, args: &AccessArgs, table: &mut Table) -> Result<(), Fault> {
    let object = scene.object()?;
    let place = scene.dir.join("local");
    std::fs::create_dir(&place)?;
    let mut put_times: [Vec<f64>; 2] = Default::default();
    for n in 0..args.times {
        note(&format!("after a put, time {} of {}", n + 1, args.times));
        scene.forget_compared();
        scene.run(&["data", "put", "plain", "--label", "near", "--site", "here"])?;
        put_times[0].push(timed(through(scene)?, "cat /eyas/near/plain")?);
        put_times[1].push(timed(plainly(scene), "cat plain")?);
    }
    let put = Instant::now();
    // A file that has just been written is not remembered.
    thread::sleep(SETTLED_AFTER.saturating_sub(put.elapsed()));
    let mut times: [Vec<f64>; 10] = Default::default();
    for n in 0..args.times {
        note(&format!("from beginning to end, time {} of {}", n + 1, args.times));
        let plain = |line: &str| timed(plainly(scene), line);
        let ours = |line: &str| timed(through(scene)?, line);
        let one = "cat /eyas/near/plain";
        scene.forget_compared();
        let first = ours(one)?;
        let once = plain("cat plain")?;
        times[0].push(once);
        times[1].push(first);
        let later = ours(one)?;
        times[2].push(later);
        times[3].push(plain("cat plain; cat plain; cat plain")? - once);
        times[4].push(ours("cat /eyas/near/plain; cat /eyas/near/plain; cat /eyas/near/plain")? - later);
        scene.forget_compared();
        {
            let mut mount = eyas(&scene.dir)?;
            mount.args(["mount", "near", "local"]).stdout(Stdio::null()).stderr(Stdio::null());
            let _mount = Running(mount.spawn()?);
            wait_for(|| place.join("plain").exists(), "the mount")?;
            times[5].push(plain("cat local/plain")?);
            times[6].push(plain("cat local/plain")?);
        }
        forget(&scene.plain)?;
        times[7].push(plain("cat plain")?);
        scene.forget_compared();
        forget(&object)?;
        times[8].push(ours(one)?);
        forget(&object)?;
        times[9].push(ours(one)?);
    }
    let [plain, first, later, plain_again, again, mounted, mounted_again, plain_disk, disk, disk_later] =
        times.map(|times| median(&times));
    let mut row = |what: &str, target: (&'static str, &'static str), ours: f64, plain: f64| {
        let row = Row::new(what, ours, "ms");
        table.row(row.target(target.0, target.1).against_by("without eyas", plain, plain / ours));
    };
    let (access, mount) = (("0.70", "0.95"), ("0.60", "0.90"));
    let [put, put_plain] = put_times.map(|times| median(&times));
    row("read by the first command after a put, all of it, from memory", access, put, put_plain);
    row("the same by one that knows nothing of the put", access, first, plain);
    row("the same by a later command", access, later, plain);
    row("read twice more by the same command", access, again, plain_again);
    row("read by a first command, from the disk", access, disk, plain_disk);
    row("the same by a later command", access, disk_later, plain_disk);
    row("read first below a mount, from memory", mount, mounted, plain);
    row("read again below it", mount, mounted_again, plain);
    Ok(())
}

/// Reads here and there in the file of a store, beside bare requests to it and round trips of its link.
fn random(scene: &Scene, args: &AccessArgs, store: &str, table: &mut Table) -> Result<(), Fault> {
    note(&format!("here and there at the store `{store}`"));
    let place = scene.dir.join(format!("{store}-shown"));
    std::fs::create_dir(&place)?;
    let mut mount = eyas(&scene.dir)?;
    mount.args(["mount", store]).arg(&place).stdout(Stdio::null()).stderr(Stdio::null());
    let _mount = Running(mount.spawn()?);
    wait_for(|| place.join("plain").exists(), "the mount")?;
    let file = File::open(place.join("plain"))?;
    let size = file.metadata()?.len();
    let remote = Remote::connect(&scene.join_of(store)?).map_err(failed)?;
    let url = format!("sqlite:{}", scene.dir.join("catalog.db").display());
    let now_ms = 1_800_000_000_000;
    let catalog = Catalog::open(&url, now_ms).map_err(failed)?.reaching(Box::new(Stores));
    let caller = Caller { name: "bench".into(), groups: vec![], is_operator: true };
    let key: Key = store.parse().map_err(failed)?;
    let digest = catalog.files(&caller, &key).map_err(failed)?[0].digest;
    let mut places = Random(1);
    let mut piece = vec![0; PIECE as usize];
    // The first part waits until the store has read the object through.
    let began = Instant::now();
    file.read_exact_at(&mut piece, 0)?;
    table.row(Row::new(format!("the first part at `{store}`"), began.elapsed().as_secs_f64() * 1e3, "ms"));
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..args.reads {
        let at = places.next() % (size / PIECE) * PIECE;
        let began = Instant::now();
        file.read_exact_at(&mut piece, at)?;
        ours.push(began.elapsed().as_secs_f64() * 1e3);
        let at = places.next() % (size / PIECE) * PIECE;
        let began = Instant::now();
        remote.read_at(digest, at..at + PIECE).map_err(failed)?;
        bare.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let link = median(&round_trips((store == "slow").then_some(scene.delay), args.reads)?);
    let (ours, bare) = (median(&ours), median(&bare));
    let row = Row::new(format!("4 KiB here and there at `{store}`"), ours, "ms").target("1.3", "1.1");
    table.row(row.against_by("the round trip", link, ours / link));
    let row = Row::new("the same beside a request without a file system", ours, "ms");
    table.row(row.against_by("the bare request", bare, ours / bare));
    Ok(())
}

/// A search of BLAST in a database of random proteins.
fn search(scene: &Scene, args: &AccessArgs, table: &mut Table) -> Result<(), Fault> {
    let has = |program: &str| Command::new(program).arg("-version").stdout(Stdio::null()).status().is_ok();
    if !has("blastp") || !has("makeblastdb") {
        table.note(
            "A search is left out: `blastp` and `makeblastdb` (package ncbi-blast+) are not there."
                .to_owned(),
        );
        return Ok(());
    }
    note("searching with BLAST");
    let mut random = Random(7);
    let mut proteins = String::new();
    for n in 0..20_000 {
        let letters = (0..350).map(|_| char::from(b"ACDEFGHIKLMNPQRSTVWY"[(random.next() % 20) as usize]));
        proteins += &format!(">p{n}\n{}\n", letters.collect::<String>());
    }
    let folder = scene.dir.join("proteins");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("all"), &proteins)?;
    let query: String = proteins.lines().take(20).map(|line| format!("{line}\n")).collect();
    std::fs::write(scene.dir.join("query"), query)?;
    timed(plainly(scene), "makeblastdb -in proteins/all -dbtype prot")?;
    scene.run(&["data", "put", "proteins", "--label", "proteins", "--site", "here"])?;
    let (mut ours, mut plain) = (vec![], vec![]);
    for _ in 0..args.times {
        plain.push(timed(plainly(scene), "blastp -query query -db proteins/all")?);
        ours.push(timed(through(scene)?, "blastp -query query -db /eyas/proteins/all")?);
    }
    let (ours, plain) = (median(&ours), median(&plain));
    let row = Row::new("a search of BLAST in 7 MB of proteins", ours, "ms").target("1.1", "1.03");
    table.row(row.against_by("without eyas", plain, ours / plain));
    Ok(())
}
