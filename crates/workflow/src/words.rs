//! Command lines to words and back, by the quoting rules of the shell.

/// The words of a line: separated by blanks, `'…'` as it stands, `"…"` and bare text with `\` before a character
/// that is meant as it stands. Nothing is expanded. `None`: a quotation does not end.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' if chars.peek().is_some_and(|c| "\"\\$`".contains(*c)) => {
                            word.extend(chars.next());
                        }
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// `word` as one word of a shell's line.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A line for the shell that starts `argv`.
pub(crate) fn line(argv: &[String]) -> String {
    let mut words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    // `A=b` in front would be an assignment.
    if let Some(first) = words.first_mut().filter(|word| word.contains('=') && !word.starts_with('\'')) {
        *first = format!("'{first}'");
    }
    words.join(" ")
}

/// The name of the program that a line for the shell starts first, for a stage's name; assignments before it
/// are passed over.
pub(crate) fn program(line: &str) -> &str {
    let is_assignment = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let word = line.split_whitespace().find(|word| !is_assignment(word)).unwrap_or("");
    let word = word.trim_matches(|c: char| "'\"();{}".contains(c));
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_of_a_line() {
        for (line, expect) in [
            ("", vec![]),
            ("  a  b ", vec!["a", "b"]),
            ("-x 1.5 --flag", vec!["-x", "1.5", "--flag"]),
            (r#"a 'b c'd "e \"f\" \n" g\ h ''"#, vec!["a", "b cd", r#"e "f" \n"#, "g h", ""]),
        ] {
            assert_eq!(split(line).unwrap(), expect, "{line}");
        }
        assert_eq!(split("a 'b"), None);
        assert_eq!(split("a \"b"), None);
    }

    #[test]
    fn the_program_of_a_line() {
        for (line, expect) in [
            ("LC_ALL=C /usr/bin/sort -n a > b", "sort"),
            ("./sim.exe 1", "sim.exe"),
            ("(cd x; ls)", "cd"),
            ("", ""),
        ] {
            assert_eq!(program(line), expect, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_line_of_words_has_these_words(words in proptest::collection::vec("[^\\x00]{0,8}", 1..5)) {
            prop_assert_eq!(split(&line(&words)).unwrap(), words);
        }
    }
}
