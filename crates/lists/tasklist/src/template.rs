//! Words with holes: `cut/{stem}.npy`. `{{` and `}}` stand for braces.

use crate::error::{Error, Result, shown};
use crate::shell::LineQuotes;
use eyas_text::line_of;
use eyas_text::nearest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hole {
    /// A part of the text of a column that is mapped over.
    Column { column: usize, part: Part },
    /// The name of output `n` in the sandbox, counted from 0.
    Out(usize),
    /// The task's number.
    Index,
}

/// The part that a hole takes of a text that may be a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Whole,
    /// The file name, without its ending, and without a compression suffix before that.
    Stem,
    /// `{/}`: the file name.
    Name,
    /// `{.}`: everything except the ending.
    NoEnding,
    /// `{/.}`: the file name without its ending.
    NameNoEnding,
    /// `{//}`: the folder.
    Folder,
}

impl Part {
    /// The sign that follows the number or the name of a column in a hole, as in GNU parallel.
    pub const SIGNS: [(&str, Part); 5] = [
        ("", Part::Whole),
        ("/", Part::Name),
        (".", Part::NoEnding),
        ("/.", Part::NameNoEnding),
        ("//", Part::Folder),
    ];
}

/// The holes that a text may have, by name. `H` says what stands in a hole.
#[derive(Clone, Debug)]
pub struct Holes<H> {
    /// Those that messages name.
    named: Vec<(String, H)>,
    /// Those that follow from others.
    others: Vec<(String, H)>,
}

impl<H> Default for Holes<H> {
    fn default() -> Holes<H> {
        Holes { named: vec![], others: vec![] }
    }
}

impl<H: Copy> Holes<H> {
    /// Adds a hole that messages name.
    pub fn add_named(&mut self, name: impl Into<String>, hole: H) {
        self.named.push((name.into(), hole));
    }

    /// Adds a hole that messages do not name, because it follows from others.
    pub fn add(&mut self, name: impl Into<String>, hole: H) {
        self.others.push((name.into(), hole));
    }

    fn all(&self) -> impl Iterator<Item = &(String, H)> {
        self.named.iter().chain(&self.others)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all().map(|(name, _)| name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<H> {
        self.all().find(|(known, _)| known == name).map(|(_, hole)| *hole)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment<H> {
    Text(String),
    Hole(H),
}

/// Parses `text`, which may contain only `known` holes. `what` names the text in messages. A text without any character gives no
/// segment. `Err`: a lone brace, or an unknown hole.
pub fn parse<H: Copy>(what: &str, text: &str, known: &Holes<H>) -> Result<Vec<Segment<H>>> {
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
        let Some(hole) = known.get(name) else {
            let names: Vec<&str> = known.named.iter().map(|(name, _)| name.as_str()).collect();
            let known = match names.is_empty() {
                true => "no holes are known here".into(),
                false => {
                    format!("known here are {}", shortened_list(&names, |name| format!("{{{name}}}"), " "))
                }
            };
            let near =
                nearest(name, &names).map(|n| format!("did you mean {}? ", shown(&format!("{{{n}}}"))));
            let near = near.unwrap_or_default();
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
        segments.push(Segment::Hole(hole));
        rest = &rest[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        segments.push(Segment::Text(literal));
    }
    Ok(segments)
}

/// Names from a user's table for a message, limited to a few if there are a thousand.
pub(crate) fn shortened_list(names: &[&str], as_is: impl Fn(&str) -> String, between: &str) -> String {
    const NAMES_MAX: usize = 30;
    const CHARS_MAX: usize = 60;
    let some = names.iter().take(NAMES_MAX).map(|name| as_is(&line_of(name).at_most(CHARS_MAX).to_string()));
    let mut text = some.collect::<Vec<_>>().join(between);
    if names.len() > NAMES_MAX {
        text += &format!("{between}and {} more", names.len() - NAMES_MAX);
    }
    text
}

/// `template` with `value` appended for each hole.
pub fn fill<H: Copy>(template: &[Segment<H>], value: &dyn Fn(H) -> String) -> String {
    let mut out = String::new();
    for segment in template {
        match segment {
            Segment::Text(text) => out.push_str(text),
            Segment::Hole(hole) => out.push_str(&value(*hole)),
        }
    }
    out
}

/// The same for a line that a shell reads, which reads each value back as it is.
pub fn fill_line<H: Copy>(template: &[Segment<H>], value: &dyn Fn(H) -> String) -> String {
    let (mut out, mut quotes) = (String::new(), LineQuotes::default());
    for segment in template {
        match segment {
            Segment::Text(text) => {
                quotes.pass(text);
                out.push_str(text);
            }
            Segment::Hole(hole) => out.push_str(&quotes.word(&value(*hole))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Hole = Hole::Column { column: 0, part: Part::Whole };
    const STEM: Hole = Hole::Column { column: 0, part: Part::Stem };

    fn all() -> Holes<Hole> {
        let mut holes = Holes::default();
        for (name, hole) in [
            ("in", WHOLE),
            ("out", Hole::Out(0)),
            ("out2", Hole::Out(1)),
            ("stem", STEM),
            ("index", Hole::Index),
        ] {
            holes.add_named(name, hole);
        }
        holes.add("", WHOLE);
        holes
    }

    #[test]
    fn holes_and_braces() {
        let value = |hole: Hole| format!("<{}>", all().named.iter().find(|(_, h)| *h == hole).unwrap().0);
        for (text, expect) in [
            ("", ""),
            ("plain", "plain"),
            ("cut/{stem}.npy", "cut/<stem>.npy"),
            ("{in}{out}{out2}", "<in><out><out2>"),
            ("awk '{{print $1}}' {in}", "awk '{print $1}' <in>"),
            ("{{{index}}}", "{<index>}"),
            ("é{stem}é", "é<stem>é"),
            ("{}", "<in>"),
        ] {
            assert_eq!(fill(&parse("the word", text, &all()).unwrap(), &value), expect, "{text}");
        }
    }

    #[test]
    fn a_wrong_hole_is_named_together_with_the_right_ones() {
        for (text, expect) in [
            ("{stm}", "an unknown hole `{stm}`\nhint: did you mean `{stem}`? known here are {in} {out}"),
            ("{print $1}", "an unknown hole `{print $1}`"),
            ("a}b", "a lone brace"),
            ("a{b", "a lone brace"),
            ("{out3}", "an unknown hole `{out3}`"),
        ] {
            let error = parse("the word", text, &all()).unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains("`{{`"), "{text}: {error}");
        }
    }
}
