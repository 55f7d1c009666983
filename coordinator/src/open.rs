//! From an endpoint to a store.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::error::ConnectError;
use crate::etcd::{EtcdCredentials, EtcdStore};
use crate::key::RunId;
use crate::options::Options;
use crate::store::Store;
use crate::tcp::TcpStore;

/// Joins `run` at `endpoint` as a client. `credentials` matter to etcd only.
///
/// # Errors
/// [`ConnectError`].
pub async fn open(
    endpoint: &Endpoint,
    run: &RunId,
    credentials: &EtcdCredentials,
    options: &Options,
) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(match endpoint {
        Endpoint::Tcp(tcp) => Arc::new(TcpStore::connect(tcp, run, options).await?),
        Endpoint::Etcd(etcd) => Arc::new(EtcdStore::connect(etcd, run, credentials, options).await?),
    })
}
