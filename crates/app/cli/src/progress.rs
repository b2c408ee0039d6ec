//! The progress of a run: one live line on a terminal, a plain line every few seconds elsewhere.

use crate::print::{count, plural, rate, size, time};
use eyas_core::event::LeftFiles;
use eyas_terms::PushRecord;
use eyas_text::{line_of, shown};
use eyas_wire::message::RunStatus;
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// The number of failures that get their own line; further failures are only counted.
const FAILURES_SHOWN_MAX: u64 = 20;
/// The same of failures of one kind, see [`kind_of`].
const OF_ONE_KIND_MAX: u64 = 3;
const KINDS_KEPT: usize = 1000;
/// The same of different sentences on why nodes do not come or go.
const TROUBLES_SHOWN_MAX: usize = 20;

pub struct Progress {
    terminal: bool,
    last_plain: Instant,
    /// Earlier counts of ended tasks, for the rate.
    marks: std::collections::VecDeque<(Instant, u64)>,
    n_failures_seen: u64,
    n_failures_shown: u64,
    /// How many of the reported failures are of each kind.
    kinds: std::collections::BTreeMap<String, u64>,
    /// What was said of nodes that do not come or go.
    troubles: std::collections::BTreeSet<String>,
    drawn: bool,
}

impl Progress {
    pub fn new() -> Progress {
        let now = Instant::now();
        Progress {
            terminal: eyas_text::stderr_is_terminal(),
            last_plain: now,
            marks: std::collections::VecDeque::new(),
            n_failures_seen: 0,
            n_failures_shown: 0,
            kinds: std::collections::BTreeMap::new(),
            troubles: std::collections::BTreeSet::new(),
            drawn: false,
        }
    }

    /// How often the dispatcher should report.
    pub fn interval_ns(&self) -> u64 {
        if self.terminal { 200_000_000 } else { 1_000_000_000 }
    }

    pub fn show(&mut self, status: &RunStatus) {
        let now = Instant::now();
        let ended = status.n_ended();
        self.mark(now, ended);
        self.show_failures(status);
        self.show_troubles(status);
        if self.terminal {
            let line = self.line(status, ended, now);
            let width = columns_of(2).unwrap_or(100);
            let line: String = line.chars().take(width.saturating_sub(1)).collect();
            let _ = eyas_text::redraw_line(&line);
            self.drawn = true;
        } else if now - self.last_plain >= PLAIN_EVERY {
            self.last_plain = now;
            eyas_text::say!("{}", self.line(status, ended, now));
        }
    }

    /// Notes the count from which the rate is computed. Fewer ends than before mean that tasks run again
    /// (their files were lost); then the earlier counts say nothing about the rate from here on.
    fn mark(&mut self, now: Instant, ended: u64) {
        if self.marks.back().is_some_and(|last| ended < last.1) {
            self.marks.clear();
        }
        self.marks.push_back((now, ended));
        while self.marks.len() > 2 && is_stale(now - self.marks[1].0, ended - self.marks[1].1) {
            self.marks.pop_front();
        }
    }

    /// Prints a line for each new failure, up to a limit, and up to a lower one for each kind; a report contains only the latest
    /// failures.
    fn show_failures(&mut self, status: &RunStatus) {
        let fresh = status.n_failed.saturating_sub(self.n_failures_seen);
        self.n_failures_seen += fresh;
        let n_known = status.failures.len();
        for (id, message) in status.failures.iter().skip(n_known.saturating_sub(fresh as usize)) {
            let kind = kind_of(id, message);
            let n_of_kind = self.kinds.entry(kind.clone()).or_default();
            *n_of_kind += 1;
            let is_shown = *n_of_kind <= OF_ONE_KIND_MAX && self.n_failures_shown < FAILURES_SHOWN_MAX;
            if self.kinds.len() > KINDS_KEPT {
                self.kinds.remove(&kind);
            }
            if !is_shown {
                continue;
            }
            self.n_failures_shown += 1;
            self.clear();
            eyas_text::say!("failed: task {}: {}", shown(id), line_of(message));
        }
    }

