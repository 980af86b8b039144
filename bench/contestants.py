"""The servers that are measured, each as processes of its own on free loopback ports with data in a new directory."""

import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DIST = TARGET / "dist"
# What `bench/peers` has built, unless the environment names other binaries.
PEERS = TARGET / "peers"
TOKEN = "measured"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, condition, patience=1800, pause=0.02):
    deadline = time.time() + patience
    while not condition():
        if time.time() > deadline:
            sys.exit(f"gave up waiting for {what}")
        time.sleep(pause)


def peer(name):
    """The path of a server that we did not write: KUBE_APISERVER or ETCD in the environment, or what bench/peers has built."""
    return pathlib.Path(os.environ.get(name.upper().replace("-", "_"), PEERS / name))


class Contestant:
    """A server that can be killed and started again on the same port and data."""

    def __init__(self, work):
        self.work, self.port, self.process = pathlib.Path(work), free_port(), None
        self.kubeconfig = self.work / "kubeconfig"
        self.log = open(self.work / "server.log", "ab")

    @staticmethod
    def missing():
        """The file that is missing, if the server cannot be started here."""
        return None

    def start(self):
        self.process = self.spawn()
        wait_for("the server", self.is_ready, patience=120)

    def pids(self):
        """The processes whose processor time and memory are those of the server."""
        return [self.process.pid]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        self.log.close()

    def is_ready(self):
        if self.process.poll() is not None:
            sys.exit(f"the server ended: see {self.work}/server.log")
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def url(self):
        return f"https://127.0.0.1:{self.port}"

    def get(self, path):
        tls = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=60)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token()}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(error) from error
        finally:
            connection.close()

    def items(self, path):
        code, body = self.get(path)
        if code != 200:
            sys.exit(f"GET {path}: {code}")
        return json.loads(body)["items"]

    def run(self, command):
        return subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, env={**os.environ, "RUST_LOG": "warn"})


class Tidings(Contestant):
    """Tidings with its embedded store."""

    name = "Tidings"

    def spawn(self):
        command = [DIST / "tidings", "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", self.work / "data"]
        return self.run(command + ["--kubeconfig", self.kubeconfig] + self.storage())

    def storage(self):
        return []

    def token(self):
        try:
            return re.search(r"token: (\S+)", self.kubeconfig.read_text())[1]
        except FileNotFoundError:
            return ""


class WithEtcd:
    """A server that keeps its objects in an etcd of its own."""

    etcd = None

    @staticmethod
    def missing():
        return next((peer(name) for name in ["etcd"] if not peer(name).exists()), None)

    def etcd_url(self):
        if self.etcd is None:
            self.etcd_at = f"http://127.0.0.1:{free_port()}"
            other = f"http://127.0.0.1:{free_port()}"
            command = [peer("etcd"), "--data-dir", self.work / "etcd", "--log-level", "error"]
            command += ["--listen-client-urls", self.etcd_at, "--advertise-client-urls", self.etcd_at]
            command += ["--listen-peer-urls", other, "--initial-advertise-peer-urls", other]
            command += ["--initial-cluster", f"default={other}", "--quota-backend-bytes", str(8 << 30)]
            self.etcd = self.run(command)
        return self.etcd_at

    def pids(self):
        return [self.process.pid, self.etcd.pid]

    def stop(self):
        super().stop()
        self.etcd.kill()
        self.etcd.wait()


class TidingsOnEtcd(WithEtcd, Tidings):
    """Tidings with its objects in etcd."""

    name = "Tidings on etcd"

    def storage(self):
        return ["--storage", "etcd", "--etcd-endpoints", self.etcd_url()]


class KubeApiserver(WithEtcd, Contestant):
    """The original."""

    name = "kube-apiserver"
    mode = "AlwaysAllow"

    def __init__(self, work):
        super().__init__(work)
        (self.work / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")
        key = ["openssl", "genrsa", "-out", self.work / "key", "2048"]
        subprocess.run(key, check=True, stdout=self.log, stderr=self.log)
        lines = ["apiVersion: v1", "kind: Config", "clusters:", "- name: c", "  cluster:"]
        lines += [f"    server: {self.url()}", f"    certificate-authority: {self.work}/certificates/apiserver.crt"]
        lines += ["users:", "- name: u", "  user:", f"    token: {TOKEN}"]
        lines += ["contexts:", "- name: x", "  context:", "    cluster: c", "    user: u", "current-context: x", ""]
        self.kubeconfig.write_text("\n".join(lines))

    @staticmethod
    def missing():
        return next((peer(name) for name in ["kube-apiserver", "etcd"] if not peer(name).exists()), None)

    def spawn(self):
        command = [peer("kube-apiserver"), "--etcd-servers", self.etcd_url(), "--cert-dir", self.work / "certificates"]
        command += ["--bind-address", "127.0.0.1", "--secure-port", self.port, "--token-auth-file", self.work / "tokens"]
        command += ["--authorization-mode", self.mode, "--disable-admission-plugins", "ServiceAccount"]
        command += ["--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", self.work / "key"]
        command += ["--service-account-signing-key-file", self.work / "key", "--service-cluster-ip-range", "10.0.0.0/12"]
        return self.run(command)

    def token(self):
        return TOKEN


class Floor(Contestant):
    """A server that only writes prepared bytes: what connections, encryption and the network cost anyway."""

    name = "floor"

    def spawn(self):
        return self.run([DIST / "floor", "--port", self.port])

    def token(self):
        return TOKEN
