//! Tasks that an older version wrote down: their locations may have queries of URLs, which are in no text any more
//! ([`eyas_storage::signed`], decision 0086).

use eyas_storage::signed;
use eyas_terms::array::{Column, Pattern, Piece, TaskArray};
use eyas_terms::location::MadeLocation;
use std::collections::BTreeSet;

/// The location without a query. `None`: it is as this version writes it.
pub fn renewed_location(location: &str) -> Option<String> {
    match MadeLocation::of(location) {
        Some(made) => Some(MadeLocation { packed: &signed::renewed(made.packed)?, ..made }.text()),
        None => signed::renewed(location),
    }
}

/// Takes the queries out of all locations of the tasks; commands and ids are their users' own texts and stay. Gives whether there was
/// one. This process knows the queries from now on.
pub fn renew_locations(array: &mut TaskArray) -> bool {
    let mut files = std::mem::take(&mut array.template.inputs);
    let n_inputs = files.len();
    files.append(&mut array.template.outputs);
    let mut any = false;
    for (_, location) in &mut files {
        if may_have_query(array, location)
            && let Some(new) = renewed_pattern(array, location)
        {
            *location = new;
            any = true;
        }
    }
    array.template.outputs = files.split_off(n_inputs);
    array.template.inputs = files;
    if any {
        empty_unused_columns(array);
    }
    any
}

fn may_have_query(array: &TaskArray, location: &Pattern) -> bool {
    location.0.iter().any(|piece| match piece {
        Piece::Literal(text) => text.contains('?'),
        Piece::Column { column, .. } => {
            let column = &array.columns[*column as usize];
            (0..column.len()).any(|i| column.get(i).contains('?'))
        }
        Piece::Index => false,
    })
}

/// What gives each task its location without a query, perhaps with a new column of `array`. `None`: no task's location has one.
fn renewed_pattern(array: &mut TaskArray, location: &Pattern) -> Option<Pattern> {
    if location.is_constant() {
        return renewed_location(&array.fill(location, 0)).map(Pattern::literal);
    }
    let (mut column, mut any) = (Column::default(), false);
    for i in 0..array.n_tasks {
        let text = array.fill(location, i);
        let new = renewed_location(&text);
        any |= new.is_some();
        // A column that is full stands for more text than one record of a journal or log has.
        if !column.push(&new.unwrap_or(text)) {
            return None;
        }
    }
    let number = u32::try_from(array.columns.len()).ok()?;
    any.then(|| {
        array.columns.push(column);
        Pattern::column(number)
    })
}

/// Columns have numbers, so one that no text needs any more becomes empty.
fn empty_unused_columns(array: &mut TaskArray) {
    let mut used = BTreeSet::new();
    array.template.for_each(&mut |pattern| {
        used.extend(pattern.0.iter().filter_map(|piece| match piece {
            Piece::Column { column, .. } => Some(*column as usize),
            Piece::Literal(_) | Piece::Index => None,
        }));
    });
    for (_, column) in array.columns.iter_mut().enumerate().filter(|(n, _)| !used.contains(n)) {
        let n_values = column.len();
        *column = Column::default();
        (0..n_values).for_each(|_| _ = column.push(""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::array::{Command, Part, TaskForm};

    #[test]
    fn no_location_of_an_older_array_has_a_query_and_the_rest_stays() {
        let column = |texts: [&str; 2]| {
            let mut column = Column::default();
            assert!(texts.iter().all(|text| column.push(text)));
            column
        };
        let literal = |text: &str| Piece::Literal(text.into());
        let piece = |column| Piece::Column { column, part: Part::Whole };
        let urls = ["https://h/a?k=5ec2e7a", "https://h/b?k=5ec2e7b"];
        let packed = Pattern(vec![literal("made:zip:https://h/"), piece(1), literal("?k=5ec2e7c/")]);
        let argv = vec![Pattern::literal("curl"), Pattern::literal("https://own/?k=1"), Pattern::column(2)];
        let mut array = TaskArray {
            n_tasks: 2,
            first_index: 0,
            columns: vec![column(urls), column(["p", "q"]), column(["https://own/?a", "b"])],
            needs: None,
            template: TaskForm {
                inputs: vec![
                    (Pattern::literal("x"), Pattern::column(0)),
                    (Pattern::column(1), packed),
                    (Pattern::literal("y"), Pattern::literal("https://h/y?k=5ec2e7d")),
                    (Pattern::literal("z"), Pattern(vec![literal("/data/"), piece(1), literal("?")])),
                ],
                outputs: vec![(Pattern::literal("o"), Pattern(vec![literal("/out/"), piece(1)]))],
                ..TaskForm::new(Pattern::column(1), Command::Exec(argv))
            },
        };
        let before = [array.expand(0), array.expand(1)];
        assert!(renew_locations(&mut array));
        assert_eq!(array.check(), Ok(()));
        assert!(!format!("{array:?}").contains("5ec2e7"), "{array:?}");
        for (i, before) in before.iter().enumerate() {
            let task = array.expand(i as u32);
            assert_eq!((&task.id, &task.command), (&before.id, &before.command));
            assert_eq!((&task.outputs, &task.inputs[3]), (&before.outputs, &before.inputs[3]));
            for (now, then) in task.inputs.iter().zip(&before.inputs).take(3) {
                assert_eq!(now.0, then.0);
                let packed = |text: &str| MadeLocation::of(text).map(|made| made.packed.to_owned());
                let (now, then) = match (packed(&now.1), packed(&then.1)) {
                    (Some(now), Some(then)) => (now, then),
                    _ => (now.1.clone(), then.1.clone()),
                };
                assert_eq!(signed::with_secrets(&now), then);
            }
        }
        let renewed = array.clone();
        assert!(!renew_locations(&mut array), "once is enough");
        assert_eq!(array, renewed);
    }
}
