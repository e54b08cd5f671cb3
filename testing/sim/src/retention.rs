//! Retention: the engine and the model name the same streams, and ending them is a command like any other. So is giving
//! up what streams begin with: the engine says where it would have them begin, and the model whether that may be.

use alluvium_engine::{Engine, Overlong, RetentionCause, RetentionRule, TrimTo};

use crate::client;
use crate::model::{Answer, Command, Refusal, Stream};
use crate::operation::{RetainAsk, TrimAsk};
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
            ..RetentionRule::default()
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

    /// Asks both sides what is to be given up of streams, and has it given up.
    pub(crate) fn trim(&mut self, ask: &TrimAsk) -> Result<(), Violation> {
        let (engine, now_ms) = (self.engine()?, self.now_ms());
        match ask {
            TrimAsk::One { path, to } => {
                let found = engine.overlong_at(&client::stream_path(path), *to);
                match (found, self.model.find(path, now_ms).cloned()) {
                    (Ok(overlong), Ok(stream)) => self.trim_one(&engine, overlong, &stream, &[*to]),
                    (Err(error), Err(refusal)) => {
                        let (expected, actual) = (Answer::Refused(refusal), client::lookup_refusal(error));
                        if expected.agrees(&Answer::Refused(actual)) {
                            return Ok(());
                        }
                        Err(Violation::new(format!(
                            "{ask:?}: expected {expected:?}, the engine says {error}"
                        )))
                    }
                    (found, expected) => {
                        let expected = expected.map(|stream| stream.tail());
                        Err(Violation::new(format!("{ask:?}: expected {expected:?}, found {found:?}")))
                    }
                }
            }
            TrimAsk::Rule { prefix, bytes_max, age_ms_max } => {
                let rule = RetentionRule {
                    prefix: prefix.clone(),
                    stream_bytes_max: *bytes_max,
                    stream_age_ms_max: *age_ms_max,
                    ..RetentionRule::default()
                };
                let limits: Vec<TrimTo> =
                    bytes_max.map(TrimTo::Bytes).into_iter().chain(age_ms_max.map(TrimTo::Age)).collect();
                let found = self.overlong(&engine, &rule, ask)?;
                for (overlong, stream) in found {
                    self.trim_one(&engine, overlong, &stream, &limits)?;
                }
                Ok(())
            }
        }
    }

    /// What a rule is about, in the order of the paths. Nothing that is too long is left out.
    fn overlong(
        &self,
        engine: &Engine,
        rule: &RetentionRule,
        ask: &TrimAsk,
    ) -> Result<Vec<(Overlong, Stream)>, Violation> {
        let now_ms = self.now_ms();
        let mut found = Vec::new();
        for overlong in engine.overlong(std::slice::from_ref(rule)) {
            let named = |stream: &&Stream| Some(&client::stream_path(&stream.path)) == overlong.path();
            let Some(stream) = self.model.live(now_ms).find(named).cloned() else {
                return Err(Violation::new(format!("{ask:?}: {overlong:?} is not there")));
            };
            found.push((overlong, stream));
        }
        found.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        let too_long = match rule.stream_bytes_max {
            Some(max) => self.model.too_long(&rule.prefix, max, now_ms),
            None => Vec::new(),
        };
        match too_long.iter().find(|path| !found.iter().any(|(_, stream)| &stream.path == *path)) {
            Some(path) => Err(Violation::new(format!("{ask:?}: `{path}` is too long and was not found"))),
            None => Ok(found),
        }
    }

    fn trim_one(
        &mut self,
        engine: &Engine,
        overlong: Overlong,
        stream: &Stream,
        limits: &[TrimTo],
    ) -> Result<(), Violation> {
        let reads_failed = self.disk.counts().reads_failed;
        let path = &stream.path;
        let looked = client::look_at_trim(engine, &overlong);
        if self.disk.counts().reads_failed > reads_failed {
            return Ok(());
        }
        let known: Vec<_> = limits.iter().filter_map(|to| stream.trimmed(*to)).collect();
        let planned = match (looked, known.iter().find_map(|known| known.as_ref().err())) {
            (Ok(planned), None) => planned,
            (Err(actual), Some(expected)) if actual == *expected => return Ok(()),
            (looked, _) => {
                return Err(Violation::new(format!(
                    "trimming `{path}` to {limits:?}: {looked:?}, not {known:?}"
                )));
            }
        };
        let least = known.into_iter().flatten().max_by_key(|offset| offset.position);
        let least = least.unwrap_or(stream.retained.floor());
        let wrong = match limits
            .iter()
            .find_map(|to| if let TrimTo::Age(age_ms) = to { Some(*age_ms) } else { None })
        {
            None if planned.floor == least => None,
            None => Some(format!("{} and not {least}", planned.floor)),
            // What is given up for its size may be young.
            Some(_) if planned.floor == least && limits.len() > 1 => None,
            Some(_) if planned.floor.position < least.position => {
                Some(format!("{} and not {least}", planned.floor))
            }
            Some(age_ms) => stream.trimmed_wrongly(planned.floor, self.now_ms().saturating_sub(age_ms)),
        };
        if let Some(wrong) = wrong {
            return Err(Violation::new(format!("trimming `{path}` to {limits:?}: {wrong}")));
        }
        if planned.bytes == 0 && !overlong.notes_age() {
            let answer = Err(Answer::Refused(Refusal::Kept));
            return self.submit(path, answer, client::trim(engine, overlong));
        }
        let to = (planned.bytes > 0).then_some(planned.floor);
        self.submit(path, Ok(Command::Trim { id: stream.id, to }), client::trim(engine, overlong))
    }
}
