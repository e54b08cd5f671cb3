//! Retention: the engine and the model name the same streams, and ending them is a command like any other.

use alluvium_engine::{RetentionCause, RetentionRule};

use crate::client;
use crate::model::Command;
use crate::operation::RetainAsk;
use crate::report::Violation;
use crate::world::World;

impl World {
    /// Asks both sides which streams a rule says are to go, and has them ended.
    pub(crate) fn retain(&mut self, ask: &RetainAsk) -> Result<(), Violation> {
        let (engine, now_ms) = (self.engine()?, self.now_ms());
        let rule = RetentionRule {
            prefix: ask.prefix.clone(),
            idle_ms_max: ask.idle_ms_max,
            closed_ms_max: ask.closed_ms_max,
            bytes_max: ask.bytes_max,
        };
        let mut found = engine.overdue(&[rule]);
        let place = |path: &str| client::stream_path(path).as_str().to_owned();
        found.sort_by_key(|overdue| overdue.path().map(|path| path.as_str().to_owned()));
        let mut expected = self.model.overdue(ask, now_ms);
        expected.sort_by_key(|overdue| place(&overdue.path));
        let said =
            |path: &str, cause: RetentionCause, bytes: u64| format!("{path:?} {} {bytes}", cause.name());
        let engine_says: Vec<String> = found
            .iter()
            .map(|one| said(one.path().map_or("", |path| path.as_str()), one.cause, one.bytes))
            .collect();
        let model_says: Vec<String> =
            expected.iter().map(|one| said(&place(&one.path), one.cause, one.bytes)).collect();
        if engine_says != model_says {
            return Err(Violation::new(format!(
                "{ask:?}: expected {model_says:?}, the engine says {engine_says:?}"
            )));
        }
        for (overdue, expected) in found.into_iter().zip(expected) {
            let answering = client::retire(&engine, overdue);
            let command = Command::Retire { id: expected.id, last_write_ms: expected.last_write_ms };
            self.submit(&expected.path, Ok(command), answering)?;
        }
        Ok(())
    }
}
