//! Messages of all kinds: empty and large, text and bytes, what compresses well and what does not.

use alluvium_websocket::Message;

/// The same messages each time, in the same order.
pub(crate) fn all() -> impl Iterator<Item = Message> {
    let mut noise = 1_u32;
    let mut random = move || {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        noise
    };
    let sizes = [0, 1, 125, 126, 127, 1000, 65_535, 65_536, 200_000];
    (0..135_usize).map(move |number| {
        let size = sizes[number % sizes.len()];
        match number % 3 {
            0 => {
                Message::text("{\"kind\":\"commit\",\"é\":1}".chars().cycle().take(size).collect::<String>())
            }
            1 => Message::binary((0..size).map(|_| random().to_le_bytes()[1]).collect::<Vec<u8>>()),
            _ => Message::binary(vec![0; size]),
        }
    })
}
