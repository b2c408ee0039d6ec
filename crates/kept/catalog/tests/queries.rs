//! Random queries on random data sets find what a plain reading of the language says, in both databases.

mod common;

use common::{Databases, InFiles, NOW, Server, alice, drafted, file};
use eyas_catalog::query::{Check, Comparison, Expr, Field, Literal, parse};
use eyas_catalog::{Catalog, FoundSet, Kind, Tag};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Values that are near each other in one way or another.
const VALUES: [&str; 22] = [
    "a",
    "ab",
    "A",
    "b",
    "10",
    "9",
    "1e1",
    "-3",
    "010",
    "-0",
    "0e9",
    "9007199254740993",
    "9007199254740992",
    "9007199254740992.5",
    "-123456789012345678901234567890",
    "2026-01-01",
    "2026-01-02",
    "2026-01-01T12:00",
    "a'b",
    "a%",
    "a\\",
    "größe",
];
const NAMES: [&str; 3] = ["x", "y", "z"];

/// Ten times a number of [`VALUES`].
fn tenths(text: &str) -> i128 {
    match text {
        "1e1" => 100,
        "0e9" => 0,
        _ => match text.split_once('.') {
            Some((whole, part)) => format!("{whole}{part}").parse().unwrap(),
            None => 10 * text.parse::<i128>().unwrap(),
        },
    }
}

/// What a condition says of a tag's value, read plainly.
fn says(check: &Check, value: &str) -> bool {
    let ordered = |literal: &Literal| match (&literal.kind, &Kind::of(value)) {
        (Kind::Number(_), Kind::Number(_)) => Some(tenths(value).cmp(&tenths(&literal.text))),
        (Kind::Date(b), Kind::Date(a)) => a.partial_cmp(b),
        (Kind::Text, _) => Some(value.as_bytes().cmp(literal.text.as_bytes())),
        _ => None,
    };
    let is_equal = |literal: &Literal| value == literal.text;
    match check {
        Check::Has => true,
        Check::Compare(Comparison::Equal, literal) => is_equal(literal),
        Check::Compare(Comparison::Unequal, literal) => !is_equal(literal),
        Check::Compare(Comparison::Less, literal) => ordered(literal).is_some_and(|order| order.is_lt()),
        Check::Compare(Comparison::LessOrEqual, literal) => {
            ordered(literal).is_some_and(|order| order.is_le())
        }
        Check::Compare(Comparison::Greater, literal) => ordered(literal).is_some_and(|order| order.is_gt()),
        Check::Compare(Comparison::GreaterOrEqual, literal) => {
            ordered(literal).is_some_and(|order| order.is_ge())
        }
        Check::Range(start, end) => {
            ordered(start).is_some_and(|order| order.is_ge())
                && ordered(end).is_some_and(|order| order.is_le())
        }
        Check::In(literals) => literals.iter().any(is_equal),
        Check::Like(pattern) => {
            let pattern: Vec<char> = pattern.chars().collect();
            let text: Vec<char> = value.chars().collect();
            is_like(&pattern, &text)
        }
    }
}

fn is_like(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|skipped| is_like(rest, &text[skipped..])),
        Some((first, rest)) => match text.split_first() {
            Some((found, after)) => (*first == '_' || first == found) && is_like(rest, after),
            None => false,
        },
    }
}

fn matches(expr: &Expr, set: &FoundSet) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| matches(part, set)),
        Expr::Or(parts) => parts.iter().any(|part| matches(part, set)),
        Expr::Not(part) => !matches(part, set),
        Expr::Test { field: Field::Tag(name), check } => {
            set.tags.get(name).is_some_and(|value| says(check, value))
        }
        Expr::Test { field: Field::Label, check } => says(check, &set.label),
        Expr::Test { field, .. } => panic!("{field:?} is not drawn"),
    }
}

