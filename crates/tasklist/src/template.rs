//! Words with holes: `cut/{stem}.npy`. `{{` and `}}` stand for braces.

use crate::error::{Error, Result, nearest, shown};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hole {
    /// The input's name in the sandbox.
    In,
    /// The name of output `n` in the sandbox, counted from 0.
    Out(usize),
    /// The input's file name without its ending.
    Stem,
    /// The input's file name.
    Name,
    /// The task's number.
    Index,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    Text(String),
    Hole(Hole),
}

/// Reads `text`; only the holes in `known` may be in it. `what` names the text in messages.
pub(crate) fn parse(what: &str, text: &str, known: &[Hole]) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push_str(&rest[..1]);
            rest = &rest[2..];
            continue;
        }
        let braces = "write `{{` and `}}` for braces that are meant as such";
        let Some(end) = rest.find('}').filter(|end| *end > 0) else {
            return Err(Error::invalid(format!("{what} {} has a lone brace", shown(text))).hint(braces));
        };
        let name = &rest[1..end];
        let names: Vec<String> = known.iter().map(Hole::name).collect();
        let Some(hole) = names.iter().position(|n| n == name) else {
            let known = match names.is_empty() {
                true => "no holes are known here".into(),
                false => format!("known here are {{{}}}", names.join("} {")),
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let near = nearest(name, &names).map(|n| format!("did you mean `{{{n}}}`? ")).unwrap_or_default();
            return Err(Error::invalid(format!(
                "{what} {} has an unknown hole {}",
                shown(text),
                shown(&rest[..=end])
            ))
            .hint(format!("{near}{known}; {braces}")));
        };
        if !literal.is_empty() {
            segments.push(Segment::Text(std::mem::take(&mut literal)));
        }
        segments.push(Segment::Hole(known[hole]));
        rest = &rest[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        segments.push(Segment::Text(literal));
    }
    Ok(segments)
}

impl Hole {
    pub fn name(&self) -> String {
        match self {
            Hole::In => "in".into(),
            Hole::Out(0) => "out".into(),
            Hole::Out(n) => format!("out{}", n + 1),
            Hole::Stem => "stem".into(),
            Hole::Name => "name".into(),
            Hole::Index => "index".into(),
        }
    }
}

/// `template` with `value` appended for each hole.
pub(crate) fn fill(template: &[Segment], value: &dyn Fn(Hole) -> String) -> String {
    let mut out = String::new();
    for segment in template {
        match segment {
            Segment::Text(text) => out.push_str(text),
            Segment::Hole(hole) => out.push_str(&value(*hole)),
        }
    }
    out
}

/// `word` as the shell reads it back unchanged.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Hole] = &[Hole::In, Hole::Out(0), Hole::Out(1), Hole::Stem, Hole::Name, Hole::Index];

    #[test]
    fn holes_and_braces() {
        let value = |hole: Hole| format!("<{}>", hole.name());
        for (text, expect) in [
            ("", ""),
            ("plain", "plain"),
            ("cut/{stem}.npy", "cut/<stem>.npy"),
            ("{in}{out}{out2}", "<in><out><out2>"),
            ("awk '{{print $1}}' {in}", "awk '{print $1}' <in>"),
            ("{{{index}}}", "{<index>}"),
            ("é{name}é", "é<name>é"),
        ] {
            assert_eq!(fill(&parse("the word", text, ALL).unwrap(), &value), expect, "{text}");
        }
    }

    #[test]
    fn a_wrong_hole_is_named_together_with_the_right_ones() {
        for (text, expect) in [
            ("{stm}", "an unknown hole `{stm}`\nhint: did you mean `{stem}`? known here are {in} {out}"),
            ("{print $1}", "an unknown hole `{print $1}`"),
            ("{}", "an unknown hole `{}`"),
            ("a}b", "a lone brace"),
            ("a{b", "a lone brace"),
            ("{out3}", "an unknown hole `{out3}`"),
        ] {
            let error = parse("the word", text, ALL).unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains("`{{`"), "{text}: {error}");
        }
    }

    #[test]
    fn quoting() {
        for (word, expect) in
            [("a.b/c-1", "a.b/c-1"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("a\nb", "'a\nb'")]
        {
            assert_eq!(quoted(word), expect);
        }
    }
}
