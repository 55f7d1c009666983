//! Operations on one run in etcd, each under a deadline and repeated over short outages.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Client, Compare, CompareOp, Error, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{Lost, StoreError};
use crate::options::Observer;
use crate::store::Put;

/// Pause before an operation is repeated during an outage.
const PAUSE: Duration = Duration::from_millis(50);

// Codes of gRPC (https://grpc.io/docs/guides/status-codes/).
pub(crate) const CANCELLED: i32 = 1;
pub(crate) const INVALID_ARGUMENT: i32 = 3;
pub(crate) const DEADLINE_EXCEEDED: i32 = 4;
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const PERMISSION_DENIED: i32 = 7;
pub(crate) const UNAVAILABLE: i32 = 14;
pub(crate) const UNAUTHENTICATED: i32 = 16;

pub(crate) struct Core {
    pub(crate) client: Client,
    /// `<prefix>/<run>/`, before every key.
    pub(crate) base: String,
    pub(crate) place: String,
    pub(crate) ttl: Duration,
    pub(crate) op_timeout: Duration,
    pub(crate) observer: Observer,
    pub(crate) lease: AtomicI64,
    pub(crate) alive_until: Mutex<Instant>,
    /// How often a lost lease was replaced. Counted before the keys are put again.
    pub(crate) replaced: watch::Sender<u64>,
    /// What this process has put, for a new lease should etcd lose the old one.
    mine: Mutex<BTreeMap<String, Bytes>>,
    lost: watch::Sender<Option<Lost>>,
}

/// gRPC code of an error, if it has one.
pub(crate) fn code(error: &Error) -> Option<i32> {
    match error {
        Error::GRpcStatus(status) => Some(status.code() as i32),
        _ => None,
    }
}

/// An error with all its causes: the outermost says little.
pub(crate) fn text(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut cause = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(transport) => transport.source(),
        _ => None,
    };
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text.chars().take(500).collect()
}

fn is_outage(error: &Error) -> bool {
    match error {
        Error::TransportError(_) => true,
        // A status with a cause was made on this side, when the connection broke under a request: what etcd itself
        // answers has none. Not found: the lease was lost, and the keeper is about to replace it.
        Error::GRpcStatus(status) => {
            status.source().is_some()
                || matches!(code(error), Some(CANCELLED | DEADLINE_EXCEEDED | NOT_FOUND | UNAVAILABLE))
        }
        _ => false,
    }
}

impl Core {
    pub(crate) fn new(
        client: Client,
        base: String,
        place: String,
        lease: (i64, Duration, Instant),
        options: &crate::Options,
    ) -> Self {
        let (id, ttl, since) = lease;
        Self {
            client,
            base,
            place,
            ttl,
            // etcd may have granted a longer lease than was asked for.
            op_timeout: options.op_timeout.max(ttl),
            observer: options.observer.clone(),
            lease: AtomicI64::new(id),
            alive_until: Mutex::new(since + ttl),
            replaced: watch::Sender::new(0),
            mine: Mutex::default(),
            lost: watch::Sender::new(None),
        }
    }

    fn mine(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own(&self) -> Vec<(String, Bytes)> {
        self.mine().iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    pub(crate) fn alive_until(&self) -> Instant {
        *self.alive_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease certainly stands for its whole time from `sent` on.
    pub(crate) fn alive_from(&self, sent: Instant) {
        *self.alive_until.lock().unwrap_or_else(PoisonError::into_inner) = sent + self.ttl;
    }

    pub(crate) fn end(&self, reason: &Lost) {
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert_with(|| reason.clone());
            first
        });
    }

    pub(crate) fn is_lost(&self) -> Option<Lost> {
        self.lost.borrow().clone()
    }

    pub(crate) fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let mut lost = self.lost.subscribe();
        async move {
            let reason = lost.wait_for(Option::is_some).await;
            reason.ok().and_then(|r| r.clone()).unwrap_or(Lost::Left)
        }
    }

