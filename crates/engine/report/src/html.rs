//! A report as one self-contained page: no other file, no network, readable on screen and on paper.
//!
//! In: a [`Report`], and optionally another one of the same work to compare it with (for example with
//! caches off). Out: HTML. Charts are inline SVG ([`crate::chart`], [`crate::gantt`]). A few lines of
//! script follow the pointer, and search and sort the table of tasks. Without the script the page shows
//! only the first rows of that table, and says so.
//!
//! Nothing is shown by colour alone: areas and bars have patterns, states have words. One column of a table
//! has one unit, and all rates of a page have the same unit.
//!
//! Invariant: every string that came from a user goes through [`eyas_text::markup`].

use crate::chart::{self, Scales};
use crate::gantt;
use crate::lines::lost_sentence;
use crate::metrics::{
    CollectiveRow, Comparison, ExecutorRow, FailureRow, Report, TaskRow, Totals, Unpredicted, compare,
};
use crate::read::{End, sum};
use crate::series::Series;
use crate::stages::StageRow;
use crate::units::{count, date, duration, number, percent, plural, size_unit, time_unit};
use crate::verdict::Cause;
use eyas_text::{markup, size};
use std::fmt::Write;

/// The page of `report`, compared with `base` if there is one.
pub fn html(report: &Report, base: Option<&Report>) -> String {
    let title = title(report);
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} – eyas report</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        markup(&title),
        include_str!("page.css")
    );
    page.push_str(PATTERNS);
    let scales = scales(report, base);
    head(&mut page, report, base, &title);
    failures(&mut page, report);
    cards(&mut page, report, base);
    hit_ratios(&mut page, report, base);
    // Where processors limit, which programs ran when comes before what moved.
    let by_processors =
        report.verdict.causes.first().is_some_and(|c| matches!(c.cause, Cause::Slots | Cause::Busy));
    if by_processors {
        slots(&mut page, report);
    }
    figures(&mut page, report, base, scales);
    if !by_processors {
        slots(&mut page, report);
    }
    stages(&mut page, report);
    executors(&mut page, report);
    task_table(&mut page, report);
    collectives(&mut page, report);
    totals(&mut page, report, base, scales);
    notes(&mut page);
    let _ = write!(
        page,
        "<footer>Made by eyas {} from the event log. The same numbers are in the JSON file beside this page.</footer>\n\
         </main>\n<script>\n{}</script>\n</body>\n</html>\n",
        markup(&report.eyas_version),
        include_str!("page.js")
    );
    page
}

/// Fillings of areas and bars: a colour and a pattern each, so that they differ in black and white and to
/// every eye.
const PATTERNS: &str = "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n\
<pattern id=\"p-home\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"home\" width=\"7\" height=\"7\"/><rect class=\"ink\" width=\"2\" height=\"7\"/></pattern>\n\
<pattern id=\"p-remote\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"remote\" width=\"6\" height=\"6\"/><circle class=\"ink\" cx=\"3\" cy=\"3\" r=\"1.1\"/></pattern>\n\
<pattern id=\"p-out\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"out\" width=\"6\" height=\"6\"/><rect class=\"ink\" width=\"6\" height=\"1.5\"/></pattern>\n\
<pattern id=\"p-failed\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"failed\" width=\"6\" height=\"6\"/><rect class=\"light\" width=\"1.6\" height=\"6\"/><rect class=\"light\" width=\"6\" height=\"1.6\"/></pattern>\n\
<pattern id=\"p-lost\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"lost\" width=\"5\" height=\"5\"/><rect class=\"light\" width=\"2\" height=\"5\"/></pattern>\n\
<pattern id=\"p-cancelled\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"cancelled\" width=\"5\" height=\"5\"/><circle class=\"light\" cx=\"2.5\" cy=\"2.5\" r=\"1.2\"/></pattern>\n\
</defs></svg>\n";

/// The axes of all charts of the page.
fn scales(report: &Report, base: Option<&Report>) -> Scales {
    let of = |r: &'_ Report| r.home_limit_bytes_per_s;
    let mut all = vec![(&report.series, of(report))];
    all.extend(base.map(|b| (&b.series, of(b))));
    Scales::of(&all)
}

fn title(report: &Report) -> String {
    let named: Vec<&str> = report.runs.iter().map(|r| r.name.as_str()).filter(|n| !n.is_empty()).collect();
    match named.as_slice() {
        _ if report.runs.len() == 1 => match named.first() {
            Some(name) => format!("Run {}: {name}", report.runs[0].run),
            None => format!("Run {}", report.runs[0].run),
        },
        [] => "Run".into(),
        [one] => (*one).to_string(),
        [first, .., last] => format!("{first} to {last} ({})", plural(named.len() as u64, "run")),
    }
}

/// Names for two reports by the differences between their conditions, for readers.
fn names(report: &Report, base: &Report) -> (String, String) {
    if report.placement != base.placement {
        return (report.placement.clone(), base.placement.clone());
    }
    let (a, b) = (title(report), title(base));
    if a != b { (a, b) } else { ("this run".into(), "the other run".into()) }
}

