//! The program `eyas`: it parses arguments, connects the parts and prints. Nothing is decided here; text for
//! users stays here.
//!
//! `eyas-lab` uses this crate, too: the parts of a cluster on this machine, the options of the simulator, and
//! the printing of results and errors.

// All output passes `eyas_text::Printer`; `clippy.toml` beside this crate forbids using the streams directly.
#![warn(clippy::print_stdout, clippy::print_stderr)]

/// A line of results, on standard output. Where it cannot be written, the command goes on, and its end says so.
#[macro_export]
macro_rules! show {
    ($($text:tt)*) => {
        $crate::show_line(format_args!($($text)*))
    };
}

mod add;
pub mod args;
mod bench;
mod cancel;
mod cat;
mod clusters;
mod config;
mod connect;
mod cp;
mod data;
mod declared;
pub mod dirs;
mod dispatcher;
mod ending;
mod environment;
mod equipment;
mod executor;
mod fault;
pub mod figures;
mod files;
mod follow;
mod forget;
mod given_up;
mod help;
mod hints;
mod home;
mod homes;
mod json;
pub mod local;
mod logs;
mod ls;
pub mod machine;
mod map;
mod model;
mod node;
mod pairs;
mod predict;
pub mod print;
mod printed;
mod probe;
mod profile;
mod programs;
mod progress;
mod provide;
mod provider;
mod provider_check;
mod relay;
mod replaces;
mod resume;
mod run;
mod running;
mod runtimes;
mod shell;
mod signals;
pub mod sim;
mod source;
mod status;
mod submit;
mod tasks;
mod tell;
mod tmpfs;
mod top;
mod up;
mod user;
mod verb;
mod wait;
mod walltime;
mod warm;
pub mod words;
mod workflow;

use clap::Parser;
use fault::usage_of;
pub use fault::{Exit, Fault};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use verb::{Cli, Verb};

/// The program, from its arguments to its exit status.
pub fn main() -> ExitCode {
    // A slot process must be the first thing this program is, before any thread or allocation of note.
    if std::env::args_os().nth(1).is_some_and(|a| a == local::SLOT_ARGUMENT) {
        eyas_runner::slot_main(0);
    }
    if std::env::args_os().nth(1).is_some_and(|a| a == executor::KEEPER_ARGUMENT) {
        return executor::keep_main();
    }
    eyas_runner::survive_file_size_limit();
    forget_empty_variables();
    say_where_symbols_are();
    // A tile's program may take a millisecond, so nothing is set up that it does not need.
    if std::env::args_os().nth(1).is_some_and(|a| a == eyas_pairs::tile::TILE_ARGUMENT) {
        return eyas_pairs::tile::tile_main();
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    if help::is_overview(&words) {
        tell(&help::overview(program()), words.len() < 2);
        return end(Ok(if words.len() < 2 { Exit::BadInput } else { Exit::Good }));
    }
    match profile::expand(words) {
        Ok(words) => live_with(words, |cli: Cli| run(cli.verb)),
        Err(fault) => end(Err(fault)),
    }
}

/// A panic, which is a fault of eyas, says with what its backtrace has names.
fn say_where_symbols_are() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        let program = std::env::current_exe().unwrap_or_default();
        eyas_text::say!(
            "hint: this is a fault of eyas; with RUST_BACKTRACE=1, and {} from the same build, it says where",
            eyas_text::shown_path(&program.with_extension("symbols"))
        );
    }));
}

/// A variable of ours that is set to nothing counts as not set, here and in what is started from here.
fn forget_empty_variables() {
    let is_empty = |(name, value): &(OsString, OsString)| {
        name.as_encoded_bytes().starts_with(b"EYAS_") && value.is_empty()
    };
    for (name, _) in std::env::vars_os().filter(is_empty) {
        // SAFETY: no other thread has been started.
        unsafe { std::env::remove_var(name) };
    }
}

