//! Words that are put into a line for the shell: quoted for where they stand, so that any text is safe there.
//!
//! A line has places in quotes, `"{in}"`, in which a word's own quotes would be text. [`LineQuotes`] follows the line as the shell
//! reads it, as far as that is needed: quotes, `$(…)` and backticks in them, comments, and texts below `<<`.

/// `word` quoted so that the shell reads it back unchanged, where no quotes are around it.
pub fn quoted(word: &str) -> String {
    if is_plain(word) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether the shell takes the word as it is, in quotes and without.
fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:,@%".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

/// What a place in a line stands in.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Within {
    Single,
    Double,
    /// `$(…)` or `(…)`.
    Parentheses,
    Backticks,
    /// A text below `<<`, to the line that is the word behind that; `expands`: `$` means something in it.
    Text {
        end: String,
        expands: bool,
    },
}

/// A place in a line for the shell.
#[derive(Default, Debug)]
pub struct LineQuotes {
    /// The outermost first.
    within: Vec<Within>,
    /// Texts that begin with the next line.
    texts: Vec<Within>,
    /// The last character, where it begins no word.
    is_in_word: bool,
}

impl LineQuotes {
    /// Goes on behind `text`, a part of the line.
    pub fn pass(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = match self.within.last() {
                Some(Within::Text { .. }) => self.pass_text_below(rest),
                _ => self.pass_one(c, &rest[c.len_utf8()..]),
            };
        }
    }

    /// `word` as it has to be written here.
    pub fn word(&mut self, word: &str) -> String {
        self.is_in_word = true;
        let quoted = || quoted(word);
        match self.within.last() {
            _ if is_plain(word) => word.into(),
            // The quotes end before the word, and begin again behind it.
            Some(Within::Single) => format!("'{}'", quoted()),
            Some(Within::Double) => format!("\"{}\"", quoted()),
            Some(Within::Text { expands: false, .. }) => word.into(),
            Some(Within::Text { expands: true, .. }) => {
                let mut escaped = String::new();
                for c in word.chars() {
                    if "\\$`".contains(c) {
                        escaped.push('\\');
                    }
                    escaped.push(c);
                }
                escaped
            }
            Some(Within::Parentheses | Within::Backticks) | None => quoted(),
        }
    }

    /// Goes on behind `c`, which `rest` follows; gives what is left of that.
    fn pass_one<'t>(&mut self, c: char, rest: &'t str) -> &'t str {
        let began_word = std::mem::replace(&mut self.is_in_word, !(c.is_whitespace() || ";|&()".contains(c)));
        let behind = |n: usize| rest.get(n..).unwrap_or_default();
        match (c, self.within.last()) {
            ('\'', Some(Within::Single)) | ('"', Some(Within::Double)) => _ = self.within.pop(),
            (_, Some(Within::Single)) => {}
            ('\\', _) => return behind(rest.chars().next().map_or(0, char::len_utf8)),
            ('`', _) => match self.within.iter().rposition(|within| *within == Within::Backticks) {
                Some(at) => self.within.truncate(at),
                None => self.within.push(Within::Backticks),
            },
            ('$', _) if rest.starts_with('(') => {
                self.within.push(Within::Parentheses);
                self.is_in_word = false;
                return behind(1);
            }
            (_, Some(Within::Double)) => {}
            ('\'', _) => self.within.push(Within::Single),
            ('"', _) => self.within.push(Within::Double),
            ('(', _) => self.within.push(Within::Parentheses),
            (')', Some(Within::Parentheses)) => _ = self.within.pop(),
            ('#', _) if !began_word => return behind(rest.find('\n').unwrap_or(rest.len())),
            ('<', _) if rest.starts_with("<<") => return behind(2),
            ('<', _) if rest.starts_with('<') => return self.pass_mark(behind(1)),
            ('\n', _) => self.within.extend(self.texts.drain(..).rev()),
            _ => {}
        }
        rest
    }

    /// Behind `<<`: the word that ends the text, which begins with the next line.
    fn pass_mark<'t>(&mut self, rest: &'t str) -> &'t str {
        let word = rest.trim_start_matches('-').trim_start_matches([' ', '\t']);
        let end = word.find(|c: char| c.is_whitespace() || ";|&()<>".contains(c)).unwrap_or(word.len());
        let (word, rest) = word.split_at(end);
        let bare: String = word.chars().filter(|c| !"'\"\\".contains(*c)).collect();
        if !bare.is_empty() {
            self.texts.push(Within::Text { expands: bare == word, end: bare });
        }
        rest
    }

    /// A line of a text below `<<`, or what a part of the line has of it.
    fn pass_text_below<'t>(&mut self, rest: &'t str) -> &'t str {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        let is_end = matches!(self.within.last(), Some(Within::Text { end, .. }) if line.trim_start_matches('\t') == end);
        if is_end {
            self.within.pop();
            self.is_in_word = false;
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The line with this word in each hole.
    fn filled(line: &str, word: &str) -> String {
        let mut quotes = LineQuotes::default();
        let mut filled = String::new();
        for (n, text) in line.split("{}").enumerate() {
            if n > 0 {
                filled += &quotes.word(word);
            }
            quotes.pass(text);
            filled += text;
        }
        filled
    }

    #[test]
    fn plain_words_stay_as_they_are() {
        for (word, expect) in
            [("a.b/c-1", "a.b/c-1"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("a\nb", "'a\nb'")]
        {
            assert_eq!(quoted(word), expect);
        }
        assert_eq!(filled("wc \"{}\" '{}' {}", "a.txt"), "wc \"a.txt\" 'a.txt' a.txt");
    }

    #[test]
    fn the_shell_reads_each_word_back_wherever_it_stands() {
        // Each prints the word, and nothing else of it.
        let lines = [
            "printf %s {}",
            "printf %s \"{}\"",
            "printf %s '{}'",
            "printf %s \"$(printf %s {})\"",
            "printf %s \"$(printf %s \"{}\")\"",
            "printf %s \"$(printf %s '{}')\"",
            "x=\"$(printf '%s' \"$(printf %s {})\")\"; printf %s \"$x\"",
            "x={}; printf %s \"$x\"",
            "# don't\nprintf %s {}",
            "printf %s \\\"x | grep -c '\"' > /dev/null; printf %s {}",
            "(printf %s {})",
            "cat <<EOF > /dev/null\nit's \"half\nEOF\nprintf %s \"{}\"",
            "echo a#b's' > /dev/null; printf %s '{}'",
            "cat <<EOF | head -c -1\n{}\nEOF\n",
            "cat <<'EOF' | head -c -1\n{}\nEOF\n",
            "printf %s \"`printf x > /dev/null`\"{}",
        ];
        let words = [
            "a b",
            "it's",
            "$(echo run)",
            "`echo run`",
            "\"",
            "'\"'\"'",
            "$HOME",
            "a\\b",
            "\\",
            "*",
            "a;echo run",
            "!x",
            "~",
            "é ",
            "-n",
            "#",
        ];
        for line in lines {
            for word in words {
                let filled = filled(line, word);
                for shell in ["sh", "bash"] {
                    let done = Command::new(shell).args(["-c", &filled]).output().unwrap();
                    let said = String::from_utf8(done.stdout).unwrap();
                    assert_eq!(said, word, "{shell}: {filled}\n{}", String::from_utf8_lossy(&done.stderr));
                }
            }
        }
    }
}
