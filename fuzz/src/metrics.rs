//! Fuzz bodies for `alluvium-metrics`: whatever a server answers, its metrics are read or refused, and what was read says
//! the same when it is written down again.

use std::fmt::Write as _;

use alluvium_metrics::{Exposition, parse};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("metrics_text", text)];

/// The input is the text.
pub fn text(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let Ok(read) = parse(input) else { return };
    let again = parse(&written(&read)).expect("what was read can be written");
    // By their text, because a value may be no number, which is like no other.
    assert_eq!(format!("{read:?}"), format!("{again:?}"));
}

fn written(read: &Exposition) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
    let mut text = String::new();
    for family in &read.families {
        let (name, kind) = (&family.name, family.kind.word());
        let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", escaped(&family.help));
        for sample in &family.samples {
            text.push_str(&sample.name);
            for (index, (label, value)) in sample.labels.iter().enumerate() {
                let _ = write!(text, "{}{label}=\"{}\"", if index == 0 { "{" } else { "," }, escaped(value));
            }
            if !sample.labels.is_empty() {
                text.push('}');
            }
            let value = match sample.value {
                value if value.is_nan() => "NaN".to_owned(),
                f64::INFINITY => "+Inf".to_owned(),
                f64::NEG_INFINITY => "-Inf".to_owned(),
                value => format!("{value:?}"),
            };
            let _ = writeln!(text, " {value}");
        }
    }
    text
}
