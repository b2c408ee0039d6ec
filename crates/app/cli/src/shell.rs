//! `eyas completions` and `eyas man`: what a shell and `man` know of the program, made of the same declarations as its help.

use crate::help::names_of_verbs;
use crate::{Exit, Fault};
use clap::{Args, Command};
use eyas_text::{plural, shown_path};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell that completes the words
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

#[derive(Args)]
pub struct ManArgs {
    /// The folder for the pages; it is made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// * `program`: the command line of the whole program.
pub fn completions(args: &CompletionsArgs, mut program: Command) -> Result<Exit, Fault> {
    let shell: clap_complete::Shell = args.shell.parse().expect("the values of the option are shells");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "eyas", &mut script);
    let mut out = eyas_text::raw_unless_terminal();
    match shell {
        clap_complete::Shell::Bash => {
            out.write_all(words_first(&String::from_utf8_lossy(&script)).as_bytes())?
        }
        _ => out.write_all(&script)?,
    }
    out.flush()?;
    Ok(Exit::Good)
}

/// A script for bash, in which options are offered only for a word that begins with `-`. As it is made, it offers them for an empty word,
/// before commands, and where there are no commands in place of files.
fn words_first(script: &str) -> String {
    const OFFERS: &str = r#"COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )"#;
    const OFFER_WORDS: &str = r#"# Where there is no such word, bash completes the names of files.
_eyas_words() {
    local word words=()
    for word in ${opts}; do
        if [[ ${cur} == -* || ${word} != -* ]]; then
            words+=("${word}")
        fi
    done
    COMPREPLY=( $(compgen -W "${words[*]}" -- "${cur}") )
}

"#;
    format!("{OFFER_WORDS}{}", script.replace(OFFERS, "_eyas_words"))
}

/// * `program`: the command line of the whole program.
pub fn man(args: &ManArgs, mut program: Command) -> Result<Exit, Fault> {
    let fail = |what: &Path, error: std::io::Error| {
        Fault::new(Exit::Other, format!("{} cannot be written: {error}", shown_path(what)))
    };
    std::fs::create_dir_all(&args.folder).map_err(|error| fail(&args.folder, error))?;
    program.build();
    let verbs = names_of_verbs().filter_map(|name| program.find_subcommand(name).cloned());
    let mut n_pages = 0;
    for command in std::iter::once(program.clone()).chain(verbs) {
        let name = command.get_bin_name().unwrap_or("eyas").replace(' ', "-");
        let path = args.folder.join(format!("{name}.1"));
        let mut page = Vec::new();
        // A page has all options, and not only those of the short help.
        let command = command.mut_args(|arg| arg.hide_short_help(false));
        let title = clap_mangen::Man::new(command).title(name.to_uppercase());
        title.render(&mut page).expect("memory takes all");
        std::fs::write(&path, page).map_err(|error| fail(&path, error))?;
        n_pages += 1;
    }
    eyas_text::say!("{} in {}", plural(n_pages, "page"), shown_path(&args.folder));
    Ok(Exit::Good)
}
