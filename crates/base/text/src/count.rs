//! Numbers with their nouns.

/// `1,234,567`
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// `1 task`, `2 tasks`, `3 copies`
pub fn plural(n: u64, one: &str) -> String {
    if n == 1 {
        return format!("1 {one}");
    }
    let before_y = one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{} {stem}ies", count(n)),
        None => format!("{} {one}s", count(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_at_their_edges() {
        for (n, expect) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), expect);
        }
        let plurals = [(1, "task", "1 task"), (0, "task", "0 tasks"), (1234, "file", "1,234 files")];
        let ends_in_y = [(1, "copy", "1 copy"), (2, "copy", "2 copies"), (2, "day", "2 days")];
        for (n, one, expect) in plurals.into_iter().chain(ends_in_y) {
            assert_eq!(plural(n, one), expect);
        }
    }
}
