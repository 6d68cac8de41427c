//! The command line: one file a command.
//!
//! A command that fails writes one line to stderr and exits with 1; a command line that cannot be understood
//! exits with 2.

mod adopt;
mod check;
mod docs;
mod drain;
mod dump_log;
mod java_options;
mod place;
pub mod process;
pub mod serve;
mod store;
mod window;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka server.
///
/// Without a command it serves clients with built-in settings: see `barnabas serve --help`.
#[derive(Parser)]
#[command(name = "barnabas", version, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Store(store::Arguments),
    Check(check::Arguments),
    Adopt(adopt::Arguments),
    DumpLog(dump_log::Arguments),
    Docs(docs::Arguments),
    Drain(drain::Arguments),
}

/// Runs the command that `arguments` ask for; the first one is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command_line = match CommandLine::try_parse_from(arguments) {
        Ok(command_line) => command_line,
        Err(refusal) => {
            // Help and version come as a refusal too, with 0. A closed stdout leaves nobody to tell.
            let _ = refusal.print();
            return ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match command_line.command.unwrap_or(Command::Serve(serve::Arguments::default())) {
        Command::Serve(arguments) => serve::run(&arguments).map_err(|error| error.to_string()),
        Command::Store(arguments) => store::run(&arguments).map_err(|error| error.to_string()),
        Command::Adopt(arguments) => adopt::run(&arguments).map_err(|error| error.to_string()),
        Command::Check(arguments) => match check::run(&arguments) {
            Ok(status) => return status,
            Err(error) => Err(error.to_string()),
        },
        Command::DumpLog(arguments) => dump_log::run(&arguments).map_err(|error| error.to_string()),
        Command::Drain(arguments) => drain::run(&arguments).map_err(|error| error.to_string()),
        Command::Docs(arguments) => docs::run(&arguments).map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("barnabas: {reason}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn no_command_means_serve() {
        let parsed = CommandLine::try_parse_from(["barnabas"]).unwrap();
        assert!(parsed.command.is_none());
        assert!(CommandLine::try_parse_from(["barnabas", "nonsense"]).is_err());
    }
}