    /// Runs one request until it is answered, the deadline passes or the store is lost.
    pub(crate) async fn call<T, F>(
        &self,
        what: &str,
        request: impl Fn(Client, i64) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + self.op_timeout;
        let attempts = async {
            loop {
                let lease = self.lease.load(Ordering::Relaxed);
                match timeout_at(deadline, request(self.client.clone(), lease)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(e)) if is_outage(&e) && Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
                    Ok(Err(e)) => {
                        return Err(StoreError::Backend { what: what.to_owned(), detail: text(&e) });
                    }
                    Err(_) => {
                        return Err(StoreError::Deadline { what: what.to_owned(), after: self.op_timeout });
                    }
                }
            }
        };
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost.into()),
            result = attempts => result,
        }
    }

    pub(crate) async fn put_if_absent(&self, key: &str, value: Bytes) -> Result<Put, StoreError> {
        let full = format!("{}{key}", self.base);
        // Known before it is put, so that a lease replaced just now takes it along.
        let before = self.mine().insert(key.to_owned(), value.clone());
        let (answer, lease) = self
            .call(&format!("put {key}"), |mut client, lease| {
                let txn = Txn::new()
                    .when([Compare::version(full.clone(), CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(
                        full.clone(),
                        value.to_vec(),
                        Some(PutOptions::new().with_lease(lease)),
                    )])
                    .or_else([TxnOp::get(full.clone(), None)]);
                async move { Ok((client.txn(txn).await?, lease)) }
            })
            .await?;
        let holder = if answer.succeeded() { None } else { found(&answer) };
        match holder {
            Some(kv) if kv.lease() != lease || kv.value() != value => {
                let mut mine = self.mine();
                match before {
                    Some(before) => mine.insert(key.to_owned(), before),
                    None => mine.remove(key),
                };
                Ok(Put::Exists(Bytes::copy_from_slice(kv.value())))
            }
            _ => Ok(Put::Created),
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let full = format!("{}{key}", self.base);
        let answer = self
            .call(&format!("get {key}"), |mut client, _| {
                let full = full.clone();
                async move { client.get(full, None).await }
            })
            .await?;
        Ok(answer.kvs().first().map(|kv| Bytes::copy_from_slice(kv.value())))
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let full = format!("{}{key}", self.base);
        let answer = self
            .call(&format!("delete {key}"), |mut client, lease| {
                let txn = Txn::new()
                    .when([Compare::lease(full.clone(), CompareOp::Equal, lease)])
                    .and_then([TxnOp::delete(full.clone(), None)])
                    .or_else([TxnOp::get(full.clone(), None)]);
                async move { client.txn(txn).await }
            })
            .await?;
        if !answer.succeeded() && found(&answer).is_some() {
            return Err(StoreError::NotOwner { key: key.to_owned() });
        }
        self.mine().remove(key);
        Ok(())
    }

    pub(crate) async fn revoke(&self) -> Result<(), StoreError> {
        if let Some(lost) = self.is_lost() {
            return if lost == Lost::Left { Ok(()) } else { Err(lost.into()) };
        }
        let mut client = self.client.clone();
        let revoking = client.lease_revoke(self.lease.load(Ordering::Relaxed));
        match timeout(self.op_timeout, revoking).await {
            Ok(Ok(_)) => Ok(()),
            // The lease is gone already, and with it our keys.
            Ok(Err(e)) if code(&e) == Some(NOT_FOUND) => Ok(()),
            Ok(Err(e)) => Err(StoreError::Backend { what: "leaving".into(), detail: text(&e) }),
            Err(_) => Err(StoreError::Deadline { what: "leaving".into(), after: self.op_timeout }),
        }
    }
}

/// The key that a transaction's other branch read.
fn found(answer: &TxnResponse) -> Option<KeyValue> {
    answer.op_responses().into_iter().find_map(|op| match op {
        TxnOpResponse::Get(get) => get.kvs().first().cloned(),
        _ => None,
    })
}
