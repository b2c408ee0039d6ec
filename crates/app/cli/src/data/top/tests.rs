//! What is printed and drawn of a catalog.

use super::draw::{View, draw};
use super::lines;
use super::rows::{Picture, SITES_HEAD, age};
use eyas_catalog::{Act, Entry, ShortSet, Site, SiteStanding, SiteState, SpareSet, Standing};

const NOW: i64 = 1_800_000_000_000;

fn site(name: &str, away: Option<&str>) -> SiteStanding {
    SiteStanding {
        site: Site {
            name: name.into(),
            address: "/disk".into(),
            is_store: false,
            domain: "hall".into(),
            state: SiteState::Up,
            keep_bytes: None,
            n_replicas: 12,
            size_bytes: 3 << 20,
        },
        away: away.map(str::to_owned),
        room_bytes: away.is_none().then_some(5 << 30),
        n_bad: 1,
        oldest_verified_ms: Some(NOW - 3 * 86_400_000),
        n_made: 2,
        n_verified: 7,
    }
}

fn picture(n_sites: usize) -> Picture {
    let mut sites: Vec<SiteStanding> = (0..n_sites).map(|n| site(&format!("s{n}"), None)).collect();
    sites.push(site("far", Some("nobody\u{1b}[31m answers")));
    let set =
        |key: &str, n_files, n_without| ShortSet { key: Some(key.into()), n_files, n_missing: 3, n_without };
    let entry = Entry { at_ms: NOW, caller: "alice".into(), verb: "put".into(), detail: "2 files".into() };
    let acts = vec![Act { label: Some("adk".into()), entry }];
    Picture {
        at_ms: NOW,
        standing: Standing {
            sites,
            short: vec![set("adk", 3, 0), set("ubq", 1, 1)],
            spare: vec![SpareSet { key: Some("pka".into()), n_copies: 4, size_bytes: 5 << 20 }],
        },
        acts,
    }
}

fn drawn(view: &View, width: u16, height: u16) -> String {
    crate::top::screen::drawn(|frame| draw(frame, view), width, height)
}

#[test]
fn rows_stand_in_their_columns() {
    let lines = lines(&picture(1));
    let expected = "s0           up                12    3.0 MiB    5.0 GiB    1     2         7  3 d";
    assert_eq!(lines[1], expected);
    for (n, word) in ["copies", "held", "room", "bad", "made", "verified"].into_iter().enumerate() {
        let end = SITES_HEAD.find(word).expect("it is there") + word.len();
        let value = ["12", "3.0 MiB", "5.0 GiB", "1", "2", "7"][n];
        assert!(lines[1][..end].ends_with(value), "{word}");
    }
    assert!(lines[2].starts_with("far          away"), "{}", lines[2]);
    assert!(!lines[2].contains('\u{1b}') && lines[2].contains("answers"));
    assert!(lines.contains(&"short: 3 files of `adk` lack 3 copies".into()), "{lines:?}");
    let ubq = "short: 1 file of `ubq` lacks 3 copies; of 1 file no site that answers has a good copy";
    assert!(lines.contains(&ubq.into()), "{lines:?}");
    assert!(lines.contains(&"spare: `pka` has 4 copies more than it asks for (5.0 MiB)".into()), "{lines:?}");
    assert!(lines.last().expect("there are some").ends_with("alice       put      adk  2 files"));
}

#[test]
fn everything_is_on_a_small_screen_and_any_size_is_drawn() {
    let mut view = View { name: "sqlite:c.db".into(), picture: picture(2), gone: None };
    let text = drawn(&view, 80, 15);
    for part in [
        "eyas data top",
        "s0",
        "far",
        "1 away",
        "adk",
        "ubq",
        "4 copies more",
        "Done last",
        "2 files",
        "q quits",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    view.gone = Some("the database is away".into());
    let text = drawn(&view, 80, 15);
    assert!(text.contains("no answer  trying again: the database is away") && text.contains("s0"), "{text}");
    for n_sites in [0, 1, 200] {
        view.picture = picture(n_sites);
        for (width, height) in [(1, 1), (10, 3), (40, 10), (60, 15), (120, 36), (300, 90)] {
            drawn(&view, width, height);
        }
    }
}

#[test]
fn ages_are_short() {
    let all = [-1000, 0, 59_999, 60_000, 7_200_000, 40 * 86_400_000].map(age);
    assert_eq!(all, ["later", "0 s", "59 s", "1 min", "2 h", "40 d"]);
}
