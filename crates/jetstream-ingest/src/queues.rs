//! Who is worked on, and what waits: one queue for each account, so that its events keep their order, and many accounts
//! at once.
//!
//! An account that is worked on stays with its worker until its queue is empty. The queue is bounded; what happens
//! beyond the bound is the caller's choice: wait, or drop. Of a queue that is full the oldest commit or sync is dropped,
//! since a repair brings back what it brought; of markers, which no repair brings back, only one that a later one of the
//! same kind makes up for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// How an item may be treated when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It was made here and is not counted or dropped.
    Fixed,
    /// A commit or sync.
    Repairable,
    /// An event about the account as such; of this kind.
    Marker(u8),
}

/// Something that waits.
pub(crate) trait Item {
    /// How it may be treated.
    fn class(&self) -> Class;
    /// What it takes in memory, in bytes.
    fn cost(&self) -> usize;
}

/// What became of an item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offer<T> {
    /// It waits for its turn.
    Queued,
    /// Its queue is full, and nothing was changed.
    Full(T),
}

/// What someone waits for who has an item to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Room {
    /// No more than this waits, in bytes, and no more than so many accounts for a worker.
    Within {
        /// Bytes of all items.
        bytes: usize,
        /// Accounts.
        ready: usize,
    },
    /// The queue of this account is half empty.
    Of(Box<str>),
}

/// Queues by account.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    waiting: HashMap<Arc<str>, VecDeque<T>>,
    ready: VecDeque<Arc<str>>,
    busy: HashSet<Arc<str>>,
    limit: usize,
    bytes: usize,
    wanted: Option<Room>,
}

impl<T: Item> Queues<T> {
    /// Queues of at most `limit` items each.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            busy: HashSet::new(),
            limit: limit.max(1),
            bytes: 0,
            wanted: None,
        }
    }

    /// What all items that wait take, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many accounts wait for a worker.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether nothing waits and nobody works.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.busy.is_empty()
    }

    /// Notes what is waited for. Room for one more is less than that: whoever waits would be woken for each item.
    pub(crate) fn want(&mut self, room: Room) {
        self.wanted = Some(room);
    }

    /// Whether what was waited for is there; true once.
    pub(crate) fn has_wanted_room(&mut self) -> bool {
        let has_room = match &self.wanted {
            None => false,
            Some(Room::Within { bytes, ready }) => self.bytes <= *bytes && self.ready.len() <= *ready,
            Some(Room::Of(account)) => {
                self.waiting.get(&**account).is_none_or(|queue| counted(queue) <= self.limit / 2)
            }
        };
        if has_room {
            self.wanted = None;
        }
        has_room
    }

    /// Puts an item behind the others of its account.
    pub(crate) fn offer(&mut self, account: &str, item: T) -> Offer<T> {
        let full = self.waiting.get(account).is_some_and(|queue| counted(queue) >= self.limit);
        if full && item.class() != Class::Fixed {
            return Offer::Full(item);
        }
        self.bytes += item.cost();
        if let Some(queue) = self.waiting.get_mut(account) {
            queue.push_back(item);
            return Offer::Queued;
        }
        let (account, busy) = match self.busy.get(account) {
            Some(account) => (account.clone(), true),
            None => (account.into(), false),
        };
        self.waiting.insert(account.clone(), VecDeque::from([item]));
        if !busy {
            self.ready.push_back(account);
        }
        Offer::Queued
    }

    /// Takes the item out of a full queue that is missed least, and says at which place it was.
    pub(crate) fn drop_one(&mut self, account: &str) -> Option<(usize, T)> {
        let queue = self.waiting.get_mut(account)?;
        let at = least_missed(queue)?;
        let dropped = queue.remove(at)?;
        self.bytes -= dropped.cost();
        Some((at, dropped))
    }

    /// Puts a note of what was dropped where it was: what stands behind it came later, and is not to be judged before.
    /// `at` is what [`Self::drop_one`] has just said of this account.
    pub(crate) fn leave(&mut self, account: &str, at: usize, note: T) {
        debug_assert_eq!(note.class(), Class::Fixed, "what is counted is offered");
        if let Some(queue) = self.waiting.get_mut(account) {
            self.bytes += note.cost();
            queue.insert(at.min(queue.len()), note);
        }
    }

    /// The item of an account that `find` picks, to be changed in place; its cost must stay.
    pub(crate) fn find_mut(&mut self, account: &str, find: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.waiting.get_mut(account)?.iter_mut().find(|item| find(item))
    }

    /// An account to work on, with its first item. The account stays with the caller until [`Self::next`] says that
    /// there is nothing more.
    pub(crate) fn take(&mut self) -> Option<(Arc<str>, T)> {
        let account = self.ready.pop_front()?;
        self.busy.insert(account.clone());
        let item = self.next(&account)?;
        Some((account, item))
    }

    /// The next item of an account that the caller works on; without one the account is given back.
    pub(crate) fn next(&mut self, account: &Arc<str>) -> Option<T> {
        let queue = self.waiting.get_mut(account);
        #[cfg(feature = "planted-bugs")]
        let item = if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::OrderLost) {
            queue.and_then(VecDeque::pop_back)
        } else {
            queue.and_then(VecDeque::pop_front)
        };
        #[cfg(not(feature = "planted-bugs"))]
        let item = queue.and_then(VecDeque::pop_front);
        if let Some(item) = &item {
            self.bytes -= item.cost();
        } else {
            self.waiting.remove(account);
            self.busy.remove(account);
        }
        item
    }
}

