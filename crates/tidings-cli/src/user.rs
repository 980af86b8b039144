//! `tidings user` and `tidings kubeconfig`: users of a server on this machine, with a token each. A running server follows the file, so that nothing
//! has to be restarted.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tidings_storage::disk::{self, Disk, RealDisk};
use uuid::Uuid;

#[derive(Debug, clap::Args)]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, clap::Subcommand)]
enum UserCommand {
    /// Make a user, or give one a new token: the old one is of no use then. Prints where the kubeconfig is
    Add(AddArguments),
    /// Remove a user: the token is of no use then
    Remove(RemoveArguments),
    /// List the users and their groups
    List(DataDirectory),
}

#[derive(Debug, clap::Args)]
struct AddArguments {
    /// The name, as roles are bound to it
    name: String,
    /// A group of the user; may be given several times
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    #[command(flatten)]
    data: DataDirectory,
}

#[derive(Debug, clap::Args)]
struct RemoveArguments {
    /// The name
    name: String,
    #[command(flatten)]
    data: DataDirectory,
}

#[derive(Debug, clap::Args)]
struct DataDirectory {
    /// The data directory of the server
    #[arg(long, default_value = "./tidings-data", value_name = "PATH")]
    data_dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KubeconfigArguments {
    /// The name of a user that `tidings user add` has made
    name: Option<String>,
    #[command(flatten)]
    data: DataDirectory,
}

/// A line of the file of users.
struct StoredUser {
    token: String,
    name: String,
    uid: String,
    groups: Vec<String>,
}

/// Where the tokens of users are.
pub(crate) fn users_file(data_dir: &Path) -> PathBuf {
    data_dir.join("users").join("tokens")
}

pub(crate) fn run(arguments: &UserArguments) -> anyhow::Result<()> {
    match &arguments.command {
        UserCommand::Add(add) => add_user(add),
        UserCommand::Remove(remove) => remove_user(remove),
        UserCommand::List(data) => {
            let mut out = std::io::stdout().lock();
            for user in read_users(&data.data_dir)? {
                writeln!(out, "{}\t{}", user.name, user.groups.join(","))?;
            }
            Ok(())
        }
    }
}

fn add_user(add: &AddArguments) -> anyhow::Result<()> {
    let data_dir = &add.data.data_dir;
    for text in add.group.iter().chain([&add.name]) {
        let is_odd =
            text.is_empty() || text.contains(['"', ',']) || text.chars().any(char::is_control);
        ensure!(
            !is_odd,
            "{text:?} cannot be a name of a user or group: leave out quotes, commas and control characters, and write at least one letter"
        );
    }
    // Without the server's own kubeconfig nobody knows where the server is.
    let admin = admin_kubeconfig(data_dir)?;
    let _turn = lock(data_dir)?;
    let mut users = read_users(data_dir)?;
    let before = users.iter().position(|user| user.name == add.name);
    let before = before.map(|at| users.remove(at));
    let new_id = || Uuid::new_v4().simple().to_string();
    let user = StoredUser {
        token: format!("{}{}", new_id(), new_id()),
        name: add.name.clone(),
        uid: before.map_or_else(|| Uuid::new_v4().to_string(), |before| before.uid),
        groups: add.group.clone(),
    };
    let kubeconfig = user_kubeconfig(&admin, &user)?;
    users.push(user);
    write_users(data_dir, &users)?;
    let path = kubeconfig_path(data_dir, &add.name);
    write_private(&path, &kubeconfig)?;
    let path = std::path::absolute(&path).unwrap_or(path);
    writeln!(std::io::stdout(), "kubeconfig: {}", path.display())?;
    Ok(())
}

fn remove_user(remove: &RemoveArguments) -> anyhow::Result<()> {
    let data_dir = &remove.data.data_dir;
    let _turn = lock(data_dir)?;
    let mut users = read_users(data_dir)?;
    let count = users.len();
    users.retain(|user| user.name != remove.name);
    ensure!(
        users.len() < count,
        "there is no user {:?}: `tidings user list` shows them",
        remove.name
    );
    write_users(data_dir, &users)?;
    match fs::remove_file(kubeconfig_path(data_dir, &remove.name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) fn print_kubeconfig(arguments: &KubeconfigArguments) -> anyhow::Result<()> {
    let data_dir = &arguments.data.data_dir;
    let admin = admin_kubeconfig(data_dir)?;
    let text = match &arguments.name {
        None => admin,
        Some(name) => {
            let users = read_users(data_dir)?;
            let Some(user) = users.iter().find(|user| user.name == *name) else {
                bail!("there is no user {name:?}: make one with `tidings user add {name}`");
            };
            user_kubeconfig(&admin, user)?
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The file name says the name of the user, with nothing in it that leads elsewhere. Different names have different files.
fn kubeconfig_path(data_dir: &Path, name: &str) -> PathBuf {
    let safe = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    let name: String = name.bytes().map(safe).collect();
    data_dir.join("users").join(format!("{name}.kubeconfig"))
}

fn admin_kubeconfig(data_dir: &Path) -> anyhow::Result<String> {
    let path = data_dir.join("kubeconfig");
    fs::read_to_string(&path).with_context(|| {
        format!(
            "{} cannot be read: start the server once with `tidings serve`, or name its data directory with --data-dir",
            path.display()
        )
    })
}

/// The administrator's kubeconfig with a user in the place of the administrator.
fn user_kubeconfig(admin: &str, user: &StoredUser) -> anyhow::Result<String> {
    let name = serde_json::to_string(&user.name)?;
    let mut text = String::with_capacity(admin.len());
    let mut replaced = 0;
    for line in admin.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        match line.trim_start() {
            "- name: admin" => text.push_str(&format!("{indent}- name: {name}\n")),
            "user: admin" => text.push_str(&format!("{indent}user: {name}\n")),
            rest if rest.starts_with("token: ") => {
                text.push_str(&format!("{indent}token: {}\n", user.token));
                replaced += 1;
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    ensure!(
        replaced == 1,
        "the kubeconfig of the data directory was not written by `tidings serve`: start the server once to have it written anew"
    );
    Ok(text)
}

fn read_users(data_dir: &Path) -> anyhow::Result<Vec<StoredUser>> {
    let path = users_file(data_dir);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", path.display()));
        }
    };
    let user = |(at, line): (usize, &str)| {
        let mut parts = line
            .splitn(4, ',')
            .map(|part| part.trim_matches('"').to_owned());
        let (Some(token), Some(name), Some(uid)) = (parts.next(), parts.next(), parts.next())
        else {
            bail!(
                "{}, line {}: a token, a user and a uid are needed",
                path.display(),
                at + 1
            );
        };
        let groups = parts.next().unwrap_or_default();
        let groups = groups.split(',').filter(|group| !group.is_empty());
        Ok(StoredUser {
            token,
            name,
            uid,
            groups: groups.map(ToOwned::to_owned).collect(),
        })
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(user)
        .collect()
}

fn write_users(data_dir: &Path, users: &[StoredUser]) -> anyhow::Result<()> {
    let line = |user: &StoredUser| {
        let groups = match user.groups.is_empty() {
            true => String::new(),
            false => format!(",\"{}\"", user.groups.join(",")),
        };
        format!("{},{},{}{groups}\n", user.token, user.name, user.uid)
    };
    let text: String = users.iter().map(line).collect();
    write_private(&users_file(data_dir), &text)
}

/// Held while the file of users is read and written: commands take turns.
fn lock(data_dir: &Path) -> anyhow::Result<fs::File> {
    let directory = data_dir.join("users");
    let locked = || -> std::io::Result<fs::File> {
        RealDisk.create_dir(&directory)?;
        let file = fs::File::create(directory.join("lock"))?;
        file.lock()?;
        Ok(file)
    };
    locked().with_context(|| format!("{} cannot be locked", directory.display()))
}

/// Writes a file that only its owner can read, durably and in one step.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = disk::write_durably(&RealDisk, path, text.as_bytes());
    written.with_context(|| format!("{} cannot be written", path.display()))
}
