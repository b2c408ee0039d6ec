//! Passes the bytes of two connections on to each other.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

/// What is read at once.
const BUFFER_BYTES: usize = 128 << 10;
/// How long one direction may go on when the other one has ended.
const REST_MAX: Duration = Duration::from_secs(30);
/// A connection whose other end is gone without a word is given up after about this long.
const DEAD: Duration = Duration::from_secs(60);

/// Ends when both directions have ended, or one of them some time ago.
pub(super) async fn relay(mut one: TcpStream, mut other: TcpStream) {
    for stream in [&one, &other] {
        // Without these, a stream of a machine that lost its power stays for hours.
        let _ = stream.set_nodelay(true).and_then(|()| notice_death(stream));
    }
    let (one_read, one_write) = one.split();
    let (other_read, other_write) = other.split();
    let mut there = std::pin::pin!(pass(one_read, other_write));
    let mut back = std::pin::pin!(pass(other_read, one_write));
    let rest = tokio::select! {
        ended = &mut there => ended.map(|()| timeout(REST_MAX, back)),
        ended = &mut back => ended.map(|()| timeout(REST_MAX, there)),
    };
    if let Ok(rest) = rest {
        let _ = rest.await;
    }
}

async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            n => to.write_all(&buffer[..n]).await?,
        }
    }
}

/// Has the system look whether the other end is there while nothing is sent, and while it takes nothing.
fn notice_death(stream: &TcpStream) -> io::Result<()> {
    let seconds = DEAD.as_secs() as libc::c_int;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds / 2),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds / 6),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    ];
    for (level, name, value) in options {
        // SAFETY: the descriptor is open as long as `stream`, and the value is a valid integer of the given size.
        let set = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
