//! Words for posts and profiles: several scripts, and everything that is awkward in JSON.

use crate::random::Random;

/// Plain words, which most of a text is made of.
const WORDS: &[&str] = &[
    "river",
    "delta",
    "silt",
    "morning",
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "we",
    "they",
    "slowly",
    "carried",
    "left",
    "behind",
    "under",
    "bridge",
    "water",
    "stone",
    "again",
    "maybe",
    "today",
    "photo",
    "thread",
    "coffee",
    "train",
    "late",
    "new",
    "old",
    "green",
    "garden",
    "record",
    "music",
    "listening",
    "reading",
    "never",
    "always",
    "without",
    "between",
    "weather",
    "storm",
    "quiet",
    "loud",
    "cat",
    "dog",
    "heron",
    "reed",
    "boat",
    "harbour",
    "city",
    "winter",
    "summer",
    "recipe",
    "bread",
    "salt",
    "paper",
    "index",
    "proof",
    "release",
    "build",
    "broken",
    "fixed",
    "thanks",
    "hello",
    "yes",
    "no",
    "not",
    "what",
    "why",
    "who",
    "there",
    "here",
    "this",
    "that",
    "these",
    "is",
    "was",
    "will",
    "would",
    "should",
];
/// Words of other scripts, and characters that encoders treat in their own ways.
const ODD: &[&str] = &[
    "川",
    "三角州",
    "こんにちは",
    "река",
    "здравствуйте",
    "ποταμός",
    "نهر",
    "नदी",
    "강물",
    "🌊",
    "👩‍🔬",
    "🏞️",
    "é",
    "e\u{301}",
    "\"quoted\"",
    "back\\slash",
    "<b>&amp;</b>",
    "tab\there",
    "line\u{2028}separator",
    "para\u{2029}graph",
    "\u{7f}",
    "\u{1}",
    "zero\u{200d}width",
    "\u{202e}right-to-left",
    "null\u{0}byte",
    "𝔘𝔫𝔦",
    "ﬁ",
];

/// A text of about `typical` bytes and no more than `most`.
pub(crate) fn text(random: &mut Random, typical: u64, most: u64) -> String {
    let length = usize::try_from(random.length(typical, most)).unwrap_or(usize::MAX).max(1);
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        if !text.is_empty() {
            text.push(if random.chance(4) { '\n' } else { ' ' });
        }
        text.push_str(if random.chance(6) { random.pick(ODD) } else { random.pick(WORDS) });
    }
    let mut end = length;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// A single word.
pub(crate) fn word(random: &mut Random) -> &'static str {
    random.pick(WORDS)
}

/// A language, as posts name theirs.
pub(crate) fn language(random: &mut Random) -> &'static str {
    random.pick(&["en", "en", "en", "ja", "pt", "de", "es", "ko", "fr", "en-GB", "zh-Hant"])
}
