//! Passes the bytes of two connections on to each other, as long as there are some.

use rustix::net::sockopt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout};

/// What is read at once.
const BUFFER_BYTES: usize = 128 << 10;
/// How long one direction may go on when the other one has ended.
const REST_MAX: Duration = Duration::from_secs(30);
/// A connection whose other end is gone without a word is given up after about this long.
const DEAD: Duration = Duration::from_secs(60);

/// How long a stream may say nothing.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Until the side that has knocked says its first byte. It speaks first.
    pub(super) first: Duration,
    /// From any byte to the next one, of either side. A store says every five seconds that it is there.
    pub(super) silence: Duration,
}

/// Ends when both directions have ended, or one of them some time ago; or where too little is said.
pub(super) async fn relay(mut knocking: TcpStream, mut answering: TcpStream, patience: Patience) {
    for stream in [&knocking, &answering] {
        // Without these, a stream of a machine that lost its power stays for hours.
        let _ = stream.set_nodelay(true).and_then(|()| notice_death(stream));
    }
    let heard = Mutex::new(Heard { began: Instant::now(), last: None });
    let (knocking_read, knocking_write) = knocking.split();
    let (answering_read, answering_write) = answering.split();
    let mut there = std::pin::pin!(pass(knocking_read, answering_write, &heard, true));
    let mut back = std::pin::pin!(pass(answering_read, knocking_write, &heard, false));
    let both = async {
        let rest = tokio::select! {
            ended = &mut there => ended.map(|()| timeout(REST_MAX, back)),
            ended = &mut back => ended.map(|()| timeout(REST_MAX, there)),
        };
        if let Ok(rest) = rest {
            let _ = rest.await;
        }
    };
    tokio::select! {
        () = both => {}
        () = silent(&heard, patience) => {}
    }
}

/// When a stream has said something.
struct Heard {
    began: Instant,
    /// `None`: the side that has knocked has said nothing yet.
    last: Option<Instant>,
}

fn note(heard: &Mutex<Heard>, is_knocking: bool) {
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    if is_knocking || heard.last.is_some() {
        heard.last = Some(Instant::now());
    }
}

/// Ends when too little was said.
async fn silent(heard: &Mutex<Heard>, patience: Patience) {
    loop {
        let until = {
            let Heard { began, last } = &*heard.lock().unwrap_or_else(PoisonError::into_inner);
            last.map_or(*began + patience.first, |last| last + patience.silence)
        };
        if until <= Instant::now() {
            return;
        }
        // The first byte may come meanwhile, and the silence behind it may be over sooner.
        sleep_until(until.min(Instant::now() + patience.silence)).await;
    }
}

async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    heard: &Mutex<Heard>,
    is_knocking: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            n => {
                note(heard, is_knocking);
                to.write_all(&buffer[..n]).await?;
            }
        }
    }
}

/// Has the system look whether the other end is there while nothing is sent, and while it takes nothing.
fn notice_death(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, DEAD / 2)?;
    sockopt::set_tcp_keepintvl(stream, DEAD / 6)?;
    Ok(sockopt::set_tcp_keepcnt(stream, 3)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (ours.unwrap(), accepted.unwrap().0)
    }

    /// How a stream goes on in which the sides say so many bytes, one after the other.
    async fn stream(patience: Patience, knocking_says: usize, answering_says: usize) -> bool {
        let ((mut knocking, one), (mut answering, other)) = (pair().await, pair().await);
        let mut relaying = std::pin::pin!(relay(one, other, patience));
        let mut byte = [0];
        let said = async {
            for _ in 0..knocking_says {
                knocking.write_all(b"k").await.unwrap();
                answering.read_exact(&mut byte).await.unwrap();
            }
            for _ in 0..answering_says {
                answering.write_all(b"a").await.unwrap();
                knocking.read_exact(&mut byte).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = &mut relaying => true,
            () = said => false,
            () = tokio::time::sleep(Duration::from_secs(2)) => false,
        }
    }

    #[tokio::test]
    async fn a_stream_that_says_nothing_ends() {
        let (soon, never) = (Duration::from_millis(100), Duration::from_secs(3600));
        assert!(stream(Patience { first: soon, silence: never }, 0, 0).await, "nobody says anything");
        assert!(
            stream(Patience { first: soon, silence: never }, 0, 50).await,
            "the other side has to speak first"
        );
        assert!(stream(Patience { first: never, silence: soon }, 1, 0).await, "nothing is said any more");
        assert!(!stream(Patience { first: soon, silence: never }, 1, 0).await);
        assert!(!stream(Patience { first: never, silence: 5 * soon }, 1, 1000).await);
    }
}
