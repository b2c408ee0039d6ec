//! A report as one self-contained page: no other file, no network, readable on screen and on paper.
//!
//! In: a [`Report`], and optionally another one of the same work to compare it with (say, caches off). Out:
//! HTML. Charts are inline SVG ([`crate::chart`]); a few lines of script follow the pointer, and the page
//! loses nothing else without them.
//!
//! Invariant: every string that came from a user goes through [`escape`].

use crate::chart::{self, Scales};
use crate::metrics::{Comparison, Report, Series, Totals, compare};
use crate::units::{bytes, count, duration, number, percent, plural};
use std::fmt::Write;

/// Text as it may stand between tags and in quoted attributes. Control characters, which HTML forbids,
/// become a replacement character.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            // Marks that turn the direction of writing around would let an id rewrite its neighbours.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The page.
pub fn html(report: &Report, base: Option<&Report>) -> String {
    let title = title(report);
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} – eyas report</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        escape(&title),
        include_str!("page.css")
    );
    head(&mut page, report, base, &title);
    cards(&mut page, report, base);
    hit_ratios(&mut page, report, base);
    figures(&mut page, report, base);
    totals(&mut page, report, base);
    stages(&mut page, report);
    executors(&mut page, report);
    slowest(&mut page, report);
    collectives(&mut page, report);
    failures(&mut page, report);
    notes(&mut page);
    let _ = write!(
        page,
        "<footer>Made by eyas {} from the event log. The same numbers are in the JSON file beside this page.</footer>\n\
         </main>\n<script>\n{}</script>\n</body>\n</html>\n",
        escape(&report.eyas_version),
        include_str!("page.js")
    );
    page
}

fn title(report: &Report) -> String {
    let named: Vec<&str> = report.runs.iter().map(|r| r.name.as_str()).filter(|n| !n.is_empty()).collect();
    match named.as_slice() {
        [] => "Run".into(),
        [one] => (*one).to_string(),
        [first, .., last] => format!("{first} to {last} ({})", plural(named.len() as u64, "run")),
    }
}

/// What tells two reports apart, for people.
fn names(report: &Report, base: &Report) -> (String, String) {
    if report.placement != base.placement {
        return (report.placement.clone(), base.placement.clone());
    }
    let (a, b) = (title(report), title(base));
    if a != b { (a, b) } else { ("this run".into(), "the other run".into()) }
}

/// `2026-11-21 20:30:05 UTC` when the log's clock is the wall clock.
fn date(ns: u64) -> Option<String> {
    let s = ns / 1_000_000_000;
    if s < 1_000_000_000 {
        return None;
    }
    // Days to year, month, day: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let z = (s / 86_400) as i64 + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    Some(format!("{year}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC"))
}

