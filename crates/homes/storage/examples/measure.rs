//! What the storage layer costs on this machine: `cargo run --release -p eyas-storage --example measure [DIR]`.
//!
//! Prints one line per question; ratios are taken against plain `std::fs` in the same run.

use eyas_storage::{FileHome, Home, Limited, Limits, Listing, Location};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

const SIZE_BYTES: u64 = 1 << 30;
const N_FILES: usize = 100_000;
const N_READS: u32 = 10_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = match std::env::args().nth(1) {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let path = dir.path().join("large");
    let location = Location::from_path(&path)?;
    let file = Arc::new(FileHome::default());
    let seconds = |work: &mut dyn FnMut() -> io::Result<()>| -> io::Result<f64> {
        let began = Instant::now();
        work()?;
        Ok(began.elapsed().as_secs_f64())
    };
    let gb = SIZE_BYTES as f64 / 1e9;

    let write = seconds(&mut || {
        file.write(&location, &mut io::repeat(7).take(SIZE_BYTES), Some(SIZE_BYTES))
            .map_err(io::Error::from)
            .map(drop)
    })?;
    println!("write 1 GiB, flushed: {:.2} GB/s", gb / write);

    let drain = |reader: &mut dyn Read| -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        while reader.read(&mut buffer)? > 0 {}
        Ok(())
    };
    let limits = Arc::new(Limits::new(None, None));
    let limited = Limited::new(file.clone(), limits.clone());
    // In turn, so that other work on the machine meets all of them alike; the best of each counts.
    let mut best = [f64::INFINITY; 3];
    for _ in 0..5 {
        best[0] = best[0].min(seconds(&mut || drain(&mut std::fs::File::open(&path)?))?);
        best[1] = best[1].min(seconds(&mut || drain(&mut file.open(&location, None)?.reader))?);
        best[2] = best[2].min(seconds(&mut || drain(&mut limited.open(&location, None)?.reader))?);
    }
    let [plain, home, unlimited] = best.map(|seconds| gb / seconds);
    println!(
        "read 1 GiB from page cache: std::fs {plain:.2}, home {home:.2}, home with limits off {unlimited:.2} GB/s"
    );

    // At the end of an empty range there is nothing to do, so this is the cost of the calls alone.
    let ns_a_read = |home: &dyn Home| -> Result<f64, Box<dyn std::error::Error>> {
        let mut opened = home.open(&location, Some(0..0))?;
        let mut n_bytes = 0;
        let spent = seconds(&mut || {
            for _ in 0..N_READS {
                n_bytes += opened.reader.read(&mut [0; 8])?;
            }
            Ok(())
        })?;
        assert_eq!(n_bytes, 0);
        Ok(spent * 1e9 / f64::from(N_READS))
    };
    let (bare, through) = (ns_a_read(&*file)?, ns_a_read(&limited)?);
    println!("one read call: {bare:.1} ns, with limits off {through:.1} ns");

    limits.set_limits(None, Some(20_000_000));
    let spent = seconds(&mut || {
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| drain(&mut limited.open(&location, Some(0..10_000_000))?.reader)))
                .collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader panicked"))
        })
    })?;
    println!("4 readers at 20 MB/s together: {:.2} MB/s", 40.0 / spent);
    limits.set_limits(None, None);

    let many = dir.path().join("many");
    std::fs::create_dir(&many)?;
    for index in 0..N_FILES {
        std::fs::File::create(many.join(format!("{index}.fits")))?;
    }
    let listing = Listing::parse("*.fits", &many)?;
    let mut n_found = 0;
    let list = seconds(&mut || {
        n_found = file.list(&listing).map_err(io::Error::from)?.found.len();
        Ok(())
    })?;
    let one = Location::from_path(&many.join("7.fits"))?;
    let stat = seconds(&mut || {
        for _ in 0..N_FILES {
            file.stat(&one).map_err(io::Error::from)?;
        }
        Ok(())
    })?;
    println!("glob: {n_found} files in {:.0} ms; stat: {:.2} µs", list * 1e3, stat * 1e6 / N_FILES as f64);
    Ok(())
}
