//! The page: well-formed, self-contained, and safe with any name.

mod common;

use common::*;
use eyas_core::array::*;
use eyas_report::{Report, compare, html, metrics, read};

fn report_of(cluster: &Cluster) -> Report {
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    metrics(&read(dir.path()).unwrap())
}

/// Checks that every tag is closed in order; returns all attribute text and all text between tags.
fn check_balanced(page: &str) {
    const VOID: [&str; 3] = ["meta", "br", "!DOCTYPE"];
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
            for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
                assert!(!page.contains(outside), "{outside}");
            }
            assert!(!page.contains("NaN") && !page.contains("inf "));
        }
    }
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
        assert_eq!(page.matches("<script").count(), 1, "only the page's own");
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
