//! Starting again: after a crash the engine must be where the model was after some of the commands that were under
//! way, in order, and after all that were answered.

use std::path::PathBuf;

use alluvium_engine::{Durability, FormatError};
use alluvium_env::{Disk as _, Finding, FindingKind};
use alluvium_protocol::Offset;

use crate::client;
use crate::model::{Answer, Command, Model, Refusal};
use crate::report::Violation;
use crate::world::{Waiting, World};

/// How often a start may be interrupted by a planned crash or fault before it must succeed.
const INTERRUPTED_STARTS_MAX: u32 = 8;

/// Stands for the answer of a create that found its path free.
const FRESH: Answer = Answer::Created { fresh: true, tail: Offset::ZERO, closed: false, incarnation: None };

impl World {
    /// Ends the process, whatever it was doing, and starts a new one. `committing` are the commands of the shard
    /// that was interrupted in a commit: any first part of them may have become durable.
    pub(crate) fn recover(&mut self, committing: Option<Vec<Waiting>>) -> Result<(), Violation> {
        self.cuts.clear();
        let mut candidates = self.candidates(committing.unwrap_or_default())?;
        // What waited elsewhere was never written.
        for lost in std::mem::take(&mut self.waiting) {
            abandon(&mut candidates, &lost.command);
            self.remember(&lost.command);
        }
        candidates.iter_mut().for_each(Model::end_batch);
        candidates.iter_mut().for_each(Model::restart);
        self.engine = None;
        // After a failed sync the process ends and the kernel lives on, or the power is lost too.
        if self.disk.is_down() || (self.setup.random_losses() && self.rng.percent(30)) {
            self.disk.restart();
        } else {
            self.disk.kill();
        }
        self.start(candidates)
    }

    /// Has a copy made of what the running engine has, and goes on with that, as after the death of the process; whether
    /// there is one. What waits to be committed is in none.
    pub fn move_to_backup(&mut self) -> Result<bool, Violation> {
        let target = PathBuf::from(format!("/srv/backup-{}", self.counts.restarts + self.disk.operations()));
        let made = self.disk.create_dir_all(&target).is_ok() && self.engine()?.backup(&target).is_ok();
        if self.disk.is_down() || !self.engine()?.is_running() {
            self.recover(None)?;
        } else if made {
            self.dir = target;
            self.recover(None)?;
        }
        Ok(made)
    }

    /// The states that may be found, for commands of which an unknown number became durable.
    fn candidates(&mut self, committing: Vec<Waiting>) -> Result<Vec<Model>, Violation> {
        let now_ms = self.now_ms();
        // States after every command so far, and all that may be found. There is more than one of the former when
        // only the engine knows what a command did whose answer is lost.
        let mut latest = vec![self.model.clone()];
        let mut candidates = latest.clone();
        for mut one in committing {
            let answer = client::poll(&mut one.answering)
                .filter(|answer| *answer != Answer::Refused(Refusal::Stopped));
            if answer == Some(Answer::Refused(Refusal::Full)) {
                abandon(&mut candidates, &one.command);
                abandon(&mut latest, &one.command);
                continue;
            }
            latest = if let Some(actual) = &answer {
                // It was answered, so nothing earlier may be missing.
                candidates.clear();
                answered(latest, &one.command, actual, now_ms)?
            } else {
                self.remember(&one.command);
                // The earlier candidates are those in which this command was lost.
                abandon(&mut candidates, &one.command);
                unanswered(latest, &one.command, now_ms)
            };
            candidates.extend_from_slice(&latest);
        }
        Ok(candidates)
    }

    /// Keeps an append whose answer is lost for a retry, if its producer can.
    fn remember(&mut self, command: &Command) {
        if let Command::Append { ask, .. } = command
            && ask.stamp.is_some()
        {
            self.unanswered.push(ask.clone());
        }
    }

