//! The row of a stream, read and checked.

use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium_protocol::store::StoreFault;
use alluvium_protocol::{
    Attributes, Claim, ContentType, ForkOrigin, Incarnation, Lifetime, Offset, ProducerId, StreamConfig,
    StreamPath, lifetime,
};

use crate::plan::{Field, Param, Sql, Statement, reads};

/// A stream as its row tells it. Its path is what it was found by.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRow {
    pub(crate) id: i64,
    /// Grows with every change.
    pub(crate) version: i64,
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) created_ms: u64,
    /// When it was last read or written.
    pub(crate) accessed_ms: u64,
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) last_seq: Option<Arc<str>>,
    pub(crate) claim: Option<Claim>,
    /// Number of lanes.
    pub(crate) lanes: u64,
    /// Forks that refer to it.
    pub(crate) children: u64,
    /// Kept only for its forks.
    pub(crate) deleted: bool,
    pub(crate) fork: Option<Box<Fork>>,
}

/// Where a fork's first bytes are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fork {
    pub(crate) source_id: i64,
    pub(crate) origin: ForkOrigin,
    /// Where its own bytes begin.
    pub(crate) cut: Offset,
    /// How many forks lie between it and a stream that is none, itself included.
    pub(crate) levels: u32,
}

impl StreamRow {
    /// Where the bytes begin that are its own and not its source's.
    pub(crate) fn cut(&self) -> Offset {
        self.fork.as_ref().map_or(Offset::ZERO, |fork| fork.cut)
    }

    pub(crate) fn levels(&self) -> u32 {
        self.fork.as_ref().map_or(0, |fork| fork.levels)
    }

    /// Whether its time is up.
    pub(crate) fn expired(&self, now_ms: u64) -> bool {
        lifetime::is_expired(self.lifetime.deadline_ms(self.accessed_ms), now_ms)
    }

    /// What it was created with.
    pub(crate) fn config(&self) -> StreamConfig {
        StreamConfig {
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            closed: self.closed,
            fork: self.fork.as_ref().map(|fork| fork.origin.clone()),
            // The store contract knows no attributes.
            attributes: Attributes::default(),
        }
    }

    /// The row after another change.
    pub(crate) fn next_version(&self) -> StreamRow {
        StreamRow { version: self.version + 1, ..self.clone() }
    }
}

/// Reads the row of the stream at a path.
pub(crate) async fn load<S: Sql + ?Sized>(
    sql: &mut S,
    path: &StreamPath,
) -> Result<Option<Arc<StreamRow>>, StoreFault> {
    let mut row = Ok(None);
    let statement = Statement::new(reads::STREAM, [Param::Text(path.as_str())]);
    sql.query(&statement, &mut |fields| {
        row = StreamRow::read(&mut Fields::new(fields)).map(|row| Some(Arc::new(row)));
        ControlFlow::Break(())
    })
    .await?;
    row.map_err(|what| StoreFault::Corrupt(format!("stream `{path}`: {what}")))
}

/// What is wrong with a row.
pub(crate) type Damage = &'static str;

impl StreamRow {
    fn read(fields: &mut Fields<'_>) -> Result<StreamRow, Damage> {
        let (id, version) = (fields.integer()?, fields.integer()?);
        let incarnation = fields.text()?.parse().map_err(|_| "incarnation does not parse")?;
        let content_type = ContentType::parse(fields.text()?).map_err(|_| "content type does not parse")?;
        let lifetime = match (fields.optional_number()?, fields.optional_number()?) {
            (None, None) => Lifetime::Forever,
            (Some(seconds), None) => Lifetime::Ttl { seconds },
            (None, Some(unix_ms)) => Lifetime::Until { unix_ms },
            (Some(_), Some(_)) => return Err("has two lifetimes"),
        };
        let (created_ms, accessed_ms) = (fields.number()?, fields.number()?);
        let tail = fields.offset()?;
        let closed = fields.flag()?;
        let last_seq = fields.optional_text()?.map(Arc::from);
        let claim_id = fields.optional_text()?;
        let (epoch, next_seq) = (fields.number()?, fields.number()?);
        let claim = match claim_id {
            None => None,
            Some(id) => {
                let id = ProducerId::parse(id).map_err(|_| "producer id does not parse")?;
                Some(Claim { id, epoch, next_seq })
            }
        };
        let (lanes, children, deleted) = (fields.number()?, fields.number()?, fields.flag()?);
        let fork = Fork::read(fields)?;
        let row = StreamRow {
            id,
            version,
            incarnation,
            content_type,
            lifetime,
            created_ms,
            accessed_ms,
            tail,
            closed,
            last_seq,
            claim,
            lanes,
            children,
            deleted,
            fork: fork.map(Box::new),
        };
        let cut = row.cut();
        if tail.append_index < cut.append_index || tail.position < cut.position {
            return Err("ends before it begins");
        }
        Ok(row)
    }
}