fn head(page: &mut String, report: &Report, base: Option<&Report>, title: &str) {
    let t = &report.totals;
    let _ = writeln!(page, "<h1>{}</h1>", markup(title));
    let mut facts = vec![
        plural(t.n_tasks, "task"),
        format!("up to {} with {}", plural(t.n_nodes_max, "node"), plural(t.n_slots_max, "slot")),
        format!("placement <code>{}</code>", markup(&report.placement)),
    ];
    facts.extend(date(report.began.0).map(|d| format!("began {d}")));
    if !report.cluster.is_empty() {
        facts.push(format!("cluster {}", markup(&report.cluster)));
    }
    let _ = writeln!(page, "<p class=\"soft\">{}</p>", facts.join(" · "));
    verdict_box(page, report);
    if let Some(base) = base {
        let (this, that) = names(report, base);
        if let Some(limited) = base.verdict.sentences.last() {
            let _ = writeln!(page, "<p>{}: {}</p>", markup(&that), markup(limited));
        }
        let _ = writeln!(
            page,
            "<p>Compared: <b>{}</b> with <b>{}</b>. {}</p>",
            markup(&this),
            markup(&that),
            speedup(&compare(report, base))
        );
    }
    let warn = |page: &mut String, text: &str| {
        let _ = writeln!(page, "<p class=\"warn\">{text}</p>");
    };
    if !report.complete {
        warn(
            page,
            &format!(
                "{} had not ended when the log did: totals are of what the log has.",
                plural(t.n_unfinished, "task")
            ),
        );
    }
    if report.torn {
        warn(page, "The log ends in the middle of a line: its dispatcher was killed, or is still writing.");
    }
    if let Some(lost) = &report.lost {
        warn(page, &format!("Note: {}.", lost_sentence(lost)));
    }
    let (n_read, n_all) = (report.n_dispatchers_read, report.n_dispatchers);
    if n_read < n_all {
        warn(
            page,
            &format!(
                "The cluster had {n_all} dispatchers; here are the tasks of {n_read}, whose logs were found."
            ),
        );
    }
    if n_read > 1 {
        let again = match report.n_lives - u64::from(n_read) {
            0 => String::new(),
            n => format!(
                ", which were started again {}",
                if n == 1 { "once".into() } else { format!("{n} times") }
            ),
        };
        let _ = writeln!(page, "<p class=\"soft\">The logs of {n_read} dispatchers{again}.</p>");
    } else if report.n_lives > 1 {
        let _ = writeln!(
            page,
            "<p class=\"soft\">{} dispatcher processes wrote this log, one after another.</p>",
            count(report.n_lives)
        );
    }
}

/// What limited the run, in words and as a bar of shares of the time.
fn verdict_box(page: &mut String, report: &Report) {
    let verdict = &report.verdict;
    page.push_str("<div class=\"verdict\">\n");
    for sentence in &verdict.sentences {
        let _ = writeln!(page, "<p>{}</p>", markup(sentence));
    }
    if let Some(sentence) = report.bound_sentence() {
        let _ = writeln!(page, "<p class=\"least\">{}</p>", markup(&sentence));
    }
    if verdict.causes.len() > 1 {
        page.push_str("<div class=\"bar\">");
        for c in &verdict.causes {
            let word = cause_word(c.cause.name());
            let text = if c.share > 0.12 { format!("<span>{word}</span>") } else { String::new() };
            let _ = write!(
                page,
                "<div class=\"c-{}\" style=\"width:{:.3}%\" title=\"{}\">{text}</div>",
                c.cause.name(),
                c.share * 100.0,
                markup(&c.text)
            );
        }
        page.push_str("</div>\n<details><summary>All shares of the time</summary><ul>\n");
        for c in &verdict.causes {
            let _ = writeln!(page, "<li><b>{}</b> {}</li>", percent(c.share), markup(&c.text));
        }
        page.push_str("</ul></details>\n");
    }
    page.push_str("</div>\n");
}

fn cause_word(name: &str) -> &str {
    match name {
        "peers" => "between nodes",
        "tail" => "last tasks",
        "arrivals" => "no work",
        "idle" => "idle slots",
        "busy" => "busy machine",
        name => name,
    }
}

fn speedup(c: &Comparison) -> String {
    match c.speedup {
        Some(sp) if sp >= 1.0 => format!("Speedup {}×.", number(sp)),
        Some(sp) => format!("Speedup {}×: it was slower.", number(sp)),
        None => "The two did not do the same work, so there is no speedup to tell.".into(),
    }
}

fn opt(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or("–".into(), show)
}

/// A number of a report: its text for people, and its value for comparisons.
type Metric = (fn(&Totals) -> String, fn(&Totals) -> Option<f64>);

fn hit_ratio(t: &Totals) -> Option<f64> {
    Some(t.hit_ratio_local? + t.hit_ratio_remote?)
}

fn times(this: Option<f64>, that: Option<f64>) -> String {
    match (this, that) {
        (Some(a), Some(b)) if b != 0.0 => format!("{}×", number(a / b)),
        _ => "–".into(),
    }
}

