//! What clients ask for, but for submissions and printed output.

use super::{Answer, Outside, Record, Session};
use eyas_core::dispatcher::{Dispatcher, TaskState};
use eyas_core::event::Event;
use eyas_terms::{CatalogLocation, RunId, TaskId, TaskPhase};
use eyas_text::shown;
use eyas_wire::message::{Explained, ReplyBody, Request, RequestBody, TaskName};

impl<O: Outside> Session<O> {
    pub(super) fn on_request(&mut self, connection: u64, request: Request) {
        let number = request.number;
        if let Some(reason) = self.why_not_allowed(connection, &request.body) {
            return self.refuse(connection, number, reason);
        }
        match &request.body {
            RequestBody::OpenRun { .. } => return self.on_open(connection, request),
            RequestBody::JoinRun { .. } => return self.on_join_run(connection, request),
            _ => {}
        }
        match request.body {
            // They were taken above.
            RequestBody::OpenRun { .. } | RequestBody::JoinRun { .. } => {}
            RequestBody::AddArray { run, array } => self.on_array(connection, number, run, array),
            RequestBody::WantFiles { run, files, nodes } => {
                self.on_want_files(connection, number, run, &files, &nodes)
            }
            RequestBody::Queries(queries) => match self.outside.keep_queries(queries) {
                Ok(()) => self.reply(connection, number, ReplyBody::Kept),
                Err(reason) => self.refuse(connection, number, reason),
            },
            RequestBody::CommitRun { run } => self.on_commit(connection, number, run),
            RequestBody::SubmitRun { name, keep, into, array, listener } => {
                self.on_submit(connection, number, (name, keep, into), array, listener)
            }
            RequestBody::AbortRun { run } => {
                if self.submissions.is_by(run, connection) && !self.submissions.sealed.contains(&run) {
                    self.abort(run);
                }
            }
            RequestBody::Status => {
                let status = self.status(connection);
                self.answer(connection, number, Answer::Logged(ReplyBody::Status(Box::new(status))));
            }
            RequestBody::WatchRun { run, interval_ns } => self.on_watch(connection, number, run, interval_ns),
            RequestBody::Cancel { run, task } => self.on_cancel(connection, number, run, task),
            RequestBody::Explain { run, task } => match self.find(connection, run, &task) {
                Ok(task) => self.explain(connection, number, task),
                Err(reason) => self.refuse(connection, number, reason),
            },
            RequestBody::Logs { run, task } => match self.find(connection, run, &task) {
                Ok(task) => self.on_logs(connection, number, task),
                Err(reason) => self.refuse(connection, number, reason),
            },
            RequestBody::Prints { run, which, from } => self.on_prints(connection, number, run, which, from),
            RequestBody::FollowEnds { run } => self.on_follow_ends(connection, number, run),
            RequestBody::Listen { listener } => {
                self.prints.listen(listener, connection, number);
                self.reply(connection, number, ReplyBody::Kept);
            }
            RequestBody::ReadPrinted { run, task, attempt, at, drop } => {
                match self.find(connection, run, &task) {
                    Ok(task) => {
                        let drop = drop && self.owns(connection, self.core.work().run_of(task));
                        self.answer(connection, number, Answer::PrintedPart { task, attempt, at, drop });
                    }
                    Err(reason) => self.refuse(connection, number, reason),
                }
            }
            RequestBody::Shutdown => {
                self.reply(connection, number, ReplyBody::ShuttingDown);
                self.stop = Some("the cluster was shut down".into());
            }
            RequestBody::Demand { provisioner } => self.on_demand(connection, number, provisioner),
            RequestBody::Drain { executor } => self.on_drain(connection, number, executor),
            RequestBody::Consult { run, array } => self.on_consult(connection, number, run, &array),
            RequestBody::Upstream { run, locations } => {
                let upstream = |l: &String| Some((l.clone(), self.core.upstream(run, l)?));
                let found = locations.iter().filter_map(upstream).collect();
                self.reply(connection, number, ReplyBody::Upstream(found));
            }
            RequestBody::LinkRun { run, links, patterns } => {
                self.on_link_run(connection, number, run, links, patterns)
            }
            RequestBody::PrepareRun { run } => self.on_prepare_run(connection, number, run),
            RequestBody::Forget { runs } => self.on_forget(connection, number, runs),
            RequestBody::Users => self.on_users(connection, number),
            RequestBody::SetUser { name, key, rights, weight } => {
                self.on_set_user(connection, number, name, key, rights, weight)
            }
            RequestBody::RemoveUser { name } => self.on_remove_user(connection, number, &name),
        }
    }

