//! What is told unasked, and what it is worth.
//!
//! A hint is followed at once. Once one has led to nothing, the next of its kind waits, longer each time, as after a failure:
//! what it tells is kept until then, and counts as still to be pulled. One that leads to something new ends that. So
//! whatever is sent unasked, the authority is asked because of it no more often than one that fails.

use std::collections::HashSet;

use alluvium_env::Random;
use alluvium_feed_protocol::Id;

use crate::options::Options;
use crate::schedule::Retry;

/// Names of feeds that no rule picks, at most so many of them. A hint about others has the feeds listed.
const PASSED_OVER_MAX: usize = 10_000;

/// Hints about the replicated feeds: there is something up to a position.
#[derive(Debug, Default)]
pub(crate) struct TailHints {
    /// The highest position that was told before the tail was last asked for.
    asked: u64,
    /// The highest position that was told since then.
    since: u64,
    /// Whether the present connection has told it, so that it may be held against it.
    is_held_against: bool,
    /// Whether blocks have come since it was asked for.
    has_brought: bool,
    retry: Retry,
}

impl TailHints {
    /// The highest position that was told and not looked at yet.
    pub(crate) fn position(&self) -> u64 {
        self.asked.max(self.since)
    }

    /// Takes note of a hint.
    pub(super) fn tell(&mut self, position: u64) {
        self.since = self.since.max(position);
        self.is_held_against = true;
    }

    /// The tail is asked for: what was told so far must be there.
    pub(super) fn ask(&mut self) {
        if self.asked == 0 {
            self.has_brought = false;
        }
        self.asked = self.asked.max(std::mem::take(&mut self.since));
    }

    /// A page of the tail was taken over, with blocks in it or not.
    pub(super) fn take_page(&mut self, has_blocks: bool) {
        self.has_brought |= has_blocks;
    }

    /// The tail is complete up to a position, as the answer to what was asked says.
    pub(super) fn judge(&mut self, position: u64, now_ms: u64, options: &Options, random: &dyn Random) {
        let asked = std::mem::take(&mut self.asked);
        if self.since <= position {
            self.since = 0;
        }
        if asked == 0 || !self.is_held_against {
            return;
        }
        if asked > position {
            self.retry.fail(now_ms, None, options, random);
        } else if self.has_brought {
            self.retry.succeed();
        } else if !self.retry.is_free_again(now_ms, options) {
            // There is no block up to there. Once in a while that may be: who has missed hints is told of all that came.
            self.retry.fail(now_ms, None, options, random);
        }
        self.is_held_against = self.since > 0;
    }

    /// The history is another one than was told of.
    pub(super) fn give_up(&mut self, now_ms: u64, options: &Options, random: &dyn Random) {
        if self.asked > 0 && self.is_held_against {
            self.retry.fail(now_ms, None, options, random);
        }
        self.forget();
    }

    /// Blocks that came by themselves lead up to a position.
    pub(super) fn come_to(&mut self, position: u64) {
        for told in [&mut self.asked, &mut self.since] {
            if *told <= position {
                *told = 0;
            }
        }
    }

    /// Nothing is replicated that was told of.
    pub(super) fn forget(&mut self) {
        (self.asked, self.since) = (0, 0);
    }

    /// What was told so far was about a subscription that isn't there any more: it is looked at, and proves nothing.
    pub(super) fn forgive(&mut self) {
        self.is_held_against = false;
    }

    /// Another connection begins, and with it another luck.
    pub(super) fn begin(&mut self) {
        self.forgive();
        self.retry.succeed();
    }

    /// When what was told is looked at, if anything is left of it.
    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        (self.position() > 0).then(|| now_ms.max(self.retry.not_before_ms))
    }

    /// Until when hints wait.
    pub(super) fn not_before_ms(&self) -> u64 {
        self.retry.not_before_ms
    }
}

/// Hints about feeds that rules may pick: there is something to be listed.
#[derive(Debug, Default)]
pub(crate) struct FeedHints {
    /// One has come since the present listing began, or the last one.
    is_told: bool,
    /// The present listing was asked for by one.
    is_followed: bool,
    /// The present listing has brought a feed that was not known.
    has_brought: bool,
    /// Pages of the present listing.
    pages: u64,
    /// Feeds that were listed, and that no rule picks.
    passed_over: HashSet<Id>,
    retry: Retry,
}

impl FeedHints {
    /// Takes note of a hint.
    pub(super) fn tell(&mut self) {
        self.is_told = true;
    }

    /// A listing begins.
    pub(super) fn ask(&mut self) {
        self.is_followed |= std::mem::take(&mut self.is_told);
        (self.has_brought, self.pages) = (false, 0);
    }

    /// A page of a listing has come, which may have brought a feed that was not known. How many there were.
    pub(super) fn take_page(&mut self, has_brought: bool) -> u64 {
        self.has_brought |= has_brought;
        self.pages += 1;
        self.pages
    }

    /// The listing is complete.
    pub(super) fn judge(&mut self, now_ms: u64, options: &Options, random: &dyn Random) {
        if !std::mem::take(&mut self.is_followed) {
            return;
        }
        if self.has_brought {
            self.retry.succeed();
        } else if !self.retry.is_free_again(now_ms, options) {
            // A few times that may be: a hint doesn't name all feeds, and may come late.
            self.retry.fail(now_ms, None, options, random);
        }
    }

    /// Notes a feed that no rule picks; whether it was not known.
    pub(crate) fn pass_over(&mut self, feed: &Id) -> bool {
        self.passed_over.len() < PASSED_OVER_MAX && self.passed_over.insert(feed.clone())
    }

