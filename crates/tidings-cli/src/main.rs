//! The command `tidings`.

mod serve;
mod watch;

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
    /// Follow the objects of a resource on any API server, one line an event
    Watch(watch::Arguments),
}

fn main() -> std::process::ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidings: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