fn cards(page: &mut String, report: &Report, base: Option<&Report>) {
    let t = &report.totals;
    let cards: [(&str, Metric); 7] = [
        ("makespan", (|t| duration(t.makespan_ns), |t| Some(t.makespan_ns as f64))),
        ("tasks a second", (|t| opt(t.tasks_per_s, number), |t| t.tasks_per_s)),
        ("requests served by a cache", (|t| opt(hit_ratio(t), percent), hit_ratio)),
        ("read from home", (|t| size(t.home_in_bytes), |t| Some(t.home_in_bytes as f64))),
        ("between nodes", (|t| size(t.cache_remote_bytes), |t| Some(t.cache_remote_bytes as f64))),
        ("average response time", (|t| duration(t.response_mean_ns), |t| Some(t.response_mean_ns as f64))),
        ("slots in use", (|t| opt(t.cpu_utilisation, percent), |t| t.cpu_utilisation)),
    ];
    page.push_str("<div class=\"cards\">\n");
    let bad = match t.n_failed + t.n_cancelled {
        0 => String::new(),
        _ => format!(
            "<span class=\"bad\">{} failed, {} cancelled</span>",
            count(t.n_failed),
            count(t.n_cancelled)
        ),
    };
    let _ = writeln!(
        page,
        "<div class=\"card\"><b>{}</b><span>of {} done</span>{bad}</div>",
        count(t.n_done),
        plural(t.n_tasks, "task")
    );
    for (name, (show, value)) in cards {
        let vs = base.map_or(String::new(), |base| {
            let b = &base.totals;
            format!("<span class=\"vs\">{} · {}</span>", show(b), times(value(t), value(b)))
        });
        let least = match name {
            "makespan" if t.bound.ns > 0 && report.complete => {
                format!("<span>at least {}, by {}</span>", duration(t.bound.ns), t.bound.by())
            }
            _ => String::new(),
        };
        let _ = writeln!(page, "<div class=\"card\"><b>{}</b><span>{name}</span>{least}{vs}</div>", show(t));
    }
    page.push_str("</div>\n");
    if let Some(base) = base {
        let _ = writeln!(
            page,
            "<p class=\"soft\">Below each number: the same of {}, and how many times that it is.</p>",
            markup(&names(report, base).1)
        );
    }
}

fn hit_ratios(page: &mut String, report: &Report, base: Option<&Report>) {
    let all = report.requests.total();
    if all.n_requests == 0 {
        return;
    }
    page.push_str("<section>\n<h2>Where inputs came from</h2>\n<div class=\"bars\">\n");
    let mut bar = |name: &str, parts: [(&str, &str, u64, String); 4]| {
        let all = sum(parts.iter().map(|p| p.2));
        let _ = write!(page, "<span class=\"soft\">{name}</span><div class=\"bar\">");
        for (class, what, n, amount) in parts {
            if n == 0 {
                continue;
            }
            let share = n as f64 / all as f64;
            let text = if share > 0.12 { format!("<span>{}</span>", percent(share)) } else { String::new() };
            let _ = write!(
                page,
                "<div class=\"{class}\" style=\"width:{:.3}%\" title=\"{what}: {amount}, {}\">{text}</div>",
                share * 100.0,
                percent(share)
            );
        }
        page.push_str("</div>\n");
    };
    let mut both = |r: &Report, prefix: &str| {
        let q = &r.requests;
        let (local, miss) = ([q.local_hit, q.in_place, q.made], [q.miss, q.direct]);
        let n = |t: &[crate::read::Tally]| sum(t.iter().map(|t| t.n_requests));
        let b = |t: &[crate::read::Tally]| sum(t.iter().map(|t| t.bytes));
        let row = |f: &dyn Fn(&[crate::read::Tally]) -> u64, show: &dyn Fn(u64) -> String| {
            let parts = [
                ("local", "cache-local", f(&local)),
                ("remote", "cache-remote", f(&[q.remote_hit])),
                ("joined", "joined a transfer under way", f(&[q.joined])),
                ("home", "home", f(&miss)),
            ];
            parts.map(|(class, what, n)| (class, what, n, show(n)))
        };
        bar(&format!("{prefix}requests"), row(&n, &|n| count(n)));
        bar(&format!("{prefix}bytes"), row(&b, &size));
    };
    match base {
        None => both(report, ""),
        Some(base) => {
            let (this, that) = names(report, base);
            both(report, &format!("{}: ", markup(&this)));
            both(base, &format!("{}: ", markup(&that)));
        }
    }
    page.push_str(
        "</div>\n<div class=\"legend\" style=\"padding-left:0\"><span><i class=\"bg-local\"></i>cache-local</span>\
         <span><i class=\"bg-remote\"></i>cache-remote</span>\
         <span><i class=\"bg-joined\"></i>joined: waited for a transfer that was under way</span>\
         <span><i class=\"bg-home\"></i>home</span></div>\n</section>\n",
    );
}

fn figures(page: &mut String, report: &Report, base: Option<&Report>, scales: Scales) {
    if report.series.n_nodes.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Over time</h2>\n");
    match base {
        None => figure(page, None, "a", report, scales),
        Some(base) => {
            let (this, that) = names(report, base);
            figure(page, Some(&this), "a", report, scales);
            figure(page, Some(&that), "b", base, scales);
        }
    }
    page.push_str("</section>\n");
}