    /// Prints a line for each new sentence on why nodes do not come or go, up to a limit.
    fn show_troubles(&mut self, status: &RunStatus) {
        for sentence in &status.troubles {
            if self.troubles.len() < TROUBLES_SHOWN_MAX && self.troubles.insert(sentence.clone()) {
                self.clear();
                eyas_text::say!("warning: {}", line_of(sentence));
            }
        }
    }

    /// Why a run cannot go on, without the sentence at its end that a warning has already said.
    pub fn not_said_yet(&self, why: &str) -> String {
        let said = self.troubles.iter().find_map(|sentence| why.strip_suffix(sentence.as_str()));
        said.map_or(why.into(), |rest| format!("{rest}the warning above says"))
    }

    fn line(&self, status: &RunStatus, ended: u64, now: Instant) -> String {
        let (first, before) = self.marks.front().copied().unwrap_or((now, ended));
        let seconds = (now - first).as_secs_f64();
        let per_s = if seconds > 0.2 { (ended - before) as f64 / seconds } else { 0.0 };
        let left = status.n_tasks.saturating_sub(ended);
        let active = status.n_reserved + status.n_running;
        let eta = match per_s {
            // While nothing is placed, as no node has room or there is none, or something is wrong, as a home is away, nobody
            // knows when it goes on.
            per_s if per_s > 0.0 && left > 0 && active > 0 && status.troubles.is_empty() => {
                time_left(&self.marks, ended, left, now)
                    .map_or(String::new(), |left| format!(", {} left", time(left)))
            }
            _ => String::new(),
        };
        let mut nodes =
            status.n_nodes.map_or(String::new(), |n| format!(" on {}", plural(u64::from(n), "node")));
        if status.n_nodes_pending > 0 {
            nodes += &format!(", {} to come", plural(u64::from(status.n_nodes_pending), "node"));
            if !status.pending_why.is_empty() {
                nodes += &format!(" ({})", line_of(&status.pending_why));
            }
        }
        if let Some(push) = status.push.as_ref().filter(|_| status.n_tasks == 0) {
            return format!("{}{nodes}", line_of_push(push));
        }
        let mut line = format!(
            "{}/{} tasks, {}, {} placed{nodes} | local {} peer {} home {}{eta}",
            count(ended),
            count(status.n_tasks),
            rate(per_s),
            count(active),
            size(status.local_bytes),
            size(status.peer_bytes),
            size(status.home_bytes),
        );
        if status.n_failed > 0 {
            line += &format!(" | {} failed", count(status.n_failed));
        }
        line
    }

    /// Clears the live line for other text.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = eyas_text::clear_line();
        }
    }

    /// Prints the closing lines.
    pub fn finish(&mut self, status: &RunStatus) {
        self.show_failures(status);
        self.clear();
        if status.n_failed > self.n_failures_shown {
            let of_one_reason = match self.kinds.len() {
                1 => ", as far as was seen for the same reason",
                _ => "",
            };
            eyas_text::say!("failed: {} more{of_one_reason}", count(status.n_failed - self.n_failures_shown));
        }
        closing_lines(status).iter().for_each(|line| eyas_text::say!("{line}"));
    }
}

/// What failures of one kind have in common: how their programs ended, and what these said but for the task's id and numbers.
fn kind_of(id: &str, message: &str) -> String {
    let how = message.split("; its ").next().unwrap_or_default().len();
    let words = message[how..].split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty());
    let words = words.collect::<Vec<_>>().join("#");
    let numbers = |c: char| c.is_ascii_digit();
    let id = id.split(numbers).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#");
    format!("{}{}", &message[..how], if id.len() > 2 { words.replace(&id, "@") } else { words })
}

