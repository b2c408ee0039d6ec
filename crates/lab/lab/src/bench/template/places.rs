//! Where the genomes lie: folders of machines, and the real servers that give them out, each on its machine.
//!
//! | access | what runs |
//! |---|---|
//! | `local`, `placed` | nothing: a folder for each machine, which only programs on that machine open |
//! | `gridftp` | `globus-gridftp-server` on each machine that stores, which gives out that machine's folder |
//! | `hdfs` | a name node on machine 0 and a data node on each machine that stores, one HDFS for each set of such machines |
//! | `s3` | `moto_server` on the machine that stores |
//!
//! A server whose program is not there makes its experiments [`Places::lacks`].

use super::super::spaces::{PATIENCE, Part, Spaces, address_of};
use super::super::{failed, note};
use super::genome;
use super::tuple::{Access, Chunk, Machines, Tuple};
use eyas_cli::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const GRIDFTP_PORT: u16 = 2811;
const S3_PORT: u16 = 5000;
const BUCKET: &str = "genomes";

/// How eyas reaches GridFTP.
const GRIDFTP_HOME: &str = "[home.gridftp]\npreset = \"gridftp\"\n";

/// Where a run finds its files, and what its processes need to reach them.
pub struct RunPlaces {
    pub first: Vec<String>,
    pub second: Vec<String>,
    /// The folder of machine `n` whose files its executor reads where they are: the last part of its path is `x<n>`.
    pub in_place: Option<PathBuf>,
    pub env: Vec<(&'static str, String)>,
    /// The files that the machines' disks have; their pages are dropped before a run.
    disks: Vec<PathBuf>,
}

/// An HDFS of the machines that store.
struct Hdfs {
    port: u16,
    data: PathBuf,
}

pub struct Places<'a> {
    spaces: &'a Spaces,
    dir: PathBuf,
    scale: u64,
    hdfs: BTreeMap<Vec<u32>, Hdfs>,
    parts: Vec<Part<'a>>,
}

fn find(program: &str) -> Option<PathBuf> {
    eyas_host::programs(program).chain(eyas_host::programs_in("/usr/sbin".as_ref(), program)).next()
}

/// Why experiments with this access cannot be run here, if they cannot.
pub fn lacks(access: Access, hadoop: &Path) -> Option<String> {
    let needed: &[&str] = match access {
        Access::Local | Access::Placed => &[],
        Access::GridFtp => &["globus-gridftp-server", "globus-url-copy", "curl"],
        Access::Hdfs | Access::HdfsPlaced => &["java", "curl"],
        Access::S3 => &["moto_server", "curl"],
    };
    if let Some(program) = needed.iter().find(|program| find(program).is_none()) {
        return Some(format!("there is no `{program}` on the path"));
    }
    let is_hdfs = matches!(access, Access::Hdfs | Access::HdfsPlaced);
    let has_classes = std::fs::read_dir(hadoop).is_ok_and(|mut files| files.next().is_some());
    (is_hdfs && !has_classes)
        .then(|| format!("Hadoop's classes are not in {} (--hadoop says where they are)", hadoop.display()))
}

