//! Ready tasks: the first in `queue`, where placement looks at them, the others folded in `backlog`.
//!
//! Invariant: while the backlog is not empty the queue is full, and no task of the backlog goes before one of the queue.

use super::*;

impl Dispatcher {
    pub(super) fn key_of(&self, task: TaskId) -> QueueKey {
        let (array, _) = self.locate(task);
        QueueKey { priority: self.arrays[array.0 as usize].array.template.priority, task }
    }

    /// Puts a task that is nowhere into the queue, at its own place.
    pub(super) fn requeue(&mut self, now: Timestamp, task: TaskId) {
        let key = self.key_of(task);
        let (array, i) = self.locate(task);
        self.count_ready(self.run_of(task), array, 1);
        let goes_first = self.queue.last().is_some_and(|last| key < last);
        if goes_first || self.backlog.is_empty() {
            self.unfold(now, key, array, i);
        } else {
            self.backlog.insert(key, Segment { array, start: i, end: i + 1 });
        }
        while self.queue.len() > self.queue.capacity() {
            self.fold(self.queue.last().expect("a queue over its size is not empty"));
        }
    }

    /// Moves a task from the queue to the backlog.
    pub(super) fn fold(&mut self, key: QueueKey) {
        self.queue.leave(&self.catalog, key);
        let (array, i) = self.locate(key.task);
        self.backlog.insert(key, Segment { array, start: i, end: i + 1 });
    }

    /// Removes a ready task from the queue, if it is there.
    pub(super) fn take_ready(&mut self, task: TaskId) {
        let key = self.key_of(task);
        let (array, i) = self.locate(task);
        if !self.queue.leave(&self.catalog, key) {
            // The segment that begins last at or before the task, among those of its priority.
            let found = self.backlog.range(..=key).next_back().map(|(k, s)| (*k, *s));
            let Some((at, segment)) = found.filter(|(_, s)| s.array == array && s.start <= i && i < s.end)
            else {
                return;
            };
            self.backlog.remove(&at);
            if segment.start < i {
                self.backlog.insert(at, Segment { end: i, ..segment });
            }
            if i + 1 < segment.end {
                let next = QueueKey { task: TaskId(task.0 + 1), ..key };
                self.backlog.insert(next, Segment { start: i + 1, ..segment });
            }
        }
        self.n_ready -= 1;
        self.run_mut(self.run_of(task)).n_ready -= 1;
        self.run_times.not_ready(self.arrays[array.0 as usize].stage);
    }

    /// So many tasks of an array of `run` are ready now.
    pub(super) fn count_ready(&mut self, run: RunId, array: ArrayId, n: u64) {
        self.n_ready += n;
        self.run_mut(run).n_ready += n;
        self.run_times.ready(self.arrays[array.0 as usize].stage, n);
    }

    /// The location that `pattern` gives for task `i` of an array of `run`, as the catalog has it. It takes the place of
    /// what is in `text`.
    pub(super) fn location_into<'t>(
        &self,
        run: RunId,
        array: &TaskArray,
        pattern: &Pattern,
        i: u32,
        text: &'t mut String,
    ) -> CatalogLocation<'t> {
        text.clear();
        array.fill_into(pattern, i, text);
        self.scope_of(run).put_into(text)
    }

    pub(super) fn scope_of(&self, run: RunId) -> &RunScope {
        self.runs.get(&run).map_or(RunScope::NONE, |r| &r.scope)
    }

    /// The inputs of a task, in its own order.
    pub(super) fn inputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.inputs, i)
    }

    pub(super) fn outputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.outputs, i)
    }

    fn objects_of(
        &mut self,
        run: RunId,
        array: &TaskArray,
        files: &[(Pattern, Pattern)],
        i: u32,
    ) -> Vec<ObjectId> {
        let mut text = std::mem::take(&mut self.location);
        let mut objects = Vec::with_capacity(files.len());
        for (_, pattern) in files {
            let location = self.location_into(run, array, pattern, i, &mut text);
            let object = self.catalog.intern(location);
            self.catalog.name(object, run);
            objects.push(object);
        }
        self.location = text;
        objects
    }

    pub(super) fn unfold(&mut self, now: Timestamp, key: QueueKey, array: ArrayId, i: u32) {
        let ArrayState { array: a, run, .. } = &self.arrays[array.0 as usize];
        let (a, run) = (a.clone(), *run);
        let inputs = self.inputs_of(run, &a, i);
        self.queue.enter(&self.catalog, now, &ready_task(key, &a, inputs));
    }

    /// Unfolds the next tasks of the backlog until the queue is full.
    pub(super) fn refill(&mut self, now: Timestamp) {
        while !self.queue.is_full() {
            let Some((key, segment)) = self.backlog.pop_first() else { return };
            if segment.start + 1 < segment.end {
                let next = QueueKey { task: TaskId(key.task.0 + 1), ..key };
                self.backlog.insert(next, Segment { start: segment.start + 1, ..segment });
            }
            self.unfold(now, key, segment.array, segment.start);
        }
    }
}
