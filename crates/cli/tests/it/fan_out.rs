//! Many subscribers of one stream: those who keep up, those who stall, those who come and go. Each gets every byte once.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use super::support::{Events, Server, call};

const PATH: &str = "/v1/stream/s";

/// Lets a subscriber read, or not.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
    }
}

/// What a subscriber has seen: each offset it was told, with the length of the text up to there.
type Seen = (String, Vec<(String, usize)>);

struct Subscriber {
    from: String,
    gate: Arc<Gate>,
    reading: JoinHandle<Seen>,
}

impl Subscriber {
    fn start(address: &str, from: &str, is_old: bool) -> Self {
        let gate = Arc::new(Gate::default());
        let target = format!("{PATH}?offset={from}&live=sse");
        let mut events = if is_old {
            Events::subscribe_old(address, &target)
        } else {
            Events::subscribe(address, &target).1
        };
        let passed = Arc::clone(&gate);
        let reading = std::thread::spawn(move || {
            let (mut text, mut offsets) = (String::new(), Vec::new());
            while let Some((name, data)) = events.next() {
                passed.pass();
                if name == "data" {
                    text.push_str(&data);
                    continue;
                }
                let control: serde_json::Value = serde_json::from_str(&data).unwrap();
                offsets.push((control["streamNextOffset"].as_str().unwrap().to_owned(), text.len()));
            }
            (text, offsets)
        });
        Self { from: from.to_owned(), gate, reading }
    }
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

fn everybody_gets_every_byte_once(seed: u64, flags: &str) {
    let server = Server::start_with(flags);
    let mut dice = Dice(seed);
    call(server.address(), "PUT", PATH, &["content-type: text/plain"], b"");
    let start = call(server.address(), "HEAD", PATH, &[], b"").next_offset().to_owned();
    // The whole text, and how much of it there was at each offset.
    let mut text = String::new();
    let mut lengths = HashMap::from([(start.clone(), 0)]);
    let mut offsets = vec![start];
    let mut subscribers: Vec<Subscriber> = Vec::new();
    for round in 0..60 {
        while subscribers.len() < 8 || dice.below(6) == 0 {
            let from = if dice.below(3) == 0 { dice.below(offsets.len()) } else { offsets.len() - 1 };
            let is_old = dice.below(5) == 0;
            subscribers.push(Subscriber::start(server.address(), &offsets[from], is_old));
        }
        let gate = &subscribers[dice.below(subscribers.len())].gate;
        gate.set(dice.below(3) > 0);
        for _ in 0..=dice.below(5) {
            // Short as a rule; sometimes too long to be shared, and too long for the memory of recent bytes.
            let len = match dice.below(12) {
                0 => 300_000,
                1 | 2 => 100_000,
                _ => 1 + dice.below(500),
            };
            let letter = char::from(b'a' + u8::try_from(round % 26).unwrap());
            let body: String = std::iter::repeat_n(letter, len).collect();
            let answer = call(server.address(), "POST", PATH, &["content-type: text/plain"], body.as_bytes());
            assert_eq!(answer.status, 204);
            text.push_str(&body);
            offsets.push(answer.next_offset().to_owned());
            lengths.insert(answer.next_offset().to_owned(), text.len());
        }
    }
    call(server.address(), "POST", PATH, &["stream-closed: true"], b"");
    for subscriber in &subscribers {
        subscriber.gate.set(false);
    }
    for (number, subscriber) in subscribers.into_iter().enumerate() {
        let (received, told) = subscriber.reading.join().unwrap();
        let before = lengths[&subscriber.from];
        assert!(received == text[before..], "subscriber {number} from {before}: {} bytes", received.len());
        for (offset, len) in told {
            assert_eq!(lengths[&offset], before + len, "subscriber {number} was told {offset}");
        }
    }
}

#[test]
fn whoever_keeps_up_stalls_comes_or_goes_gets_every_byte_once() {
    for seed in 1..=3 {
        everybody_gets_every_byte_once(seed, "");
    }
}

#[test]
fn so_it_is_with_little_memory_and_several_threads() {
    everybody_gets_every_byte_once(4, "--recent-bytes 1");
    everybody_gets_every_byte_once(5, "--responses-bytes-max 1MiB");
    everybody_gets_every_byte_once(6, "--reactors 3");
}
