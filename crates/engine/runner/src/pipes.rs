//! A line for the shell whose pipes fail with any of their parts.
//!
//! `bash -o pipefail` alone takes a part for failed that was ended by SIGPIPE because the next one had enough, as in
//! `seq 1000000 | head -1`. So each part but the last is put into braces with the function `eyas_part` behind it, which forgives a
//! part if all readers of its pipe are gone *and* it met that:
//!
//! * it was ended by SIGPIPE;
//! * it ended with status 120: Python, when what is left in its buffer cannot be written;
//! * it ended otherwise, as programs do which say of a broken pipe that they failed, and had written [`WRITTEN_BYTES`] at least.
//!
//! A part whose reader is still there has failed, whatever its status. At the end `eyas_end` names the part that failed.
//!
//! Where a line cannot be followed, it is left as it is, with `pipefail` alone: then more fails, never less.
//!
//! Not followed: what stands between backquotes, and programs that are texts to others (`sh -c '…'`).
//! Not told apart: a part that fails of its own after it has written that much and its reader has left. Not forgiven: a part that
//! says otherwise than by SIGPIPE that its reader has left, and has written less before, such as one that writes line by line.

/// What a program has written at least, to whatever file, that met a pipe without readers and was not ended by that: less than the
/// buffer of any language, and more than most error messages.
const WRITTEN_BYTES: u32 = 1024;
/// What stands before a part, and behind it. `set -e` ends a part before what stands behind it; in a function, `||` would take `set
/// -e` away.
const BEGIN: &str = "{ ";
const END_OF_COMMAND: &str = " || eyas_part; }";
const END: &str = "; eyas_part; }";

/// The line for `bash -o pipefail -c`.
pub(crate) fn for_bash(line: &[u8]) -> Vec<u8> {
    if !line.contains(&b'|') {
        return line.to_vec();
    }
    match follow(line) {
        Some((_, pipes)) if pipes.is_empty() => line.to_vec(),
        Some((text, pipes)) => [functions(line, &pipes), text].concat(),
        None => [&functions(line, &[])[..], line].concat(),
    }
}

/// The line with what belongs to the parts of its pipes, and these. `None`: it cannot be followed.
fn follow(line: &[u8]) -> Option<(Vec<u8>, Vec<Pipe>)> {
    let mut reader =
        LineReader { text: line, at: 0, edits: vec![], pipes: vec![], here: vec![], depth: 0, calls: false };
    reader.list(&[])?;
    let LineReader { mut edits, pipes, .. } = reader;
    edits.sort_by_key(|edit| edit.0);
    let mut text = vec![];
    let mut from = 0;
    for (at, put) in edits {
        text.extend_from_slice(&line[from..at]);
        text.extend_from_slice(put.as_bytes());
        from = at;
    }
    text.extend_from_slice(&line[from..]);
    Some((text, pipes))
}

/// Where the parts of a pipe stand in the line.
type Pipe = Vec<(usize, usize)>;

/// What stands before the line, without a line feed, so that bash counts lines as the user does.
fn functions(line: &[u8], pipes: &[Pipe]) -> Vec<u8> {
    let part = format!(
        "eyas_part() {{ local s=$? k v; if [ $s = 0 ] || ! read -t 0 -u 1; then return $s; fi; \
         case $s in 141|120) return 0;; esac; \
         while read -r k v; do if [ $k = wchar: ] && [ $v -ge {WRITTEN_BYTES} ]; then return 0; fi; done < /proc/$BASHPID/io; \
         return $s; }} 2> /dev/null; "
    );
    let mut text = part.into_bytes();
    text.extend_from_slice(
        b"eyas_end() { local s=$1 i=0 f=0 t n=; shift; if [ $s = 0 ]; then return; fi; for t; do i=$((i+1)); if [ $t != 0 ]; then f=$i s=$t; fi; done; \
          if [ $f = 0 ] || [ $f = $# ]; then return; fi; case $#.$f in ",
    );
    // A pipe is known by the number of its parts, if there is one such pipe.
    for pipe in pipes {
        if pipes.iter().filter(|other| other.len() == pipe.len()).count() != 1 {
            continue;
        }
        for (n, (from, to)) in pipe.iter().enumerate() {
            let shown = String::from_utf8_lossy(&line[*from..*to]).replace(char::is_control, " ");
            let mut shown: String = shown.chars().take(80).collect();
            shown = shown.trim().replace('\'', "'\\''");
            text.extend_from_slice(format!("{}.{}) n=', {shown},';; ", pipe.len(), n + 1).as_bytes());
        }
    }
    text.extend_from_slice(
        b"esac; echo \"eyas: part $f of the $# of a pipe$n ended with status $s\" >&2; }; \
          trap 'eyas_end $? \"${PIPESTATUS[@]}\"' EXIT; ",
    );
    text
}

