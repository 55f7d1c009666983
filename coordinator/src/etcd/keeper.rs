//! Keeps the lease. A keep-alive stream of etcd just ends when anything goes wrong, so the loop is
//! ours: it opens a new one, and replaces a lease that etcd lost, as long as the lease time allows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use etcd_client::{Error, LeaseKeepAliveResponse, LeaseKeepAliveStream, LeaseKeeper};
use tokio::time::{Instant, sleep, timeout};

use super::connect::whole_seconds;
use super::core::{Core, text};
use crate::error::{Lost, StoreError};
use crate::options::Notice;
use crate::store::Put;

/// What a keep-alive came to.
enum Beat {
    Alive,
    /// etcd does not know the lease.
    Gone,
    Failed(String),
}

pub(crate) async fn keep(core: Arc<Core>) {
    let mut detail = String::new();
    let mut broken = false;
    loop {
        let beat = hold(&core, &mut broken).await;
        let in_time = Instant::now() < core.alive_until();
        let place = core.place.clone();
        match beat {
            Beat::Gone if in_time => {
                if let Err(e) = register_again(&core).await {
                    return core.end(&Lost::LeaseExpired { place, detail: e.to_string() });
                }
            }
            Beat::Gone => {
                // The peer has been told that this process is gone; coming back would be a lie.
                return core
                    .end(&Lost::LeaseExpired { place, detail: "it ran out before it was renewed".into() });
            }
            Beat::Failed(e) => detail = e,
            Beat::Alive => {}
        }
        if Instant::now() >= core.alive_until() {
            return core.end(&Lost::Unreachable { place: core.place.clone(), detail });
        }
        if !broken {
            broken = true;
            core.observer.tell(&Notice::Reconnecting { place: core.place.clone(), detail: detail.clone() });
        }
        sleep(core.ttl / 20).await;
    }
}

/// One keep-alive stream, until it fails.
async fn hold(core: &Core, broken: &mut bool) -> Beat {
    let id = core.lease.load(Ordering::Relaxed);
    let sent = Instant::now();
    let mut client = core.client.clone();
    let (mut keeper, mut stream) = match timeout(core.ttl / 3, client.lease_keep_alive(id)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(Error::LeaseKeepAliveError(_))) => return Beat::Gone,
        Ok(Err(e)) => return Beat::Failed(text(&e)),
        Err(_) => return Beat::Failed("no answer to a keep-alive".into()),
    };
    core.alive_from(sent);
    if std::mem::take(broken) {
        core.observer.tell(&Notice::Reconnected { place: core.place.clone() });
    }
    loop {
        tokio::select! {
            () = sleep(core.ttl / 3) => {}
            // Nothing is asked, so nothing is answered: this is the end of the stream.
            ended = stream.message() => if !matches!(ended, Ok(Some(_))) { return end_of(ended) },
        }
        match beat(core, &mut keeper, &mut stream).await {
            Beat::Alive => {}
            other => return other,
        }
    }
}

fn end_of(ended: Result<Option<LeaseKeepAliveResponse>, Error>) -> Beat {
    Beat::Failed(ended.map_or_else(|e| text(&e), |_| "etcd ended the keep-alives".into()))
}

async fn beat(core: &Core, keeper: &mut LeaseKeeper, stream: &mut LeaseKeepAliveStream) -> Beat {
    let sent = Instant::now();
    if let Err(e) = keeper.keep_alive().await {
        return Beat::Failed(text(&e));
    }
    match timeout(core.ttl / 3, stream.message()).await {
        Ok(Ok(Some(answer))) if answer.ttl() > 0 => {
            core.alive_from(sent);
            Beat::Alive
        }
        Ok(Ok(Some(_))) => Beat::Gone,
        Ok(ended) => end_of(ended),
        Err(_) => Beat::Failed("no answer to a keep-alive".into()),
    }
}

/// A new lease with the same keys, for an etcd that lost the old one (its data, or an operator's
/// revocation) while we were still in time.
async fn register_again(core: &Core) -> Result<(), StoreError> {
    let seconds = whole_seconds(core.ttl);
    let sent = Instant::now();
    let lease = core
        .call("a new lease", |mut client, _| async move { client.lease_grant(seconds, None).await })
        .await?;
    core.lease.store(lease.id(), Ordering::Relaxed);
    core.replaced.send_modify(|times| *times += 1);
    core.alive_from(sent);
    for (key, value) in core.own() {
        if let Put::Exists(_) = core.put_if_absent(&key, value).await? {
            return Err(StoreError::Backend {
                what: format!("putting {key} again"),
                detail: "another process has it now".into(),
            });
        }
    }
    core.observer.tell(&Notice::Reregistered { place: core.place.clone() });
    Ok(())
}