    /// Opens the engine and finds out which of the candidates it is in.
    pub(crate) fn start(&mut self, candidates: Vec<Model>) -> Result<(), Violation> {
        self.check_files()?;
        for attempt in 0.. {
            if attempt < INTERRUPTED_STARTS_MAX && self.setup.random_losses() && self.rng.percent(10) {
                self.disk.crash_at(self.disk.operations() + self.rng.below(30));
            }
            let before = self.disk.counts();
            match self.open_engine() {
                Ok(engine) => {
                    self.engine = Some(engine);
                    break;
                }
                Err(_) if self.disk.is_down() => {
                    self.counts.interrupted_starts += 1;
                    self.disk.restart();
                }
                // No space, or a planned fault.
                Err(_) if self.disk.counts() != before && attempt < INTERRUPTED_STARTS_MAX => {
                    self.counts.interrupted_starts += 1;
                    self.disk.kill();
                    self.disk.set_capacity(None);
                }
                Err(error) => return Err(Violation::new(format!("the engine does not open: {error}"))),
            }
        }
        self.log.note(|| "opened".to_owned());
        self.choose(candidates)?;
        self.check_everything()?;
        self.probe_producers()
    }

    /// Whatever a crash leaves behind, `check` finds nothing wrong with it.
    fn check_files(&mut self) -> Result<(), Violation> {
        // With syncs left to the system one shard may have lost what another refers to: that is for a start to find.
        if self.setup.durability == Durability::Os {
            return Ok(());
        }
        let is_of_the_disk = |finding: &Finding| finding.kind == FindingKind::Unread;
        match self.findings() {
            Ok(findings) => {
                self.counts.checks += 1;
                let fault = findings.iter().find(|finding| finding.is_fault() && !is_of_the_disk(finding));
                fault.map_or(Ok(()), |fault| Err(Violation::new(format!("`check` says: {fault}"))))
            }
            // The very first start was cut off, or the disk fails.
            Err(FormatError::Foreign { .. } | FormatError::Io(_)) => Ok(()),
            Err(error) => Err(Violation::new(format!("`check` refuses: {error}"))),
        }
    }

    fn choose(&mut self, candidates: Vec<Model>) -> Result<(), Violation> {
        let count = candidates.len();
        let mut differences = Vec::new();
        // The fullest first: a command without a visible effect counts as done.
        for (nth, mut candidate) in candidates.into_iter().enumerate().rev() {
            match self.compare(&mut candidate) {
                Ok(()) => {
                    if count > 1 {
                        self.counts.uncertain_recoveries += 1;
                        self.counts.partial_recoveries += u64::from(nth + 1 < count);
                    }
                    self.model = candidate;
                    return Ok(());
                }
                Err(difference) => differences.push(format!("after {nth} of {}: {difference}", count - 1)),
            }
        }
        Err(Violation::new(format!("what was recovered is no state that may be: {}", differences.join("; "))))
    }

    /// Repeats the last request of every producer, and one with a gap: if the engine had forgotten a producer, or
    /// remembered another state than its bytes say, the answers would differ.
    fn probe_producers(&mut self) -> Result<(), Violation> {
        for ask in self.probes() {
            self.counts.probes += 1;
            self.step(crate::operation::Operation::Append(ask))?;
        }
        (0..self.setup.shards).try_for_each(|shard| self.commit(shard))
    }
}

/// Takes back the submission of a command in the states in which it was lost.
fn abandon(candidates: &mut [Model], command: &Command) {
    for candidate in candidates {
        candidate.abandon(command);
    }
}

/// The states after a command, of those in which it has this answer.
fn answered(
    states: Vec<Model>,
    command: &Command,
    actual: &Answer,
    now_ms: u64,
) -> Result<Vec<Model>, Violation> {
    let mut after = Vec::new();
    let mut expected = Vec::new();
    for mut state in states {
        let answer = state.admit(command, Some(actual), now_ms);
        if answer.agrees(actual) {
            after.push(state);
        }
        expected.push(answer);
    }
    if after.is_empty() {
        return Err(Violation::new(format!(
            "{command:?}: expected {expected:?}, the engine says {actual:?} before it stops"
        )));
    }
    Ok(after)
}

/// The states after a command whose answer is lost.
fn unanswered(states: Vec<Model>, command: &Command, now_ms: u64) -> Vec<Model> {
    let mut after = Vec::new();
    for mut state in states {
        let mut other = state.clone();
        let expected = state.admit(command, None, now_ms);
        // Whether a path whose last forks were ending was free yet is the engine's affair.
        if other.admit(command, Some(&FRESH), now_ms) != expected {
            after.push(other);
        }
        after.push(state);
    }
    after
}
