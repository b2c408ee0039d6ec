//! A query's text in pieces, each with its place.

/// A piece of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a number, a date, a word of the language.
    Word(String),
    /// A text in quotes, without them.
    Quoted(String),
    /// `=`, `!=`, `<`, `<=`, `>`, `>=`, `..`, `(`, `)` or `,`.
    Sign(&'static str),
    /// The end of the query.
    End,
}

/// Longer signs stand before those that they begin with.
const SIGNS: [&str; 10] = ["<=", ">=", "!=", "..", "=", "<", ">", "(", ")", ","];

/// The tokens of a query with their places (in characters), the last one [`Token::End`]; or where and why it cannot be read.
pub(super) fn tokens(query: &str) -> Result<Vec<(usize, Token)>, (usize, String)> {
    let text: Vec<char> = query.chars().collect();
    let mut found = vec![];
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        if c.is_whitespace() {
            at += 1;
        } else if c == '\'' || c == '"' {
            let (quoted, end) = quoted(&text, at)?;
            found.push((at, Token::Quoted(quoted)));
            at = end;
        } else if let Some(sign) = sign_at(&text, at) {
            found.push((at, Token::Sign(sign)));
            at += sign.len();
        } else if is_of_word(c) {
            let start = at;
            while at < text.len() && is_of_word(text[at]) && sign_at(&text, at).is_none() {
                at += 1;
            }
            found.push((start, Token::Word(text[start..at].iter().collect())));
        } else {
            let message = format!(
                "a word cannot have {}; put a text with it in quotes",
                eyas_text::shown(&c.to_string())
            );
            return Err((at, message));
        }
    }
    found.push((text.len(), Token::End));
    Ok(found)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "_-.:+/@~".contains(c)
}

fn sign_at(text: &[char], at: usize) -> Option<&'static str> {
    SIGNS.into_iter().find(|sign| sign.chars().enumerate().all(|(n, c)| text.get(at + n) == Some(&c)))
}

/// The text in quotes that begins at `start`, where a doubled quote is one, and the place behind it.
fn quoted(text: &[char], start: usize) -> Result<(String, usize), (usize, String)> {
    let quote = text[start];
    let mut inside = String::new();
    let mut at = start + 1;
    loop {
        match text.get(at) {
            None => return Err((start, format!("the text that begins here has no end: {quote} is missing"))),
            Some(c) if *c != quote => inside.push(*c),
            Some(_) if text.get(at + 1) == Some(&quote) => {
                inside.push(quote);
                at += 1;
            }
            Some(_) => return Ok((inside, at + 1)),
        }
        at += 1;
    }
}
