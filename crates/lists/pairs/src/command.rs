//! The command of `eyas pairs`: words with `{a}`, `{b}` or `{pairs}`.

use eyas_runner::shell::words_here;
use eyas_tasklist::{Error, Holes, Segment, fill, fill_line, parse_holes};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hole {
    /// The file of the first set.
    A,
    /// The file of the second set.
    B,
    /// A file that names many pairs, one on a line.
    Pairs,
}

/// A command whose holes are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    words: Vec<Vec<Segment<Hole>>>,
    is_for_shell: bool,
    /// The program takes many pairs at once.
    pub takes_many: bool,
}

fn holes() -> Holes<Hole> {
    let mut holes = Holes::default();
    for (name, hole) in [("a", Hole::A), ("b", Hole::B), ("pairs", Hole::Pairs)] {
        holes.add_named(name, hole);
    }
    holes
}

impl Command {
    /// Parses the words of a command; `is_for_shell`: they are one line for the shell.
    pub fn parse(words: &[String], is_for_shell: bool) -> Result<Command, Error> {
        let bad = |message: &str| Error::invalid(message);
        if words.first().is_none_or(|word| word.trim().is_empty()) {
            return Err(bad("there is no command").hint("write it after `--`"));
        }
        let holes = holes();
        let parse = |word: &str| parse_holes("the command's", word, &holes);
        let words: Vec<Vec<Segment<Hole>>> = match is_for_shell {
            true => vec![parse(&words.join(" "))?],
            false => words.iter().map(|word| parse(word)).collect::<Result<_, _>>()?,
        };
        let has = |hole| words.iter().flatten().any(|part| *part == Segment::Hole(hole));
        let takes_many = has(Hole::Pairs);
        match (has(Hole::A), has(Hole::B), takes_many) {
            (true, true, false) | (false, false, true) => Ok(Command { words, is_for_shell, takes_many }),
            (_, _, true) => Err(bad("the command has {pairs} beside {a} or {b}")
                .hint("{a} and {b} are the files of one pair, {pairs} is a file that names many pairs")),
            (false, _, _) => {
                Err(bad("the command has no {a}, so it would not read the first file of a pair")
                    .hint("write {a} and {b} where the names of the two files go, such as `compare {a} {b}`"))
            }
            (_, false, _) => {
                Err(bad("the command has no {b}, so it would not read the second file of a pair")
                    .hint("write {a} and {b} where the names of the two files go, such as `compare {a} {b}`"))
            }
        }
    }

    /// The program and its arguments, with `fill` in the places of holes.
    pub fn filled(&self, value: impl Fn(Hole) -> String) -> Vec<String> {
        let fill = if self.is_for_shell { fill_line } else { fill };
        let words = self.words.iter().map(|word| fill(word, &value));
        match self.is_for_shell {
            true => words_here(&words.collect::<String>()),
            false => words.collect(),
        }
    }
}

/// The last number of a text. A number is a word of its own: words stand between white space or `=`, and may be enclosed in
/// punctuation. So `12 a/1/x` gives 12, `identity = 97.5%` gives 97.5, and `1,234` is no number, because that may be 1.234.
pub fn last_number(text: &str) -> Option<f64> {
    text.rsplit(|c: char| c.is_whitespace() || c == '=').find_map(number)
}

fn number(word: &str) -> Option<f64> {
    let bare = word.trim_matches(|c: char| "()[]{}<>\"',;:%".contains(c));
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn fill(hole: Hole) -> String {
        match hole {
            Hole::A => "a/0/it's".into(),
            Hole::B => "b/1/y".into(),
            Hole::Pairs => "pairs.txt".into(),
        }
    }

    #[test]
    fn holes_are_filled() {
        let command = Command::parse(&words("compare -x{a} {b} {{c}}"), false).unwrap();
        assert_eq!(command.filled(fill), ["compare", "-xa/0/it's", "b/1/y", "{c}"]);
        let line = Command::parse(&words("cat {a} {b} | wc -c"), true).unwrap();
        let filled = line.filled(fill);
        assert!(filled.last().unwrap().ends_with(r"|| eyas_part; } | wc -c"), "{filled:?}");
        assert!(filled.last().unwrap().contains(r"{ cat 'a/0/it'\''s' b/1/y "), "{filled:?}");
        assert!(Command::parse(&words("many {pairs}"), false).unwrap().takes_many);
    }

    #[test]
    fn wrong_commands_are_refused() {
        for (text, expect) in [
            ("compare {a}", "no {b}"),
            ("compare {b}", "no {a}"),
            ("compare {a} {b} {in}", "unknown hole `{in}`"),
            ("compare {a} {b} {", "lone brace"),
            ("compare {a} {b} {pairs}", "{pairs} beside"),
            ("", "no command"),
        ] {
            let fault = Command::parse(&words(text), false).unwrap_err();
            assert!(fault.message.contains(expect), "{text}: {}", fault.message);
        }
    }

    #[test]
    fn the_last_number_counts() {
        for (text, expect) in [
            ("12 a/1/x.fa\n", Some(12.0)),
            ("similar: 3 of 4 (0.75)\n", Some(0.75)),
            ("identity=97.5%\n", Some(97.5)),
            ("0.1\n0.2\nend\n", Some(0.2)),
            ("-1e-3.", Some(-0.001)),
            ("1,234", None),
            ("", None),
            ("x1 v2", None),
        ] {
            assert_eq!(last_number(text), expect, "{text:?}");
        }
        assert!(last_number("nan").unwrap().is_nan());
    }
}