impl Fork {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Fork>, Damage> {
        let (source_id, source) = (fields.optional_integer()?, fields.optional_text()?);
        let (append, position) = (fields.optional_number()?, fields.optional_number()?);
        let sub_offset = fields.optional_number()?;
        let cut = fields.offset()?;
        let levels = u32::try_from(fields.number()?).map_err(|_| "has too many levels")?;
        let (Some(source_id), Some(source), Some(append), Some(position), Some(sub_offset)) =
            (source_id, source, append, position, sub_offset)
        else {
            return if source_id.is_none() && cut == Offset::ZERO { Ok(None) } else { Err("is half a fork") };
        };
        let source = StreamPath::parse_decoded(source).map_err(|_| "source does not parse")?;
        let offset = Some(offset(append, position)?);
        Ok(Some(Fork { source_id, origin: ForkOrigin { source, offset, sub_offset }, cut, levels }))
    }
}

fn offset(append_index: u64, position: u64) -> Result<Offset, Damage> {
    if append_index > Offset::MAX_COMPONENT || position > Offset::MAX_COMPONENT {
        return Err("has an offset out of range");
    }
    Ok(Offset { append_index, position })
}

/// The fields of a row, taken one after the other.
pub(crate) struct Fields<'a> {
    fields: std::slice::Iter<'a, Field<'a>>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(fields: &'a [Field<'a>]) -> Self {
        Self { fields: fields.iter() }
    }

    fn next(&mut self) -> Result<Field<'a>, Damage> {
        self.fields.next().copied().ok_or("has too few columns")
    }

    pub(crate) fn integer(&mut self) -> Result<i64, Damage> {
        self.optional_integer()?.ok_or("has NULL for a number")
    }

    pub(crate) fn optional_integer(&mut self) -> Result<Option<i64>, Damage> {
        match self.next()? {
            Field::Null => Ok(None),
            Field::Integer(value) => Ok(Some(value)),
            Field::Text(_) | Field::Blob(_) => Err("has something else for a number"),
        }
    }

    /// An integer from 0.
    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        u64::try_from(self.integer()?).map_err(|_| "has a negative number")
    }

    pub(crate) fn optional_number(&mut self) -> Result<Option<u64>, Damage> {
        self.optional_integer()?
            .map(|value| u64::try_from(value).map_err(|_| "has a negative number"))
            .transpose()
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Damage> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("has something else for a flag"),
        }
    }

    pub(crate) fn offset(&mut self) -> Result<Offset, Damage> {
        offset(self.number()?, self.number()?)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Damage> {
        self.optional_text()?.ok_or("has NULL for text")
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<&'a str>, Damage> {
        match self.next()? {
            Field::Null => Ok(None),
            Field::Text(text) => Ok(Some(text)),
            Field::Integer(_) | Field::Blob(_) => Err("has something else for text"),
        }
    }

    pub(crate) fn blob(&mut self) -> Result<&'a [u8], Damage> {
        match self.next()? {
            Field::Blob(bytes) => Ok(bytes),
            Field::Null | Field::Integer(_) | Field::Text(_) => Err("has something else for bytes"),
        }
    }
}
