//! The bytes of one file: what readers see, what is durable, and what lies between.

use std::collections::BTreeMap;

use crate::sim::disk::fault::FaultCounts;
use crate::sim::random::Rng;

/// What a disk writes at once; a crash keeps or loses it as a whole, or tears it at one byte.
pub const SECTOR_BYTES: u64 = 512;

/// How much of what wasn't synced a crash keeps.
#[derive(Copy, Clone, Debug)]
pub(super) enum Keep {
    Everything,
    Nothing,
    /// Each sector and each name with this chance.
    Percent(u64),
    /// In order of position up to a random cut.
    Prefix,
}

impl Keep {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0 => Self::Everything,
            1 | 2 => Self::Nothing,
            3 => Self::Prefix,
            4 => Self::Percent(95),
            _ => Self::Percent(rng.within(5..95)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Per sector written since the last sync, every version it had, oldest first.
    dirty: BTreeMap<u64, Vec<Box<[u8]>>>,
    /// The least length that the file was cut to since the last sync.
    cut: Option<usize>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.live.len() as u64
    }

    /// False when the file ends before the buffer is full.
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> bool {
        let Some(source) = usize::try_from(at).ok().and_then(|at| self.live.get(at..)?.get(..buf.len()))
        else {
            return false;
        };
        buf.copy_from_slice(source);
        true
    }

    pub(super) fn write(&mut self, data: &[u8], at: u64) {
        if data.is_empty() {
            return;
        }
        let start = index(at);
        let end = start + data.len();
        if end > self.live.len() {
            self.live.resize(end, 0);
        }
        self.live[start..end].copy_from_slice(data);
        // A gap left by a write past the end reads as zeros; it has nothing to be synced but the length.
        for sector in at / SECTOR_BYTES..=(end as u64 - 1) / SECTOR_BYTES {
            let version = self.sector(sector).into();
            self.dirty.entry(sector).or_default().push(version);
        }
    }

    pub(super) fn truncate(&mut self, len: u64) {
        let len = index(len);
        if len >= self.live.len() {
            return;
        }
        self.live.truncate(len);
        let first_gone = (len as u64).div_ceil(SECTOR_BYTES);
        // Unsynced sectors behind the cut count as lost; what was durable there may come back.
        self.dirty.retain(|sector, _| *sector < first_gone);
        if let Some(end) = (len as u64).checked_sub(1) {
            let sector = end / SECTOR_BYTES;
            let bytes = self.sector(sector).into();
            if let Some(versions) = self.dirty.get_mut(&sector) {
                versions.push(bytes);
            }
        }
        self.cut = Some(self.cut.map_or(len, |cut| cut.min(len)));
    }

    pub(super) fn sync(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.durable.truncate(cut);
        }
        self.durable.resize(self.live.len(), 0);
        for (&sector, versions) in &self.dirty {
            if let Some(last) = versions.last() {
                place(&mut self.durable, sector, last);
            }
        }
        self.dirty.clear();
    }

    /// A failed sync: some of the unsynced sectors were written, the others never will be, and all count as clean.
    pub(super) fn sync_fails(&mut self, rng: &mut Rng) {
        if let Some(cut) = self.cut.take().filter(|_| rng.percent(50)) {
            self.durable.truncate(cut);
        }
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.last().filter(|_| rng.percent(50)) {
                place(&mut self.durable, sector, last);
            }
        }
    }

    pub(super) fn crash(&mut self, rng: &mut Rng, keep: Keep, counts: &mut FaultCounts) {
        let live_len = self.live.len();
        if let Some(cut) = self.cut.take() {
            let kept = match keep {
                Keep::Everything => true,
                Keep::Nothing => false,
                Keep::Percent(_) | Keep::Prefix => rng.percent(50),
            };
            if kept {
                self.durable.truncate(cut);
            }
        }
        let dirty = std::mem::take(&mut self.dirty);
        let cut = rng.below(dirty.len() as u64 + 1);
        for (nth, (sector, versions)) in dirty.into_iter().enumerate() {
            let kept = match keep {
                Keep::Everything => true,
                Keep::Nothing => false,
                Keep::Percent(percent) => rng.percent(percent),
                Keep::Prefix => (nth as u64) < cut,
            };
            if !kept {
                counts.sectors_lost += 1;
                continue;
            }
            let newest = matches!(keep, Keep::Everything) || rng.percent(75);
            let version = if newest { versions.len() - 1 } else { rng.index(versions.len()) };
            let mut bytes = &versions[version][..];
            if !matches!(keep, Keep::Everything) && rng.percent(5) {
                counts.sectors_torn += 1;
                bytes = &bytes[..rng.index(bytes.len())];
            }
            place(&mut self.durable, sector, bytes);
        }
        if live_len > self.durable.len() {
            let grown = (live_len - self.durable.len()) as u64;
            let kept = match keep {
                Keep::Everything => grown,
                Keep::Nothing => 0,
                Keep::Percent(_) | Keep::Prefix => *rng.pick(&[0, grown, rng.clone().below(grown + 1)]),
            };
            self.durable.resize(self.durable.len() + index(kept), 0);
        }
        self.live.clone_from(&self.durable);
    }

    /// False when there is no such byte.
    pub(super) fn rot(&mut self, at: u64, mask: u8) -> bool {
        let at = index(at);
        if at >= self.live.len() {
            return false;
        }
        self.live[at] ^= mask;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= mask;
        }
        true
    }

    fn sector(&self, sector: u64) -> &[u8] {
        let start = index(sector * SECTOR_BYTES);
        let end = self.live.len().min(start + index(SECTOR_BYTES));
        &self.live[start..end]
    }
}

fn place(target: &mut Vec<u8>, sector: u64, bytes: &[u8]) {
    let start = index(sector * SECTOR_BYTES);
    let end = start + bytes.len();
    if end > target.len() {
        target.resize(end, 0);
    }
    target[start..end].copy_from_slice(bytes);
}

/// Positions of simulated files are small; a test that comes here with more is wrong.
fn index(at: u64) -> usize {
    #[expect(clippy::expect_used, reason = "a simulated file is in memory, so its positions are `usize`")]
    usize::try_from(at).expect("positions of simulated files fit memory")
}
