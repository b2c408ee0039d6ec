//! The patterns of a shell, for one name: `*`, `?`, `[a-z]` and `[!a-z]`.
//!
//! A `[` that is never closed means itself. Whether hidden names match, and what `**` stands for, is the business of whoever
//! walks through directories.

/// The parts of a pattern, between slashes. Several `**` in a row mean what one means, and would look at each directory once for each
/// way to share it among them.
pub(crate) fn parts_of(pattern: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.dedup_by(|part, before| *part == "**" && part == before);
    parts
}

/// Whether `text` is more than itself as a pattern.
pub fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether one name matches one part of a pattern. At most `name` times `pattern` steps.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to go on when the last `*` has to swallow one character more.
    let mut backtrack: Option<(usize, usize)> = None;
    loop {
        let next = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some('*'), _) => {
                p += 1;
                backtrack = Some((p, n));
                continue;
            }
            (Some('?'), Some(_)) => Some(p + 1),
            (Some('['), Some(c)) => class(&pattern, p, *c),
            (Some(want), Some(c)) if want == c => Some(p + 1),
            _ => None,
        };
        match (next, &mut backtrack) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((after_star, taken))) if *taken < name.len() => {
                *taken += 1;
                (p, n) = (*after_star, *taken);
            }
            _ => return false,
        }
    }
}

/// The position after the class that starts at `start`, if it takes `c`.
fn class(pattern: &[char], start: usize, c: char) -> Option<usize> {
    let is_negated = matches!(pattern.get(start + 1), Some('!' | '^'));
    let first = start + 1 + usize::from(is_negated);
    // A `]` right at the beginning is an element.
    let Some(n) = pattern.get(first + 1..).and_then(|rest| rest.iter().position(|c| *c == ']')) else {
        return (c == '[').then_some(start + 1);
    };
    let mut elements = &pattern[first..=first + n];
    let mut is_element = false;
    while let [low, rest @ ..] = elements {
        if let ['-', high, rest @ ..] = rest {
            is_element |= (*low..=*high).contains(&c);
            elements = rest;
        } else {
            is_element |= *low == c;
            elements = rest;
        }
    }
    (is_element != is_negated).then_some(first + n + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_double_stars_in_a_row_are_one() {
        assert_eq!(parts_of("/a/**/**/./**/b//**"), ["a", "**", "b", "**"]);
        assert_eq!(parts_of("*/*/**"), ["*", "*", "**"]);
    }

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, name, expect) in [
            ("*.fits", "a.fits", true),
            ("*.fits", "a.fits.gz", false),
            ("*", "", true),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "aXbbY", false),
            ("?é?", "aéb", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("a[1", "a[1", true),
            ("a[1]", "a1", true),
            ("***a", "ba", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern:?} on {name:?}");
        }
    }
}
