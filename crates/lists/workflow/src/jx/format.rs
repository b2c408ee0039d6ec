//! The function `format`: a text with placeholders, as in C.

use super::Value;
use crate::error::{Error, Result, shown};

/// `%d`, `%i`, `%s`, `%f`, `%e`, `%g` and `%%`, with a width and a precision as in C. `grows_by` is called
/// with a number of bytes of text before they are made.
pub(super) fn format(form: &str, values: &[Value], grows_by: &dyn Fn(usize) -> Result<()>) -> Result<String> {
    const WIDTH_MAX: usize = 1000;
    grows_by(form.len())?;
    let mut out = String::with_capacity(form.len());
    let mut values = values.iter();
    let mut parts = form.split('%');
    out.push_str(parts.next().unwrap_or(""));
    while let Some(part) = parts.next() {
        if part.is_empty() {
            // `%%`, and what follows it.
            out.push('%');
            out.push_str(parts.next().unwrap_or(""));
            continue;
        }
        let at = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (spec, rest) = part.split_at(at);
        let wrong =
            || Error::broken(format!("{} is no placeholder that is understood", shown(&format!("%{part}"))));
        let mut chars = rest.chars();
        let kind = chars.next().ok_or_else(wrong)?;
        let flags = spec.len() - spec.trim_start_matches(['-', '0', '+', ' ']).len();
        let (flags, size) = spec.split_at(flags);
        let (width, precision) = match size.split_once('.') {
            Some((width, precision)) => (width, Some(precision)),
            None => (size, None),
        };
        let number = |text: &str| -> Result<usize> {
            let value = if text.is_empty() { Ok(0) } else { text.parse() };
            value.ok().filter(|n| *n <= WIDTH_MAX).ok_or_else(wrong)
        };
        let (width, precision) = (number(width)?, precision.map(number).transpose()?);
        let value = values.next().ok_or_else(|| {
            Error::broken(format!("{} has more placeholders than values follow it", shown(form)))
        })?;
        let text = match (kind, value) {
            ('d' | 'i', Value::Int(n)) => n.to_string(),
            ('d' | 'i', Value::Float(x)) => (x.trunc() as i64).to_string(),
            ('f' | 'F', v) if v.number().is_some() => {
                format!("{:.*}", precision.unwrap_or(6), v.number().unwrap_or(0.0))
            }
            ('e' | 'E' | 'g' | 'G', v) if v.number().is_some() => v.number().unwrap_or(0.0).to_string(),
            ('s', v) if v.text().is_some() => {
                let text = v.text().unwrap_or_default();
                grows_by(text.len())?;
                text.chars().take(precision.unwrap_or(usize::MAX)).collect()
            }
            (kind, value) => {
                return Err(Error::broken(format!("`%{kind}` does not fit {}", value.kind())));
            }
        };
        let n_missing = width.saturating_sub(text.chars().count());
        grows_by(n_missing + usize::from(kind != 's') * text.len())?;
        match (flags.contains('-'), flags.contains('0') && kind != 's') {
            (true, _) => out.extend([text, " ".repeat(n_missing)]),
            (false, false) => out.extend([" ".repeat(n_missing), text]),
            (false, true) => {
                let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
                out.extend([sign, &"0".repeat(n_missing), digits]);
            }
        }
        out.push_str(chars.as_str());
    }
    Ok(out)
}
