//! `eyas cat`: the bytes of objects at home, one behind the other, on standard output.

use crate::files::named_by;
use crate::{Exit, Fault, homes};
use clap::Args;
use std::io::{Read, Write};

#[derive(Args)]
pub struct CatArgs {
    /// Files, or patterns in quotes: paths or URLs
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Only these bytes, counted from 0, without the last: 0..100
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    bytes: Option<std::ops::Range<u64>>,
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match bounds {
        Some((from, to)) if from <= to => Ok(from..to),
        _ => Err("write two numbers, as in 0..100".into()),
    }
}

pub fn cat(args: CatArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let mut out = eyas_text::raw_unless_terminal();
    let mut block = vec![0; 256 << 10];
    let mut files = vec![];
    for word in &args.files {
        files.extend(named_by(&homes, word, false)?);
    }
    for location in files {
        let mut opened = homes.open(&location, args.bytes.clone()).map_err(homes::fault)?;
        loop {
            let n = opened
                .reader
                .read(&mut block)
                .map_err(|e| homes::fault(eyas_storage::Error::from_read("read", &location, e)))?;
            if n == 0 {
                break;
            }
            out.write_all(&block[..n])?;
        }
    }
    out.flush()?;
    Ok(Exit::Good)
}
