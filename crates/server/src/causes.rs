//! An error with what it came from, on one line.

use std::error::Error;
use std::fmt;

/// Shows an error, and behind it each cause that it does not quote itself.
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a>(pub &'a dyn Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.to_string();
        f.write_str(&shown)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !shown.contains(&text) {
                write!(f, ": {text}")?;
                shown = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Failed>>,
    }

    #[test]
    fn every_cause_is_told_once() {
        let failed = |text, source: Option<Failed>| Failed { text, source: source.map(Box::new) };
        let deep = failed("no room", None);
        let error = failed("a", Some(failed("cannot: no room", Some(deep))));
        assert_eq!(Causes(&error).to_string(), "a: cannot: no room");
    }
}
