//! A server on a disk that is full, with a log that cannot be written, and the commands for backups and checks.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tidings_testing::{Client, Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let binary = Path::new(BINARY);
    start_as(binary, data_dir, arguments).await
}

async fn start_as(binary: &Path, data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary,
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut connection = client.connect().await.unwrap();
    let answer = connection.request(method, path, body.as_bytes()).await;
    let answer = answer.unwrap();
    (answer.code, answer.text())
}

fn config_map(name: &str, bytes: usize) -> String {
    let fill = "x".repeat(bytes);
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{fill}"}}}}"#)
}

/// Sends a request until the answer has a code. The store checks its disk once a second.
async fn becomes(client: &Client, path: &str, code: u16) -> String {
    let started = Instant::now();
    loop {
        let (answered, text) = ask(client, "GET", path, "").await;
        if answered == code {
            return text;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{path} answers {answered}: {text}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes a shell script that starts the server.
fn script(directory: &Path, lines: &str) -> PathBuf {
    let script = directory.join("start");
    fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn tidings(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_log_that_cannot_be_written_decides_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    // Failed writes are logged, and standard error cannot be written, as on a full disk. Files are limited to 512 KiB.
    let lines = format!("trap '' XFSZ\nulimit -f 1024\nexec {BINARY} \"$@\" 2>/dev/full");
    let server = start_as(&script(directory.path(), &lines), &data, &[]).await;
    let client = &server.client;
    let mut written = 0;
    let failed = loop {
        let body = config_map(&format!("n{written}"), 40_000);
        let (code, text) = ask(client, "POST", CONFIGMAPS, &body).await;
        if code != 201 {
            break text;
        }
        written += 1;
    };
    assert!(failed.contains("the store cannot write"), "{failed}");
    let (code, text) = ask(client, "POST", CONFIGMAPS, &config_map("small", 1)).await;
    assert_eq!(code, 201, "{text}");
    assert_eq!(ask(client, "GET", "/livez", "").await.0, 200);
    becomes(client, "/readyz", 200).await;
    let metrics = ask(client, "GET", "/metrics", "").await.1;
    let lost = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tidings_log_lines_lost_total "));
    assert!(lost.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
}

/// A separate file system in memory.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts it; `None` without the permission to mount.
    fn mount(path: &Path, size: &str) -> Option<Tmpfs> {
        fs::create_dir(path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path)
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        mounted.then(|| Tmpfs(path.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes a file until the disk is full.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 1 << 12, 1] {
        let piece = vec![1; size];
        while file.write_all(&piece).is_ok() {}
    }
}

#[tokio::test]
async fn a_disk_full_of_history_frees_itself_and_a_full_one_is_said_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(&directory.path().join("disk"), "48m") else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    let data = disk.0.join("data");
    let arguments = ["--history", "1h"];
    let server = start(&data, &arguments).await;
    let client = &server.client;
    let item = format!("{CONFIGMAPS}/busy");
    assert_eq!(
        ask(client, "POST", CONFIGMAPS, &config_map("busy", 10))
            .await
            .0,
        201
    );
    // Three times the size of the disk: every change is recent history.
    let mut connection = client.connect().await.unwrap();
    for number in 0..1500 {
        let body = config_map("busy", 100_000 + number);
        let answer = connection
            .request("PUT", &item, body.as_bytes())
            .await
            .unwrap();
        assert_eq!(answer.code, 200, "{number}: {}", answer.text());
    }
    // Another program takes the rest of the disk.
    fill(&disk.0.join("junk"));
    let said = becomes(client, "/readyz", 500).await;
    assert!(said.contains("full"), "{said}");
    let (code, kept) = ask(client, "GET", &item, "").await;
    assert_eq!(code, 200);
    server.kill().await.unwrap();
    // On a full disk the server starts, serves reads and reports the problem.
    let server = start(&data, &arguments).await;
    let client = &server.client;
    assert_eq!(ask(client, "GET", &item, "").await, (200, kept));
    assert_eq!(ask(client, "GET", "/livez", "").await.0, 200);
    becomes(client, "/readyz", 500).await;
    fs::remove_file(disk.0.join("junk")).unwrap();
    becomes(client, "/readyz", 200).await;
    let (code, text) = ask(client, "PUT", &item, &config_map("busy", 50_000)).await;
    assert_eq!(code, 200, "{text}");
    server.kill().await.unwrap();
}

#[tokio::test]
async fn a_backup_is_taken_from_a_running_server_and_makes_another() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (
        directory.path().join("data"),
        directory.path().join("backup"),
    );
    let server = start(&data, &[]).await;
    for number in 0..50 {
        let body = config_map(&format!("c{number:02}"), 100);
        assert_eq!(ask(&server.client, "POST", CONFIGMAPS, &body).await.0, 201);
    }
    let kubeconfig = data.join("kubeconfig");
    let (kubeconfig, path) = (kubeconfig.to_str().unwrap(), file.to_str().unwrap());
    let taken = tidings(&["backup", path, "--kubeconfig", kubeconfig]);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    let said = text(&taken.stdout);
    assert!(said.contains("objects at version"), "{said}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "there are Secrets in it");
    let again = tidings(&["backup", path, "--kubeconfig", kubeconfig]);
    assert!(text(&again.stderr).contains("exists: choose another file"));
    // A data directory that is in use cannot be checked, and one that has a store cannot be restored into.
    let busy = tidings(&["check", data.to_str().unwrap()]);
    assert!(text(&busy.stderr).contains("is in use by another server"));
    let (_, listed) = ask(&server.client, "GET", CONFIGMAPS, "").await;
    server.kill().await.unwrap();
    let refused = tidings(&["restore", data.to_str().unwrap(), path]);
    assert!(text(&refused.stderr).contains("holds a store already"));
    let checked = tidings(&["check", data.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let said = text(&checked.stdout);
    assert!(
        said.contains("everything was read, and all checksums match"),
        "{said}"
    );

    // A backup has no certificates. If they are copied, the old kubeconfig works with the new server.
    let restored = directory.path().join("restored");
    fs::create_dir(&restored).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(data.join("pki"))
        .arg(&restored)
        .status();
    assert!(copied.unwrap().success());
    let made = tidings(&["restore", restored.to_str().unwrap(), path]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let server = start(&restored, &[]).await;
    let (_, again) = ask(&server.client, "GET", CONFIGMAPS, "").await;
    let items = |list: &str| list.split_once("\"items\"").unwrap().1.to_owned();
    assert_eq!(items(&again), items(&listed));
    server.kill().await.unwrap();

    let mut damaged = fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&file, damaged).unwrap();
    let other = directory.path().join("other");
    let refused = tidings(&["restore", other.to_str().unwrap(), path]);
    assert!(
        text(&refused.stderr).contains("is damaged at byte"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(refused.status.code(), Some(1));
}

#[tokio::test]
async fn a_damaged_directory_is_named_by_check() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]).await;
    assert_eq!(
        ask(&server.client, "POST", CONFIGMAPS, &config_map("a", 10))
            .await
            .0,
        201
    );
    server.kill().await.unwrap();
    let segment = data.join("log/00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let checked = tidings(&["check", data.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let said = text(&checked.stdout);
    assert!(
        said.contains("0001.seg is damaged at byte 8: a record does not match its checksum"),
        "{said}"
    );
    let said = text(&checked.stderr);
    assert!(said.contains("restore it from a backup"), "{said}");
    assert_eq!(fs::read(&segment).unwrap(), bytes);
    let none = tidings(&["check", directory.path().to_str().unwrap()]);
    assert!(text(&none.stderr).contains("there is no data directory of Tidings at"));
}
