//! Words that people mistype.

/// The one of `known` that was most likely meant by `word`.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .iter()
        .map(|k| (edit_distance(&word, k), *k))
        .min()
        .filter(|(d, k)| *d <= 2.max(k.len() / 3) && *d < k.len())
        .map(|(_, k)| k)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // A long unknown word is far from everything; its first characters say so as well.
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_only_when_it_is_near() {
        let known = ["command", "inputs", "outputs", "memory"];
        for (word, expect) in [
            ("inptus", Some("inputs")),
            ("input", Some("inputs")),
            ("Command", Some("command")),
            ("cmd", None),
            ("mem", None),
            ("zebra", None),
        ] {
            assert_eq!(nearest(word, &known), expect, "{word}");
        }
    }
}