/// Follows a line as far as its pipes need it. `None`: it cannot be followed.
struct LineReader<'a> {
    text: &'a [u8],
    at: usize,
    /// What is put in, and where.
    edits: Vec<(usize, &'static str)>,
    pipes: Vec<Pipe>,
    /// Ends of the here-documents that begin behind this line; whether tabs before them are dropped.
    here: Vec<(Vec<u8>, bool)>,
    depth: u32,
    /// The line defines functions: a name may be one.
    calls: bool,
}

/// The deepest nesting that is followed.
const DEPTH_MAX: u32 = 200;
const BLANKS: &[u8] = b" \t";
/// What ends a word.
const META: &[u8] = b" \t\n|&;()<>";

impl LineReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// What is left; nothing behind a backslash at the end.
    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn begins(&self, with: &[u8]) -> bool {
        self.rest().starts_with(with)
    }

    fn skip(&mut self, any: &[u8]) {
        while self.peek().is_some_and(|c| any.contains(&c)) {
            self.at += 1;
        }
    }

    /// Blanks, joined lines and a comment.
    fn blanks(&mut self) {
        loop {
            self.skip(BLANKS);
            match self.begins(b"\\\n") {
                true => self.at += 2,
                false => break,
            }
        }
        if self.peek() == Some(b'#') {
            while self.peek().is_some_and(|c| c != b'\n') {
                self.at += 1;
            }
        }
    }

    /// What may stand between two commands, with the here-documents behind a line.
    fn gaps(&mut self) -> Option<()> {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Some(());
            }
            self.line_feed()?;
        }
    }

    fn line_feed(&mut self) -> Option<()> {
        self.at += 1;
        for (end, drops_tabs) in std::mem::take(&mut self.here) {
            loop {
                let rest = self.text.get(self.at..)?;
                if rest.is_empty() {
                    return None;
                }
                let length = rest.iter().position(|c| *c == b'\n').unwrap_or(rest.len());
                let line = &rest[..length];
                self.at = (self.at + length + 1).min(self.text.len());
                let line = match drops_tabs {
                    true => &line[line.iter().take_while(|c| **c == b'\t').count()..],
                    false => line,
                };
                if line == end {
                    break;
                }
            }
        }
        Some(())
    }

    /// The plain word that begins here: a reserved one is never quoted.
    fn plain(&self) -> &[u8] {
        let rest = self.rest();
        let end = rest.iter().position(|c| META.contains(c)).unwrap_or(rest.len());
        &rest[..end]
    }

    fn take_word(&mut self, word: &[u8]) -> bool {
        let is_it = self.plain() == word;
        self.at += if is_it { word.len() } else { 0 };
        is_it
    }

    /// Commands until one of the words `ends` at the place of a command; without `ends`, to the end of the text. Gives the number
    /// of the end.
    fn list(&mut self, ends: &[&[u8]]) -> Option<usize> {
        self.descend()?;
        loop {
            self.gaps()?;
            let found = ends.iter().position(|end| match end[0].is_ascii_alphabetic() || *end == b"}" {
                true => self.plain() == *end,
                false => self.begins(end),
            });
            if let Some(found) = found {
                self.at += ends[found].len();
                self.depth -= 1;
                return Some(found);
            }
            match self.peek() {
                None if ends.is_empty() => {
                    self.depth -= 1;
                    return self.here.is_empty().then_some(0);
                }
                None => return None,
                Some(b';') if self.begins(b";;") => return None,
                Some(b';' | b'&') => self.at += 1,
                Some(b'|') if self.begins(b"||") => self.at += 2,
                Some(b'|' | b')') => return None,
                Some(_) => self.pipeline()?,
            }
        }
    }

    fn pipeline(&mut self) -> Option<()> {
        loop {
            self.blanks();
            if !(self.take_word(b"!") || self.take_word(b"time")) {
                break;
            }
            self.blanks();
            if self.plain() == b"-p" {
                return None;
            }
        }
        let mut parts: Pipe = vec![];
        let mut are_simple = vec![];
        loop {
            let from = self.at;
            are_simple.push(self.command()?);
            let mut to = self.at;
            while to > from && BLANKS.contains(&self.text[to - 1]) {
                to -= 1;
            }
            (to > from).then(|| parts.push((from, to)))?;
            self.blanks();
            if self.peek() != Some(b'|') || self.begins(b"||") {
                break;
            }
            self.at += if self.begins(b"|&") { 2 } else { 1 };
            self.gaps()?;
        }
        for (n, (from, to)) in parts.iter().enumerate().take(parts.len() - 1) {
            let is_simple = are_simple[n] && !self.calls;
            self.edits.push((*from, BEGIN));
            self.edits.push((*to, if is_simple { END_OF_COMMAND } else { END }));
        }
        if parts.len() > 1 {
            self.pipes.push(parts);
        }
        Some(())
    }

    /// What is nested too deeply is not followed.
    fn descend(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEPTH_MAX).then_some(())
    }

    /// Whether it is a simple command.
    fn command(&mut self) -> Option<bool> {
        self.descend()?;
        let is_simple = self.command_inside();
        self.depth -= 1;
        is_simple
    }

    fn command_inside(&mut self) -> Option<bool> {
        self.blanks();
        match self.peek()? {
            b'(' if self.begins(b"((") => {
                self.at += 2;
                self.arithmetic()?;
            }
            b'(' => {
                self.at += 1;
                self.list(&[b")"])?;
            }
            _ => match self.plain() {
                b"{" => {
                    self.at += 1;
                    self.list(&[b"}"])?;
                }
                b"[[" => {
                    self.at += 2;
                    self.until_brackets()?;
                }
                b"if" => {
                    self.at += 2;
                    self.list(&[b"then"])?;
                    while self.list(&[b"elif", b"else", b"fi"])? != 2 {}
                }
                b"while" | b"until" => {
                    self.at += 5;
                    self.list(&[b"do"])?;
                    self.list(&[b"done"])?;
                }
                b"for" | b"select" => self.each()?,
                b"case" => self.case()?,
                b"function" | b"coproc" => return None,
                b"then" | b"do" | b"done" | b"fi" | b"else" | b"elif" | b"esac" | b"}" | b"in" => {
                    return None;
                }
                _ => return self.simple().map(|()| true),
            },
        }
        // Redirections may follow.
        self.simple()?;
        Some(false)
    }

    /// Words and redirections, also none.
    fn simple(&mut self) -> Option<()> {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'<' | b'>') if self.text.get(self.at + 1) == Some(&b'(') => self.word()?,
                Some(b'<') if self.begins(b"<<") && !self.begins(b"<<<") => self.here_document()?,
                Some(b'<' | b'>') => {
                    self.at += 1;
                    self.skip(b"<>&|");
                    self.blanks();
                    if self.peek() == Some(b'(') {
                        return None;
                    }
                }
                Some(b'&') if self.begins(b"&>") => self.at += 1,
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => return Some(()),
                Some(b'(') => {
                    // A function: its body is the next command.
                    self.at += 1;
                    self.blanks();
                    (self.peek() == Some(b')')).then_some(())?;
                    self.at += 1;
                    self.calls = true;
                    self.gaps()?;
                    return self.command().map(drop);
                }
                Some(_) => self.word()?,
            }
        }
    }

    fn here_document(&mut self) -> Option<()> {
        self.at += 2;
        let drops_tabs = self.peek() == Some(b'-');
        self.at += usize::from(drops_tabs);
        self.skip(BLANKS);
        let from = self.at;
        self.word()?;
        let end = self.text[from..self.at].iter().copied().filter(|c| !b"'\"\\".contains(c)).collect();
        self.here.push((end, drops_tabs));
        Some(())
    }

    /// One word, with all that is quoted in it; at least one character.
    fn word(&mut self) -> Option<()> {
        let from = self.at;
        while let Some(c) = self.peek() {
            match c {
                b'\\' => self.at += 2,
                b'\'' => self.until(b'\'')?,
                b'"' => self.double_quoted()?,
                b'`' => self.until_unescaped(b'`')?,
                b'$' => self.dollar()?,
                b'<' | b'>' if self.text.get(self.at + 1) == Some(&b'(') && self.at == from => {
                    self.at += 2;
                    self.list(&[b")"])?;
                }
                // `name=(a b)`
                b'(' if self.at > from && self.text[self.at - 1] == b'=' => {
                    self.at += 1;
                    loop {
                        self.gaps()?;
                        match self.peek()? {
                            b')' => break self.at += 1,
                            c if META.contains(&c) => return None,
                            _ => self.word()?,
                        }
                    }
                }
                c if META.contains(&c) => break,
                _ => self.at += 1,
            }
        }
        (self.at > from && self.at <= self.text.len()).then_some(())
    }

    fn until(&mut self, end: u8) -> Option<()> {
        let length = self.text.get(self.at + 1..)?.iter().position(|c| *c == end)?;
        self.at += length + 2;
        Some(())
    }

    fn until_unescaped(&mut self, end: u8) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                c => {
                    self.at += 1;
                    if c == end {
                        return Some(());
                    }
                }
            }
        }
    }

    fn double_quoted(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => break self.at += 1,
                b'`' => self.until_unescaped(b'`')?,
                b'$' => self.dollar()?,
                _ => self.at += 1,
            }
        }
        Some(())
    }

    fn dollar(&mut self) -> Option<()> {
        self.descend()?;
        let done = self.dollar_inside();
        self.depth -= 1;
        done
    }

    fn dollar_inside(&mut self) -> Option<()> {
        match self.text.get(self.at + 1) {
            Some(b'(') if self.begins(b"$((") => {
                self.at += 3;
                self.arithmetic()
            }
            Some(b'(') => {
                self.at += 2;
                self.list(&[b")"]).map(drop)
            }
            Some(b'\'') => {
                self.at += 1;
                self.until_unescaped(b'\'')
            }
            Some(b'{') => {
                self.at += 2;
                loop {
                    match self.peek()? {
                        b'}' => break self.at += 1,
                        b'\\' => self.at += 2,
                        b'\'' => self.until(b'\'')?,
                        b'"' => self.double_quoted()?,
                        b'$' => self.dollar()?,
                        b'`' => self.until_unescaped(b'`')?,
                        _ => self.at += 1,
                    }
                }
                Some(())
            }
            _ => {
                self.at += 1;
                Some(())
            }
        }
    }

    /// Behind `((`, up to `))`.
    fn arithmetic(&mut self) -> Option<()> {
        let mut n_open = 0;
        loop {
            match self.peek()? {
                b'(' => n_open += 1,
                b')' if n_open > 0 => n_open -= 1,
                b')' => {
                    // Otherwise it was a subshell in a subshell.
                    self.begins(b"))").then_some(())?;
                    self.at += 2;
                    return Some(());
                }
                b'$' => {
                    self.dollar()?;
                    continue;
                }
                b'\'' | b'"' | b'`' | b'\\' => return None,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Behind `[[`, up to `]]`.
    fn until_brackets(&mut self) -> Option<()> {
        loop {
            self.gaps()?;
            if self.take_word(b"]]") {
                return Some(());
            }
            match self.peek()? {
                c if META.contains(&c) => self.at += 1,
                _ => self.word()?,
            }
        }
    }

    fn each(&mut self) -> Option<()> {
        self.at += self.plain().len();
        self.blanks();
        if self.begins(b"((") {
            self.at += 2;
            self.arithmetic()?;
        } else {
            self.word()?;
            self.gaps()?;
            if self.take_word(b"in") {
                loop {
                    self.blanks();
                    match self.peek()? {
                        b'\n' | b';' => break,
                        c if META.contains(&c) => return None,
                        _ => self.word()?,
                    }
                }
            }
        }
        self.gaps()?;
        self.skip(b";");
        self.gaps()?;
        self.take_word(b"do").then_some(())?;
        self.list(&[b"done"]).map(drop)
    }

    fn case(&mut self) -> Option<()> {
        self.at += 4;
        self.blanks();
        self.word()?;
        self.gaps()?;
        self.take_word(b"in").then_some(())?;
        loop {
            self.gaps()?;
            if self.take_word(b"esac") {
                return Some(());
            }
            self.skip(b"(");
            loop {
                self.blanks();
                match self.peek()? {
                    b')' => break self.at += 1,
                    b'|' => self.at += 1,
                    c if META.contains(&c) => return None,
                    _ => self.word()?,
                }
            }
            if self.list(&[b";;&", b";;", b";&", b"esac"])? == 3 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn followed(line: &str) -> Option<String> {
        follow(line.as_bytes()).map(|(text, _)| String::from_utf8(text).unwrap())
    }

    /// Status, standard output and standard error of a line as tasks run it.
    fn run(line: &str) -> (i32, String, String) {
        let script = for_bash(line.as_bytes());
        let script = String::from_utf8(script).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-c", &script]).env_remove("PYTHONUNBUFFERED");
        let done = bash.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
    }

    #[test]
    fn parts_are_found_where_the_shell_finds_them() {
        for (line, expect) in [
            ("a | b", "{ a || eyas_part; } | b"),
            ("a 'x|y' \"p|q\" \\| | b|c", "{ a 'x|y' \"p|q\" \\| || eyas_part; } | { b || eyas_part; }|c"),
            ("a || b | c && d", "a || { b || eyas_part; } | c && d"),
            ("! a | b; c # d | e", "! { a || eyas_part; } | b; c # d | e"),
            ("x=$(a | b) c", "x=$({ a || eyas_part; } | b) c"),
            ("(a; b) | c", "{ (a; b); eyas_part; } | c"),
            ("for i in 1 2; do a; done | c", "{ for i in 1 2; do a; done; eyas_part; } | c"),
            ("case x in a|b) c | d;; *) e;; esac", "case x in a|b) { c || eyas_part; } | d;; *) e;; esac"),
            ("cat <<E | b\nx | y\nE\nc", "{ cat <<E || eyas_part; } | b\nx | y\nE\nc"),
            ("[[ a =~ x|y ]] && echo $((1|2)) >| f", "[[ a =~ x|y ]] && echo $((1|2)) >| f"),
            ("a |& b", "{ a || eyas_part; } |& b"),
            ("f() { a | b; }; f | c", "f() { { a; eyas_part; } | b; }; { f; eyas_part; } | c"),
            ("if a | b; then c; else d; fi > o", "if { a || eyas_part; } | b; then c; else d; fi > o"),
            ("a <(b | c) | d", "{ a <({ b || eyas_part; } | c) || eyas_part; } | d"),
            ("a \\\n | b", "{ a \\\n || eyas_part; } | b"),
            ("a |\n b", "{ a || eyas_part; } |\n b"),
            ("echo `a | b`", "echo `a | b`"),
            ("a 2>&1 | b", "{ a 2>&1 || eyas_part; } | b"),
            ("while read l; do x; done < f | c", "{ while read l; do x; done < f; eyas_part; } | c"),
        ] {
            assert_eq!(followed(line).as_deref(), Some(expect), "{line}");
        }
        for line in ["a | 'b", "a | (b", "a | b)", "a |", "cat <<E | b\nx", "if a | b; then c"] {
            assert_eq!(followed(line), None, "{line}");
        }
    }

    #[test]
    fn a_pipe_fails_with_any_part_and_names_it() {
        for (line, status, named) in [
            ("false | cat", 1, "part 1 of the 2 of a pipe, false, ended with status 1"),
            ("sh -c 'exit 3' | true", 3, "part 1 of the 2 of a pipe, sh -c 'exit 3', ended with status 3"),
            ("sh -c 'echo no >&2; exit 3' | true", 3, "part 1 of"),
            ("sh -c 'echo one; exit 3' | cat", 3, "part 1 of"),
            ("sh -c 'for i in $(seq 50); do echo $i >&2; done; exit 3' | true", 3, "part 1 of"),
            (
                "echo a | sh -c 'cat; exit 4' | sort | cat",
                4,
                "part 2 of the 4 of a pipe, sh -c 'cat; exit 4',",
            ),
            ("set -e; false | cat; true", 1, "part 1 of"),
            ("false | cat && true", 1, "part 1 of"),
            ("kill -9 $BASHPID | cat", 137, "part 1 of"),
            ("false | cat; true", 0, ""),
            ("false | cat || true", 0, ""),
            ("true | false", 1, ""),
            ("x=$(false | cat)", 1, ""),
            ("exit 7 | cat", 7, "part 1 of"),
            ("(exit 8) | cat", 8, "part 1 of"),
            ("sleep 0 | cat | sh -c 'exit 5'", 5, ""),
        ] {
            let (got, _, err) = run(line);
            assert_eq!(got, status, "{line}: {err}");
            assert!(err.contains(named) && (named.is_empty() || err.contains("eyas:")), "{line}: {err}");
            assert!(!named.is_empty() || !err.contains("eyas:"), "{line}: {err}");
        }
    }

    #[test]
    fn a_reader_that_had_enough_is_no_failure() {
        let python = |how: &str| {
            format!("python3 -c 'import sys\nfor i in range(10**6): {how}' 2> /dev/null | head -1")
        };
        for (line, out) in [
            ("seq 1000000 | head -1", "1\n"),
            ("seq 1000000 | head -1 && echo on", "1\non\n"),
            ("set -e; seq 1000000 | head -1; echo on", "1\non\n"),
            ("set -eu; x=$(seq 1000000 | head -1); echo $x", "1\n"),
            ("seq 1000000 | sort -n | head -1", "1\n"),
            ("yes | tr y n | head -1", "n\n"),
            ("(seq 1000000; echo x) | head -1", "1\n"),
            ("if seq 1000000 | grep -q 7; then echo found; fi", "found\n"),
            ("f() { seq 1000000; }; f | head -1", "1\n"),
            ("for i in 1 2; do seq 1000000 | head -1; done", "1\n1\n"),
            (&python("print(i)"), "0\n"),
            (&python("sys.stdout.write(str(i) + \"\\\\n\")").replace("\\\\n", "\\n"), "0\n"),
            (&python("print(i, flush=True)"), "0\n"),
            (
                "python3 -c 'import time; print(1, flush=True); time.sleep(0.3); print(2)' 2> /dev/null | head -1",
                "1\n",
            ),
        ] {
            assert_eq!(run(line), (0, out.to_owned(), String::new()), "{line}");
        }
        // Another part fails all the same, and is named.
        let (status, _, err) = run("seq 1000000 | sh -c 'exit 3' | cat");
        assert_eq!(status, 3, "{err}");
        assert!(err.contains("part 2 of the 3"), "{err}");
    }

    proptest! {
        #[test]
        fn any_line_is_followed_or_left(line in "[a|&;(){}<>$'\"`\\\\ \\n#!=\\[\\]-]{0,40}") {
            followed(&line);
        }

        /// Whatever is put in, bash takes the line if it took it before.
        #[test]
        fn what_bash_could_read_it_can_still_read(
            line in "(a|b c|[|]|[|] |;|&&|\\(|\\)|\\{ |; \\}|\\$\\(|'|\"|if |; then |; fi|for i in x; do |; done|>f|\\n| |# ){1,14}"
        ) {
            let reads = |text: &str| Command::new("bash").args(["-n", "-c", text]).output().unwrap().status.success();
            if line.contains('|') && reads(&line) {
                prop_assert!(reads(&String::from_utf8(for_bash(line.as_bytes())).unwrap()), "{line}");
            }
        }
    }
}