/// `id`: unique among the figures of the page.
fn figure(page: &mut String, name: Option<&str>, id: &str, report: &Report, scales: Scales) {
    let series = &report.series;
    let data = markup(&figure_data(series, scales));
    let _ = writeln!(page, "<figure data-series=\"{data}\">");
    if let Some(name) = name {
        let _ = writeln!(
            page,
            "<figcaption>{} <span class=\"soft\">{}</span></figcaption>",
            markup(name),
            duration(report.totals.makespan_ns)
        );
    }
    let rates = match chart::has_bytes(series) {
        true => {
            "<span><i class=\"bg-local\"></i>cache-local</span><span><i class=\"bg-remote\"></i>cache-remote</span>\
             <span><i class=\"bg-home\"></i>home</span><span><i class=\"l\" style=\"color:var(--demand)\"></i>demand</span>"
        }
        false => "",
    };
    let _ = write!(
        page,
        "<div class=\"legend\">{rates}<span><i class=\"l dashes\" style=\"color:var(--queued)\"></i>queue length (right)</span></div>\n\
         {}",
        chart::throughput(id, series, scales)
    );
    let home = chart::home(id, series, scales, report.home_limit_bytes_per_s);
    if !home.is_empty() {
        let limit = match report.home_limit_bytes_per_s {
            Some(_) => "<span><i class=\"l limit\"></i>limit of home</span>",
            None => "",
        };
        let _ = write!(
            page,
            "<div class=\"legend\"><span><i class=\"bg-home\"></i>read from home</span>\
             <span><i class=\"bg-out\"></i>written to home</span>{limit}</div>\n\
             {home}"
        );
    }
    let _ = writeln!(
        page,
        "<div class=\"legend\"><span><i class=\"bg-used\"></i>slots with a running program</span>\
         <span><i class=\"l dashes\" style=\"color:var(--nodes)\"></i>slots that are there</span></div>\n\
         {}<div class=\"tip\"></div>\n</figure>",
        chart::machines(id, series, scales)
    );
}

fn slots(page: &mut String, report: &Report) {
    let chart = gantt::draw(&report.lanes);
    if !chart.is_empty() {
        let _ = writeln!(page, "<section>\n<h2>Nodes and slots</h2>\n<figure>\n{chart}</figure>\n</section>");
    }
}

/// The data that the script shows under the pointer: rows of name, values and unit.
fn figure_data(series: &Series, scales: Scales) -> String {
    let (unit, factor) = scales.unit;
    let rounded = |x: &f64| format!("{x:.3e}").parse::<f64>().unwrap_or(0.0);
    let scaled = |v: &[f64]| v.iter().map(|x| rounded(&(x * factor))).collect::<Vec<f64>>();
    let whole = |v: &[f64]| v.iter().map(rounded).collect::<Vec<f64>>();
    let frame = |f: chart::Frame| [f.width, f.left, f.right];
    serde_json::json!({
        "wide": frame(chart::WIDE), "narrow": frame(chart::NARROW),
        "span_ns": scales.span_ns, "bin_ns": series.bin_ns,
        "rows": [
            ["demand", scaled(&series.demand_gbps), unit],
            ["cache-local", scaled(&series.cache_local_gbps), unit],
            ["cache-remote", scaled(&series.cache_remote_gbps), unit],
            ["home", scaled(&series.home_gbps), unit],
            ["outputs home", scaled(&series.home_out_gbps), unit],
            ["queued", whole(&series.n_queued), "tasks"],
            ["busy slots", whole(&series.n_slots_busy), ""],
            ["slots", whole(&series.n_slots), ""],
            ["nodes", whole(&series.n_nodes), ""],
        ],
    })
    .to_string()
}

/// A line of the table of totals: name, note, metric. A line without a metric is a heading. A metric whose
/// text function gives nothing is a rate, which is shown in the page's unit.
type TotalsLine = (&'static str, &'static str, Option<Metric>);

