//! The trace of a simulated disk: a running hash of every operation, and its lines when someone wants to read them.

use std::path::Path;

use crate::sim::disk::fault::Operation;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { hash: FNV_OFFSET, lines: None }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn keep_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(super) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records an operation on `path` at byte `at` with its data, and how it ended.
    pub(super) fn record(
        &mut self,
        number: u64,
        op: Operation,
        path: &Path,
        at: u64,
        data: &[u8],
        end: &str,
    ) {
        let before = self.hash;
        self.mix(&[op as u8]);
        self.mix(path.as_os_str().as_encoded_bytes());
        self.mix(&at.to_le_bytes());
        self.mix(&(data.len() as u64).to_le_bytes());
        self.mix(data);
        self.mix(end.as_bytes());
        if let Some(lines) = &mut self.lines {
            let path = path.display();
            let hash = self.hash ^ before;
            lines.push(format!("{number:6} {op:?} {path} at {at} len {} {end} {hash:016x}", data.len()));
        }
    }

    /// FNV-1a over 8 bytes at a time, because segments are long and the tests are many.
    fn mix(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = (self.hash ^ u64::from_le_bytes(word)).wrapping_mul(FNV_PRIME);
            self.hash ^= self.hash >> 29;
        }
    }
}
