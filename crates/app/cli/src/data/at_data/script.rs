//! `--script`: a batch script with lines `#EYAS --input NAME=/KEY/PATH …`, which say what the script reads and makes.
//!
//! Source: `Wozniak06` §III-B ("simple extensions to the syntax of these job scheduler scripts may be preprocessed by the `Run` client")
//! and §III-C.2. Deviation: names in the script itself are not replaced; the script finds each input under its `NAME`.

use super::args::AtDataArgs;
use crate::Fault;
use crate::fault::bad;
use clap::Parser;
use eyas_at_data::{Input, Output, read_script};
use eyas_text::{line_of, shown_path};
use std::path::Path;

/// What a line `#EYAS` may say.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[arg(long = "input")]
    inputs: Vec<Input>,
    #[arg(long = "output")]
    outputs: Vec<Output>,
    #[arg(long = "tag")]
    tags: Vec<String>,
    #[arg(long)]
    label: Option<String>,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: Option<u32>,
    #[arg(long)]
    site: Option<String>,
}

/// The options of the command, and those of its script's lines after them. What is given once stands on the command line if it is there.
pub fn with_lines(args: &AtDataArgs, script: &Path) -> Result<AtDataArgs, Fault> {
    let mut args = args.clone();
    for (n, line) in read_script(script)?.lines().enumerate() {
        let Some(rest) = line.strip_prefix("#EYAS") else { continue };
        let wrong = |what: &str| bad(format!("line {} of {}: {}", n + 1, shown_path(script), line_of(what)));
        let words = words_of(rest).ok_or_else(|| wrong("a quote is not closed"))?;
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            wrong(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
                .hint("a line #EYAS has --input, --output, --tag, --label, --copies or --site")
        })?;
        args.inputs.extend(line.inputs);
        args.outputs.extend(line.outputs);
        args.tags.extend(line.tags);
        args.label = args.label.or(line.label);
        args.copies = args.copies.or(line.copies);
        args.site = args.site.or(line.site);
    }
    let needs_output =
        !args.tags.is_empty() || args.label.is_some() || args.copies.is_some() || args.site.is_some();
    if args.outputs.is_empty() && needs_output {
        let what = "names no --output, so there is no data set for --tag, --label, --copies or --site";
        return Err(bad(format!("{} {what}", shown_path(script))));
    }
    args.command = vec![std::path::absolute(script)?.display().to_string()];
    Ok(args)
}

/// Words as a shell splits them, with single and double quotes; `None`: a quote is not closed.
fn words_of(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (vec![], None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = words_of(r#" --tag "note=two words"  --tag a='' b"c'd""#).expect("all quotes are closed");
        assert_eq!(words, ["--tag", "note=two words", "--tag", "a=", "bc'd"]);
        assert_eq!(words_of(""), Some(vec![]));
        assert_eq!(words_of("--tag 'open"), None);
    }
}