fn totals_lines() -> Vec<TotalsLine> {
    let n = |name, note, show: fn(&Totals) -> String, value: fn(&Totals) -> Option<f64>| {
        (name, note, Some((show, value)))
    };
    vec![
        ("work", "", None),
        n("makespan", "1", |t| duration(t.makespan_ns), |t| Some(t.makespan_ns as f64)),
        n("tasks", "", |t| count(t.n_tasks), |t| Some(t.n_tasks as f64)),
        n("done", "", |t| count(t.n_done), |t| Some(t.n_done as f64)),
        n("failed", "", |t| count(t.n_failed), |t| Some(t.n_failed as f64)),
        n("cancelled", "", |t| count(t.n_cancelled), |t| Some(t.n_cancelled as f64)),
        n("tasks a second", "", |t| opt(t.tasks_per_s, number), |t| t.tasks_per_s),
        n("attempts", "", |t| count(t.n_attempts), |t| Some(t.n_attempts as f64)),
        n("attempts that failed", "", |t| count(t.n_attempts_failed), |t| Some(t.n_attempts_failed as f64)),
        n(
            "attempts lost with their executor",
            "",
            |t| count(t.n_attempts_lost),
            |t| Some(t.n_attempts_lost as f64),
        ),
        ("data", "", None),
        n("cache hits, local", "2", |t| opt(t.hit_ratio_local, percent), |t| t.hit_ratio_local),
        n("cache hits, remote", "2", |t| opt(t.hit_ratio_remote, percent), |t| t.hit_ratio_remote),
        n("cache misses", "2", |t| opt(t.miss_ratio, percent), |t| t.miss_ratio),
        n(
            "hits by bytes, local",
            "2",
            |t| opt(t.hit_ratio_local_bytes, percent),
            |t| t.hit_ratio_local_bytes,
        ),
        n(
            "hits by bytes, remote",
            "2",
            |t| opt(t.hit_ratio_remote_bytes, percent),
            |t| t.hit_ratio_remote_bytes,
        ),
        n("misses by bytes", "2", |t| opt(t.miss_ratio_bytes, percent), |t| t.miss_ratio_bytes),
        n("read from local disk", "3", |t| size(t.cache_local_bytes), |t| Some(t.cache_local_bytes as f64)),
        n("between nodes", "3", |t| size(t.cache_remote_bytes), |t| Some(t.cache_remote_bytes as f64)),
        n("from home", "3", |t| size(t.home_in_bytes), |t| Some(t.home_in_bytes as f64)),
        n("to home", "3", |t| size(t.home_out_bytes), |t| Some(t.home_out_bytes as f64)),
        n("throughput, mean", "4", |_| String::new(), |t| t.throughput_mean_gbps),
        n("throughput, peak", "4", |_| String::new(), |t| Some(t.throughput_peak_gbps)),
        ("time of a task", "", None),
        n(
            "average response time",
            "5",
            |t| duration(t.response_mean_ns),
            |t| Some(t.response_mean_ns as f64),
        ),
        n("median", "", |t| duration(t.response_p50_ns), |t| Some(t.response_p50_ns as f64)),
        n("99th percentile", "", |t| duration(t.response_p99_ns), |t| Some(t.response_p99_ns as f64)),
        n("queued, mean", "5", |t| duration(t.queue_mean_ns), |t| Some(t.queue_mean_ns as f64)),
        n("staging inputs, mean", "5", |t| duration(t.stage_in_mean_ns), |t| Some(t.stage_in_mean_ns as f64)),
        n(
            "waiting for a slot, mean",
            "5",
            |t| duration(t.slot_wait_mean_ns),
            |t| Some(t.slot_wait_mean_ns as f64),
        ),
        n("running, mean", "5", |t| duration(t.run_mean_ns), |t| Some(t.run_mean_ns as f64)),
        n("delivering, mean", "5", |t| duration(t.delivery_mean_ns), |t| Some(t.delivery_mean_ns as f64)),
        ("against the ideal", "", None),
        n("ideal time", "6", |t| duration(t.ideal_ns), |t| Some(t.ideal_ns as f64)),
        n("slowdown", "6", |t| opt(t.slowdown, number), |t| t.slowdown),
        n(
            "ideal time on these slots",
            "7",
            |t| duration(t.ideal_on_slots_ns),
            |t| Some(t.ideal_on_slots_ns as f64),
        ),
        n("efficiency", "7", |t| opt(t.efficiency, percent), |t| t.efficiency),
        n("least time, by home", "10", |t| duration(t.bound.home_ns), |t| Some(t.bound.home_ns as f64)),
        n(
            "least time, by processors",
            "10",
            |t| duration(t.bound.processors_ns),
            |t| Some(t.bound.processors_ns as f64),
        ),
        n("longest chain", "10", |t| duration(t.bound.chain_ns), |t| Some(t.bound.chain_ns as f64)),
        ("machines", "", None),
        n("nodes, most", "", |t| count(t.n_nodes_max), |t| Some(t.n_nodes_max as f64)),
        n("slots, most", "", |t| count(t.n_slots_max), |t| Some(t.n_slots_max as f64)),
        n("queue, longest", "", |t| count(t.n_queued_max), |t| Some(t.n_queued_max as f64)),
        n("slot hours there", "8", |t| number(t.cpu_hours_allocated), |t| Some(t.cpu_hours_allocated)),
        n("slot hours with a program", "8", |t| number(t.cpu_hours_busy), |t| Some(t.cpu_hours_busy)),
        n(
            "processor hours used by programs",
            "8",
            |t| number(t.cpu_hours_program),
            |t| Some(t.cpu_hours_program),
        ),
        n("slots in use", "8", |t| opt(t.cpu_utilisation, percent), |t| t.cpu_utilisation),
        n("largest program", "", |t| size(t.rss_bytes_max), |t| Some(t.rss_bytes_max as f64)),
    ]
}

fn totals(page: &mut String, report: &Report, base: Option<&Report>, scales: Scales) {
    page.push_str("<section>\n<h2>Totals</h2>\n<div class=\"groups\">\n");
    let columns = base.map(|base| {
        let (this, that) = names(report, base);
        format!("<tr><th></th><th>{}</th><th>{}</th><th>ratio</th></tr>\n", markup(&this), markup(&that))
    });
    let columns = columns.unwrap_or_default();
    let begin = |name: &str| format!("<div><h3>{name}</h3><div class=\"scroll\"><table>\n{columns}");
    let end = "</table></div></div>\n";
    if let Some(base) = base {
        let c = compare(report, base);
        let (index, index_base) = (c.performance_index, c.performance_index_base);
        let _ = write!(
            page,
            "{}<tr><td>speedup <sup>9</sup></td><td>{}</td><td>1</td><td></td></tr>\n\
             <tr><td>performance index <sup>9</sup></td><td>{}</td><td>{}</td><td>{}</td></tr>\n{end}",
            begin("compared"),
            opt(c.speedup, number),
            opt(index, number),
            opt(index_base, number),
            times(index, index_base)
        );
    }
    for (i, (name, note, metric)) in totals_lines().into_iter().enumerate() {
        let Some((show, value)) = metric else {
            let _ = write!(page, "{}{}", if i == 0 { "" } else { end }, begin(name));
            continue;
        };
        let (unit, factor) = scales.unit;
        let show = |t: &Totals| match show(t) {
            text if text.is_empty() => opt(value(t), |gbps| format!("{} {unit}", number(gbps * factor))),
            text => text,
        };
        let note = if note.is_empty() { String::new() } else { format!(" <sup>{note}</sup>") };
        let _ = write!(page, "<tr><td>{name}{note}</td><td>{}</td>", show(&report.totals));
        if let Some(base) = base {
            let ratio = times(value(&report.totals), value(&base.totals));
            let _ = write!(page, "<td>{}</td><td>{ratio}</td>", show(&base.totals));
        }
        page.push_str("</tr>\n");
    }
    let _ = write!(page, "{end}</div>\n</section>\n");
}

