//! One direction of a connection: frames out of a reader, frames into a writer.

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::frame::{Decoder, Frame, FrameError, MAX_GREETING, Seal, encode};

/// Bytes asked of the system at a time.
const READ_STEP: usize = 64 << 10;

/// Why no further frame comes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a message that does not parse: {0}")]
    Message(#[from] serde_json::Error),
}

pub(crate) struct Incoming<R> {
    reader: R,
    decoder: Decoder,
    /// The first bytes ever received, to quote when they turn out not to be ours.
    first: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, decoder: Decoder::new(MAX_GREETING), first: Vec::new() }
    }

    pub(crate) fn upgrade(&mut self, max: usize, seal: Option<Seal>) {
        self.decoder.upgrade(max, seal);
    }

    /// The next frame. Cancel-safe.
    pub(crate) async fn frame(&mut self) -> Result<Frame, LinkError> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(frame);
            }
            self.decoder.buffer.reserve(READ_STEP);
            let n = self.reader.read_buf(&mut self.decoder.buffer).await?;
            if n == 0 {
                return Err(LinkError::Closed);
            }
            if self.first.len() < 32 {
                let start = self.decoder.buffer.len() - n;
                let new = &self.decoder.buffer[start..];
                self.first.extend(new.iter().take(32 - self.first.len()));
            }
        }
    }

    /// The next frame with its header parsed.
    pub(crate) async fn message<T: DeserializeOwned>(&mut self) -> Result<(T, Bytes), LinkError> {
        let frame = self.frame().await?;
        Ok((serde_json::from_slice(&frame.header)?, frame.value))
    }

    /// What the other side said first, made printable.
    pub(crate) fn quote(&self) -> String {
        self.first
            .iter()
            .map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' })
            .collect()
    }
}

pub(crate) struct Outgoing<W> {
    writer: W,
    seal: Option<Seal>,
}

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, seal: None }
    }

    pub(crate) fn upgrade(&mut self, seal: Option<Seal>) {
        self.seal = seal;
    }

    /// Writes one message. Not cancel-safe: a cut frame ends the connection's use.
    pub(crate) async fn send<T: Serialize>(&mut self, message: &T, value: &[u8]) -> Result<(), LinkError> {
        let header = serde_json::to_vec(message)?;
        let frame = encode(&header, value, self.seal.as_mut())?;
        self.writer.write_all(&frame).await?;
        Ok(())
    }

    /// Tells the other side that nothing more comes.
    pub(crate) async fn finish(&mut self) {
        // The connection is being given up; whether the other side hears of it is its own affair.
        let _ = self.writer.shutdown().await;
    }
}
