//! Room for one more subscription, and who gives way for it.
//!
//! A space keeps so many subscriptions, and so many bytes of names that they wait for. When that is used up, whoever has
//! most of it loses what it has used least of late: so nobody can lock others out, however many subscriptions it makes,
//! and who loses one that it still wants is told so by its next query, and subscribes again. Callers who go by one name
//! are told apart by their addresses.

use alluvium_feed_protocol::{ErrorCode, Id};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, spaces};

use crate::failure::Failure;
use crate::options::Options;
use crate::principal::Principal;

/// How much a subscription is in use: whether somebody listens, and when it was last asked for. The least gives way first.
pub(crate) type InUse<'a> = &'a dyn Fn(&Id) -> (bool, u64);

/// What one caller has.
#[derive(Debug)]
struct Share {
    principal: String,
    address: String,
    number: u64,
    bytes: u64,
}

/// What is used up.
#[derive(Clone, Copy, Debug)]
enum Measure {
    Number,
    Bytes,
}

impl Share {
    fn of(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Number => self.number,
            Measure::Bytes => self.bytes,
        }
    }
}

/// Makes room for a subscription that waits for so many bytes of names; which ones gave way for it.
pub(super) fn make(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    bytes: u64,
    options: &Options,
    in_use: InUse<'_>,
) -> Result<Vec<Id>, Failure> {
    let (name, address) = principal.share();
    let mut room = Room { connection, in_use, shares: shares(connection)?, own: 0, evicted: Vec::new() };
    let is_own = |share: &Share| share.principal == name && share.address == address;
    room.own = room.shares.iter().position(is_own).unwrap_or(room.shares.len());
    if room.own == room.shares.len() {
        room.shares.push(Share { principal: name.to_owned(), address, number: 0, bytes: 0 });
    }
    if !principal.is_shared {
        room.keep_own_within(&space.id, options.limits.subscriptions_max)?;
    }
    room.relieve(Measure::Number, 1, options.space_subscriptions_max as u64)?;
    if bytes > 0 {
        room.relieve(Measure::Bytes, bytes, options.space_awaited_bytes_max as u64)?;
    }
    Ok(room.evicted)
}

/// What each caller has, out of an index alone.
fn shares(connection: &Connection) -> Result<Vec<Share>, Failure> {
    let mut statement = connection.prepare_cached(SHARES)?;
    let rows = statement.query_map([], |row| {
        Ok(Share { principal: row.get(0)?, address: row.get(1)?, number: row.get(2)?, bytes: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const SHARES: &str = "SELECT principal, address, count(*), sum(awaitedBytes) FROM subscriptions \
                      INDEXED BY subscriptions_owner GROUP BY principal, address";

struct Room<'a> {
    connection: &'a Connection,
    in_use: InUse<'a>,
    shares: Vec<Share>,
    /// Which of the shares is the caller's.
    own: usize,
    evicted: Vec<Id>,
}

impl Room<'_> {
    /// Has the caller keep less than so many subscriptions in a space.
    fn keep_own_within(&mut self, space: &Id, number_max: usize) -> Result<(), Failure> {
        let held = self.held(self.own, Some(space))?;
        let surplus = (held.len() + 1).saturating_sub(number_max.max(1));
        for (id, bytes) in held.into_iter().take(surplus) {
            self.evict(self.own, id, bytes)?;
        }
        Ok(())
    }

    /// Has those who hold most give way until there is room for a claim.
    fn relieve(&mut self, measure: Measure, claim: u64, max: u64) -> Result<(), Failure> {
        let total = |room: &Self| room.shares.iter().map(|share| share.of(measure)).sum::<u64>();
        while total(self) + claim > max {
            let weigh = |(place, share): &(usize, &Share)| (share.of(measure), *place == self.own);
            let heaviest = self.shares.iter().enumerate().max_by_key(weigh).map(|(place, _)| place);
            // To take from one who would then have less than the caller would only go to and fro.
            let gives_way = |room: &Self, place: usize| {
                place == room.own
                    || room.shares[place].of(measure) > room.shares[room.own].of(measure) + claim
            };
            let Some(place) = heaviest.filter(|place| gives_way(self, *place)) else { return Err(full()) };
            let evicted = self.evicted.len();
            for (id, bytes) in self.held(place, None)? {
                if matches!(measure, Measure::Number) || bytes > 0 {
                    self.evict(place, id, bytes)?;
                }
                if total(self) + claim <= max || !gives_way(self, place) {
                    break;
                }
            }
            if self.evicted.len() == evicted {
                return Err(full());
            }
        }
        Ok(())
    }

    /// The subscriptions of a share, those that are used least first, with the bytes of names that each waits for.
    fn held(&self, place: usize, space: Option<&Id>) -> Result<Vec<(Id, u64)>, Failure> {
        let share = &self.shares[place];
        let sql = "SELECT subscriptionId, awaitedBytes, createdAt FROM subscriptions \
                   WHERE principal = ?1 AND address = ?2 AND (?3 IS NULL OR spaceId = ?3)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query((&share.principal, &share.address, space.map(Id::as_str)))?;
        let mut held = Vec::new();
        while let Some(row) = rows.next()? {
            let (id, created_at): (String, u64) = (row.get(0)?, row.get(2)?);
            let id = Id::parse(&id).map_err(StoreError::from)?;
            let (is_heard, used_at) = (self.in_use)(&id);
            held.push(((is_heard, used_at.max(created_at)), (id, row.get(1)?)));
        }
        held.sort_by_key(|(in_use, _)| *in_use);
        Ok(held.into_iter().map(|(_, held)| held).collect())
    }

    fn evict(&mut self, place: usize, id: Id, bytes: u64) -> Result<(), Failure> {
        let sql = "DELETE FROM subscriptions WHERE subscriptionId = ?1";
        self.connection.prepare_cached(sql)?.execute([id.as_str()])?;
        let share = &mut self.shares[place];
        share.number = share.number.saturating_sub(1);
        share.bytes = share.bytes.saturating_sub(bytes);
        self.evicted.push(id);
        Ok(())
    }
}

fn full() -> Failure {
    Failure::refused(
        ErrorCode::LimitReached,
        "the space has too many subscriptions, and nobody more of them than the caller",
    )
}
