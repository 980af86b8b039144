//! The command `tidings`.

mod serve;

use clap::{Parser, Subcommand};

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
}

fn main() -> std::process::ExitCode {
    let Command::Serve(arguments) = Arguments::parse().command;
    match serve::run(&arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidings: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
