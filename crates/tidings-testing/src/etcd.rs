//! Starts real etcd processes on free ports.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// How long a member may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd cluster. Dropping it kills the members and removes their data.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<EtcdMember>,
    directory: TempDir,
}

/// One process of a cluster.
#[derive(Debug)]
struct EtcdMember {
    arguments: Vec<String>,
    client: SocketAddr,
    scheme: &'static str,
    process: Option<Child>,
}

/// Paths of PEM files for TLS between clients and members.
#[derive(Debug, Clone)]
pub struct EtcdFiles {
    /// The certificate authority.
    pub authority: PathBuf,
    /// The certificate of the members, for 127.0.0.1.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
}

impl Etcd {
    /// Starts a cluster of one member.
    ///
    /// # Errors
    /// If there is no etcd on the path, or it does not start.
    pub fn start() -> anyhow::Result<Etcd> {
        Etcd::cluster(1, None)
    }

    /// Starts a cluster of `count` members. With `files`, clients need certificates.
    ///
    /// # Errors
    /// If there is no etcd on the path, or it does not start.
    pub fn cluster(count: usize, files: Option<&EtcdFiles>) -> anyhow::Result<Etcd> {
        let directory = tempfile::tempdir()?;
        let ports: Vec<(SocketAddr, SocketAddr)> = (0..count)
            .map(|_| Ok((free()?, free()?)))
            .collect::<std::io::Result<_>>()?;
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, (_, peer))| format!("m{index}=http://{peer}"))
            .collect();
        let members = ports.iter().enumerate().map(|(index, (client, peer))| {
            let scheme = if files.is_some() { "https" } else { "http" };
            let data = directory.path().join(format!("m{index}"));
            let mut arguments = vec![
                format!("--name=m{index}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={scheme}://{client}"),
                format!("--advertise-client-urls={scheme}://{client}"),
                format!("--listen-peer-urls=http://{peer}"),
                format!("--initial-advertise-peer-urls=http://{peer}"),
                format!("--initial-cluster={}", peers.join(",")),
                // For a quick election, even on a busy machine.
                "--heartbeat-interval=50".to_owned(),
                "--election-timeout=500".to_owned(),
                "--logger=zap".to_owned(),
                "--log-level=error".to_owned(),
            ];
            if let Some(files) = files {
                let EtcdFiles {
                    authority,
                    certificate,
                    key,
                } = files;
                arguments.extend([
                    "--client-cert-auth".to_owned(),
                    format!("--trusted-ca-file={}", authority.display()),
                    format!("--cert-file={}", certificate.display()),
                    format!("--key-file={}", key.display()),
                ]);
            }
            EtcdMember {
                arguments,
                client: *client,
                scheme,
                process: None,
            }
        });
        let members = members.collect();
        let mut etcd = Etcd { members, directory };
        for index in 0..count {
            etcd.spawn(index)?;
        }
        for index in 0..count {
            etcd.listening(index)?;
        }
        Ok(etcd)
    }

    /// The URLs for clients.
    pub fn endpoints(&self) -> Vec<String> {
        let members = self.members.iter();
        members
            .map(|member| format!("{}://{}", member.scheme, member.client))
            .collect()
    }

    /// The endpoints as an argument of `tidings serve`.
    pub fn argument(&self) -> String {
        self.endpoints().join(",")
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True if there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The process of a member, if it runs.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.members[index].process.as_ref().map(Child::id)
    }

    /// The data directory of a member.
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("m{index}"))
    }

    /// Kills a member with SIGKILL.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Restarts a member with its data, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&mut self, index: usize) -> anyhow::Result<()> {
        self.kill(index)?;
        self.spawn(index)?;
        self.listening(index)
    }

    /// Copies the data of a single member as a backup. The member must not run.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn back_up(&self, to: &Path) -> anyhow::Result<()> {
        copy(&self.data_dir(0), to)
    }

    /// Replaces the data of a single member by a backup. The member must not run.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn restore(&self, from: &Path) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.data_dir(0))?;
        copy(from, &self.data_dir(0))
    }

    fn spawn(&mut self, index: usize) -> anyhow::Result<()> {
        let member = &mut self.members[index];
        let process = Command::new("etcd")
            .args(&member.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("found no `etcd` in PATH: install the package etcd-server")?;
        member.process = Some(process);
        Ok(())
    }

    fn listening(&mut self, index: usize) -> anyhow::Result<()> {
        let member = &mut self.members[index];
        let started = Instant::now();
        // A member listens for clients only after it has joined the cluster.
        while TcpStream::connect(member.client).is_err() {
            if let Some(process) = &mut member.process
                && let Some(status) = process.try_wait()?
            {
                bail!("etcd has ended: {status}");
            }
            if started.elapsed() > PATIENCE {
                bail!("etcd does not listen at {}", member.client);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            let _ = self.kill(index);
        }
    }
}

/// A free address outside the ephemeral port range, so that no connection takes the port while its member restarts.
fn free() -> std::io::Result<SocketAddr> {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], fastrand::u16(10_000..32_000)));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
