//! A client's connection: requests out, replies in.
//!
//! Where the join file names a group of dispatchers this is a connection to each of them, which looks like one: a
//! submission is split ([`eyas_core::group::split`]) and its parts go to their dispatchers, questions go to all, and the answers are
//! put together (the module `group`). One dispatcher that is away does not end it.

mod group;

use crate::net::{self, NetError, Reader, Writer};
use eyas_wire::identity::Join;
use eyas_wire::message::{Hello, Reply, ReplyBody, Request, RequestBody, Welcome};
use group::Group;
use std::path::Path;

/// A connection to a dispatcher, or to a group of them. Replies to one request come in order; those to several may mix, so
/// one user of a client asks one thing at a time.
pub struct Client {
    way: Way,
    next: u64,
}

enum Way {
    One { reader: Reader, writer: Writer },
    Several(Group),
}

impl Client {
    /// Connects with a join file.
    pub async fn connect(join: &Path) -> Result<Client, NetError> {
        let told = Join::read(join)?;
        if told.members.is_empty() {
            return Client::connect_to(&told).await;
        }
        let group = Group::connect(told, Some(join.to_path_buf())).await?;
        Ok(Client { way: Way::Several(group), next: 1 })
    }

    pub async fn connect_to(join: &Join) -> Result<Client, NetError> {
        if !join.members.is_empty() {
            let group = Group::connect(join.clone(), None).await?;
            return Ok(Client { way: Way::Several(group), next: 1 });
        }
        let (reader, writer, members) = open(&join.address, join).await?;
        if !members.is_empty() {
            // It is one of several; the file names no other.
            let mut join = join.clone();
            join.members = members;
            let group = Group::connect(join, None).await?;
            return Ok(Client { way: Way::Several(group), next: 1 });
        }
        Ok(Client { way: Way::One { reader, writer }, next: 1 })
    }

    /// Sends a request; its number tells its replies.
    pub fn send(&mut self, body: RequestBody) -> Result<u64, NetError> {
        let number = self.next;
        self.next += 1;
        match &mut self.way {
            Way::One { writer, .. } => {
                if !writer.send(&Request { number, body }) {
                    return Err(NetError::Closed);
                }
            }
            Way::Several(group) => group.send(number, body),
        }
        Ok(number)
    }

    /// The next reply to `number`; replies to others are dropped.
    pub async fn reply(&mut self, number: u64) -> Result<ReplyBody, NetError> {
        loop {
            let reply = self.next().await?;
            if reply.number == number {
                return Ok(reply.body);
            }
        }
    }

    /// The next reply to anything.
    pub async fn next(&mut self) -> Result<Reply, NetError> {
        match &mut self.way {
            Way::One { reader, .. } => reader.next::<Reply>().await?.ok_or(NetError::Closed),
            Way::Several(group) => group.next().await,
        }
    }

    /// One request, one reply; a refusal is an error.
    pub async fn ask(&mut self, body: RequestBody) -> Result<ReplyBody, NetError> {
        let number = self.send(body)?;
        match self.reply(number).await? {
            ReplyBody::Refused { reason } => Err(NetError::Refused(reason)),
            body => Ok(body),
        }
    }
}

/// Connects to one dispatcher as a client. Gives where the dispatchers of its group are, if it is one of several.
async fn open(address: &str, join: &Join) -> Result<(Reader, Writer, Vec<String>), NetError> {
    let hello = Hello::Client { name: format!("pid {}", std::process::id()) };
    let (reader, writer, welcome) = net::enter(address, &join.identity, &hello).await?;
    match welcome {
        Welcome::Client { members, .. } => Ok((reader, writer, members)),
        Welcome::Refused { reason } => Err(NetError::Refused(reason)),
        _ => Err(NetError::Refused("it took this client for something else".into())),
    }
}
