//! `eyas top`: a live view of what a cluster is doing, on the whole screen.
//!
//! A thread asks the dispatcher for its status twice a second; the screen is drawn from the last answer
//! and from what was remembered of those before ([`View`]). When the dispatcher goes away, or does not answer, the
//! last picture stays and is dimmed, the first row says for how long there was no answer, the last row why, and the
//! thread tries again.
//!
//! Drawing ([`draw`]) is a function of the view and the size alone. Sections give up rows in this order
//! when the screen is low: running tasks, charts, nodes, failures; all but running tasks are there from 60 × 15. A key shows one
//! failure or one node in place of all ([`detail`]).
//!
//! Bytes are those that tasks read, by where they came from, as the dispatcher counts them per run.

use crate::args::JoinArgs;
use crate::{Exit, Fault, clusters};
use draw::draw;
use eyas_client::{Client, JoinFile};
use eyas_cluster::given;
use eyas_net::NetError;
use eyas_terms::TaskId;
use eyas_wire::message::ClusterStatus;
use eyas_wire::message::TaskName;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use screen::Screen;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use view::View;

mod detail;
pub(crate) mod draw;
pub(crate) mod screen;
mod view;

const POLL: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(1);
/// A dispatcher that takes longer for an answer does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// So many names of running tasks are asked for between two looks.
const NAMES_MAX: usize = 20;

enum Update {
    Status(Box<ClusterStatus>),
    /// The id of a task that runs.
    Name(TaskId, String),
    Gone(String),
}

pub fn top(args: JoinArgs) -> Result<Exit, Fault> {
    if !screen::is_terminal() {
        return Err(Fault::new(Exit::BadInput, "`eyas top` needs a terminal to draw on")
            .hint("`eyas status` prints the same once"));
    }
    let file = clusters::look_join(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The first answer comes before the screen is taken, so that an error is printed as usual.
    let mut client = runtime.block_on(connect(&file))?;
    let mut view = View { of_here: given::from_here(client.target().dir()), ..View::default() };
    view.take(Box::new(runtime.block_on(client.status())?));
    let (updates, news) = mpsc::channel();
    std::thread::spawn(move || runtime.block_on(poll(file, client, updates)));

    screen::show(&mut Watched { view, answered: Instant::now() }, &news)?;
    Ok(Exit::Good)
}

async fn connect(file: &JoinFile) -> Result<Client, NetError> {
    Client::connect(&file.read()?).await
}

async fn poll(file: JoinFile, client: Client, updates: mpsc::Sender<Update>) {
    let mut client = Some(client);
    let mut named = BTreeSet::new();
    loop {
        let update = match client.as_mut() {
            Some(connected) => match tokio::time::timeout(ANSWER_MAX, connected.status()).await {
                Ok(Ok(status)) => Update::Status(Box::new(status)),
                Ok(Err(e)) => {
                    client = None;
                    Update::Gone(e.to_string())
                }
                // What is left of a late answer would be taken for the next one.
                Err(_) => {
                    client = None;
                    Update::Gone("the dispatcher is there and does not answer".into())
                }
            },
            None => match connect(&file).await {
                Ok(connected) => {
                    client = Some(connected);
                    continue;
                }
                Err(e) => Update::Gone(e.to_string()),
            },
        };
        if let (Update::Status(status), Some(connected)) = (&update, client.as_mut()) {
            let running =
                status.executors.iter().flat_map(|node| &node.status.running).map(|(task, ..)| *task);
            let unknown: Vec<TaskId> = running.filter(|task| named.insert(*task)).take(NAMES_MAX).collect();
            for task in unknown {
                // A task that may not be seen is shown by its number.
                let asked = connected.printed(None, TaskName::Number(task));
                if let Ok(Ok(printed)) = tokio::time::timeout(ANSWER_MAX, asked).await
                    && updates.send(Update::Name(task, printed.user_id)).is_err()
                {
                    return;
                }
            }
        }
        let pause = if matches!(update, Update::Gone(_)) { RETRY } else { POLL };
        if updates.send(update).is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// What a cluster is doing, and when it last said so.
struct Watched {
    view: View,
    answered: Instant,
}

impl Screen for Watched {
    type News = Update;

    fn take(&mut self, update: Update) {
        match update {
            Update::Status(status) => {
                self.answered = Instant::now();
                self.view.take(status);
            }
            Update::Name(task, name) => drop(self.view.names.insert(task, name)),
            Update::Gone(why) => self.view.gone = Some(why),
        }
    }

    fn press(&mut self, key: KeyCode) -> bool {
        self.view.press(key)
    }

    fn draw(&mut self, frame: &mut Frame) {
        self.view.silent_ns = self.answered.elapsed().as_nanos() as u64;
        match self.view.looks_at {
            Some(looks_at) => detail::draw(frame, &self.view, looks_at),
            None => draw(frame, &self.view),
        }
    }
}
