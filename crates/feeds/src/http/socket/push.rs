//! Blocks that are sent unasked, in place of hints, to subscriptions with `push: "blocks"`.
//!
//! They are read when there is news and nothing waits to be written, from where the message before ended. So a slow
//! reader costs nothing: what comes meanwhile is one message later, or, where that would be too much for one, a hint.

use std::collections::HashMap;

use alluvium_feed_protocol::{Advanced, Block, FeedAdvanced, Id, Push, Request as Asked, Response as Answer};

use crate::principal::Principal;
use crate::service::{PUSHED_BYTES_MAX, Service};

/// What one round of messages may hold, before the rest are hints; in bytes of blocks.
const ROUND_BYTES_MAX: usize = 4 * PUSHED_BYTES_MAX;
/// What is set aside for a round: that, with names and base64.
pub(super) const COST: usize = 2 * ROUND_BYTES_MAX;
/// Most subscriptions of one socket that are sent blocks; further ones get hints.
const SUBSCRIPTIONS_MAX: usize = 64;

/// A subscription, by space and name.
type Key = (Id, Id);

/// Up to where each subscription was sent what there is.
#[derive(Debug, Default)]
pub(super) struct Pushing {
    after: HashMap<Key, u64>,
    is_under_way: bool,
}

/// What a request may say about subscriptions that are sent blocks.
#[derive(Debug)]
pub(super) enum Watched {
    /// It makes or renews one, in place of another.
    Subscribe { space: Id, replaced: Option<Id>, pushes: bool },
    /// It pulls by one.
    Query(Key),
    /// It ends one.
    Unsubscribe(Key),
}

/// What an answer says about them.
#[derive(Debug)]
pub(super) enum Told {
    /// It is complete up to here; others are not begun by this.
    Pulled(Key, u64),
    /// It begins here, perhaps in place of another.
    Begins(Key, u64, Option<Key>),
    /// It is no more.
    Ends(Key),
}

impl Watched {
    pub(super) fn of(space: &Id, asked: &Asked) -> Option<Self> {
        match asked {
            Asked::Subscribe(request) => Some(Self::Subscribe {
                space: space.clone(),
                replaced: request.subscription_id.clone(),
                pushes: request.push == Some(Push::Blocks),
            }),
            Asked::Query(request) => {
                request.subscription_id.clone().map(|subscription| Self::Query((space.clone(), subscription)))
            }
            Asked::Unsubscribe(request) => {
                Some(Self::Unsubscribe((space.clone(), request.subscription_id.clone())))
            }
            _ => None,
        }
    }

    pub(super) fn told(self, answer: &Answer) -> Option<Told> {
        match (self, answer) {
            (Self::Subscribe { space, replaced, pushes: true }, Answer::Subscribe(answer)) => {
                let replaced = replaced.map(|replaced| (space.clone(), replaced));
                Some(Told::Begins((space, answer.subscription_id.clone()), answer.max_position, replaced))
            }
            (Self::Subscribe { space, replaced: Some(replaced), .. }, Answer::Subscribe(_)) => {
                Some(Told::Ends((space, replaced)))
            }
            (Self::Query(key), Answer::Query(page)) if !page.has_more => {
                Some(Told::Pulled(key, page.next_cursor))
            }
            (Self::Unsubscribe(key), Answer::Unsubscribe(_)) => Some(Told::Ends(key)),
            _ => None,
        }
    }
}

impl Pushing {
    pub(super) fn note(&mut self, told: Told) {
        match told {
            Told::Begins(key, position, replaced) => {
                if let Some(replaced) = replaced {
                    self.after.remove(&replaced);
                }
                if self.after.len() < SUBSCRIPTIONS_MAX || self.after.contains_key(&key) {
                    self.after.insert(key, position);
                }
            }
            Told::Pulled(key, position) => {
                if let Some(after) = self.after.get_mut(&key) {
                    *after = position.max(*after);
                }
            }
            Told::Ends(key) => drop(self.after.remove(&key)),
        }
    }

    /// From where on a subscription is sent blocks, if it is.
    pub(super) fn after(&self, hint: &FeedAdvanced) -> Option<u64> {
        self.after.get(&(hint.space_id.clone(), hint.subscription_id.clone())).copied()
    }

    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// A round is read and will be sent.
    pub(super) fn done(&mut self, messages: &[Advanced]) {
        self.is_under_way = false;
        self.passed(messages);
    }

    /// Messages go out: the next ones begin where they end. Who gets a hint pulls up to there.
    pub(super) fn passed(&mut self, messages: &[Advanced]) {
        for message in messages {
            let (space, subscription, position) = match message {
                Advanced::FeedAdvanced(hint) => (&hint.space_id, &hint.subscription_id, hint.position),
                Advanced::BlocksPushed(pushed) => {
                    (&pushed.space_id, &pushed.subscription_id, pushed.position)
                }
            };
            self.note(Told::Pulled((space.clone(), subscription.clone()), position));
        }
    }
}

/// Reads what is to be sent in place of hints; nothing for those of what was sent already. Blocks meanwhile.
pub(super) fn messages(
    service: &Service,
    principal: &Principal,
    hints: Vec<(Option<u64>, FeedAdvanced)>,
) -> Vec<Advanced> {
    let mut bytes = 0;
    let is_new =
        |(after, hint): &(Option<u64>, FeedAdvanced)| after.is_none_or(|after| hint.position > after);
    let message = |(after, hint): (Option<u64>, FeedAdvanced)| {
        let after = after.filter(|_| bytes + PUSHED_BYTES_MAX <= ROUND_BYTES_MAX);
        let pushed = after.and_then(|after| {
            service.pushed_blocking(principal, &hint.space_id, &hint.subscription_id, after)
        });
        match pushed {
            Some(pushed) => {
                bytes += pushed.blocks.iter().map(Block::cost_bytes).sum::<usize>();
                Advanced::BlocksPushed(pushed)
            }
            None => Advanced::FeedAdvanced(hint),
        }
    };
    hints.into_iter().filter(is_new).map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        Id::parse(text).expect("an identifier")
    }

    #[test]
    fn where_the_next_message_begins_only_ever_rises_and_ends_with_the_subscription() {
        let key = (id("s"), id("sub"));
        let hint = |position| FeedAdvanced {
            space_id: id("s"),
            subscription_id: id("sub"),
            position,
            feed_ids: Vec::new(),
            count: 0,
        };
        let mut pushing = Pushing::default();
        pushing.note(Told::Pulled(key.clone(), 3));
        assert_eq!(pushing.after(&hint(9)), None, "who did not ask for blocks gets none");
        pushing.note(Told::Begins(key.clone(), 5, None));
        pushing.note(Told::Pulled(key.clone(), 4));
        assert_eq!(pushing.after(&hint(9)), Some(5));
        pushing.begin();
        pushing.done(&[Advanced::FeedAdvanced(hint(9))]);
        assert_eq!((pushing.after(&hint(10)), pushing.is_under_way()), (Some(9), false));
        pushing.note(Told::Ends(key));
        assert_eq!(pushing.after(&hint(10)), None);
    }
}
