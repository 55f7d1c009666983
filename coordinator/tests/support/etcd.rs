//! A real etcd on loopback, in a directory of its own, ended with the test.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use coordinator::{Endpoint, EtcdEndpoint};
use tempfile::TempDir;

pub(crate) struct Etcd {
    child: Child,
    pub(crate) port: u16,
    dir: TempDir,
    extra: Vec<String>,
}

impl Etcd {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts etcd and waits until its port takes connections.
    ///
    /// # Panics
    /// When etcd is not installed: these tests are not skipped.
    pub(crate) async fn start_with(extra: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let extra: Vec<String> = extra.iter().map(|s| (*s).to_owned()).collect();
        // Somebody else may take a port between our looking and etcd's binding: look again then.
        for _ in 0..5 {
            let (port, peer) = (free_port(), free_port());
            let mut child = spawn(dir.path(), port, peer, &extra);
            if comes_up(&mut child, port).await {
                return Self { child, port, dir, extra };
            }
        }
        panic!("etcd did not come up; its log is in {}", dir.keep().display());
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::Etcd(self.etcd_endpoint())
    }

    pub(crate) fn etcd_endpoint(&self) -> EtcdEndpoint {
        EtcdEndpoint {
            hosts: vec![("127.0.0.1".into(), self.port)],
            tls: false,
            prefix: "kvwire-test".into(),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, with or without its data.
    pub(crate) async fn restart(&mut self, keep_data: bool) {
        if !keep_data {
            std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
        }
        self.child = spawn(self.dir.path(), self.port, free_port(), &self.extra);
        assert!(comes_up(&mut self.child, self.port).await, "etcd did not come up again");
    }

    /// Runs etcdctl against it and returns what it printed.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=http://127.0.0.1:{}", self.port))
            .args(args)
            .output()
            .expect("etcdctl is needed by this test (Debian: etcd-client)");
        assert!(output.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn spawn(dir: &Path, port: u16, peer: u16, extra: &[String]) -> Child {
    let scheme = if extra.iter().any(|a| a.starts_with("--cert-file")) { "https" } else { "http" };
    let (client, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let log = std::fs::File::create(dir.join("log")).unwrap();
    Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // The shortest lease that etcd grants is 1.5 election timeouts.
        .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
        .args(extra)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the etcd binary is needed by this test and was not found in PATH (Debian: etcd-server; `make setup` installs it)")
}

async fn comes_up(child: &mut Child, port: u16) -> bool {
    super::within("etcd's port", async {
        loop {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}
