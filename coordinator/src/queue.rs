//! A bounded queue whose end carries a reason.
//!
//! Bounded by items and by bytes: a peer that stops reading must not make the other side grow.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::StoreError;

/// Items that one queue holds before it overruns.
const MAX_ITEMS: usize = 8192;
/// Bytes that one queue holds before it overruns: a 64 MiB blob fits twice.
const MAX_BYTES: usize = 128 << 20;

#[derive(Debug)]
struct Inner<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    end: Option<StoreError>,
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    ready: Notify,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner { items: VecDeque::new(), bytes: 0, end: None }),
            ready: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item of `size` bytes. False when the queue has ended; adding beyond the bound ends it.
    pub(crate) fn push(&self, item: T, size: usize) -> bool {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return false;
        }
        if inner.items.len() >= MAX_ITEMS || inner.bytes.saturating_add(size) > MAX_BYTES {
            inner.end = Some(StoreError::Overrun);
        } else {
            inner.bytes += size;
            inner.items.push_back((item, size));
        }
        let open = inner.end.is_none();
        drop(inner);
        self.ready.notify_one();
        open
    }

    /// Ends the queue; what is in it can still be taken. The first reason stays.
    pub(crate) fn close(&self, reason: StoreError) {
        self.lock().end.get_or_insert(reason);
        // Everybody who waits now, and whoever comes to wait before looking again.
        self.ready.notify_waiters();
        self.ready.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Takes the next item, or the reason of the end once all items are taken. Cancel-safe.
    pub(crate) async fn pop(&self) -> Result<T, StoreError> {
        loop {
            let ready = self.ready.notified();
            {
                let mut inner = self.lock();
                if let Some((item, size)) = inner.items.pop_front() {
                    inner.bytes -= size;
                    return Ok(item);
                }
                if let Some(end) = &inner.end {
                    return Err(end.clone());
                }
            }
            ready.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn items_come_before_the_end() {
        let queue = Queue::new();
        assert!(queue.push(1, 0));
        queue.close(StoreError::Overrun);
        assert!(!queue.push(2, 0));
        assert_eq!(queue.pop().await, Ok(1));
        assert_eq!(queue.pop().await, Err(StoreError::Overrun));
    }

    #[tokio::test]
    async fn too_many_items_or_bytes_end_it() {
        let queue = Queue::new();
        for n in 0..MAX_ITEMS {
            assert!(queue.push(n, 0));
        }
        assert!(!queue.push(0, 0));
        let queue = Queue::new();
        assert!(queue.push(0, MAX_BYTES));
        assert!(!queue.push(0, 1));
        assert_eq!(queue.pop().await, Ok(0));
        assert_eq!(queue.pop().await, Err(StoreError::Overrun));
    }
}
