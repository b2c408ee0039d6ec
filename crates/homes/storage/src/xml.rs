//! XML as servers answer it: the texts of its elements, each with the path to it.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// Calls `found` with the path of each element that has no elements in it, such as `Contents/Key`, and its text. The name of
/// the outermost element is left out, because servers differ in it.
///
/// Broken XML ends the walk early; what came before it counts.
pub(crate) fn each_text(xml: &[u8], found: &mut dyn FnMut(&str, &str)) {
    let text = String::from_utf8_lossy(xml);
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut names: Vec<String> = Vec::new();
    let mut content = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                names.push(start.local_name().as_ref().to_owned());
                content.clear();
            }
            Ok(Event::Empty(element)) => {
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
            Ok(Event::Eof) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
