//! What a row of `blocks` says, and its checks.

use alluvium_feed_protocol::{Block, ContentHash, Data, Id, Namespace};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::feeds::name_check;
use crate::rowcheck::{self, number};
use crate::{StoreError, StoreResult};

/// How many columns [`COLUMNS`] has; more may follow.
pub const COLUMN_COUNT: usize = 21;

/// The name of a block's feed, from the table `f`, with its check; then what the row of a block says beside its data, with
/// the checks of that, from the table `b`.
macro_rules! named {
    () => {
        "f.feedId, f.feedNamespace, f.nameCheck, b.spaceKey, b.feedPrivateId, b.sequence, b.actorId, b.prevSequence, \
         b.prevActorId, b.timestamp, b.insertionTimestamp, b.dataHash, b.encryptionKeyId, b.iv, b.signature, b.rowCheck, \
         b.position, b.positionCheck, b.positionBefore, b.placeCheck"
    };
}

/// Columns of [`from_row`], in its order, from the tables `b` and `f`.
pub const COLUMNS: &str = concat!(named!(), ", b.data");
/// The same without the data.
pub(super) const NAMED: &str = named!();

/// What the check of a row of `b` is over, and that check.
pub(crate) const ROW: &str = "b.spaceKey, b.feedPrivateId, b.sequence, b.actorId, b.prevSequence, b.prevActorId, \
                              b.timestamp, b.insertionTimestamp, b.dataHash, b.encryptionKeyId, b.iv, b.signature, \
                              b.rowCheck";

/// Whether a row says what was written, but for its place and its data, from the columns of [`ROW`].
pub(crate) fn is_row_as_written(row: &Row<'_>) -> StoreResult<bool> {
    const COVERED: usize = ROW_CHECK - WRITTEN;
    Ok(rowcheck::is_at(row, COVERED, rowcheck::of_columns(row, 0..COVERED)?)?)
}

/// Where in [`COLUMNS`] things are.
const NAME_CHECK: usize = 2;
const WRITTEN: usize = 3;
pub(crate) const FEED: usize = 4;
pub(super) const SEQUENCE: usize = 5;
pub(super) const ACTOR: usize = 6;
pub(super) const ARRIVED: usize = 10;
const HASH: usize = 11;
const KEY: usize = 12;
const SIGNATURE: usize = 14;
const ROW_CHECK: usize = 15;
pub(crate) const POSITION: usize = 16;
pub(crate) const POSITION_CHECK: usize = 17;
pub(crate) const BEFORE: usize = 18;
const PLACE_CHECK: usize = 19;
pub(super) const DATA: usize = 20;

/// Where a block is: its position, the check there, and the position of the block before it in its feed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) position: Option<u64>,
    pub(super) check: Option<i64>,
    pub(super) before: Option<u64>,
}

impl Place {
    /// From the columns that begin at `at`: in the order of the fields.
    pub(super) fn from_row(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self { position: row.get(at)?, check: row.get(at + 1)?, before: row.get(at + 2)? })
    }

    /// The check of a place: it also stands for the row that has it. Places of before schema version 9 don't say what is
    /// before them.
    pub(super) fn due(self, row_check: i64) -> Option<i64> {
        let check = self.check.map_or(ValueRef::Null, ValueRef::Integer);
        let place = |position| [ValueRef::Integer(row_check), number(Some(position)), check];
        let before = self.before.map(|before| number(Some(before)));
        self.position.map(|position| rowcheck::of(place(position).into_iter().chain(before)))
    }
}

/// What the checks of a row have to be: of what is written once, and of its place. From the columns of [`COLUMNS`].
pub(super) fn due(row: &Row<'_>) -> rusqlite::Result<(i64, i64)> {
    let row_check = rowcheck::of_columns(row, WRITTEN..ROW_CHECK)?;
    let place = [ValueRef::Integer(row_check), row.get_ref(POSITION)?, row.get_ref(POSITION_CHECK)?];
    let before = Some(row.get_ref(BEFORE)?).filter(|before| *before != ValueRef::Null);
    Ok((row_check, rowcheck::of(place.into_iter().chain(before))))
}

/// Whether a row says what was written, from the columns of [`COLUMNS`]; of its data, only the hash. A place that was
/// taken away has no check.
pub(crate) fn is_as_written(row: &Row<'_>) -> StoreResult<bool> {
    let (row_check, place_check) = due(row)?;
    Ok(rowcheck::is_at(row, ROW_CHECK, row_check)?
        && (row.get_ref(POSITION)? == ValueRef::Null || rowcheck::is_at(row, PLACE_CHECK, place_check)?)
        && rowcheck::is_at(
            row,
            NAME_CHECK,
            name_check(row.get_ref(FEED)?, row.get_ref(0)?, row.get_ref(1)?),
        )?)
}

/// Refuses a row that doesn't say what was written.
pub(super) fn as_written(row: &Row<'_>) -> StoreResult<()> {
    if is_as_written(row)? { Ok(()) } else { Err(damaged(row)) }
}

/// The damage of a row, as far as it still says which one it is.
fn damaged(row: &Row<'_>) -> StoreError {
    StoreError::Damaged {
        feed: row.get::<_, String>(0).ok().and_then(|feed| Id::parse(&feed).ok()),
        sequence: row.get(SEQUENCE).unwrap_or_default(),
        position: row.get(POSITION).ok().flatten(),
    }
}

/// A block from the columns of [`COLUMNS`].
///
/// # Errors
///
/// [`StoreError::Damaged`] if anything of it is not what was stored.
pub fn from_row(row: &Row<'_>) -> StoreResult<Block> {
    as_written(row)?;
    match from_row_unchecked(row) {
        Ok(block) if ContentHash::of(&block) == hash_of(row)? => Ok(block),
        Err(error) if !error.is_of_row() => Err(error),
        Ok(_) | Err(_) => Err(damaged(row)),
    }
}

/// What the hash of a block's content was when it was stored, from the columns of [`COLUMNS`].
pub(crate) fn hash_of(row: &Row<'_>) -> StoreResult<ContentHash> {
    Ok(ContentHash(row.get(HASH)?))
}

/// A block from the columns of [`COLUMNS`], whether it is what was stored or not.
pub(crate) fn from_row_unchecked(row: &Row<'_>) -> StoreResult<Block> {
    let text = |index| row.get::<_, Option<String>>(index);
    let bytes = |index| row.get::<_, Option<Vec<u8>>>(index);
    let (key, iv) = (text(KEY)?, bytes(KEY + 1)?);
    if key.is_some() != iv.is_some() {
        // Never to be taken for plaintext.
        return Err(StoreError::Corrupt("a sealed block without its key or nonce".to_owned()));
    }
    let id = |text: Option<String>| text.map(|text| Id::parse(&text)).transpose();
    let missing = || StoreError::Corrupt("a block without its author".to_owned());
    Ok(Block {
        feed_id: id(text(0)?)?,
        namespace: text(1)?.map(|namespace| Namespace::parse(&namespace)).transpose()?,
        position: row.get(POSITION)?,
        sequence: row.get(SEQUENCE)?,
        actor_id: id(text(ACTOR)?)?.ok_or_else(missing)?,
        prev_sequence: row.get(ACTOR + 1)?,
        prev_actor_id: id(text(ACTOR + 2)?)?,
        timestamp: row.get(ACTOR + 3)?,
        encryption_key_id: id(key)?,
        iv: iv.map(Data::from),
        signature: bytes(SIGNATURE)?.map(Data::from),
        data: Data::from(row.get::<_, Vec<u8>>(DATA)?),
    })
}