/// How a push stands, in one line.
pub fn line_of_push(push: &PushRecord) -> String {
    let mut line = format!(
        "push: {} of {} files read, {} of {} copies on {} ({})",
        count(push.n_read),
        count(push.n_files),
        count(push.n_there),
        count(push.n_wanted),
        plural(push.n_nodes.into(), "node"),
        size(push.there_bytes)
    );
    if push.n_unfit > 0 {
        line += &format!(", {} did not fit", count(push.n_unfit));
    }
    if push.is_cancelled {
        line += ", cancelled";
    }
    line
}

/// How a run ended, in sentences: its tasks, what they left, and where their inputs came from.
pub fn closing_lines(status: &RunStatus) -> Vec<String> {
    // The run's own time: it may have begun, and even ended, long before the user began to wait.
    let took_ns = status.ended.map_or(0, |ended| ended.since_ns(status.opened));
    if let Some(push) = status.push.as_ref().filter(|_| status.n_tasks == 0) {
        let took_ns = push.ended.map_or(took_ns, |ended| ended.since_ns(push.began));
        return vec![format!("{} in {}", line_of_push(push), time(took_ns))];
    }
    // Failed and cancelled tasks do not count for the throughput.
    let per_s = status.n_done as f64 / (took_ns as f64 / 1e9).max(1e-3);
    let mut lines = vec![format!(
        "{} in {} ({}): {} done, {} failed, {} cancelled",
        plural(status.n_tasks, "task"),
        time(took_ns),
        rate(per_s),
        count(status.n_done),
        count(status.n_failed),
        count(status.n_cancelled),
    )];
    lines.extend(left_line(&status.left));
    let (local, peer, home) = (status.local_bytes, status.peer_bytes, status.home_bytes);
    if local + peer + home > 0 {
        let share = 100.0 * local as f64 / (local + peer + home) as f64;
        lines.push(format!(
            "inputs: {} from the node's own cache ({share:.0} %), {} from peers, {} from home",
            size(local),
            size(peer),
            size(home)
        ));
    }
    lines
}

/// The time until `left` more tasks have ended, at the rate until the last end, in nanoseconds. While nothing ends it falls, and does not
/// climb; `None`: it is over, or nothing is known.
fn time_left(
    marks: &std::collections::VecDeque<(Instant, u64)>,
    ended: u64,
    left: u64,
    now: Instant,
) -> Option<u64> {
    let (first, before) = *marks.front()?;
    let (last, _) = *marks.iter().find(|(_, n)| *n == ended)?;
    let per_s = (ended - before) as f64 / (last - first).as_secs_f64();
    let s = left as f64 / per_s - (now - last).as_secs_f64();
    (per_s.is_finite() && per_s > 0.0 && s > 0.0).then_some((s * 1e9) as u64)
}

/// Whether an earlier count is too old for the present rate: after 5 s, or, if few tasks end, after a minute.
fn is_stale(age: Duration, n_ended_since: u64) -> bool {
    age > Duration::from_secs(60) || age > Duration::from_secs(5) && n_ended_since >= 50
}

/// The columns of the terminal that standard output (1) or error (2) goes to; `None`: it goes to none, or to one without a usable width.
pub fn columns_of(stream: i32) -> Option<usize> {
    let mut w = std::mem::MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: `w` is valid for the one winsize that the call writes; on failure it stays zero.
    let w = unsafe {
        libc::ioctl(stream, libc::TIOCGWINSZ, w.as_mut_ptr());
        w.assume_init()
    };
    (w.ws_col > 10).then_some(w.ws_col.into())
}