    /// Whether it is known that no rule picks a feed.
    pub(crate) fn is_passed_over(&self, feed: &Id) -> bool {
        self.passed_over.contains(feed)
    }

    /// The rules may be others.
    pub(super) fn reconsider(&mut self) {
        self.passed_over.clear();
    }

    /// Another connection begins, and with it another luck.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// When a hint is followed, if one has come.
    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        self.is_told.then(|| now_ms.max(self.retry.not_before_ms))
    }

    /// Until when hints wait.
    pub(super) fn not_before_ms(&self) -> u64 {
        self.retry.not_before_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Jitter;
    use alluvium_env::sim::Rng;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn what_is_told_is_remembered_until_it_was_asked_for_whatever_comes_in_between() {
        let (options, jitter) = (Options::default(), Jitter::of("a"));
        for seed in 0..200 {
            let (mut rng, mut hints) = (Rng::new(seed), TailHints::default());
            // What there is, what was told before the tail was last asked for, and since then.
            let (mut head, mut before, mut since) = (0, 0, 0);
            let mut now_ms = 0;
            for _ in 0..200 {
                now_ms += rng.below(1000);
                match rng.below(5) {
                    0 | 1 => {
                        head += u64::from(rng.percent(50));
                        let position = if rng.percent(70) { head } else { head + 1000 };
                        hints.tell(position);
                        since = since.max(position);
                    }
                    2 => {
                        hints.ask();
                        (before, since) = (before.max(since), 0);
                    }
                    3 => {
                        hints.take_page(rng.percent(50));
                        hints.judge(head, now_ms, &options, &jitter);
                        // What the answer could not know of is still to be looked at.
                        (before, since) = (0, if since > head { since } else { 0 });
                    }
                    _ if rng.percent(10) => hints.begin(),
                    _ => {}
                }
                assert_eq!(hints.position(), before.max(since), "seed {seed}");
                let due_ms = hints.due_ms(now_ms);
                assert_eq!(due_ms.is_some(), before.max(since) > 0, "seed {seed}");
                let latest_ms = now_ms + options.backoff_ms_max;
                assert!(due_ms.is_none_or(|due_ms| (now_ms..=latest_ms).contains(&due_ms)), "seed {seed}");
            }
        }
    }

    /// How often hints are followed in an hour, each at once with a lie that is found out.
    fn followed(mut follow: impl FnMut(u64) -> u64) -> u64 {
        let (mut now_ms, mut count) = (0, 0);
        while now_ms < HOUR_MS {
            now_ms = follow(now_ms).max(now_ms);
            count += 1;
            assert!(count < 10_000, "without a pause");
        }
        count
    }

    #[test]
    fn lies_are_followed_ever_more_seldom() {
        let (options, jitter) = (Options::default(), Jitter::of("a"));
        // Waits of up to half a minute, of which half are longer than a quarter of one.
        let few = 2 * HOUR_MS / options.backoff_ms_max * 2;
        for is_kept in [false, true] {
            let mut hints = TailHints::default();
            let count = followed(|now_ms| {
                hints.tell(2);
                let due_ms = hints.due_ms(now_ms).unwrap();
                hints.ask();
                // It is not there, or it is and there is nothing up to it.
                hints.judge(if is_kept { 2 } else { 1 }, due_ms, &options, &jitter);
                due_ms
            });
            assert!(count < few, "kept: {is_kept}, {count}");
        }
        let mut hints = FeedHints::default();
        let count = followed(|now_ms| {
            hints.tell();
            let due_ms = hints.due_ms(now_ms).unwrap();
            hints.ask();
            hints.take_page(false);
            hints.judge(due_ms, &options, &jitter);
            due_ms
        });
        assert!(count < few, "{count}");
    }

    #[test]
    fn a_hint_that_leads_to_something_new_ends_the_waiting() {
        let (options, jitter) = (Options::default(), Jitter::of("a"));
        let mut hints = TailHints::default();
        for _ in 0..20 {
            hints.tell(9);
            hints.ask();
            hints.judge(1, 0, &options, &jitter);
        }
        assert!(hints.not_before_ms() > options.backoff_ms_max / 10 - 1);
        hints.tell(2);
        hints.ask();
        hints.take_page(true);
        hints.judge(2, 0, &options, &jitter);
        assert_eq!(hints.not_before_ms(), 0);
    }

    #[test]
    fn what_was_told_over_another_connection_is_not_held_against_this_one() {
        let (options, jitter) = (Options::default(), Jitter::of("a"));
        let mut hints = TailHints::default();
        hints.tell(9);
        hints.begin();
        assert_eq!(hints.due_ms(5), Some(5));
        hints.ask();
        hints.judge(1, 0, &options, &jitter);
        assert_eq!((hints.not_before_ms(), hints.position()), (0, 0));
    }

    #[test]
    fn feeds_that_no_rule_picks_are_remembered_up_to_a_number() {
        let mut hints = FeedHints::default();
        let name = |n: usize| Id::parse(&n.to_string()).unwrap();
        assert!((0..PASSED_OVER_MAX).all(|n| hints.pass_over(&name(n))));
        assert!(!hints.pass_over(&name(0)) && !hints.pass_over(&name(PASSED_OVER_MAX)));
        assert!(hints.is_passed_over(&name(0)) && !hints.is_passed_over(&name(PASSED_OVER_MAX)));
        hints.reconsider();
        assert!(!hints.is_passed_over(&name(0)));
    }
}
