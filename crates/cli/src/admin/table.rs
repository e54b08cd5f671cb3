//! Rows under each other, and figures as people read them.

use std::fmt;

use serde_json::Value;

/// On which side a column has its room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Align {
    /// After the text.
    Left,
    /// Before it.
    Right,
}

/// A table for a terminal.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these columns and no rows.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { columns: columns.iter().map(|(_, align)| *align).collect(), rows: vec![head] }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, align), width) in row.iter().zip(&self.columns).zip(&widths) {
                let room = " ".repeat(width.saturating_sub(cell.chars().count()));
                match align {
                    Align::Left => line.extend([cell.as_str(), &room, "  "]),
                    Align::Right => line.extend([room.as_str(), cell, "  "]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A text, or a number, as it is; a dash for nothing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// As [`text`]; what would move the cursor is shown escaped.
pub(crate) fn shown(value: &Value) -> String {
    let escape = |char: char| if char.is_control() { char.escape_default().collect() } else { vec![char] };
    text(value).chars().flat_map(escape).collect()
}

/// A number of bytes, with a binary unit.
pub(crate) fn bytes(value: &Value) -> String {
    let Some(number) = value.as_u64() else { return text(value) };
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| number >> shift > 0) {
        None => format!("{number} B"),
        Some((unit, shift)) => {
            // In tenths, cut off: no more than there is.
            let tenths = (u128::from(number) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}

/// How long ago something was, in one unit.
pub(crate) fn age(now_ms: &Value, then_ms: &Value) -> String {
    let (Some(now), Some(then)) = (now_ms.as_u64(), then_ms.as_u64()) else { return "-".to_owned() };
    let seconds = now.saturating_sub(then) / 1000;
    let units = [("d", 86_400), ("h", 3600), ("m", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2 * length).unwrap_or(("s", 1));
    format!("{}{}", seconds / unit.1, unit.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_stand_under_each_other_and_no_line_ends_with_room() {
        let mut table = Table::new(&[("N", Align::Right), ("NAME", Align::Left), ("X", Align::Left)]);
        table.add(vec!["10".to_owned(), "é".to_owned(), String::new()]);
        table.add(vec!["7".to_owned(), "longer".to_owned(), "x".to_owned()]);
        assert_eq!(table.to_string(), " N  NAME    X\n10  é\n 7  longer  x\n");
    }

    #[test]
    fn figures_are_short() {
        for (number, expected) in [
            (json!(0), "0 B"),
            (json!(1023), "1023 B"),
            (json!(1024), "1.0 KiB"),
            (json!(1_887_436), "1.7 MiB"),
            (json!(u64::MAX), "17179869183.9 GiB"),
            (json!(null), "-"),
        ] {
            assert_eq!(bytes(&number), expected);
        }
        for (then, expected) in [(99_000, "1s"), (0, "100s"), (200_000, "0s")] {
            assert_eq!(age(&json!(100_000), &json!(then)), expected);
        }
        assert_eq!(age(&json!(200_000_000), &json!(0)), "2d");
        assert_eq!(age(&json!(150_000), &json!(0)), "2m");
        assert_eq!(shown(&json!("a\u{1b}[2J")), "a\\u{1b}[2J");
    }
}