fn counted<T: Item>(queue: &VecDeque<T>) -> usize {
    queue.iter().filter(|item| item.class() != Class::Fixed).count()
}

fn least_missed<T: Item>(queue: &VecDeque<T>) -> Option<usize> {
    let repairable = queue.iter().position(|item| item.class() == Class::Repairable);
    let made_up_for = || {
        (0..queue.len()).find(|at| {
            let class = queue[*at].class();
            class != Class::Fixed && queue.iter().skip(at + 1).any(|later| later.class() == class)
        })
    };
    let oldest = || queue.iter().position(|item| item.class() != Class::Fixed);
    repairable.or_else(made_up_for).or_else(oldest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Thing(Class, u32);

    impl Item for Thing {
        fn class(&self) -> Class {
            self.0
        }

        fn cost(&self) -> usize {
            10
        }
    }

    const COMMIT: Class = Class::Repairable;

    #[test]
    fn whoever_waits_for_room_is_told_once_and_not_for_each_item() {
        let mut queues = Queues::new(4);
        for number in 0..4 {
            queues.offer("a", Thing(COMMIT, number));
            queues.offer("b", Thing(COMMIT, number));
        }
        assert!(!queues.has_wanted_room(), "nobody waits");
        queues.want(Room::Of("b".into()));
        let (a, _) = queues.take().unwrap();
        assert!(!queues.has_wanted_room(), "it is of another account");
        let (b, _) = queues.take().unwrap();
        assert!(!queues.has_wanted_room(), "one item less");
        queues.next(&b);
        assert!(queues.has_wanted_room());
        assert!(!queues.has_wanted_room(), "it was told");
        queues.want(Room::Within { bytes: 30, ready: 0 });
        queues.next(&a);
        assert!(!queues.has_wanted_room(), "{} bytes", queues.bytes());
        queues.next(&a);
        assert!(queues.has_wanted_room());
        queues.want(Room::Within { bytes: 100, ready: 0 });
        queues.offer("c", Thing(COMMIT, 0));
        assert!(!queues.has_wanted_room(), "an account waits for a worker");
        queues.take();
        assert!(queues.has_wanted_room());
    }

    fn thing(number: u32) -> Thing {
        Thing(COMMIT, number)
    }

    #[test]
    fn an_account_stays_with_its_worker_until_its_queue_is_empty() {
        let mut queues = Queues::new(8);
        for (account, number) in [("a", 1), ("b", 2), ("a", 3)] {
            assert_eq!(queues.offer(account, thing(number)), Offer::Queued);
        }
        assert_eq!((queues.ready(), queues.bytes()), (2, 30));
        let (a, first) = queues.take().expect("an account");
        assert_eq!((&*a, first), ("a", thing(1)));
        let (b, second) = queues.take().expect("another");
        assert_eq!((&*b, second), ("b", thing(2)));
        assert_eq!(queues.take(), None, "one worker for each account");
        queues.offer("b", thing(4));
        assert_eq!(queues.take(), None);
        assert_eq!(
            (queues.next(&a), queues.next(&a), queues.next(&b)),
            (Some(thing(3)), None, Some(thing(4)))
        );
        queues.offer("a", thing(5));
        assert_eq!(queues.take().expect("it is free again").1, thing(5));
        assert_eq!((queues.next(&a), queues.next(&b)), (None, None));
        assert!(queues.is_idle());
        assert_eq!(queues.bytes(), 0);
    }

    #[test]
    fn a_full_queue_drops_what_is_missed_least() {
        use Class::{Fixed, Marker};
        let table: [(&[Class], usize); 6] = [
            (&[COMMIT, COMMIT, COMMIT], 0),
            (&[Marker(1), COMMIT, COMMIT], 1),
            (&[Fixed, Marker(1), Marker(2), COMMIT], 3),
            (&[Marker(1), Marker(2), Marker(2)], 1),
            (&[Fixed, Marker(1), Marker(1), Marker(1)], 1),
            (&[Marker(1), Marker(2), Marker(3)], 0),
        ];
        for (classes, gone) in table {
            let mut queues = Queues::new(3);
            for (number, class) in classes.iter().enumerate() {
                let number = u32::try_from(number).expect("a small number");
                assert_eq!(queues.offer("a", Thing(*class, number)), Offer::Queued);
            }
            assert_eq!(queues.offer("a", thing(99)), Offer::Full(thing(99)));
            assert_eq!(
                queues.offer("a", Thing(Fixed, 98)),
                Offer::Queued,
                "what was made here is not refused"
            );
            let (at, dropped) = queues.drop_one("a").expect("one");
            assert_eq!((at, dropped.1 as usize), (gone, gone), "{classes:?}");
            queues.leave("a", at, Thing(Fixed, 97));
            assert_eq!(queues.offer("a", thing(99)), Offer::Queued);
            let (account, first) = queues.take().expect("an account");
            let rest = std::iter::from_fn(|| queues.next(&account));
            let all: Vec<u32> = std::iter::once(first).chain(rest).map(|thing| thing.1).collect();
            assert_eq!(all.iter().position(|number| *number == 97), Some(gone), "{classes:?}: {all:?}");
        }
    }

    /// What is done with queues, as the pipeline does it.
    #[derive(Debug, Clone)]
    enum Step {
        Offer(u8, Class),
        Take,
        Next(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let class = prop_oneof![4 => Just(COMMIT), 2 => (0..2_u8).prop_map(Class::Marker)];
        prop_oneof![
            5 => (0..4_u8, class).prop_map(|(account, class)| Step::Offer(account, class)),
            1 => Just(Step::Take),
            2 => any::<usize>().prop_map(Step::Next),
        ]
    }

    /// The queues as lists, and nothing else.
    #[derive(Debug, Default)]
    struct Model {
        waiting: HashMap<String, Vec<Thing>>,
        dropped: Vec<u32>,
    }

    impl Model {
        fn counted(&self, account: &str) -> usize {
            let queue = self.waiting.get(account).map_or(&[][..], Vec::as_slice);
            queue.iter().filter(|thing| thing.0 != Class::Fixed).count()
        }

        /// What is to go: the oldest commit; else the oldest marker that a later one makes up for; else the oldest.
        fn least_missed(&self, account: &str) -> Option<usize> {
            let queue = self.waiting.get(account)?;
            let all = || queue.iter().enumerate().filter(|(_, thing)| thing.0 != Class::Fixed);
            let oldest = |of: &dyn Fn(usize, &Thing) -> bool| {
                all().find(|(at, thing)| of(*at, thing)).map(|(at, _)| at)
            };
            oldest(&|_, thing| thing.0 == COMMIT)
                .or_else(|| oldest(&|at, thing| queue[at + 1..].iter().any(|later| later.0 == thing.0)))
                .or_else(|| oldest(&|_, _| true))
        }
    }

    /// Offers as the pipeline does: of a full queue one is dropped, and a note of that queued.
    fn offer_for_sure(
        queues: &mut Queues<Thing>,
        model: &mut Model,
        account: &str,
        thing: Thing,
        limit: usize,
    ) {
        let mut offered = queues.offer(account, thing.clone());
        let is_full = model.counted(account) >= limit;
        assert_eq!(offered == Offer::Full(thing.clone()), is_full);
        if is_full {
            let expected = model.least_missed(account).expect("one that counts");
            let at = expected;
            let note = Thing(Class::Fixed, u32::MAX);
            let place = &mut model.waiting.get_mut(account).expect("a queue")[at];
            let expected = std::mem::replace(place, note.clone());
            assert_eq!(queues.drop_one(account), Some((at, expected.clone())));
            model.dropped.push(expected.1);
            queues.leave(account, at, note);
            offered = queues.offer(account, thing.clone());
        }
        assert_eq!(offered, Offer::Queued);
        model.waiting.entry(account.to_owned()).or_default().push(thing);
    }

    proptest! {
        /// Bounded queues against plain lists: what is refused, what is dropped, what comes out, and what it all takes.
        #[test]
        fn bounded_queues_behave_like_lists(limit in 1..5_usize, steps in proptest::collection::vec(step(), 1..200)) {
            let (mut queues, mut model) = (Queues::new(limit), Model::default());
            let mut working: Vec<Arc<str>> = Vec::new();
            let (mut offered, mut seen) = (0, 0);
            // In the end everything is taken.
            let rest = std::iter::repeat_with(|| [Step::Take, Step::Next(0)]).take(4000).flatten();
            for (number, step) in steps.into_iter().chain(rest).enumerate() {
                match step {
                    Step::Offer(account, class) => {
                        let number = u32::try_from(number).expect("a small number");
                        offer_for_sure(&mut queues, &mut model, &account.to_string(), Thing(class, number), limit);
                        offered += 1;
                    }
                    Step::Take => {
                        let idle = |model: &Model| {
                            model.waiting.iter().any(|(account, queue)| {
                                !queue.is_empty() && working.iter().all(|busy| **busy != **account)
                            })
                        };
                        prop_assert_eq!(queues.ready() > 0, idle(&model));
                        if let Some((account, thing)) = queues.take() {
                            prop_assert!(!working.contains(&account), "one worker for each account");
                            prop_assert_eq!(&thing, &model.waiting.get_mut(&*account).expect("a queue").remove(0));
                            seen += u32::from(thing.0 != Class::Fixed);
                            working.push(account);
                        }
                    }
                    Step::Next(at) if !working.is_empty() => {
                        let at = at % working.len();
                        let account = Arc::clone(&working[at]);
                        let queue = model.waiting.get_mut(&*account).expect("a queue");
                        let expected = (!queue.is_empty()).then(|| queue.remove(0));
                        let next = queues.next(&account);
                        prop_assert_eq!(&next, &expected);
                        match next {
                            Some(thing) => seen += u32::from(thing.0 != Class::Fixed),
                            None => drop(working.remove(at)),
                        }
                    }
                    Step::Next(_) => {}
                }
                let waiting: usize = model.waiting.values().map(Vec::len).sum();
                prop_assert_eq!(queues.bytes(), waiting * 10);
                prop_assert!((0..4).all(|account: u8| model.counted(&account.to_string()) <= limit));
            }
            prop_assert!(queues.is_idle());
            prop_assert_eq!(seen as usize + model.dropped.len(), offered, "each is seen or dropped, once");
        }

        /// Whatever is offered in whatever order: each account's items come out in order, each once.
        #[test]
        fn order_within_an_account_holds(offers in proptest::collection::vec((0..5_u8, any::<bool>()), 1..200)) {
            let mut queues = Queues::new(usize::MAX);
            let mut working: Vec<Arc<str>> = Vec::new();
            let mut seen: HashMap<String, Vec<u32>> = HashMap::new();
            let mut given: HashMap<String, Vec<u32>> = HashMap::new();
            for (number, (account, work)) in offers.iter().enumerate() {
                let number = u32::try_from(number).expect("a small number");
                queues.offer(&account.to_string(), thing(number));
                given.entry(account.to_string()).or_default().push(number);
                if *work && let Some((account, item)) = queues.take() {
                    prop_assert!(!working.contains(&account));
                    seen.entry(account.to_string()).or_default().push(item.1);
                    working.push(account);
                } else if let Some(account) = working.first().cloned() {
                    match queues.next(&account) {
                        Some(item) => seen.entry(account.to_string()).or_default().push(item.1),
                        None => drop(working.remove(0)),
                    }
                }
            }
            for account in working {
                while let Some(item) = queues.next(&account) {
                    seen.entry(account.to_string()).or_default().push(item.1);
                }
            }
            while let Some((account, item)) = queues.take() {
                seen.entry(account.to_string()).or_default().push(item.1);
                while let Some(item) = queues.next(&account) {
                    seen.entry(account.to_string()).or_default().push(item.1);
                }
            }
            prop_assert_eq!(seen, given);
            prop_assert!(queues.is_idle() && queues.bytes() == 0);
        }
    }
}
