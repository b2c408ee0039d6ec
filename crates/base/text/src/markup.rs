//! Text from outside in pages and drawings.

/// `text` in a form that may stand between tags and in quoted attributes of HTML and SVG. Control characters, which both
/// forbid, become a replacement character.
pub fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            // Marks that change the direction of writing would let a name change how its neighbours look.
            c if crate::is_unsafe(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(markup("<a & \"b\" 'c'>\n"), "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;\n");
        assert_eq!(markup("\u{1b}[1m\u{202e}ä"), "\u{fffd}[1m\u{fffd}ä");
    }
}
