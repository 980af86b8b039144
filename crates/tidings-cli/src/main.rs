//! The command `tidings`.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod backup;
mod check;
mod encryption;
mod envtest;
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
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use envtest::apiserver::Asked;

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
    /// Write the folder for KUBEBUILDER_ASSETS and print its path: suites that use envtest then test against this server
    Envtest(envtest::EnvtestArguments),
    /// Follow the objects of a resource on any API server, one line per event
    Watch(watch::WatchArguments),
    /// Write the project of an operator in Rust: custom resource, controller, tests, manifests
    New(new::NewArguments),
}

fn main() -> std::process::ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(Path::file_name);
    let outcome = match name.and_then(|name| name.to_str()) {
        Some(envtest::apiserver::NAME) => as_apiserver(),
        Some(envtest::etcd::NAME) => envtest::etcd::run(std::env::args().skip(1).collect()),
        _ => run(CommandLine::parse().command),
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

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(arguments) => serve::run(&arguments, &[]),
        Command::User(arguments) => user::run(&arguments),
        Command::Kubeconfig(arguments) => user::print_kubeconfig(&arguments),
        Command::Backup(arguments) => backup::run_backup(&arguments),
        Command::Restore(arguments) => backup::run_restore(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Envtest(arguments) => envtest::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
    }
}

/// This program under the name kube-apiserver.
fn as_apiserver() -> anyhow::Result<()> {
    match envtest::apiserver::read(std::env::args().skip(1).collect())? {
        Asked::Print(text) => {
            std::io::stdout().write_all(text.as_bytes())?;
            Ok(())
        }
        Asked::Serve(arguments, without_effect) => {
            match CommandLine::parse_from(arguments).command {
                Command::Serve(arguments) => serve::run(&arguments, &without_effect),
                other => run(other),
            }
        }
    }
}
