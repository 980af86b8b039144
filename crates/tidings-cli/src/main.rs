//! The command `tidings`.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod backup;
mod check;
mod encryption;
mod logging;
mod new;
mod serve;
mod service_accounts;
mod serving;
mod signing;
mod units;
mod user;
mod watch;

use std::io::Write;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tidings: list and watch, the way Kubernetes does it, in one binary.
#[derive(Debug, Parser)]
#[command(name = "tidings", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an API server on this machine
    Serve(Box<serve::ServeArguments>),
    /// Make users who may ask the server, with a token each
    User(user::UserArguments),
    /// Print the kubeconfig of a user, or of the administrator without a name
    Kubeconfig(user::KubeconfigArguments),
    /// Write all objects of a running server to a file
    Backup(backup::BackupArguments),
    /// Make a data directory from a backup
    Restore(backup::RestoreArguments),
    /// Read a data directory completely and report what it holds and what is damaged; nothing is changed
    Check(check::CheckArguments),
    /// Follow the objects of a resource on any API server, one line per event
    Watch(watch::WatchArguments),
    /// Write the project of an operator in Rust: custom resource, controller, tests, manifests
    New(new::NewArguments),
}

fn main() -> std::process::ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::User(arguments) => user::run(&arguments),
        Command::Kubeconfig(arguments) => user::print_kubeconfig(&arguments),
        Command::Backup(arguments) => backup::run_backup(&arguments),
        Command::Restore(arguments) => backup::run_restore(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
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
