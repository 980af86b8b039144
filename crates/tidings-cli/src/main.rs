//! The command `tidings`.

mod backup;
mod check;
mod logging;
mod serve;
mod watch;

use std::io::Write;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tidings: list and watch, the way Kubernetes does it, in one binary.
#[derive(Debug, Parser)]
#[command(name = "tidings", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an API server on this machine
    Serve(serve::Arguments),
    /// Write everything that a running server keeps into a file
    Backup(backup::BackupArguments),
    /// Make a data directory of a backup
    Restore(backup::RestoreArguments),
    /// Read a whole data directory and say what it holds and what is damaged; nothing is changed
    Check(check::Arguments),
    /// Follow the objects of a resource on any API server, one line an event
    Watch(watch::Arguments),
}

fn main() -> std::process::ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Backup(arguments) => backup::run_backup(&arguments),
        Command::Restore(arguments) => backup::run_restore(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "tidings: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