impl<'a> Places<'a> {
    /// Makes the genomes of all tuples, starts the servers, and gives them the genomes.
    pub fn make(
        spaces: &'a Spaces,
        dir: &Path,
        scale: u64,
        hadoop: &Path,
        tuples: &[Tuple],
    ) -> Result<Places<'a>, Fault> {
        let mut places = Places { spaces, dir: dir.into(), scale, hdfs: BTreeMap::new(), parts: vec![] };
        note("making the genomes");
        let mut layouts = BTreeSet::new();
        for tuple in tuples {
            layouts.insert((tuple.chunk, tuple.assignments, tuple.machines.that_store()));
            for n in 0..tuple.set_len() {
                for is_first in [true, false] {
                    let path = places.genome(tuple.chunk, is_first, n);
                    if !path.exists() {
                        std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
                        genome::write(&path, is_first, n, places.bytes(tuple.chunk))?;
                    }
                }
            }
        }
        std::fs::write(dir.join("eyas.toml"), GRIDFTP_HOME)?;
        for tuple in tuples {
            if layouts.remove(&(tuple.chunk, tuple.assignments, tuple.machines.that_store())) {
                places.lay_out(tuple)?;
            }
        }
        let uses = |access: Access| tuples.iter().any(|tuple| tuple.access == access);
        if uses(Access::GridFtp) {
            note("starting GridFTP");
            (1..=3).try_for_each(|machine| places.start_gridftp(machine))?;
        }
        if uses(Access::S3) {
            note("starting S3");
            places.start_s3(tuples)?;
        }
        if uses(Access::Hdfs) || uses(Access::HdfsPlaced) {
            note("starting HDFS");
            places.start_hdfs(hadoop, tuples)?;
        }
        // What is on the disk can be dropped from memory.
        // SAFETY: no arguments, no effects on memory.
        unsafe { libc::sync() };
        Ok(places)
    }

    /// Bytes of a file of a set: the paper's by the scale, in whole genes.
    pub fn bytes(&self, chunk: Chunk) -> u64 {
        let bytes = chunk.megabytes() * 1_000_000 / self.scale;
        (bytes / genome::GENE_BYTES).max(10) * genome::GENE_BYTES
    }

    fn genome(&self, chunk: Chunk, is_first: bool, n: u32) -> PathBuf {
        self.dir.join("genomes").join(chunk.megabytes().to_string()).join(file_name(is_first, n))
    }

    /// The folder that has the files of a tuple's machines, each in the folder of its name.
    fn layout(&self, tuple: &Tuple) -> PathBuf {
        let stores: String = tuple.machines.that_store().iter().map(|n| format!("x{n}")).collect();
        self.dir.join("disks").join(format!("{stores}-{}-{}", tuple.chunk.megabytes(), tuple.assignments))
    }

    fn lay_out(&self, tuple: &Tuple) -> Result<(), Fault> {
        let folder = self.layout(tuple);
        let mut rules = GRIDFTP_HOME.to_string();
        for machine in tuple.machines.that_store() {
            let disk = folder.join(format!("x{machine}"));
            std::fs::create_dir_all(&disk)?;
            let prefix = disk.display();
            rules += &format!("[[home-on]]\nprefix = \"{prefix}\"\nhosts = [\"x{machine}\"]\n");
        }
        for n in 0..tuple.set_len() {
            for is_first in [true, false] {
                let to = folder.join(format!("x{}", tuple.machine_of(n))).join(file_name(is_first, n));
                std::fs::hard_link(self.genome(tuple.chunk, is_first, n), to)?;
            }
        }
        Ok(std::fs::write(folder.join("eyas.toml"), rules)?)
    }

    /// Where a run of this tuple finds its files.
    pub fn locate(&self, tuple: &Tuple) -> RunPlaces {
        let layout = self.layout(tuple);
        let on_disk = |is_first, n| {
            layout
                .join(format!("x{}", tuple.machine_of(n)))
                .join(file_name(is_first, n))
                .display()
                .to_string()
        };
        let chunk = tuple.chunk.megabytes();
        let mut env = vec![("EYAS_HOMES", self.dir.join("eyas.toml").display().to_string())];
        let mut disks = vec![self.dir.join("genomes")];
        let locate: Box<dyn Fn(bool, u32) -> String> = match tuple.access {
            Access::Local => Box::new(on_disk),
            Access::Placed => {
                env[0].1 = layout.join("eyas.toml").display().to_string();
                Box::new(on_disk)
            }
            Access::GridFtp => Box::new(move |is_first, n| {
                let address = address_of(tuple.machine_of(n));
                format!("gridftp://{address}:{GRIDFTP_PORT}{}", on_disk(is_first, n))
            }),
            Access::S3 => {
                env.extend(s3_env(tuple.machines));
                Box::new(move |is_first, n| format!("s3://{BUCKET}/{chunk}/{}", file_name(is_first, n)))
            }
            Access::Hdfs | Access::HdfsPlaced => {
                let hdfs = &self.hdfs[tuple.machines.that_store()];
                disks.push(hdfs.data.clone());
                Box::new(|is_first, n| {
                    let path = hdfs_path(tuple, is_first, n);
                    format!("webhdfs://{}:{}{path}", address_of(0), hdfs.port)
                })
            }
        };
        let all = |is_first| (0..tuple.set_len()).map(|n| locate(is_first, n)).collect();
        RunPlaces {
            first: all(true),
            second: all(false),
            in_place: (tuple.access == Access::Local).then(|| layout.clone()),
            env,
            disks,
        }
    }

    fn start_gridftp(&mut self, machine: u32) -> Result<(), Fault> {
        let address = address_of(machine);
        let program = find("globus-gridftp-server").unwrap_or_default();
        let mut command = self.spaces.command(machine, program);
        command.args(["-s", "-no-detach", "-aa", "-anonymous-user", "nobody", "-p"]);
        command.arg(GRIDFTP_PORT.to_string());
        command.args(["-control-interface", &address.to_string(), "-data-interface", &address.to_string()]);
        let name = format!("GridFTP on x{machine}");
        let log = self.dir.join(format!("gridftp-{machine}.log"));
        let mut part = Part::start(self.spaces, &name, &mut command, log)?;
        part.wait(&|| {
            Ok(self.curl(machine, &["-sSI", &format!("ftp://{address}:{GRIDFTP_PORT}/")]).is_ok())
        })?;
        let hosts = self.dir.join("hosts");
        if self
            .curl(machine, &["-sSI", &format!("ftp://{address}:{GRIDFTP_PORT}/{}", hosts.display())])
            .is_err()
        {
            let text = format!("GridFTP, which runs as `nobody`, cannot read below `{}`", self.dir.display());
            return Err(failed(text).hint("choose a folder that everybody may open, with --dir"));
        }
        self.parts.push(part);
        Ok(())
    }

    fn start_s3(&mut self, tuples: &[Tuple]) -> Result<(), Fault> {
        let uploads: BTreeSet<(Chunk, u32, Machines)> = tuples
            .iter()
            .filter(|tuple| tuple.access == Access::S3)
            .map(|tuple| (tuple.chunk, tuple.set_len(), tuple.machines))
            .collect();
        for (chunk, set_len, machines) in uploads {
            let machine = machines.that_store()[0];
            let address = address_of(machine);
            let mut command = self.spaces.command(machine, find("moto_server").unwrap_or_default());
            command.args(["-H", &address.to_string(), "-p", &S3_PORT.to_string()]);
            let log = self.dir.join("s3.log");
            let mut part = Part::start(self.spaces, "moto_server", &mut command, log)?;
            let bucket = format!("http://{address}:{S3_PORT}/{BUCKET}");
            part.wait(&|| Ok(self.curl(machine, &["-sS", "-X", "PUT", &bucket]).is_ok()))?;
            for n in 0..set_len {
                for is_first in [true, false] {
                    let path = self.genome(chunk, is_first, n).display().to_string();
                    let to = format!("{bucket}/{}/{}", chunk.megabytes(), file_name(is_first, n));
                    self.curl(machine, &["-sSf", "-T", &path, &to])?;
                }
            }
            self.parts.push(part);
        }
        Ok(())
    }

    /// Starts an HDFS for each set of machines that store, all at the same time, and writes the genomes.
    fn start_hdfs(&mut self, hadoop: &Path, tuples: &[Tuple]) -> Result<(), Fault> {
        let of_hdfs = |tuple: &&Tuple| matches!(tuple.access, Access::Hdfs | Access::HdfsPlaced);
        let stores: BTreeSet<&[u32]> =
            tuples.iter().filter(of_hdfs).map(|tuple| tuple.machines.that_store()).collect();
        let hadoop = hadoop.canonicalize()?;
        for (at, stores) in stores.iter().enumerate() {
            let hdfs = self.start_nodes(at as u16, stores, &hadoop)?;
            self.hdfs.insert(stores.to_vec(), hdfs);
        }
        for stores in stores {
            let port = self.hdfs[stores].port;
            let nodes = format!(
                "http://{}:{port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState",
                address_of(0)
            );
            let all = format!("\"NumLiveDataNodes\" : {},", stores.len());
            let is_up = || Ok(self.curl(0, &["-sS", &nodes]).is_ok_and(|said| said.contains(&all)));
            self.wait_for_nodes(&is_up)?;
        }
        let mut written = BTreeSet::new();
        for tuple in tuples.iter().filter(of_hdfs) {
            for n in 0..tuple.set_len() {
                for is_first in [true, false] {
                    let path = hdfs_path(tuple, is_first, n);
                    if written.insert((tuple.machines.that_store(), path.clone())) {
                        self.write_hdfs(tuple, &path, n, &self.genome(tuple.chunk, is_first, n))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn wait_for_nodes(&self, is_up: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        let begun = Instant::now();
        while !is_up()? {
            if begun.elapsed() > PATIENCE {
                return Err(failed(format!("HDFS was not up after {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn start_nodes(&mut self, at: u16, stores: &[u32], hadoop: &Path) -> Result<Hdfs, Fault> {
        let dir = self.dir.join(format!("hdfs-{at}"));
        let conf = dir.join("conf");
        std::fs::create_dir_all(&conf)?;
        let (rpc, http, master) = (9000 + at, 9870 + at, address_of(0));
        let property = |(name, value): (&str, String)| {
            format!("<property><name>{name}</name><value>{value}</value></property>\n")
        };
        let write = |file: &str, properties: Vec<(&str, String)>| {
            let all: String = properties.into_iter().map(property).collect();
            std::fs::write(conf.join(file), format!("<configuration>\n{all}</configuration>\n"))
        };
        write("core-site.xml", vec![("fs.defaultFS", format!("hdfs://{master}:{rpc}"))])?;
        write(
            "hdfs-site.xml",
            vec![
                ("dfs.namenode.name.dir", format!("file://{}", dir.join("names").display())),
                ("dfs.namenode.http-address", format!("{master}:{http}")),
                // Addresses have no names in a domain here.
                ("dfs.namenode.datanode.registration.ip-hostname-check", "false".into()),
                ("dfs.permissions.enabled", "false".into()),
                ("dfs.namenode.safemode.threshold-pct", "0".into()),
            ],
        )?;
        let java = |machine: u32, class: &str| {
            let mut command = self.spaces.command(machine, find("java").unwrap_or_default());
            command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
            command.arg(format!("{}:{}/*", conf.display(), hadoop.display()));
            command.arg(format!("org.apache.hadoop.hdfs.server.{class}"));
            command
        };
        let formatted = java(0, "namenode.NameNode").args(["-format", "-nonInteractive"]).output()?;
        if !formatted.status.success() {
            let said = String::from_utf8_lossy(&formatted.stderr);
            return Err(failed(format!("HDFS cannot be made: {}", said.trim())));
        }
        let log = |name: &str| dir.join(format!("{name}.log"));
        let node =
            Part::start(self.spaces, "the name node", &mut java(0, "namenode.NameNode"), log("names"))?;
        self.parts.push(node);
        for machine in stores {
            let data = dir.join(format!("data/x{machine}"));
            let mut command = java(*machine, "datanode.DataNode");
            command.arg(format!("-Ddfs.datanode.data.dir=file://{}", data.display()));
            command.arg(format!("-Ddfs.datanode.hostname={}", address_of(*machine)));
            for (what, port) in [("", 10_000 + at), ("http.", data_port(at)), ("ipc.", 12_000 + at)] {
                command.arg(format!("-Ddfs.datanode.{what}address=0.0.0.0:{port}"));
            }
            let name = format!("data-{machine}");
            let node = Part::start(self.spaces, "a data node", &mut command, log(&name))?;
            self.parts.push(node);
        }
        Ok(Hdfs { port: http, data: dir.join("data") })
    }

    /// Writes a file to the data node of the machine that has to have it. Where more copies are asked for, HDFS chooses the
    /// machines of the others.
    fn write_hdfs(&self, tuple: &Tuple, path: &str, n: u32, from: &Path) -> Result<(), Fault> {
        let machine = tuple.machine_of(n);
        let port = self.hdfs[tuple.machines.that_store()].port;
        let name_node = format!("{}:{}", address_of(0), 9000 + (port - 9870));
        let to = format!(
            "http://{}:{}/webhdfs/v1{path}?op=CREATE&user.name=root&namenoderpcaddress={name_node}\
             &createflag=&createparent=true&overwrite=true&replication={}",
            address_of(machine),
            data_port(port - 9870),
            tuple.replicas
        );
        self.curl(machine, &["-sSf", "-X", "PUT", "-T", &from.display().to_string(), &to]).map(drop)
    }

    fn curl(&self, machine: u32, arguments: &[&str]) -> Result<String, Fault> {
        let mut command = self.spaces.command(machine, "curl");
        let output = command.args(["--noproxy", "*"]).args(arguments).stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                Err(failed(format!("`curl` failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
            }
        }
    }

    /// All servers still run.
    pub fn check(&mut self) -> Result<(), Fault> {
        self.parts.iter_mut().try_for_each(Part::check)
    }
}

impl RunPlaces {
    /// Drops the pages of the files from memory, so that a run begins with reading them from the disk.
    pub fn drop_pages(&self) -> Result<(), Fault> {
        self.disks.iter().try_for_each(|disk| drop_pages(disk))
    }
}

fn drop_pages(path: &Path) -> Result<(), Fault> {
    if path.is_dir() {
        return std::fs::read_dir(path)?.try_for_each(|entry| drop_pages(&entry?.path()));
    }
    let file = std::fs::File::open(path)?;
    // SAFETY: the file is open through the call. Pages that are not dropped only make the run faster.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

fn file_name(is_first: bool, n: u32) -> String {
    format!("{}{n}", if is_first { 'a' } else { 'b' })
}

fn hdfs_path(tuple: &Tuple, is_first: bool, n: u32) -> String {
    let name = file_name(is_first, n);
    format!("/{}-{}-{}/{name}", tuple.chunk.megabytes(), tuple.assignments, tuple.replicas)
}

fn data_port(at: u16) -> u16 {
    11_000 + at
}

fn s3_env(machines: Machines) -> Vec<(&'static str, String)> {
    let address: Ipv4Addr = address_of(machines.that_store()[0]);
    vec![
        ("AWS_ACCESS_KEY_ID", "any".into()),
        ("AWS_SECRET_ACCESS_KEY", "any".into()),
        ("AWS_ENDPOINT_URL", format!("http://{address}:{S3_PORT}")),
        ("AWS_EC2_METADATA_DISABLED", "true".into()),
    ]
}
