//! The server under measurement: its process, CPU time and memory.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::http::Client;

/// A server and how to reach it.
pub(crate) struct Server {
    pub(crate) client: Client,
    pids: Vec<u32>,
    child: Option<(Child, tempfile::TempDir)>,
    pub(crate) started_in: Duration,
}

impl Server {
    /// Starts the server in a new directory and waits until it is ready.
    pub(crate) async fn start(binary: &Path) -> anyhow::Result<Server> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        let started = Instant::now();
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started: build it with cargo build --release", binary.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let url = loop {
            match lines.next_line().await? {
                Some(line) => {
                    if let Some(url) = line.strip_prefix("ready: ") {
                        break url.to_owned();
                    }
                }
                None => bail!("the server ended before it was ready"),
            }
        };
        let started_in = started.elapsed();
        let kubeconfig = fs::read_to_string(data.join("kubeconfig"))?;
        let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).context("no token")?;
        let client = Client::new(&url, token)?;
        let pids = child.id().into_iter().collect();
        Ok(Server { client, pids, child: Some((child, directory)), started_in })
    }

    /// A server that runs already.
    pub(crate) fn running(url: &str, token: &str, pids: &[u32]) -> anyhow::Result<Server> {
        Ok(Server { client: Client::new(url, token)?, pids: pids.to_vec(), child: None, started_in: Duration::ZERO })
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks: u64 = self.pids.iter().filter_map(|pid| ticks(*pid)).sum();
        Duration::from_millis(ticks * 10) // Linux counts in hundredths of a second
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.pids.iter().filter_map(|pid| resident(*pid)).sum()
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some((mut child, _directory)) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }
}

fn ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
