//! XML as servers answer it: the texts of its elements, each with the path to it.

use crate::error::{Error, ErrorKind, Result, Status};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// Whether the answer is whole, and what it is.
pub(crate) enum Outermost {
    /// It is whole; the name of its outermost element, without a prefix.
    Named(String),
    /// It breaks off, or is no XML.
    Broken,
}

impl Outermost {
    /// Errors: the answer is not a whole `wanted`, of which a part must not be taken for all of it.
    pub(crate) fn check(
        self,
        wanted: &str,
        operation: &'static str,
        at: impl std::fmt::Display,
    ) -> Result<()> {
        let reason = match self {
            Outermost::Named(name) if name == wanted => return Ok(()),
            Outermost::Named(name) => {
                format!("the server answered with `{name}` where `{wanted}` was asked for")
            }
            Outermost::Broken => {
                format!("the server's answer breaks off, or is no XML, where `{wanted}` was asked for")
            }
        };
        Err(Error::new(ErrorKind::Io, Status::Temporary, operation, at, reason))
    }
}

/// Calls `found` with the path of each element that has no elements in it, such as `Contents/Key`, and its text. The name of
/// the outermost element is left out. Of broken XML, what comes before the break is found.
pub(crate) fn each_text(xml: &[u8], found: &mut dyn FnMut(&str, &str)) -> Outermost {
    let mut outermost = None;
    let text = String::from_utf8_lossy(xml);
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut names: Vec<String> = Vec::new();
    let mut content = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let name = start.local_name().as_ref().to_owned();
                outermost.get_or_insert_with(|| name.clone());
                names.push(name);
                content.clear();
            }
            Ok(Event::Empty(element)) => {
                outermost.get_or_insert_with(|| element.local_name().as_ref().to_owned());
                let above = names.get(1..).unwrap_or_default().join("/");
                let slash = if above.is_empty() { "" } else { "/" };
                found(&format!("{above}{slash}{}", element.local_name().as_ref()), "");
            }
            Ok(Event::Text(text)) => content.push_str(&text),
            Ok(Event::CData(text)) => content.push_str(&text),
            Ok(Event::GeneralRef(entity)) => match entity.resolve_char_ref() {
                Ok(Some(c)) => content.push(c),
                _ => {
                    content.push_str(resolve_predefined_entity(&entity).unwrap_or_default());
                }
            },
            Ok(Event::End(_)) => {
                if names.len() > 1 {
                    found(&names[1..].join("/"), &content);
                }
                names.pop();
                content.clear();
            }
            Ok(Event::Eof) if names.is_empty() => {
                return outermost.map_or(Outermost::Broken, Outermost::Named);
            }
            Ok(Event::Eof) | Err(_) => return Outermost::Broken,
            Ok(_) => {}
        }
    }
}
