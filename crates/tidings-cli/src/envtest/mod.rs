//! `tidings envtest`: the folder for KUBEBUILDER_ASSETS, in which kube-apiserver and etcd are this program under other names.

pub(crate) mod apiserver;
pub(crate) mod etcd;
mod flags;

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;

#[derive(Debug, clap::Args)]
pub(crate) struct EnvtestArguments {
    /// The folder to write [default: tidings/envtest in the user's folder for data]
    #[arg(long, value_name = "PATH")]
    bin_dir: Option<PathBuf>,
}

/// Writes the folder and prints its path.
pub(crate) fn run(arguments: &EnvtestArguments) -> anyhow::Result<()> {
    let folder = match &arguments.bin_dir {
        Some(folder) => folder.clone(),
        None => data_folder()?,
    };
    let folder = std::path::absolute(&folder)?;
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("{} cannot be created", folder.display()))?;
    let this = std::env::current_exe().context("the path of this program is not known")?;
    for name in [apiserver::NAME, etcd::NAME] {
        link(&folder.join(name), &this)?;
    }
    match kubectl(&folder) {
        Some(kubectl) => link(&folder.join("kubectl"), &kubectl)?,
        // Most suites need none.
        None => writeln!(
            std::io::stderr(),
            "tidings: there is no kubectl on the PATH: suites that call it will fail"
        )?,
    }
    writeln!(std::io::stdout(), "{}", folder.display())?;
    Ok(())
}

/// Where programs of a user keep what is theirs.
fn data_folder() -> anyhow::Result<PathBuf> {
    let named = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let data = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
    let data = data.context("neither HOME nor XDG_DATA_HOME is set: say where with --bin-dir")?;
    Ok(data.join("tidings/envtest"))
}

/// The first kubectl on the path that is not in the folder itself.
fn kubectl(folder: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).filter(|one| one != folder);
    found.find_map(|one| Some(one.join("kubectl")).filter(|file| file.is_file()))
}

/// Makes a link, in the place of an older one. A link is replaced as a whole: another process may be starting what it points to.
fn link(at: &Path, to: &Path) -> anyhow::Result<()> {
    if std::fs::read_link(at).is_ok_and(|known| known == to) {
        return Ok(());
    }
    let new = at.with_extension(format!("new-{}", std::process::id()));
    let made = symlink(to, &new).and_then(|()| std::fs::rename(&new, at));
    made.with_context(|| format!("{} cannot be written", at.display()))
}