/// A query as a user would write it.
fn written(expr: &Expr) -> String {
    let value = |literal: &Literal| match literal.kind {
        Kind::Text => format!("'{}'", literal.text.replace('\'', "''")),
        _ => literal.text.clone(),
    };
    let many = |parts: &[Expr], word: &str| {
        let parts: Vec<String> = parts.iter().map(|part| format!("({})", written(part))).collect();
        parts.join(word)
    };
    match expr {
        Expr::And(parts) => many(parts, " and "),
        Expr::Or(parts) => many(parts, " OR "),
        Expr::Not(part) => format!("not ({})", written(part)),
        Expr::Test { field, check } => {
            let name = match field {
                Field::Tag(name) => name.as_str(),
                _ => "label",
            };
            match check {
                Check::Has => format!("has {name}"),
                Check::Compare(comparison, literal) => {
                    let sign = match comparison {
                        Comparison::Equal => "=",
                        Comparison::Unequal => "!=",
                        Comparison::Less => "<",
                        Comparison::LessOrEqual => "<=",
                        Comparison::Greater => ">",
                        Comparison::GreaterOrEqual => ">=",
                    };
                    format!("{name}{sign}{}", value(literal))
                }
                Check::Range(start, end) => format!("{name} = {}..{}", value(start), value(end)),
                Check::In(literals) => {
                    let literals: Vec<String> = literals.iter().map(value).collect();
                    format!("{name} in ({})", literals.join(", "))
                }
                Check::Like(pattern) => format!("{name} like '{}'", pattern.replace('\'', "''")),
            }
        }
    }
}

fn literals() -> impl Strategy<Value = Literal> {
    (0..VALUES.len(), any::<bool>()).prop_map(|(n, is_quoted)| {
        let text = VALUES[n].to_owned();
        let kind = if is_quoted { Kind::Text } else { Kind::of(&text) };
        Literal { text, kind, column: None }
    })
}

fn checks() -> impl Strategy<Value = Check> {
    use Comparison::*;
    let comparisons = prop::sample::select(vec![Equal, Unequal, Less, LessOrEqual, Greater, GreaterOrEqual]);
    let patterns =
        prop::sample::select(vec!["a%", "%b", "_", "%", "a_b", "a\\%", "%%", "A%", "2026%", "g_ö%", ""]);
    let ranges = (literals(), literals()).prop_filter("ends of one kind", |(a, b)| {
        std::mem::discriminant(&a.kind) == std::mem::discriminant(&b.kind)
    });
    prop_oneof![
        1 => Just(Check::Has),
        6 => (comparisons, literals()).prop_map(|(comparison, literal)| Check::Compare(comparison, literal)),
        2 => ranges.prop_map(|(start, end)| Check::Range(start, end)),
        2 => prop::collection::vec(literals(), 1..4).prop_map(Check::In),
        2 => patterns.prop_map(|pattern| Check::Like(pattern.into())),
    ]
}

fn exprs() -> impl Strategy<Value = Expr> {
    let tests = prop_oneof![
        8 => (prop::sample::select(NAMES.to_vec()), checks())
            .prop_map(|(name, check)| Expr::Test { field: Field::Tag(name.into()), check }),
        // A label is always text.
        1 => checks().prop_filter("texts only", |check| match check {
            Check::Compare(_, a) => a.kind == Kind::Text,
            Check::Range(a, b) => a.kind == Kind::Text && b.kind == Kind::Text,
            Check::In(all) => all.iter().all(|a| a.kind == Kind::Text),
            _ => true,
        }).prop_map(|check| Expr::Test { field: Field::Label, check }),
    ];
    tests.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::Or),
            inner.prop_map(|part| Expr::Not(Box::new(part))),
        ]
    })
}

