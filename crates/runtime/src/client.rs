//! A client's connection: requests out, replies in.

use crate::net::{self, NetError, Reader, Writer};
use eyas_wire::identity::Join;
use eyas_wire::message::{Hello, Reply, ReplyBody, Request, RequestBody, Welcome};
use std::path::Path;

/// A connection to a dispatcher. Replies to one request come in order; those to several may mix, so one
/// user of a client asks one thing at a time.
pub struct Client {
    reader: Reader,
    writer: Writer,
    next: u64,
}

impl Client {
    /// Connects with a join file.
    pub async fn connect(join: &Path) -> Result<Client, NetError> {
        Client::connect_to(&Join::read(join)?).await
    }

    pub async fn connect_to(join: &Join) -> Result<Client, NetError> {
        let (mut reader, writer) = net::connect(&join.address, &join.identity).await?;
        writer.send(&Hello::Client { name: format!("pid {}", std::process::id()) });
        match reader.next::<Welcome>().await? {
            Some(Welcome::Client { .. }) => Ok(Client { reader, writer, next: 1 }),
            Some(Welcome::Refused { reason }) => Err(NetError::Refused(reason)),
            Some(Welcome::Executor { .. }) => {
                Err(NetError::Refused("it took this client for an executor".into()))
            }
            None => Err(NetError::Closed),
        }
    }

    /// Sends a request; its number tells its replies.
    pub fn send(&mut self, body: RequestBody) -> Result<u64, NetError> {
        let number = self.next;
        self.next += 1;
        if self.writer.send(&Request { number, body }) { Ok(number) } else { Err(NetError::Closed) }
    }

    /// The next reply to `number`; replies to others are dropped.
    pub async fn reply(&mut self, number: u64) -> Result<ReplyBody, NetError> {
        loop {
            match self.reader.next::<Reply>().await? {
                Some(reply) if reply.number == number => return Ok(reply.body),
                Some(_) => {}
                None => return Err(NetError::Closed),
            }
        }
    }

    /// The next reply to anything.
    pub async fn next(&mut self) -> Result<Reply, NetError> {
        self.reader.next::<Reply>().await?.ok_or(NetError::Closed)
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