fn head(page: &mut String, report: &Report, base: Option<&Report>, title: &str) {
    let t = &report.totals;
    let _ = writeln!(page, "<h1>{}</h1>", escape(title));
    let mut facts = vec![
        plural(t.n_tasks, "task"),
        format!("up to {} with {}", plural(t.n_nodes_max, "node"), plural(t.n_slots_max, "slot")),
        format!("placement <code>{}</code>", escape(&report.placement)),
    ];
    facts.extend(date(report.began.0).map(|d| format!("began {d}")));
    if !report.cluster.is_empty() {
        facts.push(format!("cluster {}", escape(&report.cluster)));
    }
    let _ = writeln!(page, "<p class=\"soft\">{}</p>", facts.join(" · "));
    if let Some(base) = base {
        let (this, that) = names(report, base);
        let _ = writeln!(
            page,
            "<p>Compared: <b>{}</b> with <b>{}</b>. {}</p>",
            escape(&this),
            escape(&that),
            verdict(&compare(report, base))
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

fn verdict(c: &Comparison) -> String {
    match c.speedup {
        Some(sp) if sp >= 1.0 => format!("Speedup {}×.", number(sp)),
        Some(sp) => format!("Speedup {}×: it was slower.", number(sp)),
        None => "The two did not do the same work, so there is no speedup to tell.".into(),
    }
}

fn opt(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or("–".into(), show)
}

/// A number of a report as people see it, and as it is compared.
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
        ("read from home", (|t| bytes(t.home_in_bytes), |t| Some(t.home_in_bytes as f64))),
        ("between nodes", (|t| bytes(t.cache_remote_bytes), |t| Some(t.cache_remote_bytes as f64))),
        ("average response time", (|t| duration(t.response_mean_ns), |t| Some(t.response_mean_ns as f64))),
        ("CPU utilisation", (|t| opt(t.cpu_utilisation, percent), |t| t.cpu_utilisation)),
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
        let _ = writeln!(page, "<div class=\"card\"><b>{}</b><span>{name}</span>{vs}</div>", show(t));
    }
    page.push_str("</div>\n");
    if let Some(base) = base {
        let _ = writeln!(
            page,
            "<p class=\"soft\">Below each number: the same of {}, and how many times that it is.</p>",
            escape(&names(report, base).1)
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
        let sum: u64 = parts.iter().map(|p| p.2).sum();
        let _ = write!(page, "<span class=\"soft\">{name}</span><div class=\"bar\">");
        for (class, what, n, told) in parts {
            if n == 0 {
                continue;
            }
            let share = n as f64 / sum as f64;
            let text = if share > 0.07 { percent(share) } else { String::new() };
            let _ = write!(
                page,
                "<div class=\"{class}\" style=\"width:{:.3}%\" title=\"{what}: {told}, {}\">{text}</div>",
                share * 100.0,
                percent(share)
            );
        }
        page.push_str("</div>\n");
    };
    let mut both = |r: &Report, prefix: &str| {
        let q = &r.requests;
        let (local, miss) = ([q.local_hit, q.in_place], [q.miss, q.direct]);
        let n = |t: &[crate::read::Tally]| t.iter().map(|t| t.n_requests).sum::<u64>();
        let b = |t: &[crate::read::Tally]| t.iter().map(|t| t.bytes).sum::<u64>();
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
        bar(&format!("{prefix}bytes"), row(&b, &bytes));
    };
    match base {
        None => both(report, ""),
        Some(base) => {
            let (this, that) = names(report, base);
            both(report, &format!("{}: ", escape(&this)));
            both(base, &format!("{}: ", escape(&that)));
        }
    }
    page.push_str(
        "</div>\n<div class=\"legend\" style=\"padding-left:0\"><span><i class=\"bg-local\"></i>cache-local</span>\
         <span><i class=\"bg-remote\"></i>cache-remote</span>\
         <span><i class=\"bg-joined\"></i>joined: waited for a transfer that was under way</span>\
         <span><i class=\"bg-home\"></i>home</span></div>\n</section>\n",
    );
}

fn figures(page: &mut String, report: &Report, base: Option<&Report>) {
    if report.series.n_nodes.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Over time</h2>\n");
    let mut all = vec![&report.series];
    all.extend(base.map(|b| &b.series));
    let scales = Scales::of(&all);
    match base {
        None => figure(page, None, &report.series, scales),
        Some(base) => {
            let (this, that) = names(report, base);
            figure(page, Some((&this, report)), &report.series, scales);
            figure(page, Some((&that, base)), &base.series, scales);
        }
    }
    page.push_str("</section>\n");
}

fn figure(page: &mut String, of: Option<(&str, &Report)>, series: &Series, scales: Scales) {
    let data = escape(&figure_data(series, scales));
    let _ = writeln!(page, "<figure data-series=\"{data}\">");
    if let Some((name, report)) = of {
        let _ = writeln!(
            page,
            "<figcaption>{} <span class=\"soft\">{}</span></figcaption>",
            escape(name),
            duration(report.totals.makespan_ns)
        );
    }
    let _ = writeln!(
        page,
        "<div class=\"legend\"><span><i class=\"bg-local\"></i>cache-local</span>\
         <span><i class=\"bg-remote\"></i>cache-remote</span><span><i class=\"bg-home\"></i>home</span>\
         <span><i class=\"l\" style=\"color:var(--demand)\"></i>demand</span>\
         <span><i class=\"l\" style=\"color:var(--queued)\"></i>queue length (right)</span></div>\n{}\
         <div class=\"legend\"><span><i class=\"bg-used\"></i>CPU utilisation</span>\
         <span><i class=\"l\" style=\"color:var(--nodes)\"></i>nodes (right)</span></div>\n{}<div class=\"tip\"></div>\n</figure>",
        chart::throughput(series, scales),
        chart::machines(series, scales)
    );
}

/// What the script under the pointer shows: rows of name, values and unit.
fn figure_data(series: &Series, scales: Scales) -> String {
    let (unit, factor) = chart::throughput_unit(scales.gbps);
    let rounded = |x: &f64| format!("{x:.3e}").parse::<f64>().unwrap_or(0.0);
    let scaled = |v: &[f64]| v.iter().map(|x| rounded(&(x * factor))).collect::<Vec<f64>>();
    let whole = |v: &[f64]| v.iter().map(rounded).collect::<Vec<f64>>();
    let share = |(b, s): (&f64, &f64)| if *s > 0.0 { rounded(&(b / s * 100.0)) } else { 0.0 };
    let used: Vec<f64> = series.n_slots_busy.iter().zip(&series.n_slots).map(share).collect();
    let (width, left, right) = chart::GEOMETRY;
    serde_json::json!({
        "width": width, "left": left, "right": right,
        "span_ns": scales.span_ns, "bin_ns": series.bin_ns,
        "rows": [
            ["demand", scaled(&series.demand_gbps), unit],
            ["cache-local", scaled(&series.cache_local_gbps), unit],
            ["cache-remote", scaled(&series.cache_remote_gbps), unit],
            ["home", scaled(&series.home_gbps), unit],
            ["outputs home", scaled(&series.home_out_gbps), unit],
            ["queued", whole(&series.n_queued), "tasks"],
            ["CPU", used, "%"],
            ["nodes", whole(&series.n_nodes), ""],
        ],
    })
    .to_string()
}

/// A line of the table of totals: name, note, metric. A line without a metric is a heading.
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
        n("read from local disk", "3", |t| bytes(t.cache_local_bytes), |t| Some(t.cache_local_bytes as f64)),
        n("between nodes", "3", |t| bytes(t.cache_remote_bytes), |t| Some(t.cache_remote_bytes as f64)),
        n("from home", "3", |t| bytes(t.home_in_bytes), |t| Some(t.home_in_bytes as f64)),
        n("to home", "3", |t| bytes(t.home_out_bytes), |t| Some(t.home_out_bytes as f64)),
        n("throughput, mean", "4", |t| opt(t.throughput_mean_gbps, gbps), |t| t.throughput_mean_gbps),
        n("throughput, peak", "4", |t| gbps(t.throughput_peak_gbps), |t| Some(t.throughput_peak_gbps)),
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
        ("machines", "", None),
        n("nodes, most", "", |t| count(t.n_nodes_max), |t| Some(t.n_nodes_max as f64)),
        n("slots, most", "", |t| count(t.n_slots_max), |t| Some(t.n_slots_max as f64)),
        n("queue, longest", "", |t| count(t.n_queued_max), |t| Some(t.n_queued_max as f64)),
        n("CPU hours allocated", "8", |t| number(t.cpu_hours_allocated), |t| Some(t.cpu_hours_allocated)),
        n("CPU hours with a program", "8", |t| number(t.cpu_hours_busy), |t| Some(t.cpu_hours_busy)),
        n("CPU hours used by programs", "8", |t| number(t.cpu_hours_program), |t| Some(t.cpu_hours_program)),
        n("CPU utilisation", "8", |t| opt(t.cpu_utilisation, percent), |t| t.cpu_utilisation),
        n("largest program", "", |t| bytes(t.rss_bytes_max), |t| Some(t.rss_bytes_max as f64)),
    ]
}