/// What became of files that programs made and nobody declared.
fn left_line(left: &LeftFiles) -> Option<String> {
    if left.n_files == 0 {
        return None;
    }
    let names: Vec<String> = left.names.iter().map(|name| eyas_text::shown(name).to_string()).collect();
    let more = left.n_files.saturating_sub(names.len() as u64);
    let more = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
    Some(format!(
        "note: {} that {} made and that no output names went with the sandboxes: {}{more}; to keep such files, name them as \
         outputs (--out, \"outputs\"), or map with --keep-new, where pipes and links that lead elsewhere are left out",
        plural(left.n_files, "file"),
        plural(left.n_tasks, "task"),
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends may be taken back: a lost intermediate file makes its maker, which had ended, run again.
    #[test]
    fn a_rate_is_told_from_where_ends_were_taken_back() {
        let mut progress = Progress::new();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        for (s, ended) in [(0, 0), (1, 10), (8, 80), (9, 79), (11, 81)] {
            progress.mark(at(s), ended);
        }
        assert_eq!(progress.marks, [(at(9), 79), (at(11), 81)]);
        let status = RunStatus { n_tasks: 100, n_done: 81, ..RunStatus::default() };
        assert!(progress.line(&status, 81, at(11)).starts_with("81/100 tasks, 1.0/s, "));
    }

    #[test]
    fn time_left_is_told_only_while_tasks_are_placed() {
        let mut progress = Progress::new();
        let start = Instant::now();
        progress.mark(start, 0);
        let now = start + Duration::from_secs(5);
        progress.mark(now, 50);
        let waiting = RunStatus { n_tasks: 100, n_done: 50, ..RunStatus::default() };
        assert!(!progress.line(&waiting, 50, now).contains(" left"));
        let working = RunStatus { n_running: 1, ..waiting };
        assert!(progress.line(&working, 50, now).ends_with(", 5.0 s left"));
        let stuck = RunStatus { troubles: vec!["nodes wait for s3://b".into()], ..working };
        assert!(!progress.line(&stuck, 50, now).contains(" left"));
    }

    #[test]
    fn time_left_does_not_climb_while_nothing_ends() {
        let mut progress = Progress::new();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        progress.mark(start, 0);
        progress.mark(at(5), 50);
        let working = RunStatus { n_tasks: 150, n_done: 50, n_running: 1, ..RunStatus::default() };
        let mut said = vec![];
        for s in [5, 7, 12, 16] {
            progress.mark(at(s), 50);
            let line = progress.line(&working, 50, at(s));
            said.push(
                line.rsplit_once(", ")
                    .map(|(_, left)| left.to_owned())
                    .filter(|left| left.ends_with(" left")),
            );
        }
        assert_eq!(
            said,
            [Some("10.0 s left".into()), Some("8.0 s left".into()), Some("3.0 s left".into()), None]
        );
    }

    #[test]
    fn failures_that_differ_in_names_and_numbers_are_of_one_kind() {
        let of = |id: &str, words: &str| {
            kind_of(id, &format!("the program ended with status 1; its last words: {words}"))
        };
        assert_eq!(of("a1.fq", "a1.fq: line 7 is cut"), of("a22.fq", "a22.fq: line 1007 is cut"));
        assert_eq!(of("north.fq", "north.fq: cut"), of("south.fq", "south.fq: cut"));
        assert_eq!(of("1", "no star 1"), of("12", "no star 12"));
        assert_ne!(of("1", "no star"), of("2", "no room"));
        let other = "the program ended with status 2; its last words: no star";
        assert_ne!(of("1", "no star"), kind_of("1", other));
        assert_eq!(kind_of("1", "the program ended with status 12"), "the program ended with status 12");
    }

    #[test]
    fn what_a_warning_has_said_is_not_said_again_at_the_end() {
        let mut progress = Progress::new();
        let said = "nobody could submit a block: no such queue";
        progress.show_troubles(&RunStatus { troubles: vec![said.into()], ..RunStatus::default() });
        assert_eq!(
            progress.not_said_yet(&format!("no node can be started, as {said}")),
            "no node can be started, as the warning above says"
        );
        let other = "no node can be started, as nobody could submit a block: no such account";
        assert_eq!(progress.not_said_yet(other), other);
    }
}
