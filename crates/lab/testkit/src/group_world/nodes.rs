//! Nodes of the world: where they look for a dispatcher, and the work that they do for it.

use super::*;

impl World {
    pub(super) fn on_start_node(&mut self, n: usize) {
        if self.nodes[n].is_up {
            return;
        }
        let actions = self.nodes[n].start(self.now, false, None);
        self.searches[n] = Search::default();
        self.given.retain(|(of, _, _), _| *of != n);
        let epoch = self.nodes[n].epoch;
        self.act(n, actions);
        self.after(MS, Ev::Connect { n, epoch });
        self.after(S, Ev::NodeTick { n, epoch });
    }

    pub(super) fn stop_node(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if !node.is_up {
            return;
        }
        node.is_up = false;
        if let Some(life) = node.disconnect() {
            let takes = self.lasts(3 * S).max(self.o.message_ns_max);
            let (_, m) = self.lives[&life];
            self.after(takes, Ev::Cut { m, life });
        }
        let away = self.lasts(10 * S);
        self.after(away, Ev::StartNode { n });
    }

    pub(super) fn on_connect(&mut self, n: usize, epoch: u64) {
        let node = &self.nodes[n];
        if !node.is_up || node.epoch != epoch || node.life.is_some() {
            return;
        }
        if node.cut_until > self.now {
            let wait = node.cut_until.since_ns(self.now).max(S / 4);
            return self.after(wait, Ev::Connect { n, epoch });
        }
        let all: Vec<usize> = (0..self.members.len()).collect();
        let Search { known, n_tries } = self.searches[n];
        let theirs = node.session.link().member().map(|m| m.0 as usize);
        let m = *to_try(known.as_ref(), theirs.as_ref(), &all[0], all.iter(), n_tries);
        if self.members[m].process.is_none() {
            self.searches[n].n_tries += 1;
            return self.after(S / 4, Ev::Connect { n, epoch });
        }
        let life = self.next_life;
        self.next_life += 1;
        self.lives.insert(life, (n, m));
        self.members[m].process.as_mut().expect("just seen").on_connected(life, n);
        let hello = self.nodes[n].connect(self.now, life);
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch: vec![hello] });
    }

    pub(super) fn on_to_node(&mut self, n: usize, life: u64, batch: Vec<ToNode>) {
        let (_, m) = self.lives[&life];
        for message in batch {
            if self.nodes[n].life != Some(life) {
                return;
            }
            match &message {
                ToNode::Welcome(welcome) => match &**welcome {
                    Welcome::Executor { .. } => self.searches[n].n_tries = 0,
                    turned_away => {
                        // The node leaves, and looks where it was sent, or at further addresses.
                        let search = &mut self.searches[n];
                        (search.known, search.n_tries) = match turned_away {
                            Welcome::Redirected { member, .. } => (Some(member.0 as usize), 0),
                            _ => (search.known, search.n_tries + 1),
                        };
                        self.nodes[n].events_of(self.now, message);
                        let epoch = self.nodes[n].epoch;
                        self.after(MS, Ev::Cut { m, life });
                        return self.after(S / 4, Ev::Connect { n, epoch });
                    }
                },
                ToNode::Says(said) => {
                    if let ToExecutor::Assign(assign) = &**said {
                        let id = (assign.assignment.task, assign.assignment.attempt);
                        if !self.nodes[n].contexts.contains_key(&id) {
                            let name = self.name_of(&assign.spec);
                            self.given.insert((n, id.0, id.1), Given { member: m, name, outputs: vec![] });
                        }
                    }
                }
            }
            self.nodes[n].last_contact = self.now;
            for event in self.nodes[n].events_of(self.now, message) {
                self.feed(n, event);
            }
        }
        self.go_elsewhere(n);
        self.flush_node(n);
        if self.nodes[n].is_ended {
            self.stop_node(n);
        }
    }

    /// A node that is to go to another dispatcher says goodbye when it has no work left.
    fn go_elsewhere(&mut self, n: usize) {
        let Some((member, life, words)) = self.nodes[n].go() else { return };
        let epoch = self.nodes[n].epoch;
        self.searches[n] = Search { known: Some(member.0 as usize), n_tries: 0 };
        let (_, m) = self.lives[&life];
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch: words });
        let at = self.arrival(life, false);
        self.after(at, Ev::Cut { m, life });
        self.after(MS, Ev::Connect { n, epoch });
    }

    pub(super) fn on_node_tick(&mut self, n: usize, epoch: u64) {
        let node = &self.nodes[n];
        if !node.is_up || node.epoch != epoch {
            return;
        }
        if node.life.is_none() && self.now.since_ns(node.last_contact) > LEASE_NS {
            return self.stop_node(n);
        }
        self.after(S, Ev::NodeTick { n, epoch });
        self.nodes[n].beat();
        self.feed(n, NodeEvent::Ticked);
        self.go_elsewhere(n);
        self.flush_node(n);
    }

    pub(super) fn flush_node(&mut self, n: usize) {
        let Some((life, batch)) = self.nodes[n].take_words() else { return };
        let (_, m) = self.lives[&life];
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch });
    }

    fn feed(&mut self, n: usize, event: NodeEvent) {
        let actions = self.nodes[n].feed(self.now, event);
        self.act(n, actions);
    }

    fn act(&mut self, n: usize, actions: Vec<NodeAction>) {
        let epoch = self.nodes[n].epoch;
        let transfer_ns_max = self.o.transfer_ns_max;
        for action in actions {
            self.trace(format!("             node {n} {action:?}"));
            let (takes_max, work) = match action {
                NodeAction::AskHome { object, .. } => (transfer_ns_max / 4, Work::Ask { object }),
                NodeAction::Fetch { target, object, source, known, .. } => {
                    (transfer_ns_max, Work::Fetch { target, object, source, known })
                }
                NodeAction::Evict { object } => {
                    self.nodes[n].evict(object);
                    continue;
                }
                NodeAction::Start { task, attempt, inputs, .. } => {
                    self.start(n, (task, attempt), &inputs);
                    (self.o.program_ns_max, Work::Program { id: (task, attempt) })
                }
                NodeAction::Kill { task, attempt } => {
                    if !self.nodes[n].contexts.contains_key(&(task, attempt)) {
                        continue;
                    }
                    (MS, Work::Program { id: (task, attempt) })
                }
                NodeAction::DropPrivate { task, attempt, input } => {
                    self.nodes[n].private.remove(&((task, attempt), input));
                    continue;
                }
                NodeAction::Halt { .. } => continue,
                NodeAction::StoreOutput { task, attempt, output, cache_bytes, .. } => {
                    let id = (task, attempt);
                    (transfer_ns_max / 8, Work::Store { id, output, cache_bytes })
                }
                NodeAction::Land { task, attempt, output, object, cached } => {
                    (transfer_ns_max, Work::Land { id: (task, attempt), output, object, cached })
                }
                NodeAction::CleanUp { task, attempt } => {
                    let node = &mut self.nodes[n];
                    node.contexts.remove(&(task, attempt));
                    node.private.retain(|(id, _), _| *id != (task, attempt));
                    continue;
                }
                NodeAction::Tell { message } => {
                    self.nodes[n].tell(message);
                    continue;
                }
            };
            let takes = self.lasts(takes_max);
            self.after(takes, Ev::Done { n, epoch, work });
        }
    }

    /// A program begins: its outputs follow from its task and the bytes that it reads.
    fn start(&mut self, n: usize, id: AttemptId, staged: &[Staged]) {
        let node = &mut self.nodes[n];
        node.contexts.get_mut(&id).expect("what starts was assigned").runs = true;
        let (node, context) = (&*node, &node.contexts[&id]);
        let mut seen = vec![];
        for (i, (staged, input)) in staged.iter().zip(&context.assignment.inputs).enumerate() {
            let digest = match staged {
                Staged::Cached(object) => node.stored(*object).map(|s| s.digest),
                Staged::Private | Staged::Unneeded | Staged::InPlace(_) => {
                    node.private.get(&(id, i as u32)).map(|s| s.digest)
                }
            };
            let location = node.session.book().location(input.object);
            seen.push(digest.unwrap_or_else(|| panic!("promise 2: {id:?} starts without {location}")));
        }
        let outputs = context.outputs.clone();
        let given = self.given.get_mut(&(n, id.0, id.1)).expect("what starts was given");
        let made = outputs.iter().enumerate().map(|(i, l)| (l.clone(), made(&given.name, &seen, i)));
        given.outputs = made.collect();
        self.ran.insert((given.member, n, id.0, id.1), given.name.clone());
    }

    /// A piece of work that a node began is over.
    pub(super) fn on_done(&mut self, n: usize, work: Work) {
        let error = |kind, message: &str| TransferError { kind, message: message.into() };
        let event = match work {
            Work::Ask { object } => {
                let location = self.nodes[n].session.book().location(object);
                assert!(!CatalogLocation::of(location).stays(), "home is asked for {location}");
                let result = match self.home.get(location) {
                    Some(digest) => Ok(HomeAnswer { version: version_of(*digest), in_place: false }),
                    None => Err(error(TransferErrorKind::Unavailable, "it does not exist")),
                };
                NodeEvent::HomeAnswered { object, result }
            }
            Work::Fetch { target, object, source, known } => {
                let found = match source {
                    Source::Home => {
                        let location = self.nodes[n].session.book().location(object);
                        self.home.get(location).map(|digest| (*digest, Some(version_of(*digest))))
                    }
                    Source::Peer(peer) => {
                        let holder =
                            self.nodes[n].peers.get(&peer).map(|p| &self.nodes[*p]).filter(|h| h.is_up);
                        let held = holder.zip(known.as_ref()).and_then(|(h, known)| h.serves(known.digest));
                        held.map(|s| (s.digest, None))
                    }
                };
                let result = match found {
                    Some((digest, _)) if known.as_ref().is_some_and(|k| k.digest != digest) => {
                        Err(error(TransferErrorKind::Changed, "it has other bytes"))
                    }
                    Some((digest, version)) => Ok(Fetched { digest, size_bytes: OUTPUT_BYTES, version }),
                    None => Err(error(TransferErrorKind::NotHeld, "it is not there")),
                };
                let stored =
                    result.as_ref().ok().map(|b| Stored { digest: b.digest, size_bytes: b.size_bytes });
                let node = &mut self.nodes[n];
                let event = NodeEvent::TransferEnded { target, source, result };
                match (target, stored) {
                    (_, None) => event,
                    (Target::Cache(_), Some(stored)) => {
                        node.place(&stored);
                        node.take_word(event)
                    }
                    (Target::Private { task, attempt, input }, Some(stored)) => {
                        node.private.insert(((task, attempt), input), stored);
                        event
                    }
                }
            }
            Work::Program { id } => {
                let node = &self.nodes[n];
                let Some(context) = node.contexts.get(&id).filter(|c| c.runs) else { return };
                let (is_killed, n_outputs) = (node.is_killed(id), context.outputs.len());
                let name = &self.given[&(n, id.0, id.1)].name;
                if !is_killed && !self.may_end(name) {
                    let epoch = self.nodes[n].epoch;
                    return self.after(S / 2, Ev::Done { n, epoch, work: Work::Program { id } });
                }
                let node = &mut self.nodes[n];
                let context = node.contexts.get_mut(&id).expect("just seen");
                context.runs = false;
                let ended = if is_killed { Ended::Cancelled } else { Ended::Exited(0) };
                assert_eq!(node.session.judge(id, ended, false, false), Verdict::Counts);
                let failure = Failure { kind: FailureKind::Signal(15), message: String::new() };
                let exit = Exit {
                    result: if is_killed { Err(failure) } else { Ok(()) },
                    started: self.now,
                    exited: self.now,
                    cpu_ns: 0,
                    rss_bytes_max: 0,
                    left: None,
                    outputs: vec![Some(OUTPUT_BYTES); n_outputs],
                    inputs_damaged: vec![],
                    inputs_modified: vec![],
                    disk: None,
                };
                NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit }
            }
            Work::Store { id, output, cache_bytes, .. } => {
                let (_, digest) = self.given[&(n, id.0, id.1)].outputs[output as usize];
                let result = Ok(Fetched { digest, size_bytes: OUTPUT_BYTES, version: None });
                let event =
                    NodeEvent::OutputStored { task: id.0, attempt: id.1, output, marks: None, result };
                let node = &mut self.nodes[n];
                match cache_bytes {
                    Some(_) => {
                        node.place(&Stored { digest, size_bytes: OUTPUT_BYTES });
                        node.take_word(event)
                    }
                    None => event,
                }
            }
            Work::Land { id, output, object, cached } => {
                let (location, digest) = self.given[&(n, id.0, id.1)].outputs[output as usize].clone();
                assert!(!CatalogLocation::of(&location).stays(), "{location} goes home");
                let held = self.nodes[n].stored(object).map(|s| s.digest);
                assert!(!cached || held == Some(digest), "promise 3: the last copy of {location} is gone");
                self.home.insert(location, digest);
                NodeEvent::OutputLanded { task: id.0, attempt: id.1, output, result: Ok(version_of(digest)) }
            }
        };
        self.feed(n, event);
        self.go_elsewhere(n);
    }
}