fn gbps(x: f64) -> String {
    let (unit, factor) = chart::throughput_unit(x);
    format!("{} {unit}", number(x * factor))
}

fn totals(page: &mut String, report: &Report, base: Option<&Report>) {
    page.push_str("<section>\n<h2>Totals</h2>\n<div class=\"groups\">\n");
    let columns = base.map(|base| {
        let (this, that) = names(report, base);
        format!("<tr><th></th><th>{}</th><th>{}</th><th>ratio</th></tr>\n", escape(&this), escape(&that))
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
    page.push_str(
        "<section>\n<h2>Stages</h2>\n<div class=\"scroll\"><table>\n<tr><th>name</th><th>tasks</th><th>done</th><th>inputs</th>\
         <th>outputs</th><th>read</th><th>written</th><th>from home</th><th>between nodes</th><th>to home</th><th>began</th>\
         <th>ended</th><th>staging</th><th>running</th><th>delivering</th></tr>\n",
    );
    for s in &report.stages {
        let _ = write!(page, "<tr><td class=\"t\">{}</td>", escape(&s.stage));
        for n in [s.n_tasks, s.n_done, s.n_inputs, s.n_outputs] {
            let _ = write!(page, "<td>{}</td>", count(n));
        }
        for n in [s.input_bytes, s.output_bytes, s.home_in_bytes, s.peer_bytes, s.home_out_bytes] {
            let _ = write!(page, "<td>{}</td>", bytes(n));
        }
        for ns in [s.began_ns, s.ended_ns, s.stage_in_mean_ns, s.run_mean_ns, s.delivery_mean_ns] {
            let _ = write!(page, "<td>{}</td>", duration(ns));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n</section>\n");
}

fn executors(page: &mut String, report: &Report) {
    if report.executors.is_empty() {
        return;
    }
    page.push_str(
        "<section>\n<h2>Executors</h2>\n<div class=\"scroll\"><table>\n<tr><th>name</th><th>slots</th><th>cache</th><th>was there</th>\
         <th>CPU</th><th>attempts</th><th>done</th><th>cache-local</th><th>cache-remote</th><th>from home</th><th>hits</th></tr>\n",
    );
    for e in &report.executors {
        let q = &e.requests;
        let all = q.total();
        let hits = q.local_hit.n_requests + q.in_place.n_requests + q.remote_hit.n_requests;
        let hits = (all.n_requests > 0).then(|| hits as f64 / all.n_requests as f64);
        let lost = match e.n_losses {
            0 => "",
            _ => " <span class=\"soft\">gone</span>",
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"t\">{}{lost}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&e.name),
            e.slots,
            bytes(e.cache_bytes),
            duration(e.present_ns),
            opt(e.cpu_utilisation, percent),
            count(e.n_attempts),
            count(e.n_done),
            bytes(q.local_hit.bytes + q.joined.bytes + q.in_place.bytes),
            bytes(q.remote_hit.bytes),
            bytes(q.miss.bytes + q.direct.bytes),
            opt(hits, percent)
        );
    }
    page.push_str("</table></div>\n</section>\n");
}

fn slowest(page: &mut String, report: &Report) {
    let longest =
        report.slowest.iter().map(|t| t.stage_in_ns + t.slot_wait_ns + t.run_ns + t.delivery_ns).max();
    let Some(longest) = longest.filter(|ns| *ns > 0) else { return };
    page.push_str(
        "<section>\n<h2>Slowest tasks</h2>\n<p class=\"soft\">By staging, running and delivering; time in the queue and for a slot does not count.</p>\n\
         <div class=\"scroll\"><table>\n<tr><th>task</th><th class=\"t\">where</th><th>queued</th><th>staging</th><th>slot wait</th>\
         <th>running</th><th>delivering</th><th>inputs</th><th class=\"t\">\
         <span class=\"soft\">staging, slot wait, running, delivering</span></th></tr>\n",
    );
    for t in &report.slowest {
        let parts = [
            ("home", t.stage_in_ns),
            ("queue", t.slot_wait_ns),
            ("local", t.run_ns),
            ("remote", t.delivery_ns),
        ];
        let mini: String = parts
            .iter()
            .map(|(class, ns)| {
                format!(
                    "<div class=\"bg-{class}\" style=\"width:{:.2}%\"></div>",
                    *ns as f64 / longest as f64 * 100.0
                )
            })
            .collect();
        let again = if t.attempt.0 > 1 { format!(", attempt {}", t.attempt) } else { String::new() };
        let _ = writeln!(
            page,
            "<tr><td class=\"t\">{}</td><td class=\"t\">{}{again}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"t\"><div class=\"mini\">{mini}</div></td></tr>",
            escape(&t.user_id),
            escape(&t.executor),
            duration(t.queue_ns),
            duration(t.stage_in_ns),
            duration(t.slot_wait_ns),
            duration(t.run_ns),
            duration(t.delivery_ns),
            bytes(t.input_bytes)
        );
    }
    page.push_str("</table></div>\n</section>\n");
}

/// Rows of the table of collectives.
const COLLECTIVES_SHOWN: usize = 200;

fn collectives(page: &mut String, report: &Report) {
    if report.patterns.is_empty() && report.collectives.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Patterns and collectives</h2>\n<ul>\n");
    for pattern in &report.patterns {
        let _ = writeln!(page, "<li>{}</li>", escape(pattern));
    }
    page.push_str("</ul>\n");
    if !report.collectives.is_empty() {
        page.push_str(
            "<div class=\"scroll\"><table>\n<tr><th class=\"t\">collective</th><th class=\"t\">way</th><th>began</th><th>receivers</th>\
             <th>files</th><th>bytes</th><th>predicted</th><th>measured</th><th>sources changed</th></tr>\n",
        );
        for c in report.collectives.iter().take(COLLECTIVES_SHOWN) {
            let _ = writeln!(
                page,
                "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td>{}</td><td>{}</td><td>{} of {}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td></tr>",
                c.kind,
                c.way,
                duration(c.began_ns),
                c.n_receivers,
                c.n_arrived,
                c.n_wanted,
                bytes(c.arrived_bytes),
                c.predicted_ns.map_or("–".into(), duration),
                duration(c.measured_ns),
                c.n_moved
            );
        }
        page.push_str("</table></div>\n");
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

fn failures(page: &mut String, report: &Report) {
    if report.failures.is_empty() {
        return;
    }
    let (shown, all) = (report.failures.len() as u64, report.totals.n_failed);
    let _ = writeln!(page, "<section>\n<h2>Failures</h2>");
    if shown < all {
        let _ = writeln!(page, "<p class=\"soft\">The first {shown} of {}.</p>", count(all));
    }
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>task</th><th class=\"t\">why</th><th class=\"t\">last attempt</th></tr>\n");
    for f in &report.failures {
        let last = match &f.last_attempt {
            Some((attempt, executor)) => format!("{attempt} on {}", escape(executor)),
            None => "never started".into(),
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"t\">{last}</td></tr>",
            escape(&f.user_id),
            escape(&f.message)
        );
    }
    page.push_str("</table></div>\n<p class=\"soft\"><code>eyas explain TASK</code> tells more about one of them.</p>\n</section>\n");
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
         <li>Speedup <i>SP</i> = <i>T</i>(other) ÷ <i>T</i>(this). Performance index <i>PI</i> = <i>SP</i> ÷ CPU hours allocated, the better one set to 1.</li>\n\
         </ol>\n</section>\n",
    );
}