/// Every set of tags that a small number of values gives, some of them missing.
fn fill(catalog: &Catalog) {
    for n in 0..120usize {
        let pick = |step: usize| {
            let at = (n * step + n / 7) % (VALUES.len() + 2);
            VALUES.get(at).copied()
        };
        let tags = NAMES.iter().zip([pick(1), pick(5), pick(11)]);
        let tags: Vec<Tag> =
            tags.filter_map(|(name, value)| Some(Tag::new(*name, value?).unwrap())).collect();
        let draft = drafted(catalog, &alice(), &format!("a{n}"), &[file("f", "1")]);
        catalog.commit(&alice(), &draft, &tags, NOW).unwrap();
    }
}

fn check(databases: &dyn Databases, n_queries: u32) {
    let catalog = databases.catalog("random");
    fill(&catalog);
    let all = catalog.find(&alice(), None, 1000).unwrap();
    assert_eq!(all.len(), 120);
    let mut n_found = 0;
    let mut runner =
        TestRunner::new(Config { cases: n_queries, failure_persistence: None, ..Config::default() });
    let result = runner.run(&exprs(), |expr| {
        let query = written(&expr);
        parse(&query).unwrap_or_else(|error| panic!("{error}"));
        let expected: Vec<&str> =
            all.iter().filter(|set| matches(&expr, set)).map(|set| &*set.label).collect();
        let found = catalog.find(&alice(), Some(&query), 1000).unwrap();
        let found: Vec<&str> = found.iter().map(|set| &*set.label).collect();
        prop_assert_eq!(found, expected, "{}", query);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    for value in VALUES {
        let literal = Literal { text: value.into(), kind: Kind::Text, column: None };
        let expr =
            Expr::Test { field: Field::Tag("x".into()), check: Check::Compare(Comparison::Equal, literal) };
        n_found += catalog.find(&alice(), Some(&written(&expr)), 1000).unwrap().len();
    }
    assert!(n_found > 80, "the sets have the tags that the queries ask for");
}

#[test]
fn random_queries_in_a_file() {
    check(&InFiles::new(), 2000);
}

#[test]
fn random_queries_on_a_server() {
    check(&Server::start(), 500);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let check = |query: &str, at: usize, part: &str| {
        let error = parse(query).expect_err(query);
        assert_eq!(error.at, at, "{error}");
        assert!(error.message.contains(part), "{error}");
    };
    check("", 0, "a condition is expected here");
    check("protein", 7, "is expected after a name");
    check("protein =", 9, "a value is expected here");
    check("protein = adk frames = 1", 14, "`and` or `or` is missing");
    check("protein = adk and", 17, "a condition is expected here");
    check("(a = 1", 6, "`)`, `and` or `or` is expected");
    check("a = 1)", 5, "no `(` belongs to this `)`");
    check("a = 'open", 4, "has no end");
    check("a = 1; drop table", 5, "a word cannot have `;`");
    check("a > 1..2", 5, "a range `a..b` stands behind `=`");
    check("a = 1..b", 7, "both ends of a range");
    check("a like", 6, "a value is expected");
    check("size like 'x'", 10, "`like` is for texts");
    check("size = big", 7, "is no size");
    check("created < yesterday", 10, "is no date");
    check("files = -1", 8, "is no number of files");
    check("a in 1", 5, "`(` is expected after `in`");
    check("a in (1 2)", 8, "`,` or `)` is expected");
    check("a not = 1", 6, "`like` or `in` is expected after `not`");
    check("not = 1", 4, "a name of a tag is expected here");
    check("and = 1", 0, "is a word of the language");
    check("'a' = 1", 0, "without quotes");
    check("größe = 'x' y", 12, "is missing");
    check(&format!("{}a = 1{}", "(".repeat(60), ")".repeat(60)), 51, "more than 50");
    check(&vec!["a = 1"; 300].join(" or "), 9 * 200, "at most 200 conditions");
    check(&"x".repeat(70_000), 65_536, "at most 65536 characters");
    let said = parse("protein = adk frames = 1").unwrap_err().to_string();
    let expected = "the query is wrong at character 15: `and` or `or` is missing between two conditions\n  \
                    protein = adk frames = 1\n                ^";
    assert_eq!(said, expected);
}