    fn on_cancel(&mut self, connection: u64, number: u64, run: Option<RunId>, task: Option<TaskName>) {
        let task = match task.map(|name| self.find(connection, run, &name)).transpose() {
            Ok(task) => task,
            Err(reason) => return self.refuse(connection, number, reason),
        };
        if let Some(of) =
            task.map(|task| self.core.work().run_of(task)).filter(|of| !self.may_cancel(connection, *of))
        {
            let named = RequestBody::Cancel { run: Some(of), task: None };
            let reason = self.why_not_allowed(connection, &named).unwrap_or_default();
            return self.refuse(connection, number, reason);
        }
        let runs: Vec<RunId> = match (task, run) {
            (Some(task), _) => vec![self.core.work().run_of(task)],
            (None, Some(run)) if self.core.work().find_run(run).is_some() => vec![run],
            (None, Some(run)) => {
                let reason = self.no_run(run);
                return self.refuse(connection, number, reason);
            }
            (None, None) => self.runs_to_cancel(connection),
        };
        let left = |core: &Dispatcher, run: &RunId| {
            let r = core.work().find_run(*run).expect("it was just looked up");
            r.tasks.n_ready + r.tasks.n_waiting + r.tasks.n_reserved
        };
        let mut n_tasks = 0;
        let has_ended = |task: TaskId| {
            matches!(self.core.task_state(task), TaskState::Done | TaskState::Failed | TaskState::Cancelled)
        };
        if task.is_some_and(has_ended) {
            return self.reply(connection, number, ReplyBody::Cancelled { n_tasks });
        }
        for run in runs {
            n_tasks += if task.is_some() { 1 } else { left(&self.core, &run) };
            self.journal(&Record::CancelRequested { run, task }, None);
            self.feed(Event::CancelRequested { run, task });
        }
        self.reply(connection, number, ReplyBody::Cancelled { n_tasks });
    }

    /// A task among those that the connection's user may see.
    fn find(&self, connection: u64, run: Option<RunId>, name: &TaskName) -> Result<TaskId, String> {
        let work = self.core.work();
        let sees = |run: RunId| self.may_see(connection, run);
        match name {
            TaskName::Number(task) if work.has_task(*task) && sees(work.run_of(*task)) => Ok(*task),
            TaskName::Number(task) => Err(format!("there is no task number {task}")),
            TaskName::User(id) => work.find_task(run, id, sees).ok_or_else(|| match run {
                Some(run) => format!("run {run} has no task {id}", id = shown(id)),
                None => format!("no run has a task {id}", id = shown(id)),
            }),
        }
    }

    fn explain(&mut self, connection: u64, number: u64, task: TaskId) {
        let (state, reason) = match self.core.task_state(task) {
            TaskState::Waiting { .. } => (TaskPhase::Waiting, Some(self.core.waits_for(task))),
            TaskState::Ready { reason } => {
                (TaskPhase::Ready, self.why_ready(self.without_names(connection, reason)))
            }
            TaskState::Reserved { executor, landing: true, .. } => {
                (TaskPhase::Landing, self.home_that_node_waits_for(executor))
            }
            TaskState::Reserved { executor, attempt, .. } => {
                let running =
                    self.executors.by_id.get(&executor).is_some_and(|e| {
                        e.status.running.iter().any(|(t, a, _)| (*t, *a) == (task, attempt))
                    });
                match running {
                    true => (TaskPhase::Running, None),
                    false => (TaskPhase::Reserved, self.home_that_node_waits_for(executor)),
                }
            }
            // Nobody is told of an end before the journal has it.
            TaskState::Done | TaskState::Failed | TaskState::Cancelled
                if self.recording.ends.has_task(task) =>
            {
                (TaskPhase::Ending, None)
            }
            TaskState::Done => (TaskPhase::Done, None),
            TaskState::Failed => (TaskPhase::Failed, None),
            TaskState::Cancelled => (TaskPhase::Cancelled, None),
            TaskState::Submitting => (TaskPhase::Submitting, None),
        };
        let mut explained = Explained {
            task,
            run: self.core.work().run_of(task),
            user_id: self.core.work().user_id(task),
            state,
            reason,
            executors: self.executors.names.iter().map(|(id, name)| (id, name.to_owned())).collect(),
            patterns: self.core.patterns_of(task).iter().map(|e| e.to_string()).collect(),
            ..Explained::default()
        };
        let spec = self.core.work().task_spec(task);
        for (_, location) in spec.inputs.iter().chain(&spec.outputs) {
            if let Some(object) = self.core.work().catalog().find(CatalogLocation::of(location)) {
                explained.objects.push((object, location.clone()));
            }
        }
        explained.submitted = self.core.work().find_run(explained.run).map(|r| r.opened);
        explained.spec = Some(spec);
        self.answer(connection, number, Answer::Explained(Box::new(explained)));
    }
}
