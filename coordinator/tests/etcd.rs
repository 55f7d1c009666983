//! What is special to etcd: outages, revoked leases, users, things that are not etcd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at whatever it did not expect"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    ConnectError, EtcdCredentials, EtcdEndpoint, EtcdStore, Event, Lost, Notice, Observer, Options, Store,
};
use support::etcd::Etcd;
use support::{LIMIT, loopback, next, run_id, within};

fn options(ttl: Duration) -> (Options, Arc<Mutex<Vec<String>>>) {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notices);
    let observer = Observer::new(move |notice: &Notice| kept.lock().unwrap().push(format!("{notice:?}")));
    let options = Options {
        lease_ttl: ttl,
        join_timeout: LIMIT,
        connect_timeout: Duration::from_secs(2),
        observer,
        ..Options::default()
    };
    (options, notices)
}

async fn connect(
    endpoint: &EtcdEndpoint,
    credentials: &EtcdCredentials,
    options: &Options,
) -> Result<EtcdStore, ConnectError> {
    within("connecting", EtcdStore::connect(endpoint, &run_id("r"), credentials, options)).await
}

fn credentials(vars: &[(&str, &str)]) -> EtcdCredentials {
    let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    EtcdCredentials::from_env(|name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone())).unwrap()
}

async fn seen(notices: &Mutex<Vec<String>>, part: &str) {
    within(part, async {
        while !notices.lock().unwrap().iter().any(|n| n.contains(part)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn keys_lie_below_prefix_and_run_and_are_all_leased() {
    let etcd = Etcd::start().await;
    let (options, _) = options(Duration::from_secs(2));
    let store = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
    store.put_if_absent("target/presence", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(etcd.ctl(&["get", "", "--prefix", "--keys-only"]).trim(), "kvwire-test/r/target/presence");
    let leased = etcd.ctl(&["get", "", "--prefix", "-w", "json"]);
    assert!(leased.contains("\"lease\":"), "{leased}");
    store.leave().await.unwrap();
    assert_eq!(etcd.ctl(&["get", "", "--prefix", "--keys-only"]).trim(), "");
}

#[tokio::test]
async fn an_outage_shorter_than_the_lease_is_survived() {
    // With its data kept, and with an etcd that comes back empty.
    for keep_data in [true, false] {
        let mut etcd = Etcd::start().await;
        let (options, notices) = options(Duration::from_secs(15));
        let a = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
        let b = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
        a.put_if_absent("mine", Bytes::from_static(b"1")).await.unwrap();
        let mut watch = b.watch("").await.unwrap();
        assert_eq!(next(&mut watch).await.key(), "mine");
        etcd.kill();
        seen(&notices, "Reconnecting").await;
        etcd.restart(keep_data).await;
        seen(&notices, if keep_data { "Reconnected" } else { "Reregistered" }).await;
        within("the key", async { while a.get("mine").await != Ok(Some(Bytes::from_static(b"1"))) {} }).await;
        a.put_if_absent("after", Bytes::new()).await.unwrap();
        // The watcher saw no death where there was none.
        assert_eq!(next(&mut watch).await, Event::Put { key: "after".into(), value: Bytes::new() });
    }
}

#[tokio::test]
async fn two_outages_in_a_row_of_which_the_second_loses_everything_are_noticed_by_a_watch() {
    let mut etcd = Etcd::start().await;
    // What others put raises the revision that a watch goes on from far above that of an empty etcd.
    let raise = |etcd: &Etcd| (0..20).for_each(|_| drop(etcd.ctl(&["put", "elsewhere", "x"])));
    let (options, notices) = options(Duration::from_secs(30));
    let a = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
    let b = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
    // The watch is opened again some 50 ms after it broke: etcd may be emptied between its listing and its stream.
    for (round, wait_ms) in [0, 30, 60, 90].into_iter().enumerate() {
        raise(&etcd);
        let mut watch = b.watch("").await.unwrap();
        etcd.kill();
        etcd.restart(true).await;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        etcd.kill();
        etcd.restart(false).await;
        seen(&notices, "Reregistered").await;
        let key = format!("after-{round}");
        within("the key", async { while a.put_if_absent(&key, Bytes::new()).await.is_err() {} }).await;
        while next(&mut watch).await.key() != key {}
    }
}

#[tokio::test]
async fn an_outage_longer_than_the_lease_is_the_control_plane_lost() {
    let mut etcd = Etcd::start().await;
    let (options, _) = options(Duration::from_secs(1));
    let store = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    etcd.kill();
    let lost = within("lost()", store.lost()).await;
    assert!(matches!(lost, Lost::Unreachable { .. }), "{lost}");
    assert_eq!(within("the end of the watch", watch.next()).await, Err(lost.into()));
}

#[tokio::test]
async fn a_revoked_lease_is_replaced_with_the_same_keys() {
    let etcd = Etcd::start().await;
    let (options, notices) = options(Duration::from_secs(6));
    let store = connect(&etcd.etcd_endpoint(), &EtcdCredentials::default(), &options).await.unwrap();
    store.put_if_absent("mine", Bytes::from_static(b"1")).await.unwrap();
    let leases = etcd.ctl(&["lease", "list"]);
    etcd.ctl(&["lease", "revoke", leases.lines().last().unwrap()]);
    assert_eq!(store.get("mine").await, Ok(None));
    seen(&notices, "Reregistered").await;
    assert_eq!(store.get("mine").await, Ok(Some(Bytes::from_static(b"1"))));
    store.delete("mine").await.unwrap();
}

#[tokio::test]
async fn user_and_password() {
    let etcd = Etcd::start().await;
    for args in [
        &["user", "add", "root:secret-word"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(args);
    }
    let (options, _) = options(Duration::from_secs(2));
    let endpoint = etcd.etcd_endpoint();
    let right = credentials(&[("KVWIRE_ETCD_USER", "root"), ("KVWIRE_ETCD_PASSWORD", "secret-word")]);
    let store = connect(&endpoint, &right, &options).await.unwrap();
    store.put_if_absent("k", Bytes::new()).await.unwrap();
    assert!(!format!("{store:?} {right:?}").contains("secret"));
    let wrong = credentials(&[("KVWIRE_ETCD_USER", "root"), ("KVWIRE_ETCD_PASSWORD", "other-word")]);
    for credentials in [wrong, EtcdCredentials::default()] {
        let error = connect(&endpoint, &credentials, &options).await.unwrap_err();
        assert!(matches!(error, ConnectError::Credentials { .. }), "{error:?}");
        assert!(error.to_string().contains("KVWIRE_ETCD_PASSWORD") && !error.to_string().contains("word\""));
    }
}

fn openssl(args: &[&str]) {
    let output = std::process::Command::new("openssl").args(args).output();
    let output = output.expect("the openssl command is needed by this test (Debian: openssl)");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and a key with its certificate from it for a server on loopback and for a client of this name.
struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let authority = Self { dir: tempfile::TempDir::new().unwrap() };
        let [ca, key] = ["ca.pem", "ca.key"].map(|name| authority.path(name));
        openssl(
            &[&NEW_KEY[..], &["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", &key, "-out", &ca]]
                .concat(),
        );
        for (name, subject, usage) in [
            ("server", "/CN=etcd", "subjectAltName=IP:127.0.0.1"),
            ("client", "/CN=root", "extendedKeyUsage=clientAuth"),
        ] {
            let [own, request, cert, extension] =
                ["key", "csr", "pem", "ext"].map(|end| authority.path(&format!("{name}.{end}")));
            openssl(&[&NEW_KEY[..], &["-subj", subject, "-keyout", &own, "-out", &request]].concat());
            std::fs::write(&extension, format!("basicConstraints=critical,CA:FALSE\n{usage}\n")).unwrap();
            let signed =
                ["-CA", &ca, "-CAkey", &key, "-CAcreateserial", "-days", "2", "-extfile", &extension];
            openssl(&[&["x509", "-req", "-in", &request, "-out", &cert][..], &signed].concat());
        }
        authority
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

const NEW_KEY: [&str; 7] =
    ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

#[tokio::test]
async fn a_client_certificate_where_etcd_asks_for_one() {
    let authority = Authority::new();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| authority.path(name));
    let [server, server_key] = ["server.pem", "server.key"].map(|name| authority.path(name));
    let etcd = Etcd::start_with(&[
        &format!("--cert-file={server}"),
        &format!("--key-file={server_key}"),
        "--client-cert-auth",
        &format!("--trusted-ca-file={ca}"),
    ])
    .await;
    let endpoint = EtcdEndpoint { tls: true, ..etcd.etcd_endpoint() };
    let mut options = options(Duration::from_secs(2)).0;
    let ours =
        credentials(&[("KVWIRE_ETCD_CA", &ca), ("KVWIRE_ETCD_CERT", &cert), ("KVWIRE_ETCD_KEY", &key)]);
    let store = connect(&endpoint, &ours, &options).await.unwrap();
    store.put_if_absent("k", Bytes::from_static(b"v")).await.unwrap();
    assert_eq!(store.get("k").await, Ok(Some(Bytes::from_static(b"v"))));
    store.leave().await.unwrap();

    options.join_timeout = Duration::from_millis(50);
    let stranger = Authority::new();
    let [their_cert, their_key] = ["client.pem", "client.key"].map(|name| stranger.path(name));
    let none = credentials(&[("KVWIRE_ETCD_CA", &ca)]);
    let strange = credentials(&[
        ("KVWIRE_ETCD_CA", &ca),
        ("KVWIRE_ETCD_CERT", &their_cert),
        ("KVWIRE_ETCD_KEY", &their_key),
    ]);
    for refused in [none, strange] {
        let error = connect(&endpoint, &refused, &options).await.unwrap_err();
        assert!(error.to_string().contains("KVWIRE_ETCD_CERT"), "{error}");
    }
}

/// A certificate for 127.0.0.1 that is its own authority.
fn certificate(dir: &std::path::Path) -> (String, String) {
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let output = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=kvwire test"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("the openssl command is needed by this test (Debian: openssl)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (cert.display().to_string(), key.display().to_string())
}

#[tokio::test]
async fn tls_with_the_right_authority_only() {
    let dir = tempfile::TempDir::new().unwrap();
    let (cert, key) = certificate(dir.path());
    let etcd = Etcd::start_with(&[&format!("--cert-file={cert}"), &format!("--key-file={key}")]).await;
    let endpoint = EtcdEndpoint { tls: true, ..etcd.etcd_endpoint() };
    let mut options = options(Duration::from_secs(2)).0;
    let store = connect(&endpoint, &credentials(&[("KVWIRE_ETCD_CA", &cert)]), &options).await.unwrap();
    store.put_if_absent("k", Bytes::new()).await.unwrap();

    options.join_timeout = Duration::from_millis(50);
    let other = tempfile::TempDir::new().unwrap();
    let (stranger, _) = certificate(other.path());
    let strange = credentials(&[("KVWIRE_ETCD_CA", &stranger)]);
    let error = connect(&endpoint, &strange, &options).await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    let none = connect(&endpoint, &EtcdCredentials::default(), &options).await.unwrap_err();
    assert!(none.to_string().contains("KVWIRE_ETCD_CA"), "{none}");
}

#[tokio::test]
async fn what_is_not_there_or_not_etcd_ends_with_the_reason() {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = EtcdEndpoint { hosts: vec![("127.0.0.1".into(), port)], tls: false, prefix: "p".into() };
    let mut options = options(Duration::from_secs(1)).0;
    options.join_timeout = Duration::from_millis(50);
    options.connect_timeout = Duration::from_millis(300);
    let error = connect(&endpoint, &EtcdCredentials::default(), &options).await.unwrap_err();
    assert!(error.to_string().contains("may not be etcd"), "{error}");
    drop(listener);
    let error = connect(&endpoint, &EtcdCredentials::default(), &options).await.unwrap_err();
    assert!(
        matches!(&error, ConnectError::Deadline { last, .. } if matches!(**last, ConnectError::Refused { .. })),
        "{error:?}"
    );
}
