//! What was once made from a row and is shared by all readers: its JSON, its compressed forms.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The forms that can be kept of a row; their meaning is their users'. Two dictionaries are two forms.
pub const FORMS: usize = 12;

/// Forms of one row, or of each row of a block.
#[derive(Debug)]
pub(crate) struct Memos {
    rows: usize,
    forms: [OnceLock<Box<[OnceLock<Bytes>]>>; FORMS],
    bytes: AtomicUsize,
}

impl Memos {
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, forms: std::array::from_fn(|_| OnceLock::new()), bytes: AtomicUsize::new(0) }
    }

    /// A form of a row, made now if nobody did before; `charge` hears of the bytes that this takes.
    pub(crate) fn get(
        &self,
        row: usize,
        form: usize,
        make: impl FnOnce() -> Bytes,
        charge: impl Fn(usize),
    ) -> Bytes {
        let slots = self.forms[form].get_or_init(|| {
            let slots: Box<[OnceLock<Bytes>]> = (0..self.rows).map(|_| OnceLock::new()).collect();
            self.charge(size_of_val(&*slots), &charge);
            slots
        });
        let slot = slots[row].get_or_init(|| {
            let value = make();
            self.charge(value.len(), &charge);
            value
        });
        slot.clone()
    }

    fn charge(&self, bytes: usize, charge: &impl Fn(usize)) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        charge(bytes);
    }

    /// What the forms take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
