//! The thread that a source works on: orders go in, answers come out, each in its order.

use super::Source;
use eyas_core::provisioning::blocks::Listed;
use std::sync::mpsc as orders;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

pub(super) enum Answer {
    Submitted { number: u32, name: String, result: Result<String, String> },
    Listed(Result<Vec<Listed>, String>),
    NotCancelled { name: String, why: String },
}

enum Order {
    Submit {
        number: u32,
        name: String,
        n_nodes: u32,
    },
    List,
    Cancel {
        id: String,
        name: String,
    },
    Adopt {
        name: String,
    },
    Forget {
        name: String,
    },
    LastWords {
        name: String,
        answer: oneshot::Sender<Option<String>>,
    },
    /// Says that all orders before this one are done.
    Mark(oneshot::Sender<()>),
    EndAll {
        blocks: Vec<(Option<String>, String)>,
        deadline: Instant,
        answer: oneshot::Sender<Vec<String>>,
    },
}

pub(super) struct Worker {
    orders: orders::Sender<Order>,
    answers: mpsc::UnboundedReceiver<Answer>,
}

impl Worker {
    pub fn start(source: impl Source) -> Worker {
        let (orders, queue) = orders::channel();
        let (answer, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || work(source, &queue, &answer));
        Worker { orders, answers }
    }

    /// The next answer, when there is one.
    pub async fn next(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // The thread is gone, which only a panic of it can bring about.
            None => std::future::pending().await,
        }
    }

    pub fn submit(&self, number: u32, name: String, n_nodes: u32) {
        self.give(Order::Submit { number, name, n_nodes });
    }

    pub fn list(&self) {
        self.give(Order::List);
    }

    pub fn cancel(&self, id: String, name: String) {
        self.give(Order::Cancel { id, name });
    }

    pub fn forget(&self, name: String) {
        self.give(Order::Forget { name });
    }

    pub async fn last_words(&self, name: &str) -> Option<String> {
        let (answer, words) = oneshot::channel();
        self.give(Order::LastWords { name: name.into(), answer });
        words.await.ok().flatten()
    }

    /// Waits until all orders are done, and gives the answers that were not taken.
    pub async fn finish_orders(&mut self) -> Vec<Answer> {
        let (answer, done) = oneshot::channel();
        self.give(Order::Mark(answer));
        let _ = done.await;
        std::iter::from_fn(|| self.answers.try_recv().ok()).collect()
    }

    /// Gives a sentence for each block that may be left.
    pub async fn end_all(&self, blocks: Vec<(Option<String>, String)>, deadline: Instant) -> Vec<String> {
        let (answer, left) = oneshot::channel();
        self.give(Order::EndAll { blocks, deadline, answer });
        left.await.unwrap_or_default()
    }

    pub fn adopt(&self, name: String) {
        self.give(Order::Adopt { name });
    }

    fn give(&self, order: Order) {
        // Where the thread is gone, nobody does anything any more; the wait for an answer ends by itself.
        let _ = self.orders.send(order);
    }
}

fn work(mut source: impl Source, queue: &orders::Receiver<Order>, answers: &mpsc::UnboundedSender<Answer>) {
    while let Ok(order) = queue.recv() {
        let answer = match order {
            Order::Submit { number, name, n_nodes } => {
                let result = source.submit(&name, n_nodes);
                Some(Answer::Submitted { number, name, result })
            }
            Order::List => Some(Answer::Listed(source.list())),
            Order::Cancel { id, name } => {
                source.cancel(&id, &name).err().map(|why| Answer::NotCancelled { name, why })
            }
            Order::Adopt { name } => {
                source.adopt(&name);
                None
            }
            Order::Forget { name } => {
                source.forget(&name);
                None
            }
            Order::LastWords { name, answer } => {
                let _ = answer.send(source.last_words(&name));
                None
            }
            Order::Mark(answer) => {
                let _ = answer.send(());
                None
            }
            Order::EndAll { blocks, deadline, answer } => {
                let _ = answer.send(source.end_all(&blocks, deadline));
                None
            }
        };
        if let Some(answer) = answer
            && answers.send(answer).is_err()
        {
            return;
        }
    }
}
