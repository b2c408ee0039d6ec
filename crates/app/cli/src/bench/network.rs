//! Measures the network to another machine: how long an answer takes, and how much one stream and several
//! streams carry.
//!
//! The serving side answers two bytes: [`ECHO`] with the byte itself, [`STREAM`] with zeros until the other
//! end closes. It sends no data of this machine and stores nothing.

use crate::print::reason;
use crate::{Exit, Fault};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const ECHO: u8 = b'e';
const STREAM: u8 = b's';
const N_ECHOES: usize = 100;
/// The number of streams at once.
pub const N_STREAMS: usize = 4;
const STREAM_TIME: Duration = Duration::from_secs(3);
/// A machine that sends nothing for this long counts as absent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Measurements that are answered at the same time.
const N_CONNECTIONS_MAX: usize = 64;
const BLOCK_BYTES: usize = 1 << 18;

/// The figures of the network to `to`.
#[derive(Serialize)]
pub struct Network {
    pub to: String,
    /// Seconds until one byte has come back; the median.
    pub round_trip_s: f64,
    /// Of one stream from there, not encrypted.
    pub bytes_per_s: f64,
    /// Of [`N_STREAMS`] at once, added up.
    pub streams_bytes_per_s: f64,
}

/// Answers measurements until the process ends.
pub fn serve(address: &str) -> Result<Exit, Fault> {
    let fail = |e: std::io::Error| {
        Fault::new(Exit::BadInput, format!("cannot listen at `{address}`: {}", reason(&e)))
            .hint("an address is that of an interface and a port, as in 0.0.0.0:7777")
    };
    let listener = TcpListener::bind(address).map_err(fail)?;
    let port = listener.local_addr().map_err(fail)?.port();
    eyas_text::say!("on another machine: eyas bench --to THIS_MACHINE:{port}; end this with ^C");
    let n_open = std::sync::Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let open = n_open.clone();
        if std::sync::Arc::strong_count(&n_open) <= N_CONNECTIONS_MAX + 1 {
            std::thread::spawn(move || {
                // A client that leaves in the middle has measured enough.
                let _ = answer(stream);
                drop(open);
            });
        }
    }
    Ok(Exit::Good)
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        match byte[0] {
            ECHO => stream.write_all(&byte)?,
            STREAM => {
                let block = vec![0; BLOCK_BYTES];
                loop {
                    stream.write_all(&block)?;
                }
            }
            _ => break,
        }
    }
    Ok(())
}

/// Measures the network to `to`, where [`serve`] runs.
///
/// Errors: there is no answer, or another program answers.
pub fn measure(to: &str) -> Result<Network, Fault> {
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Cluster, format!("cannot measure the network to `{to}`: {}", reason(&e)))
            .hint("on that machine: eyas bench --serve 0.0.0.0:PORT; a firewall between the two has to let it through")
    };
    let round_trip_s = round_trip_s(to).map_err(fail)?;
    let bytes_per_s = streams(to, 1).map_err(fail)?;
    let streams_bytes_per_s = streams(to, N_STREAMS).map_err(fail)?;
    Ok(Network { to: to.to_string(), round_trip_s, bytes_per_s, streams_bytes_per_s })
}

fn connect(to: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("it has no address");
    for address in to.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn round_trip_s(to: &str) -> std::io::Result<f64> {
    let mut stream = connect(to)?;
    let mut times = vec![];
    for _ in 0..N_ECHOES {
        let (begun, mut byte) = (Instant::now(), [0]);
        stream.write_all(&[ECHO])?;
        stream.read_exact(&mut byte)?;
        if byte[0] != ECHO {
            return Err(std::io::Error::other("who answers there is not `eyas bench --serve`"));
        }
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Bytes per second of `n` streams, added up.
fn streams(to: &str, n: usize) -> std::io::Result<f64> {
    let all: Vec<TcpStream> = (0..n).map(|_| connect(to)).collect::<std::io::Result<_>>()?;
    let begun = Instant::now();
    let one = |mut stream: TcpStream| -> std::io::Result<u64> {
        stream.write_all(&[STREAM])?;
        let (mut block, mut n_bytes) = (vec![0; BLOCK_BYTES], 0);
        while begun.elapsed() < STREAM_TIME {
            match stream.read(&mut block)? {
                0 => return Err(std::io::Error::other("the other end closed the connection")),
                n => n_bytes += n as u64,
            }
        }
        Ok(n_bytes)
    };
    let n_bytes: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = all.into_iter().map(|stream| scope.spawn(move || one(stream))).collect();
        all.into_iter().map(|s| s.join().expect("a reader does not panic")).sum::<std::io::Result<u64>>()
    })?;
    Ok(n_bytes as f64 / begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_timed_and_streams_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(stream.unwrap()));
            }
        });
        let network = measure(&to).unwrap();
        assert!(network.round_trip_s > 0.0);
        assert!(network.bytes_per_s > 1e6 && network.streams_bytes_per_s > 1e6);
    }

    #[test]
    fn who_answers_something_else_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _ = stream.write_all(b"HTTP");
            std::thread::sleep(Duration::from_millis(500));
        });
        let fault = measure(&to).err().unwrap();
        assert!(fault.message.contains("not `eyas bench --serve`"), "{}", fault.message);
    }
}