/// Runs a program from its arguments to its exit status: parses the arguments, does what they ask for, and
/// prints errors.
pub fn live<A: Parser>(run: impl FnOnce(A) -> Result<Exit, Fault>) -> ExitCode {
    live_with(std::env::args_os().collect(), run)
}

/// As [`live`], with these words in place of the program's arguments.
fn live_with<A: Parser>(words: Vec<OsString>, run: impl FnOnce(A) -> Result<Exit, Fault>) -> ExitCode {
    match A::try_parse_from(&words) {
        Ok(arguments) => {
            data::provide();
            end(dirs::working().and_then(|_| declared::declare()).and_then(|()| run(arguments)))
        }
        Err(e) if e.kind() == clap::error::ErrorKind::InvalidUtf8 => end(Err(not_text(&words))),
        Err(e) => {
            tell_usage(&e, &words);
            end(Ok(if e.use_stderr() { Exit::BadInput } else { Exit::Good }))
        }
    }
}

/// What is wrong with words of which one is not UTF-8.
fn not_text(words: &[OsString]) -> Fault {
    let odd =
        words.iter().find(|word| word.to_str().is_none()).map_or(&b""[..], |word| word.as_encoded_bytes());
    let message = format!("the word {} is not UTF-8; nothing was done", eyas_text::shown_bytes(odd));
    Fault::new(Exit::BadInput, message)
        .hint("rename such a file; a pattern in quotes, as in '*.txt', leaves it out and takes the others")
}

/// Why the first line that could not be shown was not.
static NOT_SHOWN: OnceLock<std::io::Error> = OnceLock::new();

#[doc(hidden)]
pub fn show_line(line: std::fmt::Arguments<'_>) {
    note_what_was_shown(writeln!(eyas_text::raw_unless_terminal(), "{line}"));
}

/// A reader that has seen enough is no failure.
fn note_what_was_shown(shown: std::io::Result<()>) {
    if let Err(error) = shown
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = NOT_SHOWN.set(error);
    }
}

/// The exit status of a command; an error is printed.
fn end(result: Result<Exit, Fault>) -> ExitCode {
    let result = match (result, NOT_SHOWN.get()) {
        (Ok(Exit::Good), Some(error)) => {
            let message = format!("standard output took only a part of what there was to show: {error}");
            Err(Fault::new(Exit::Other, message))
        }
        (result, _) => result,
    };
    match result {
        Ok(exit) => ExitCode::from(exit.code()),
        // A reader that has seen enough (`eyas status | head`) ends the program quietly. SIGPIPE could
        // do that, but it would also end a dispatcher whose peer vanishes.
        Err(fault) if fault.nobody_reads => ExitCode::from(fault.exit.code()),
        Err(fault) => {
            eyas_text::say!("error: {}", fault.message);
            if let Some(hint) = fault.hint {
                eyas_text::say!("hint: {hint}");
            }
            ExitCode::from(fault.exit.code())
        }
    }
}

/// Prints help, or what is wrong with the words.
fn tell_usage(e: &clap::Error, words: &[OsString]) {
    let (text, plain) = (e.render(), usage_of(e));
    let lacks_list = e.kind() == clap::error::ErrorKind::MissingRequiredArgument && plain.contains("<TASKS>");
    match e.use_stderr() && plain != text.to_string() {
        true => _ = write!(eyas_text::stderr(), "{plain}"),
        false => tell(&text, e.use_stderr()),
    }
    match resumed_list(words) {
        Some((verb, list)) if lacks_list => {
            let list = eyas_text::shown(list);
            eyas_text::say!(
                "hint: --resume took {list} for the folder of an earlier run; write `eyas {verb} TASKS --resume`"
            );
        }
        _ if lacks_list => eyas_text::say!("hint: `-` is a list on standard input"),
        _ => {}
    }
}

