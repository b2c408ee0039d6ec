//! The page: well-formed, self-contained, and safe with any name.

mod common;

use common::*;
use eyas_report::{Report, compare, html, metrics, read};
use eyas_terms::array::*;

fn report_of(cluster: &Cluster) -> Report {
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    metrics(&read(dir.path()).unwrap())
}

/// Checks that every tag is closed in order; returns all attribute text and all text between tags.
fn check_balanced(page: &str) {
    const VOID: [&str; 4] = ["meta", "br", "input", "!DOCTYPE"];
    let (mut open, mut rest): (Vec<&str>, &str) = (vec![], page);
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let (tag, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let quotes = tag.matches('"').count();
        assert_eq!(quotes % 2, 0, "<{tag}>");
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap().trim_end_matches('/');
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if ["style", "script"].contains(&name) {
                rest = &rest[rest.find(&format!("</{name}>")).unwrap()..];
            }
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn pages_are_well_formed_and_self_contained() {
    for seed in 0..12 {
        let weather = if seed % 2 == 0 { FAIR } else { ROUGH };
        let a = report_of(&story("good-cache-compute", seed, weather.clone()));
        let b = report_of(&story("first-available", seed, weather));
        for page in [html(&a, None), html(&a, Some(&b)), html(&b, Some(&a))] {
            check_balanced(&page);
            for outside in ["http:", "https:", "src=", "@import"] {
                assert!(!page.contains(outside), "{outside}");
            }
            // Patterns and what drawings share lie in the page itself.
            assert_eq!(page.matches("href=").count(), page.matches("href=\"#").count());
            assert_eq!(page.matches("url(").count(), page.matches("url(#p-").count());
            assert!(!page.contains("NaN") && !page.contains("inf "));
        }
    }
}

/// What drawings share has names of its own, and each name that is used is there once.
#[test]
fn drawings_for_narrow_windows_show_what_the_wide_ones_have() {
    let (a, b) = (report_of(&story("affinity", 1, FAIR)), report_of(&story("first-available", 1, FAIR)));
    let page = html(&a, Some(&b));
    let used: Vec<&str> =
        page.split("<use href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(used.len() >= 7, "{used:?}");
    for id in used {
        assert_eq!(page.matches(&format!("<g id=\"{id}\">")).count(), 1, "{id}");
    }
    let count = |class: &str| page.matches(&format!("<svg class=\"chart {class}")).count();
    assert_eq!(count("wide"), count("narrow"));
}

#[test]
fn where_processors_limit_the_programs_come_first() {
    let first_chart = |weather: Weather, n_files: u32, limit: u64| {
        let mut config = eyas_core::dispatcher::DispatcherConfig::default();
        config.placement_config.affinity.home_bytes_per_s = limit;
        let mut cluster = Cluster::with(config, 1, weather);
        cluster.join("n1", 2);
        cluster.submit("many", vec![map("a", 100, n_files, 0)]);
        cluster.go(None);
        let page = html(&report_of(&cluster), None);
        let at = |heading: &str| page.find(heading).unwrap();
        at("<h2>Nodes and slots</h2>") < at("<h2>Over time</h2>")
    };
    assert!(first_chart(Weather { run_ns: 200 * MS, ..FAIR }, 2, 0), "slots limit");
    assert!(!first_chart(Weather { run_ns: MS, ..FAIR }, 100, 1), "home limits");
}

#[test]
fn names_cannot_leave_their_place() {
    let evil = "<script>alert(\"1\")</script>&'\u{202e}\u{1f30c}\u{7}é";
    let mut cluster = Cluster::new("good-cache-compute", 1, Weather { fail_per_cent: 50, ..FAIR });
    cluster.join(evil, 2);
    let mut array = map("x", 20, 3, 0);
    array.template.id = Pattern(vec![Piece::Literal(evil.into()), Piece::Index]);
    cluster.submit(evil, vec![array]);
    cluster.go(None);
    let report = report_of(&cluster);
    assert!(report.totals.n_failed > 0 && report.totals.n_done > 0);
    for page in [html(&report, None), html(&report, Some(&report))] {
        check_balanced(&page);
        assert_eq!(page.matches("<script").count(), 2, "only the page's own and its data");
        assert!(!page.contains("alert(\"1\")") && !page.contains('\u{202e}') && !page.contains('\u{7}'));
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"));
        assert!(page.contains("\u{1f30c}") && page.contains('é'));
    }
}

#[test]
fn an_empty_log_makes_a_page() {
    let report = report_of(&Cluster::new("max-cache-hit", 1, FAIR));
    assert_eq!((report.totals.n_tasks, report.totals.tasks_per_s), (0, None));
    check_balanced(&html(&report, None));
    check_balanced(&html(&report, Some(&report)));
}

#[test]
fn the_better_run_has_index_one() {
    let a = report_of(&story("good-cache-compute", 4, FAIR));
    let b = report_of(&story("first-available", 4, FAIR));
    let c = compare(&a, &b);
    let expect = b.totals.makespan_ns as f64 / a.totals.makespan_ns as f64;
    assert_eq!(c.speedup, Some(expect));
    let (index, index_base) = (expect / a.totals.cpu_hours_allocated, 1.0 / b.totals.cpu_hours_allocated);
    assert_eq!(c.performance_index, Some(index / index.max(index_base)));
    assert_eq!(c.performance_index_base, Some(index_base / index.max(index_base)));
    let back = compare(&b, &a);
    assert_eq!((back.performance_index.unwrap() < 1.0), (c.performance_index.unwrap() >= 1.0));
    let other = report_of(&story("first-available", 4, Weather { fail_per_cent: 30, ..FAIR }));
    assert_eq!(compare(&a, &other).speedup, None, "not the same work");
}

#[test]
fn failures_stand_on_top_and_no_state_is_told_by_colour_alone() {
    let report = report_of(&story("good-cache-compute", 5, Weather { fail_per_cent: 40, ..ROUGH }));
    assert!(report.totals.n_failed > 0);
    let page = html(&report, None);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    let n_failed = report.totals.n_failed;
    assert!(at(&format!("{n_failed} of 52 tasks failed.")) < at("class=\"cards\""));
    assert!(at("class=\"failures\"") < at("class=\"cards\""), "before the numbers");
    assert!(page.contains("✗ failed") && page.contains("✓ done"), "states are words");
    for pattern in ["home", "remote", "failed"] {
        assert!(page.contains(&format!("id=\"p-{pattern}\"")));
    }
    assert!(page.contains("class=\"g-failed\""), "failed programs have a bar of their own kind");
}

#[test]
fn a_table_of_many_tasks_is_cut_and_says_so() {
    let mut cluster = Cluster::new("max-compute-util", 1, Weather { run_ns: MS, ..FAIR });
    for i in 0..9 {
        cluster.join(&format!("n{i}"), 8);
    }
    cluster.longer_ns.insert(eyas_terms::TaskId(4000), 300 * MS);
    cluster.submit("many", vec![map("x", 5000, 3, 0)]);
    cluster.go(None);
    let report = report_of(&cluster);
    assert_eq!(report.tasks.len(), 2000);
    assert_eq!(report.tasks[0].user_id, "x-4000", "the longest first");
    let page = html(&report, None);
    assert!(page.contains("2,000 of 5,000 tasks") && page.contains("eyas tasks --tsv"));
    assert!(page.len() < 700_000, "{} bytes", page.len());
    // 72 slots, of which 64 are drawn; neighbours are one bar.
    assert!(page.contains("The first 64 of 72 slots."));
    let n_bars = page.matches("<rect class=\"g-done\"").count();
    assert!((64..=64 * 150).contains(&n_bars), "{n_bars}");
}

#[test]
fn cancelled_tasks_are_no_throughput() {
    let mut cluster = Cluster::new("good-cache-compute", 1, FAIR);
    cluster.join("n1", 1);
    let run = cluster.submit("half", vec![map("a", 100, 3, 0)]);
    let until = cluster.now.plus_ns(S);
    cluster.go(Some(until));
    cluster.feed(eyas_core::event::Event::CancelRequested { run, task: None });
    cluster.go(None);
    let report = report_of(&cluster);
    let t = &report.totals;
    assert!(t.n_cancelled > 50 && t.n_done > 5 && t.n_done + t.n_cancelled == 100, "{t:?}");
    let per_s = t.n_done as f64 * 1e9 / t.makespan_ns as f64;
    assert!((t.tasks_per_s.unwrap() - per_s).abs() < 1e-9);
    assert!(report.verdict.sentences[0].ends_with("of 100 tasks were cancelled."), "{:?}", report.verdict);
}
