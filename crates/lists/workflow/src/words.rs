//! Command lines to words and back, by the quoting rules of the shell.

use eyas_core::pattern::started_by;

/// The words of a line, separated by blanks. `'…'` is taken literally; in `"…"` and bare text, a `\` makes
/// the next character literal. Nothing is expanded. `None`: a quotation does not end.
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
    // Without quotes, a first word such as `A=b` would be an assignment.
    if let Some(first) = words.first_mut().filter(|word| word.contains('=') && !word.starts_with('\'')) {
        *first = format!("'{first}'");
    }
    words.join(" ")
}

/// The program that a shell line starts first, for a stage's name; for an interpreter, its script.
/// Assignments before it and commands that only prepare others are passed over.
pub(crate) fn program(line: &str) -> String {
    const PREPARING: [&str; 3] = ["mkdir", "cd", "export"];
    let spaced = line.replace([';', '(', ')', '{', '}'], " ; ");
    let words: Vec<String> =
        spaced.split_whitespace().map(|word| word.trim_matches(['\'', '"']).to_owned()).collect();
    let is_end = |word: &String| matches!(word.as_str(), "&&" | "||" | "|" | ";" | "<" | ">" | "");
    let mut first = None;
    for command in words.split(is_end).filter(|command| !command.is_empty()) {
        let redirected = command.iter().take_while(|word| !word.starts_with(['<', '>']));
        let started = started_by(redirected.clone().cloned()).unwrap_or_else(|| {
            // An interpreter without a script, which comes from elsewhere.
            let name = redirected.clone().find(|word| !word.contains('='));
            name.and_then(|name| name.rsplit('/').next()).unwrap_or_default().to_owned()
        });
        if !started.is_empty() && !PREPARING.contains(&started.as_str()) {
            return started;
        }
        first.get_or_insert(started);
    }
    first.unwrap_or_default()
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
            ("(cd x; ls)", "ls"),
            ("mkdir -p a", "mkdir"),
            ("'./my prog' x", "my"),
            ("python3 -u tools/fit.py a > b", "fit.py"),
            ("A=1 perl < script > b", "perl"),
            ("bash && ls", "bash"),
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