fn stages(page: &mut String, report: &Report) {
    if report.stages.len() < 2 {
        return;
    }
    let sizes =
        |s: &StageRow| [s.input_bytes, s.output_bytes, s.home_in_bytes, s.peer_bytes, s.home_out_bytes];
    let times =
        |s: &StageRow| [s.began_ns, s.ended_ns, s.stage_in_mean_ns, s.run_mean_ns, s.delivery_mean_ns];
    let size = Unit::sizes(report.stages.iter().flat_map(sizes));
    let time = Unit::times(report.stages.iter().flat_map(times));
    page.push_str(
        "<section>\n<h2>Stages</h2>\n<div class=\"scroll\"><table>\n<tr><th>name</th><th>tasks</th><th>done</th><th>inputs</th>\
         <th>outputs</th>",
    );
    for (names, unit) in [
        (["read", "written", "from home", "between nodes", "to home"], &size),
        (["began", "ended", "staging", "running", "delivering"], &time),
    ] {
        for name in names {
            let _ = write!(page, "<th>{name}, {}</th>", unit.name);
        }
    }
    page.push_str("</tr>\n");
    for s in &report.stages {
        let _ = write!(page, "<tr><td class=\"t\">{}</td>", markup(&s.stage));
        for n in [s.n_tasks, s.n_done, s.n_inputs, s.n_outputs] {
            let _ = write!(page, "<td>{}</td>", count(n));
        }
        for text in sizes(s).map(|n| size.show(n)).into_iter().chain(times(s).map(|ns| time.show(ns))) {
            let _ = write!(page, "<td>{text}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n</section>\n");
}

fn executors(page: &mut String, report: &Report) {
    if report.executors.is_empty() {
        return;
    }
    let sources = |e: &ExecutorRow| {
        let q = &e.requests;
        [
            sum([q.local_hit.bytes, q.joined.bytes, q.in_place.bytes, q.made.bytes].into_iter()),
            q.remote_hit.bytes,
            q.miss.bytes.saturating_add(q.direct.bytes),
        ]
    };
    let has_memory = report.executors.iter().any(|e| e.cache_memory_bytes > 0);
    let (cache, size, time) = (
        Unit::sizes(report.executors.iter().map(|e| e.cache_bytes)),
        Unit::sizes(report.executors.iter().flat_map(sources)),
        Unit::times(report.executors.iter().map(|e| e.present_ns)),
    );
    let _ = writeln!(
        page,
        "<section>\n<h2>Executors</h2>\n<div class=\"scroll\"><table>\n<tr><th>name</th><th>slots</th><th>cache, {}</th><th>was there, {}</th>\
         <th>slots in use</th><th>attempts</th><th>done</th><th>cache-local, {unit}</th><th>cache-remote, {unit}</th><th>from home, {unit}</th><th>hits</th>{}</tr>",
        cache.name,
        time.name,
        if has_memory { format!("<th>in memory, {}</th>", size.name) } else { String::new() },
        unit = size.name
    );
    for e in &report.executors {
        let q = &e.requests;
        let all = q.total();
        let hits = q.local_hit.n_requests + q.in_place.n_requests + q.remote_hit.n_requests;
        let hits = (all.n_requests > 0).then(|| hits as f64 / all.n_requests as f64);
        let [from_cache, from_peers, from_home] = sources(e);
        let lost = match e.n_losses {
            0 => "",
            _ => " <span class=\"soft\">gone</span>",
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"t\">{}{lost}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            markup(&e.name),
            e.slots,
            cache.show(e.cache_bytes),
            time.show(e.present_ns),
            opt(e.cpu_utilisation, percent),
            count(e.n_attempts),
            count(e.n_done),
            size.show(from_cache),
            size.show(from_peers),
            size.show(from_home),
            opt(hits, percent),
            if has_memory { format!("<td>{}</td>", size.show(q.in_memory.bytes)) } else { String::new() }
        );
    }
    page.push_str("</table></div>\n");
    if has_memory {
        page.push_str(
            "<p>What was in memory is a part of what was read, from wherever it came: the node held it in memory when the program \
             began.</p>\n",
        );
    }
    page.push_str("</section>\n");
}

/// The number of rows of the table of tasks that are shown without the script.
const TASKS_PLAIN: usize = 20;

/// The one unit of a column of a table, with as many digits as its largest value has room for.
struct Unit {
    name: &'static str,
    size: f64,
    digits: usize,
}

impl Unit {
    fn of((name, size): (&'static str, f64), most: u64) -> Unit {
        let digits = match most as f64 / size {
            m if m < 100.0 => 3,
            m if m < 10_000.0 => 1,
            _ => 0,
        };
        Unit { name, size, digits }
    }
    fn times(values: impl Iterator<Item = u64>) -> Unit {
        let most = values.max().unwrap_or(0);
        Unit::of(time_unit(most), most)
    }
    fn sizes(values: impl Iterator<Item = u64>) -> Unit {
        let most = values.max().unwrap_or(0);
        Unit::of(size_unit(most), most)
    }
    fn show(&self, value: u64) -> String {
        if value == 0 {
            return "0".into();
        }
        format!("{:.*}", self.digits, value as f64 / self.size)
    }
}

fn state_word(end: End) -> &'static str {
    match end {
        End::Done => "✓ done",
        End::Failed => "✗ failed",
        End::Cancelled => "⊘ cancelled",
        End::Not => "… not ended",
    }
}

/// All tasks that are shown, in a table that the script can search and sort.
fn task_table(page: &mut String, report: &Report) {
    if report.tasks.is_empty() {
        return;
    }
    let rows = &report.tasks;
    let times = |t: &TaskRow| [t.queue_ns, t.stage_in_ns, t.slot_wait_ns, t.run_ns, t.delivery_ns];
    let time = Unit::times(rows.iter().flat_map(times));
    let size = Unit::sizes(rows.iter().map(|t| t.input_bytes));
    let reasons: std::collections::BTreeMap<_, &str> =
        report.failures.iter().map(|f| (f.task, f.message.as_str())).collect();
    let cells = |t: &TaskRow| -> Vec<String> {
        let mut cells = vec![t.user_id.clone(), state_word(t.end).into(), t.executor.clone()];
        cells.push(t.attempt.0.to_string());
        cells.extend(times(t).map(|ns| time.show(ns)));
        cells.extend([t.input_bytes, t.home_bytes].map(|n| size.show(n)));
        if !reasons.is_empty() {
            cells.push(reasons.get(&t.task).map_or(String::new(), |text| (*text).into()));
        }
        cells
    };
    let (shown, all) = (rows.len() as u64, report.totals.n_tasks);
    page.push_str("<section id=\"tasks\">\n<h2>Tasks</h2>\n");
    if shown < all {
        let _ = writeln!(
            page,
            "<p class=\"soft\">{} of {}: those that were not done, up to a thousand of them, and those that took longest in staging, \
             running and delivering. <code>eyas tasks --tsv</code> lists all.</p>",
            count(shown),
            plural(all, "task")
        );
    }
    let _ = writeln!(
        page,
        "<noscript><p class=\"soft\">The first {} here; with scripts switched on, {} that can be searched and sorted.</p></noscript>",
        count(shown.min(TASKS_PLAIN as u64)),
        count(shown)
    );
    let head = [
        ("task", ""),
        ("state", ""),
        ("where", ""),
        ("attempt", ""),
        ("queued", time.name),
        ("staging", time.name),
        ("slot wait", time.name),
        ("running", time.name),
        ("delivering", time.name),
        ("inputs", size.name),
        ("from home", size.name),
        ("why", ""),
    ];
    page.push_str("<div class=\"find\" hidden><input type=\"search\" placeholder=\"search: task, state, node, reason\" aria-label=\"search tasks\"> <span class=\"soft\"></span></div>\n<div class=\"scroll\"><table>\n<tr>");
    let n_columns = head.len() - usize::from(reasons.is_empty());
    for (i, (name, unit)) in head.iter().take(n_columns).enumerate() {
        let class = cell_class(i);
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        let _ = write!(page, "<th{class}>{name}{unit}</th>");
    }
    page.push_str("</tr>\n");
    for row in rows.iter().take(TASKS_PLAIN) {
        page.push_str("<tr>");
        for (i, cell) in cells(row).iter().enumerate() {
            let class = cell_class(i);
            let _ = write!(page, "<td{class}>{}</td>", markup(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n<button type=\"button\" hidden>show more</button>\n");
    // The data cannot contain the beginning of a tag, and control characters are written as their numbers.
    let data: Vec<Vec<String>> = rows.iter().map(|t| cells(t).iter().map(|c| plain(c)).collect()).collect();
    let data = serde_json::to_string(&data).unwrap_or_else(|_| "[]".into()).replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\">{data}</script>\n</section>");
}

/// Columns of the table of tasks that hold text; short texts stay in one line.
fn cell_class(column: usize) -> &'static str {
    match column {
        1 | 2 => " class=\"t s\"",
        0 => " class=\"t\"",
        11 => " class=\"t w\"",
        _ => "",
    }
}

/// Text without characters that HTML forbids or that turn the direction of writing around.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if eyas_text::is_unsafe(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// The most rows of the table of collectives.
const COLLECTIVES_SHOWN: usize = 200;

fn collectives(page: &mut String, report: &Report) {
    if report.patterns.is_empty() && report.collectives.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Patterns and collectives</h2>\n<ul>\n");
    for pattern in &report.patterns {
        let _ = writeln!(page, "<li>{}</li>", markup(pattern));
    }
    page.push_str("</ul>\n");
    if !report.collectives.is_empty() {
        let rows = || report.collectives.iter().take(COLLECTIVES_SHOWN);
        let began = Unit::times(rows().map(|c| c.began_ns));
        let time = Unit::times(rows().flat_map(|c| [c.predicted_ns.unwrap_or(0), c.measured_ns]));
        let size = Unit::sizes(rows().map(|c| c.arrived_bytes));
        let _ = writeln!(
            page,
            "<div class=\"scroll\"><table>\n<tr><th class=\"t\">collective</th><th class=\"t\">way</th><th>began, {}</th><th>receivers</th>\
             <th>files</th><th>bytes, {}</th><th>predicted, {unit}</th><th>measured, {unit}</th><th>sources changed</th></tr>",
            began.name,
            size.name,
            unit = time.name
        );
        for c in rows() {
            let _ = writeln!(
                page,
                "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td>{}</td><td>{}</td><td>{} of {}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td></tr>",
                c.kind,
                c.way,
                began.show(c.began_ns),
                c.n_receivers,
                c.n_arrived,
                c.n_wanted,
                size.show(c.arrived_bytes),
                predicted(c, &time),
                time.show(c.measured_ns),
                c.n_moved
            );
        }
        page.push_str("</table></div>\n");
        page.push_str(
            "<p class=\"soft\">Both times count from the moment at which all of the files existed, to the last arrival.</p>\n",
        );
        if report.collectives.len() > COLLECTIVES_SHOWN {
            let _ = writeln!(
                page,
                "<p class=\"soft\">The first {COLLECTIVES_SHOWN} of {}; the JSON file has all.</p>",
                count(report.collectives.len() as u64)
            );
        }
    }
    page.push_str("</section>\n");
}

/// The predicted time of a collective, or why there is none.
fn predicted(c: &CollectiveRow, time: &Unit) -> String {
    match (c.predicted_ns, c.unpredicted) {
        (Some(ns), _) => time.show(ns),
        (None, Some(Unpredicted::Unsure { expected_ns, factor })) => {
            format!("not known: about {}, within {factor:.1} x", time.show(expected_ns))
        }
        (None, Some(Unpredicted::Rerun)) => "not known: a task runs again".into(),
        (None, Some(Unpredicted::NothingLeft)) => "nothing was left to move".into(),
        (None, Some(Unpredicted::Incomplete)) => "not known: files were never made".into(),
        (None, Some(Unpredicted::First)) => format!("not known: the first {}", c.kind),
        (None, Some(Unpredicted::NotChosen) | None) => "not known: not chosen by time".into(),
    }
}

/// The number of failures that are shown without a click.
const FAILURES_OPEN: usize = 5;

fn failures(page: &mut String, report: &Report) {
    if report.failures.is_empty() {
        return;
    }
    let (shown, all) = (report.failures.len() as u64, report.totals.n_failed);
    let _ = writeln!(page, "<section class=\"failures\">\n<h2>✗ {} failed</h2>", plural(all, "task"));
    if shown < all {
        let _ = writeln!(page, "<p class=\"soft\">The first {shown} of {}.</p>", count(all));
    }
    let (open, rest) = report.failures.split_at(report.failures.len().min(FAILURES_OPEN));
    failure_rows(page, open);
    if !rest.is_empty() {
        let _ = writeln!(page, "<details><summary>{} more</summary>", count(rest.len() as u64));
        failure_rows(page, rest);
        page.push_str("</details>\n");
    }
    page.push_str("<p class=\"soft\"><code>eyas logs --failed</code> shows what they printed, <code>eyas explain TASK</code> tells more about one of them.</p>\n</section>\n");
}

fn failure_rows(page: &mut String, rows: &[FailureRow]) {
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>task</th><th class=\"t\">why</th><th class=\"t\">last attempt</th></tr>\n");
    for f in rows {
        let last = match &f.last_attempt {
            Some((attempt, executor)) => format!("{attempt} on {}", markup(executor)),
            None => "never started".into(),
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"t\">{last}</td></tr>",
            markup(&f.user_id),
            markup(&f.message)
        );
    }
    page.push_str("</table></div>\n");
}

fn notes(page: &mut String) {
    page.push_str(
        "<section>\n<h2>How the numbers are made</h2>\n<p class=\"soft\">After Raicu et al., data diffusion (2009), section 5.1.</p>\n<ol class=\"notes\">\n\
         <li>Makespan <i>T</i>: from the first submission to the last end of a task.</li>\n\
         <li>Each request for an input is counted once. Local hits: in the node's cache, or read in place. Remote hits: from another \
         node's cache. Misses: from home, and requests that joined a transfer under way, because they had to wait.</li>\n\
         <li>A joined request moves no bytes of its own and is read from local disk.</li>\n\
         <li>Mean: input bytes × 8 ÷ <i>T</i>. Peak: 99th percentile over the bins of the chart. Demand: input bytes of the tasks \
         that were submitted in a bin, whenever they could run.</li>\n\
         <li><i>AR</i> = mean of (end − submission) over done tasks = queue + staging + slot wait + running + delivering, of the attempt that ended well.</li>\n\
         <li>Ideal: max(submission + running) − first submission: infinite resources, communication for nothing. Slowdown <i>SL</i> = <i>T</i> ÷ ideal.</li>\n\
         <li>Not in the paper: max(ideal, Σ cpus × running ÷ mean slots). Efficiency = that ÷ <i>T</i>.</li>\n\
         <li>Allocated: slots × time they were there. With a program: Σ cpus × running, over all attempts. Utilisation = the second ÷ the first.</li>\n\
         <li>Speedup <i>SP</i> = <i>T</i>(other) ÷ <i>T</i>(this). Performance index <i>PI</i> = <i>SP</i> ÷ slot hours there, the better one set to 1.</li>\n\
         <li>Not in the paper: the least time is the largest of (files read from home, each once, + outputs that went home) ÷ limit of home; \
         processor time of programs ÷ processors; run times along the longest chain of tasks that wait for each other.</li>\n\
         </ol>\n</section>\n",
    );
}
