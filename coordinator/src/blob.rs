//! Values of any size up to 64 MiB over a store whose values are smaller.
//!
//! A blob `name` is a small manifest at `name` and chunks at `name/0`, `name/1`, … The manifest is
//! put last, so that whoever sees it can read all of it; its SHA-256 covers the whole.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::hex;
use crate::store::{Put, Store};

/// Largest blob in bytes.
pub const MAX_BLOB: usize = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    len: usize,
    chunk: usize,
    sha256: String,
}

impl Manifest {
    fn of(data: &[u8], chunk: usize) -> Self {
        Self { len: data.len(), chunk, sha256: hex::encode(&Sha256::digest(data)) }
    }

    fn chunks(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }
}

fn chunk_key(name: &str, index: usize) -> String {
    format!("{name}/{index}")
}

fn wrong(name: &str, detail: impl Into<String>) -> StoreError {
    StoreError::Blob { name: name.to_owned(), detail: detail.into() }
}

/// Puts `data` as blob `name`, in chunks of the store's largest value.
///
/// # Errors
/// [`StoreError::TooLarge`] above [`MAX_BLOB`]; [`StoreError::Blob`] when something else is already
/// there under that name; else what the store says.
pub async fn put_blob(store: &dyn Store, name: &str, data: &Bytes) -> Result<(), StoreError> {
    if data.len() > MAX_BLOB {
        return Err(StoreError::TooLarge { key: name.to_owned(), size: data.len(), limit: MAX_BLOB });
    }
    let manifest = Manifest::of(data, store.max_value().max(1));
    for index in 0..manifest.chunks() {
        let start = index * manifest.chunk;
        let end = data.len().min(start + manifest.chunk);
        put(store, name, &chunk_key(name, index), data.slice(start..end)).await?;
    }
    let text = serde_json::to_vec(&manifest).map_err(|e| wrong(name, e.to_string()))?;
    put(store, name, name, text.into()).await
}

async fn put(store: &dyn Store, name: &str, key: &str, value: Bytes) -> Result<(), StoreError> {
    match store.put_if_absent(key, value).await? {
        Put::Created => Ok(()),
        Put::Exists(_) => Err(wrong(name, format!("{key} is already there with another value or owner"))),
    }
}

/// Reads blob `name`; None when there is none.
///
/// # Errors
/// [`StoreError::Blob`] when it is malformed, incomplete, above [`MAX_BLOB`] or fails its checksum;
/// else what the store says.
pub async fn get_blob(store: &dyn Store, name: &str) -> Result<Option<Bytes>, StoreError> {
    let Some(manifest) = read_manifest(store, name).await? else {
        return Ok(None);
    };
    let mut data = BytesMut::new();
    for index in 0..manifest.chunks() {
        let chunk = store.get(&chunk_key(name, index)).await?;
        let chunk = chunk.ok_or_else(|| wrong(name, format!("chunk {index} is missing")))?;
        if chunk.len() != manifest.chunk.min(manifest.len - data.len()) {
            return Err(wrong(name, format!("chunk {index} has the wrong length")));
        }
        data.extend_from_slice(&chunk);
    }
    if hex::encode(&Sha256::digest(&data)) != manifest.sha256 {
        return Err(wrong(name, "its checksum does not match"));
    }
    Ok(Some(data.freeze()))
}

async fn read_manifest(store: &dyn Store, name: &str) -> Result<Option<Manifest>, StoreError> {
    let Some(text) = store.get(name).await? else {
        return Ok(None);
    };
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|e| wrong(name, format!("its manifest does not parse: {e}")))?;
    let possible = manifest.len <= MAX_BLOB && (4096..=MAX_BLOB).contains(&manifest.chunk);
    if possible { Ok(Some(manifest)) } else { Err(wrong(name, "its manifest claims impossible sizes")) }
}

/// Deletes an own blob; an absent one is no error.
///
/// # Errors
/// What the store says.
pub async fn delete_blob(store: &dyn Store, name: &str) -> Result<(), StoreError> {
    if let Some(manifest) = read_manifest(store, name).await? {
        store.delete(name).await?;
        for index in 0..manifest.chunks() {
            store.delete(&chunk_key(name, index)).await?;
        }
    }
    Ok(())
}
