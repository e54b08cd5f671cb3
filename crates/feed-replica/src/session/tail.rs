//! Where the tail lane moves on: with a page that was asked for, or with blocks that came by themselves.

use alluvium_feed_protocol::{Block, BlocksPushed, Id, QueryResponse, RequestId};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::spaces;

use super::Session;
use super::answer::{Taken, lanes_behind, ok};
use crate::apply::{self, Asked, Changed, Unusable};
use crate::lanes::{self, Lane};
use crate::state::{self, Place, SyncState};
use crate::{Replica, ReplicaResult};

impl Replica {
    /// Blocks that came by themselves: whether they were taken over. They are if they follow on the tail's cursor, from the
    /// same history as far as this connection has confirmed it, with no pull under way whose answer would then meet another cursor.
    pub(super) fn take_pushed(&self, session: &mut Session, pushed: BlocksPushed) -> ReplicaResult<bool> {
        let is_pulling = session.in_flight.iter().any(|request| !request.kind.is_push());
        let own = session.subscription.as_ref().filter(|own| own.id == pushed.subscription_id);
        let Some(feeds) = own.map(|own| own.feeds.clone()).filter(|_| session.connected && !is_pulling)
        else {
            return Ok(false);
        };
        let is_confirmed = session.is_confirmed;
        #[cfg(feature = "planted-bugs")]
        let is_confirmed = is_confirmed || super::is_planted(super::Bug::PushedUnconfirmed);
        if session.is_replaying || session.is_probe_due || !is_confirmed {
            return Ok(false);
        }
        let (now_ms, space, position) = (self.now_ms(), pushed.space_id.clone(), pushed.position);
        let taken = self.database.write::<_, Unusable>(|transaction| {
            let mut state = state::load(transaction, &space)?;
            let cursor = state.tail.position;
            let follows = pushed.after <= cursor && cursor < pushed.position;
            if !follows || state.token.as_ref() != Some(&pushed.server_token) {
                return Ok(Taken::Discarded);
            }
            let page = page_of(pushed, cursor);
            apply::check_page(&page, cursor)?;
            let taken = self.store_tail(transaction, session, &mut state, &page, (&space, cursor, &feeds))?;
            if taken == Taken::Done {
                ok(session, &mut state, now_ms);
                state::store(transaction, &space, &state)?;
            }
            Ok(taken)
        });
        match taken {
            Ok(Taken::Done) => {
                session.hints.come_to(position);
                session.pull_as_hinted(now_ms);
                Ok(true)
            }
            // The pull that follows a hint says what is wrong.
            Ok(_) | Err(Unusable::Nonsense(_)) => Ok(false),
            Err(Unusable::Store(error)) => Err(error.into()),
        }
    }

    /// Takes over what follows on the tail's cursor, and moves that. Not used if the tail has other feeds or another
    /// cursor by now.
    pub(super) fn store_tail(
        &self,
        transaction: &Connection,
        session: &mut Session,
        state: &mut SyncState,
        page: &QueryResponse,
        (space, cursor, feeds): (&Id, u64, &[i64]),
    ) -> Result<Taken, Unusable> {
        let now_ms = self.now_ms();
        let lanes = lanes::all(transaction, space)?;
        let (tail, others): (Vec<Lane>, Vec<Lane>) =
            lanes.into_iter().filter(Lane::is_tail).partition(|lane| feeds.binary_search(&lane.feed).is_ok());
        // Without a subscription a page has no more feeds than a message names.
        let is_part = session.tail_unheard.is_some() && session.subscription.is_none();
        let is_stale = state.tail.position != cursor || !(others.is_empty() || is_part);
        #[cfg(feature = "planted-bugs")]
        let is_stale = is_stale
            && !super::is_planted(super::Bug::NotSerialised)
            && !super::is_planted(super::Bug::CursorBeforeBlocks)
            && !super::is_planted(super::Bug::HintAsData);
        if is_stale {
            return Ok(Taken::Discarded);
        }
        for lane in others.iter().filter(|_| is_part) {
            lanes::set(transaction, lane.feed, lane.from, Some(cursor))?;
        }
        let asked = Asked {
            space_key: spaces::find_or_create(transaction, space)?.key,
            space,
            feeds,
            lanes: &tail,
            cursor,
            up_to: page.next_cursor,
            now_ms,
        };
        let changed = apply::page(transaction, &asked, page)?;
        self.note_changes(session, changed);
        session.hints.take_page(changed.has_blocks);
        state.tail = Place { position: page.next_cursor, check: page.check };
        state.see(state.tail);
        let missing = page.max_position.saturating_sub(page.next_cursor);
        // What is held up has something to be pulled, for all that is known.
        let is_held = u64::from(!session.held.is_empty());
        state.blocks_to_pull = if page.has_more { missing.max(1) } else { is_held };
        if page.has_more {
            session.pull_due_ms = now_ms;
        } else {
            session.is_replaying &= lanes_behind(transaction, space, state, &session.held)?;
            session.pull_due_ms = now_ms + self.poll_ms(session);
        }
        Ok(Taken::Done)
    }
}

impl Replica {
    /// What follows from what a page has changed.
    pub(super) fn note_changes(&self, session: &mut Session, changed: Changed) {
        let now_ms = self.now_ms();
        if changed.has_freed {
            session.push_at(now_ms);
        }
        // While everything is pulled anew that is what it is for.
        if (changed.has_freed || changed.has_moved) && !session.is_replaying {
            session.shake(now_ms, &self.options, &self.jitter);
        }
    }
}

/// What was pushed after a cursor, as the page that would have been pulled.
fn page_of(pushed: BlocksPushed, cursor: u64) -> QueryResponse {
    let is_new = |block: &Block| block.position.is_none_or(|position| position > cursor);
    QueryResponse {
        request_id: RequestId::default(),
        space_id: None,
        blocks: pushed.blocks.into_iter().filter(is_new).collect(),
        next_cursor: pushed.position,
        has_more: false,
        server_token: pushed.server_token,
        max_position: pushed.position,
        check: pushed.check,
        cursor_block: None,
        reset: false,
        since_position: None,
        pruned_below: None,
        pruned: Vec::new(),
    }
}
