//! Frames on the wire: `u32 length | u32 header length | JSON header | value | tag`, big-endian.
//!
//! The value stands apart from the header so that metadata blobs are not turned into text. The tag
//! is there once both sides have proved that they know the token: 16 bytes of HMAC-SHA256 over a
//! counter and the frame, so that nobody on the path can add, change, repeat or reorder frames.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::token::{equal, mac};

/// Largest frame before the handshake is through, in bytes.
pub(crate) const MAX_GREETING: usize = 4096;
/// Room for header and tag beside the largest value, in bytes.
pub(crate) const FRAME_ROOM: usize = 64 << 10;

const TAG: usize = 16;
const LENGTH: usize = 4;
/// Values up to this size are copied out of the receive buffer, so that a small value that is
/// kept for long does not keep a large buffer with it.
const COPY_BELOW: usize = 64 << 10;

/// Bytes that are no frame of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {len} bytes, above the limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("a frame whose parts do not fit its length")]
    Shape,
    #[error("a frame with a wrong authentication tag")]
    Tag,
}

/// One received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: Bytes,
    pub(crate) value: Bytes,
}

/// Tags the frames of one direction, or checks them.
#[derive(Clone)]
pub(crate) struct Seal {
    key: [u8; 32],
    count: u64,
}

impl Seal {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key, count: 0 }
    }

    fn next(&mut self, frame: &[u8]) -> [u8; TAG] {
        let full = mac(&self.key, &[&self.count.to_be_bytes(), frame]);
        self.count += 1;
        let mut tag = [0; TAG];
        tag.copy_from_slice(&full[..TAG]);
        tag
    }
}

/// Writes one frame.
pub(crate) fn encode(header: &[u8], value: &[u8], seal: Option<&mut Seal>) -> Result<BytesMut, FrameError> {
    let tag = if seal.is_some() { TAG } else { 0 };
    let len = LENGTH + header.len() + value.len() + tag;
    let too_long = |_| FrameError::TooLong { len, max: u32::MAX as usize };
    let mut out = BytesMut::with_capacity(LENGTH + len);
    out.put_u32(u32::try_from(len).map_err(too_long)?);
    out.put_u32(u32::try_from(header.len()).map_err(too_long)?);
    out.put_slice(header);
    out.put_slice(value);
    if let Some(seal) = seal {
        let tag = seal.next(&out[LENGTH..]);
        out.put_slice(&tag);
    }
    Ok(out)
}

/// Takes frames out of a growing buffer. The buffer grows with what arrived, never with what a
/// length field claims.
pub(crate) struct Decoder {
    pub(crate) buffer: BytesMut,
    max: usize,
    seal: Option<Seal>,
}

impl Decoder {
    pub(crate) fn new(max: usize) -> Self {
        Self { buffer: BytesMut::new(), max, seal: None }
    }

    /// From here on frames may have `max` bytes and, with a seal, must be tagged.
    pub(crate) fn upgrade(&mut self, max: usize, seal: Option<Seal>) {
        self.max = max;
        self.seal = seal;
    }

    /// The next whole frame, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > self.max {
            return Err(FrameError::TooLong { len, max: self.max });
        }
        if self.buffer.len() < LENGTH + len {
            return Ok(None);
        }
        self.buffer.advance(LENGTH);
        let mut frame = self.buffer.split_to(len).freeze();
        self.check_tag(&mut frame)?;
        split(frame).map(Some)
    }

    fn check_tag(&mut self, frame: &mut Bytes) -> Result<(), FrameError> {
        let Some(seal) = &mut self.seal else { return Ok(()) };
        let at = frame.len().checked_sub(TAG).ok_or(FrameError::Shape)?;
        let tag = frame.split_off(at);
        if equal(&seal.next(frame), &tag) { Ok(()) } else { Err(FrameError::Tag) }
    }
}

fn split(mut frame: Bytes) -> Result<Frame, FrameError> {
    if frame.len() < LENGTH {
        return Err(FrameError::Shape);
    }
    let header = frame.get_u32() as usize;
    if header > frame.len() {
        return Err(FrameError::Shape);
    }
    let header = frame.split_to(header);
    let value = if frame.len() < COPY_BELOW { Bytes::copy_from_slice(&frame) } else { frame };
    Ok(Frame { header, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_all(
        bytes: &[u8],
        max: usize,
        seal: Option<Seal>,
        step: usize,
    ) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::new(max);
        decoder.upgrade(max, seal);
        let mut frames = Vec::new();
        for part in bytes.chunks(step.max(1)) {
            decoder.buffer.extend_from_slice(part);
            while let Some(frame) = decoder.next()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), prop::collection::vec(any::<u8>(), 0..200)), 0..6),
            sealed: bool,
            step in 1usize..50,
        ) {
            let mut seal = sealed.then(|| Seal::new([7; 32]));
            let mut wire = Vec::new();
            for (header, value) in &frames {
                wire.extend_from_slice(&encode(header, value, seal.as_mut()).unwrap());
            }
            let got = decode_all(&wire, 1024, sealed.then(|| Seal::new([7; 32])), step).unwrap();
            let got: Vec<_> = got.into_iter().map(|f| (f.header.to_vec(), f.value.to_vec())).collect();
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn any_bytes_neither_panic_nor_allocate(bytes in prop::collection::vec(any::<u8>(), 0..300), sealed: bool, step in 1usize..50) {
            let mut decoder = Decoder::new(256);
            decoder.upgrade(256, sealed.then(|| Seal::new([1; 32])));
            for part in bytes.chunks(step) {
                decoder.buffer.extend_from_slice(part);
                while let Ok(Some(_)) = decoder.next() {}
            }
            prop_assert!(decoder.buffer.capacity() <= 1024);
        }

        #[test]
        fn a_changed_sealed_frame_is_refused(at in 4usize..40, bit in 0u8..8) {
            let mut wire = encode(b"header", b"value of some bytes", Some(&mut Seal::new([7; 32]))).unwrap();
            let at = at.min(wire.len() - 1);
            wire[at] ^= 1 << bit;
            prop_assert!(decode_all(&wire, 1024, Some(Seal::new([7; 32])), 1000).is_err());
        }
    }

    #[test]
    fn a_repeated_or_reordered_sealed_frame_is_refused() {
        let mut seal = Seal::new([7; 32]);
        let (a, b) =
            (encode(b"a", b"", Some(&mut seal)).unwrap(), encode(b"b", b"", Some(&mut seal)).unwrap());
        let decode = |parts: &[&[u8]]| decode_all(&parts.concat(), 1024, Some(Seal::new([7; 32])), 1000);
        assert_eq!(decode(&[&a, &b]).unwrap().len(), 2);
        assert_eq!(decode(&[&a, &a]), Err(FrameError::Tag));
        assert_eq!(decode(&[&b, &a]), Err(FrameError::Tag));
    }

    #[test]
    fn a_claimed_length_above_the_limit_is_refused_at_once() {
        assert_eq!(
            decode_all(b"HTTP/1.1 400 Bad Request", 4096, None, 4),
            Err(FrameError::TooLong { len: 0x4854_5450, max: 4096 })
        );
    }
}