/// The command, and the file that stands behind its `--resume`, where a folder is expected.
fn resumed_list(words: &[OsString]) -> Option<(&str, &str)> {
    let at = words.iter().position(|word| word.as_encoded_bytes().starts_with(b"--resume"))?;
    let list = match words[at].to_str()?.strip_prefix("--resume=") {
        Some(list) => list,
        None => words.get(at + 1)?.to_str()?,
    };
    std::path::Path::new(list).is_file().then_some((words.get(1)?.to_str()?, list))
}

/// Prints help or what is wrong with the words, in colours where they are wanted.
fn tell(text: &clap::builder::StyledStr, is_error: bool) {
    let wants_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let told = match (is_error, wants_colours) {
        (true, true) if eyas_text::stderr_is_terminal() => {
            write!(eyas_text::printed_stderr(), "{}", text.ansi())
        }
        (true, _) => write!(eyas_text::stderr(), "{text}"),
        (false, true) if eyas_text::stdout_is_terminal() => {
            write!(eyas_text::printed_stdout(), "{}", text.ansi())
        }
        (false, _) => write!(eyas_text::stdout(), "{text}"),
    };
    if !is_error {
        note_what_was_shown(told);
    }
}

/// The command line of the whole program.
fn program() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

fn run(verb: Verb) -> Result<Exit, Fault> {
    match verb {
        Verb::Map(args) => map::map(args),
        Verb::Pairs(args) => pairs::pairs(*args),
        Verb::Run(args) => run::run(args),
        Verb::Submit(args) => submit::submit(args),
        Verb::Wait(args) => wait::wait(args),
        Verb::Warm(args) => warm::warm(*args),
        Verb::Status(args) => status::status(args),
        Verb::Top(args) => top::top(args),
        Verb::Logs(args) => logs::logs(args),
        Verb::Tasks(args) => tasks::tasks(args),
        Verb::Explain(args) => tell::explain(args),
        Verb::Report(args) => tell::report(args),
        Verb::Export(args) => workflow::export(args),
        Verb::Convert(args) => workflow::convert(args),
        Verb::Graph(args) => workflow::graph(args),
        Verb::Topology(args) => tell::topology(args),
        Verb::Replay(args) => tell::replay(args),
        Verb::Cancel(args) => cancel::cancel(args),
        Verb::Forget(args) => forget::forget(args),
        Verb::Up(args) => up::up(args),
        Verb::Down(args) => up::down(args),
        Verb::Sim(args) => sim::sim(*args),
        Verb::Predict(args) => predict::predict(args),
        Verb::Model(args) => model::model(&args),
        Verb::Bench(args) => bench::bench(&args),
        Verb::Home(args) => home::home(args),
        Verb::Ls(args) => ls::ls(args),
        Verb::Cp(args) => cp::cp(args),
        Verb::Mv(args) => files::mv(args),
        Verb::Rm(args) => files::rm(args),
        Verb::Mkdir(args) => files::mkdir(args),
        Verb::Chmod(args) => files::chmod(args),
        Verb::Stat(args) => files::stat(args),
        Verb::Cat(args) => cat::cat(args),
        Verb::Data(args) => data::data(*args),
        Verb::Store(args) => data::store(args),
        Verb::Match(args) => data::matching(&args),
        Verb::AtData(args) => data::at_data(&args),
        Verb::AtDataJob(args) => data::at_data_job(&args),
        Verb::Access(args) => data::access(&args),
        Verb::Mount(args) => data::mount(&args),
        Verb::User(args) => user::user(args),
        Verb::Config(args) => config::config(args),
        Verb::Dispatcher(args) => dispatcher::dispatcher(args),
        Verb::Executor(args) => executor::executor(args),
        Verb::Relay(args) => relay::relay(args),
        Verb::Provider(args) => provider::provider(args),
        Verb::Completions(args) => shell::completions(&args, program()),
        Verb::Man(args) => shell::man(&args, program()),
    }
}
