//! Who sends to the dispatcher's loop: connections, the clock, signals and the parent process.
//!
//! Not here: connections to the other dispatchers of a group ([`super::links`]), executors behind relays
//! ([`super::relays`]), and the journal's notices, which have a channel of their own ([`super::service`]).

use super::arrival::{Arrival, Line};
use super::relays::Relays;
use crate::{own_folder, parent};
use eyas_net::{FrameReader, Writer};
use eyas_session::dispatcher::Input;
use eyas_wire::message::{FromExecutor, FromMember, Hello, Request};
use eyas_wire::users::{UserKey, Visitor};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

const TICK: Duration = Duration::from_millis(250);

/// Who may connect, and how.
#[derive(Clone)]
pub(super) struct Door {
    /// The key that all members have.
    pub own: UserKey,
    /// `None`: this dispatcher has no relays.
    pub relays: Option<Arc<Relays>>,
}

/// One connection, from its hello to its end.
pub(super) async fn serve(
    door: Door,
    connection: u64,
    peer: SocketAddr,
    (mut reader, writer): (FrameReader, Writer),
    arrivals: Sender<Arrival>,
) {
    let Ok(Some(hello)) = reader.first::<Hello>().await else { return };
    let is_executor = matches!(hello, Hello::Executor(_));
    let is_member = matches!(hello, Hello::Member { .. });
    // The door lets nobody in without a certificate.
    let visitor = match reader.peer() {
        Some(key) if key == door.own => Visitor::Member,
        Some(key) => Visitor::Other(key),
        None => return,
    };
    let hello = match (hello, &door.relays) {
        (Hello::Relay { address }, Some(relays)) if visitor == Visitor::Member => {
            return relays.clone().serve(connection, peer, address, (reader, writer), arrivals).await;
        }
        (hello, _) => hello,
    };
    let (line, mut closed) = Line::own(writer);
    if arrivals.send(Arrival::Connected { connection, peer, hello, visitor, line }).await.is_err() {
        return;
    }
    let read_all = async {
        loop {
            let input = if is_executor {
                match reader.next::<Vec<FromExecutor>>().await {
                    Ok(Some(batch)) => Input::FromExecutor { connection, batch },
                    _ => break,
                }
            } else if is_member {
                match reader.next::<Vec<FromMember>>().await {
                    Ok(Some(batch)) => Input::FromMember { connection, batch },
                    _ => break,
                }
            } else {
                match reader.next::<Request>().await {
                    Ok(Some(request)) => Input::FromClient { connection, request },
                    _ => break,
                }
            };
            if arrivals.send(Arrival::Session(input)).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = read_all => {
            let _ = arrivals.send(Arrival::Session(Input::Disconnected { connection })).await;
        }
        // The session has closed the connection and forgotten it.
        _ = &mut closed => {}
    }
}

/// Sends a tick a few times a second, for as long as the loop lives.
pub(super) fn tick(arrivals: Sender<Arrival>) {
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            if arrivals.send(Arrival::Session(Input::Tick)).await.is_err() {
                return;
            }
        }
    });
}

pub(super) fn stop_on_signals(arrivals: &Sender<Arrival>) {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        if let Ok(mut signals) = signal(kind) {
            let arrivals = arrivals.clone();
            tokio::spawn(async move {
                signals.recv().await;
                let stop = Input::Stop { reason: "the dispatcher was told to stop".into() };
                let _ = arrivals.send(Arrival::Session(stop)).await;
            });
        }
    }
}

/// `dir`: the dispatcher's folder.
pub(super) fn stop_with_folder(arrivals: Sender<Arrival>, dir: &Path) {
    own_folder::when_gone(vec![dir.to_path_buf(), dir.join("journal")], move |reason| {
        let _ = arrivals.blocking_send(Arrival::Session(Input::Stop { reason }));
    });
}

pub(super) fn stop_with_parent(arrivals: Sender<Arrival>) {
    parent::when_gone(move || {
        let stop = Input::Stop { reason: "the process that started the cluster is gone".into() };
        let _ = arrivals.blocking_send(Arrival::Session(stop));
    });
}
