//! Assignments of pairs by hand: which pairs one task computes, on which nodes, and from where its items are read.
//!
//! Source: `Miceli10` §4 (a), whose configuration file in XML names the groups of pairs, the machines that compute, and the
//! locations of the data; they are `N_c`, and the two parts of `M_c`, of the tuple in equation 4.2. Here it is JSON:
//!
//! ```json
//! {"assignments": [
//!   {"rows": ["a/1.txt", "a/2.txt"], "columns": ["b/1.txt"], "resource": "site1", "from": "https://site1.example/data"},
//!   {"pairs": [["a/3.txt", "b/1.txt"], ["a/3.txt", "b/2.txt"]]}
//! ]}
//! ```
//!
//! In: that text, and the names of rows and columns. Out: tiles in the order of the file ([`Tiling`]), and the [`AssignedPlace`] of each.
//! A pair that no assignment names is not computed.

use crate::plan::{Pairs, Refusal, RefusedAssignment, Sizes, Tiling};
use eyas_text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Form {
    assignments: Vec<Assignment>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Assignment {
    /// With `columns`: every pair of these.
    rows: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    /// Single pairs, each a row and a column.
    #[serde(default)]
    pairs: Vec<(String, String)>,
    resource: Option<String>,
    from: Option<String>,
}

/// Where an assignment is computed, and from where its items are read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Default, Debug)]
pub struct AssignedPlace {
    /// Only nodes that have this named resource compute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The folder or URL that has the files of the assignment's items; `None`: they are read from where the sets name them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Why assignments cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// What is wrong with the text, as one sentence.
    Text(String),
    /// The sets have no tiles at all.
    Sets(Refusal),
}

impl From<String> for Unusable {
    fn from(why: String) -> Unusable {
        Unusable::Text(why)
    }
}

/// The tiles of a file of assignments, and the place of each. A pair that two assignments have, and an assignment whose items
/// have more than `cache_bytes`, the budget of a node's cache, are refused.
pub fn assigned(
    text: &[u8],
    rows: &[String],
    columns: &[String],
    sizes: &Sizes,
    cache_bytes: u64,
) -> Result<(Tiling, Vec<AssignedPlace>), Unusable> {
    let form: Form = serde_json::from_slice(text).map_err(|e| Unusable::Text(e.to_string()))?;
    let numbers = |names: &[String]| -> BTreeMap<String, u32> { names.iter().cloned().zip(0..).collect() };
    let (row_of, column_of) = (numbers(rows), numbers(columns));
    let mut all = vec![];
    let mut places = vec![];
    for (n, assignment) in (1..).zip(form.assignments) {
        let find = |of: &BTreeMap<String, u32>, name: &String, what: &str| {
            of.get(name).copied().ok_or_else(|| {
                format!("assignment {n} names {}, which is no {what} of the matrix", shown(name))
            })
        };
        let mut pairs = Pairs::new(sizes.shape());
        let (rows, columns) = match (&assignment.rows, &assignment.columns) {
            (Some(rows), Some(columns)) => (&rows[..], &columns[..]),
            (None, None) => (&[][..], &[][..]),
            _ => return Err(format!("assignment {n} has `rows` or `columns` alone, and needs both").into()),
        };
        for row in rows {
            let row = find(&row_of, row, "row")?;
            for column in columns {
                pairs.add(row, find(&column_of, column, "column")?);
            }
        }
        for (row, column) in &assignment.pairs {
            pairs.add(find(&row_of, row, "row")?, find(&column_of, column, "column")?);
        }
        if pairs.is_empty() {
            return Err(
                format!("assignment {n} has no pair: `rows` and `columns`, or `pairs`, name them").into()
            );
        }
        let place = AssignedPlace { resource: assignment.resource, from: assignment.from };
        if let Some("") = place.resource.as_deref() {
            return Err(format!("the `resource` of assignment {n} has no name").into());
        }
        if let Some("") = place.from.as_deref() {
            return Err(format!("the `from` of assignment {n} is empty").into());
        }
        all.push(pairs);
        places.push(place);
    }
    if all.is_empty() {
        return Err("there is no assignment in it".to_owned().into());
    }
    let tiling = crate::plan::by_hand(sizes, all, cache_bytes).map_err(|refused| match refused {
        RefusedAssignment::Sets(refusal) => Unusable::Sets(refusal),
        RefusedAssignment::Twice { row, column, first, second } => Unusable::Text(format!(
            "the pair of {} and {} is in assignment {} and in assignment {}",
            shown(&rows[row as usize]),
            shown(&columns[column as usize]),
            first + 1,
            second + 1
        )),
        RefusedAssignment::TooLarge { n, bytes, cache_bytes } => Unusable::Text(format!(
            "the files of assignment {} have {bytes} bytes, and a node's cache takes {cache_bytes}",
            n + 1
        )),
    })?;
    Ok((tiling, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Shape;
    use std::collections::BTreeSet;

    fn names(letter: &str, n: u32) -> Vec<String> {
        (0..n).map(|i| format!("{letter}{i}")).collect()
    }

    fn assigned_pairs(text: &str, sizes: &Sizes) -> Result<Vec<BTreeSet<(u32, u32)>>, Unusable> {
        let (tiling, places) = assigned(text.as_bytes(), &names("a", 4), &names("b", 3), sizes, 1_000)?;
        assert_eq!(tiling.tiles.len(), places.len());
        Ok(tiling.tiles.iter().map(|tile| tile.pairs(sizes.shape()).collect()).collect())
    }

    #[test]
    fn each_assignment_is_one_tile_with_its_place() {
        let text = r#"{"assignments": [
            {"rows": ["a0", "a2", "a3"], "columns": ["b0", "b2"], "resource": "one", "from": "/data"},
            {"rows": ["a1"], "columns": ["b0"], "pairs": [["a1", "b1"], ["a0", "b1"]]}
        ]}"#;
        let sizes = Sizes::two(&[1; 4], &[1; 3]);
        let found = assigned_pairs(text, &sizes).unwrap();
        assert_eq!(found[0], BTreeSet::from([(0, 0), (0, 2), (2, 0), (2, 2), (3, 0), (3, 2)]));
        assert_eq!(found[1], BTreeSet::from([(0, 1), (1, 0), (1, 1)]));
        let (tiling, places) =
            assigned(text.as_bytes(), &names("a", 4), &names("b", 3), &sizes, 1_000).unwrap();
        assert_eq!(places[0], AssignedPlace { resource: Some("one".into()), from: Some("/data".into()) });
        assert_eq!(places[1], AssignedPlace::default());
        // Equal parts of neighbouring rows are one rectangle.
        assert_eq!(tiling.tiles[0].rects.len(), 4);
    }

    #[test]
    fn of_half_a_matrix_a_pair_has_one_order() {
        let text = r#"{"assignments": [{"rows": ["a2", "a0"], "columns": ["a1", "a2"]}]}"#;
        let sizes = Sizes::own(&[1; 4], true);
        let own = names("a", 4);
        let (tiling, _) = assigned(text.as_bytes(), &own, &own, &sizes, 1_000).unwrap();
        let pairs: BTreeSet<(u32, u32)> = tiling.tiles[0].pairs(Shape::Half).collect();
        assert_eq!(pairs, BTreeSet::from([(0, 1), (0, 2), (1, 2), (2, 2)]));
    }

    #[test]
    fn what_is_wrong_is_one_sentence() {
        let two = Sizes::two(&[1; 4], &[1; 3]);
        let large = Sizes::two(&[900; 4], &[900; 3]);
        let cases = [
            (r#"{"assignments": []}"#, &two, "no assignment"),
            (r#"{"assignments": [{}]}"#, &two, "assignment 1 has no pair"),
            (r#"{"assignments": [{"rows": ["a0"]}]}"#, &two, "needs both"),
            (r#"{"assignments": [{"pairs": [["a9", "b0"]]}]}"#, &two, "names `a9`, which is no row"),
            (r#"{"assignments": [{"pairs": [["a0", "a1"]]}]}"#, &two, "names `a1`, which is no column"),
            (
                r#"{"assignments": [{"pairs": [["a0", "b1"]]}, {"rows": ["a0"], "columns": ["b0", "b1"]}]}"#,
                &two,
                "the pair of `a0` and `b1` is in assignment 1 and in assignment 2",
            ),
            (r#"{"assignments": [{"pairs": [["a0", "b1"]]}]}"#, &large, "have 1800 bytes"),
            (r#"{"assignments": [{"pairs": [["a0", "b1"]], "machine": "x"}]}"#, &two, "machine"),
            (r#"{"assignments": [{"pairs": [["a0", "b1"]], "resource": ""}]}"#, &two, "has no name"),
        ];
        for (text, sizes, words) in cases {
            let Unusable::Text(why) = assigned_pairs(text, sizes).unwrap_err() else { panic!("{text}") };
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
