//! A real PostgreSQL server that has no connection to give, or is started anew: it is waited for.

mod common;

use common::{Databases, NOW, Server};
use eyas_catalog::{Catalog, Error};
use postgres::error::SqlState;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const LIMIT: usize = 2;

/// A catalog of a user who may have few connections at one time.
fn limited(server: &Server, name: &str) -> String {
    let url = server.url(name);
    server.command(&format!("CREATE ROLE {name} LOGIN CONNECTION LIMIT {LIMIT}"));
    server.command(&format!("ALTER DATABASE {name} OWNER TO {name}"));
    let url = url.replace("//eyas@", &format!("//{name}@"));
    Catalog::init(&url, NOW).unwrap();
    url
}

/// A connection of the test itself. The server counts one that was just closed until its process has ended.
fn connected(url: &str) -> postgres::Client {
    loop {
        match postgres::Client::connect(url, postgres::NoTls) {
            Ok(client) => return client,
            Err(e) if e.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn connections_that_are_not_used_are_given_back_to_those_who_wait() {
    let server = Server::start();
    let url = limited(&server, "few");
    let n = 3 * LIMIT;
    let barrier = Barrier::new(n);
    std::thread::scope(|scope| {
        for _ in 0..n {
            scope.spawn(|| {
                let catalog = Catalog::open(&url, NOW).unwrap();
                assert_eq!(catalog.sites().unwrap().len(), 0);
                // Nobody closes a catalog before all have asked, and each comes again.
                barrier.wait();
                assert_eq!(catalog.sites().unwrap().len(), 0);
                barrier.wait();
            });
        }
    });
}

#[test]
fn a_server_without_a_free_connection_is_busy_and_what_is_wrong_for_good_is_said_at_once() {
    let server = Server::start();
    let url = limited(&server, "packed");
    let held: Vec<postgres::Client> = (0..LIMIT).map(|_| connected(&url)).collect();
    let error = Catalog::open(&url, NOW).err().unwrap();
    assert!(matches!(error, Error::Busy { .. }) && error.is_temporary(), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("takes no connection now: too many connections for role"), "{said}");
    drop(held);
    let catalog = Catalog::open(&url, NOW).unwrap();
    let nobody = url.replace("//packed@", "//nobody@");
    assert!(matches!(Catalog::open(&nobody, NOW).err().unwrap(), Error::Denied(_)));
    server.command("CREATE ROLE other LOGIN");
    server.command("REVOKE CONNECT ON DATABASE packed FROM PUBLIC");
    assert!(matches!(
        Catalog::open(&url.replace("//packed@", "//other@"), NOW).err().unwrap(),
        Error::Denied(_)
    ));
    drop(catalog);
}

#[test]
fn a_server_that_is_started_anew_is_waited_for() {
    let server = Server::start();
    let url = limited(&server, "anew");
    let is_over = AtomicBool::new(false);
    let n_rounds = AtomicUsize::new(0);
    let has_gone_on = |before: usize| {
        while n_rounds.load(Ordering::Relaxed) <= before {
            std::thread::yield_now();
        }
        n_rounds.load(Ordering::Relaxed)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let catalog = Catalog::open(&url, NOW).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                catalog.sites().unwrap();
                catalog.sites().unwrap();
                n_rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let before = has_gone_on(0);
        server.restart();
        has_gone_on(before + 1);
        is_over.store(true, Ordering::Relaxed);
    });
}
