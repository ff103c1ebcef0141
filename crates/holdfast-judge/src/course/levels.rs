//! The levels: which faults each adds, and what has to hold under them.
//!
//! A level has the faults and rules of all earlier ones. Until the fence exists (level 5), a pause
//! is not among the faults; from then on, writes are compared where the fence is.

use holdfast_base::message;
use holdfast_base::messages::{Message, Text};
use holdfast_base::output::grouped;

use crate::args::JudgeArgs;
use crate::fault::Fault;
use crate::report::ViolationKind::{EarlyGrant, EarlyLoss, LeftoverKey, LostUpdate};
use crate::report::{FaultReport, Judgement, Violation, ViolationKind};
use crate::violations::{MAX_BLOCKED_TTLS, MAX_BLOCKED_TTLS_AFTER_KILL};

pub const LAST_LEVEL: u32 = 8;
/// From this level on, `acquire` returns a fence.
const FENCES: u32 = 5;
const MANY_CLIENTS: u32 = 7;
const EVERYTHING: u32 = 8;
const TTL_MS: u64 = 500;
/// Below this, a lock has no part in Redis: each grant needs a command at least.
const MIN_COMMANDS: f64 = 0.5;
const MIN_HELD: f64 = 0.3;
/// Commands a grant once the clients have to queue.
const MAX_COMMANDS_IN_QUEUE: f64 = 6.0;
/// Commands of a waiting client in a second, besides those of its grant. A pause of 10 ms, and a
/// script that calls two commands, make 200 at most; without a pause it is 2,000. A slow machine
/// makes them fewer, of any lock: those of a grant would be more, as each takes longer.
const MAX_COMMANDS_OF_WAIT: f64 = 400.0;
/// Length of a turn for which the commands in the background count: on a slow machine, with longer
/// turns, they are no more.
const TURN_S: f64 = 0.01;

/// The faults by the level that adds them.
const FAULTS: [(u32, &[Fault]); 6] = [
    (2, &[Fault::KillHolder]),
    (3, &[Fault::LongWork]),
    (5, &[Fault::Pause]),
    (6, &[Fault::RedisFlush, Fault::RedisRestart]),
    (8, &[Fault::RedisFailover, Fault::Partition]),
    (8, &[Fault::Cancel, Fault::ClientKill]),
];

impl LevelFinding {
    /// Returns the level that adds the rule: its hints are about it.
    pub(super) fn added_by(&self) -> u32 {
        match (self.rule.id(), self.fault) {
            ("course-rule-true" | "course-rule-release" | "course-rule-kept", _) => 3,
            ("course-rule-lost", Fault::LongWork) => 4,
            ("course-rule-jain" | "course-rule-wait" | "course-rule-commands", _) => MANY_CLIENTS,
            ("course-rule-starved", _) => EVERYTHING,
            ("course-rule-blocked", fault) if fault != Fault::KillHolder => EVERYTHING,
            ("course-rule-fences", fault) => first_level(fault).max(FENCES),
            (_, fault) => first_level(fault),
        }
    }
}

/// Returns the level that adds the fault.
fn first_level(fault: Fault) -> u32 {
    FAULTS.iter().find(|(_, faults)| faults.contains(&fault)).map_or(1, |(level, _)| *level)
}

/// A rule, what was measured, and whether it holds.
#[derive(Debug)]
pub struct LevelFinding {
    pub fault: Fault,
    pub rule: Message,
    pub measured: Text,
    pub holds: bool,
    /// The kind of the violation that shows why not.
    pub kind: Option<ViolationKind>,
}

/// Returns the settings of a check; `command` runs the adapter.
pub(super) fn judge_args(level: u32, seed: Option<u64>, command: Vec<String>) -> JudgeArgs {
    let faults = FAULTS.iter().filter(|(first, _)| *first <= level);
    let (workers, clients) = (2, if level >= MANY_CLIENTS { 16 } else { 8 });
    JudgeArgs {
        faults: faults
            .flat_map(|(_, faults)| *faults)
            .map(|fault| fault.name().to_owned())
            .collect(),
        ttl_ms: TTL_MS,
        seconds: 2.0,
        seed,
        repeat: 1,
        workers,
        clients,
        work_ms: 2,
        think_ms: 1,
        wait_ms: 5_000,
        answer_timeout_s: 5,
        // Longer than the pause between two commands of a background task: each task meets it.
        outage_ms: if level >= EVERYTHING { TTL_MS } else { 0 },
        // At later levels the lease is renewed, and no other client gets the lock.
        second_holder: level == 3,
        is_store_checked: true,
        // With fewer, a turn more or less would make an even share look uneven.
        turns: if level >= MANY_CLIENTS { 8 * workers * clients } else { 0 },
        env: vec![("HOLDFAST_COURSE_LEVEL".to_owned(), level.to_string())],
        command,
        ..JudgeArgs::default()
    }
}

/// Returns all rules of the level with what was found.
pub(super) fn examine(level: u32, judgement: &Judgement) -> Vec<LevelFinding> {
    let mut rules = Rules { level, findings: Vec::new() };
    for fault in &judgement.faults {
        if !fault.ran {
            let why = fault.why_not_message.as_ref().map(Text::from);
            let why = why.unwrap_or_else(|| fault.why_not.as_deref().unwrap_or_default().into());
            rules.add(fault, Message::new("course-rule-ran"), false, why, None);
            continue;
        }
        rules.examine(fault);
    }
    rules.findings
}

/// Returns the answers *error* while both servers were there: the lock's own faults.
pub(super) fn failed_calls(judgement: &Judgement) -> Option<&(u64, String)> {
    judgement.report(Fault::Undisturbed.name())?.failed_calls.as_ref()
}

/// Returns the violation that shows why the rule does not hold.
pub(super) fn evidence<'a>(
    judgement: &'a Judgement,
    finding: &LevelFinding,
) -> Option<&'a Violation> {
    violation(judgement, finding, finding.kind.as_ref()?)
}

/// Returns the violation of a kind under the rule's fault.
pub(super) fn violation<'a>(
    judgement: &'a Judgement,
    finding: &LevelFinding,
    kind: &ViolationKind,
) -> Option<&'a Violation> {
    let report = judgement.report(finding.fault.name())?;
    report.violations.iter().find(|violation| violation.kind == *kind)
}

struct Rules {
    level: u32,
    findings: Vec<LevelFinding>,
}

impl Rules {
    fn add(
        &mut self,
        fault: &FaultReport,
        rule: Message,
        holds: bool,
        measured: impl Into<Text>,
        kind: Option<ViolationKind>,
    ) {
        let measured = measured.into();
        // The judge of this version names no others.
        if let Some(fault) = fault.fault() {
            self.findings.push(LevelFinding { fault, rule, measured, holds, kind });
        }
    }

    fn count(&mut self, fault: &FaultReport, rule: &str, found: u64, kind: ViolationKind) {
        self.add(fault, Message::new(rule), found == 0, grouped(found), Some(kind));
    }

    /// As [`Self::count`], but with many clients one of a hundred grants may be one: these rules
    /// take the order of the answers for that of the lock, and under load some answers are late.
    fn count_but_few(&mut self, fault: &FaultReport, rule: &str, found: u64, kind: ViolationKind) {
        let few = if self.level < MANY_CLIENTS { 0 } else { fault.turns / 100 };
        self.add(fault, Message::new(rule), found <= few, grouped(found), Some(kind));
    }

    fn examine(&mut self, fault: &FaultReport) {
        match fault.fault() {
            Some(Fault::Undisturbed) => self.examine_undisturbed(fault),
            Some(Fault::KillHolder) => {
                self.nothing_lost(fault);
                self.granted_again(fault, MAX_BLOCKED_TTLS_AFTER_KILL);
                let left = fault.violations.iter().filter(|it| it.kind == LeftoverKey).count();
                self.count(fault, "course-rule-leftover", left as u64, LeftoverKey);
                self.fences_grow(fault);
            }
            Some(Fault::LongWork) => {
                let wrong = fault.release_ok_when_lost;
                self.count(fault, "course-rule-release", wrong, ViolationKind::ReleaseOkWhenLost);
                self.count_but_few(fault, "course-rule-kept", fault.early_grants, EarlyGrant);
                if self.level > 3 {
                    self.count(fault, "course-rule-lost", fault.lost_updates, LostUpdate);
                }
                self.fences_grow(fault);
            }
            // Redis keeps its data when a client is paused, and loses it in the others.
            Some(Fault::Pause | Fault::RedisFlush | Fault::RedisRestart) => {
                self.fences_grow(fault);
                self.nothing_lost(fault);
            }
            _ => self.nothing_lost(fault),
        }

        if self.level >= EVERYTHING {
            self.count(fault, "course-rule-starved", fault.waiters_starved, ViolationKind::Starved);
            if fault.fault() != Some(Fault::KillHolder) {
                self.granted_again(fault, MAX_BLOCKED_TTLS);
            }
        }
    }

    fn examine_undisturbed(&mut self, fault: &FaultReport) {
        let commands = fault.redis_commands;
        let rule = Message::new("course-rule-redis");
        self.add(fault, rule, commands >= MIN_COMMANDS, format!("{commands:.1}"), None);
        let rule = Message::new("course-rule-store");
        let elsewhere = Message::new(match fault.excludes_elsewhere {
            true => "course-store-one",
            false => "course-store-both",
        });
        self.add(fault, rule, !fault.excludes_elsewhere, elsewhere, None);
        self.lost_in_time(fault);
        let held = fault.held_share;
        let rule = Message::new("course-rule-held");
        self.add(fault, rule, held >= MIN_HELD, format!("{:.0} %", 100.0 * held), None);
        if self.level >= 3 {
            self.count_but_few(fault, "course-rule-true", fault.early_losses, EarlyLoss);
        }
        self.fences_grow(fault);

        if self.level < MANY_CLIENTS {
            let of_waits = (commands - MAX_COMMANDS_IN_QUEUE).max(0.0) * fault.turns as f64;
            let per_s = of_waits / fault.waited_s.max(f64::MIN_POSITIVE);
            let rule = Message::new("course-rule-burn");
            self.add(fault, rule, per_s <= MAX_COMMANDS_OF_WAIT, format!("{per_s:.0}"), None);
        } else {
            // As they are shown: 0.90 is 0.9.
            let shown = |figure: f64| (100.0 * figure).round() / 100.0;
            let [jain, wait] = [fault.jain, fault.wait_ratio].map(shown);
            let commands = shown(commands + fault.idle_commands * TURN_S);
            let figures = [
                ("course-rule-jain", jain >= 0.9, jain),
                ("course-rule-wait", wait <= 3.0, wait),
                ("course-rule-commands", commands <= MAX_COMMANDS_IN_QUEUE, commands),
            ];
            for (rule, holds, measured) in figures {
                self.add(fault, Message::new(rule), holds, format!("{measured:.2}"), None);
            }
        }
    }

    /// Where no fault makes a counter in Redis go back, or at the levels at which it must not
    /// matter.
    fn fences_grow(&mut self, fault: &FaultReport) {
        if self.level >= FENCES {
            let back = fault.fence_regressions;
            self.count(fault, "course-rule-fences", back, ViolationKind::FenceRegression);
        }
    }

    /// Where nothing is to outlive its lease: what the machine makes to last longer, no lock keeps
    /// apart that has no fence.
    fn lost_in_time(&mut self, fault: &FaultReport) {
        let lost = fault.lost_in_time;
        let measured: Text = match fault.lost_updates.saturating_sub(lost) {
            0 => grouped(lost).into(),
            late => message!("course-lost-late", lost, late).into(),
        };
        let rule = Message::new("course-rule-lost");
        self.add(fault, rule, lost == 0, measured, Some(LostUpdate));
    }

    /// From the level of the fence on, where the fence is compared.
    fn nothing_lost(&mut self, fault: &FaultReport) {
        if self.level < FENCES {
            return self.lost_in_time(fault);
        }
        let fenced = fault.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
        self.count(fault, "course-rule-fenced", fenced, ViolationKind::LostWithFence);
    }

    /// The judge has a sentence for what is longer.
    fn granted_again(&mut self, fault: &FaultReport, limit_ttls: u64) {
        let limit_ms = limit_ttls * TTL_MS;
        let blocked = fault.blocked_ms_max;
        let rule = Message::new("course-rule-blocked").with("ms", grouped(limit_ms));
        let measured = format!("{} ms", grouped(blocked));
        self.add(fault, rule, blocked <= limit_ms, measured, Some(ViolationKind::Blocked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Adapter;

    /// Returns the rules that do not hold for a lock that is right but for this.
    fn broken(level: u32, fault: Fault, change: impl Fn(&mut FaultReport)) -> Vec<(String, u32)> {
        let faults = [Fault::Undisturbed, Fault::KillHolder, Fault::LongWork, Fault::Pause];
        let report = |of: &Fault| {
            let mut report = FaultReport { name: of.name().to_owned(), ran: true, ..good() };
            if *of == fault {
                change(&mut report);
            }
            report
        };
        let adapter = Adapter {
            name: "lock".to_owned(),
            fencing: level >= FENCES,
            renews: true,
            cancels: true,
        };
        let judgement = Judgement {
            adapter,
            faults: faults.iter().map(report).collect(),
            safe: true,
            ttl_ms: TTL_MS,
            seed: 1,
            started_at: String::new(),
            options: String::new(),
        };
        let findings = examine(level, &judgement);
        let broken = findings.iter().filter(|finding| !finding.holds);
        broken.map(|finding| (finding.rule.id().to_owned(), finding.added_by())).collect()
    }

    fn good() -> FaultReport {
        FaultReport {
            held_share: 0.7,
            jain: 1.0,
            redis_commands: 5.0,
            turns: 288,
            waited_s: 30.3,
            ..FaultReport::default()
        }
    }

    #[test]
    fn wrong_locks_break_the_rule_that_is_about_them() {
        let rule = |id: &str, level: u32| vec![(id.to_owned(), level)];
        // Deletes the key of any holder, and answers `lost`.
        let denies = |fault: &mut FaultReport| fault.early_losses = 9;
        assert!(broken(2, Fault::Undisturbed, denies).is_empty());
        assert_eq!(broken(3, Fault::Undisturbed, denies), rule("course-rule-true", 3));
        let takes = |fault: &mut FaultReport| fault.early_grants = 1;
        assert_eq!(broken(3, Fault::LongWork, takes), rule("course-rule-kept", 3));
        // Counts in the memory of a process.
        let repeats = |fault: &mut FaultReport| fault.fence_regressions = 119;
        assert!(broken(4, Fault::Undisturbed, repeats).is_empty());
        for fault in [Fault::Undisturbed, Fault::KillHolder, Fault::LongWork, Fault::Pause] {
            assert_eq!(broken(5, fault, repeats), rule("course-rule-fences", 5), "{fault:?}");
        }
        let loses = |fault: &mut FaultReport| (fault.lost_updates, fault.lost_in_time) = (15, 1);
        assert_eq!(broken(2, Fault::Undisturbed, loses), rule("course-rule-lost", 1));
        assert_eq!(broken(2, Fault::KillHolder, loses), rule("course-rule-lost", 2));
        // The machine stood still for longer than a lease.
        let is_late = |fault: &mut FaultReport| fault.lost_updates = 15;
        assert!(broken(3, Fault::Undisturbed, is_late).is_empty());
        // Asks without a pause.
        let burns = |fault: &mut FaultReport| fault.redis_commands = 204.0;
        assert_eq!(broken(1, Fault::Undisturbed, burns), rule("course-rule-burn", 1));
        // With a pause, on a machine on which a grant takes half a second.
        let is_slow = |fault: &mut FaultReport| {
            (fault.redis_commands, fault.turns, fault.waited_s) = (272.0, 18, 44.7);
        };
        assert!(broken(1, Fault::Undisturbed, is_slow).is_empty());
        assert_eq!(broken(7, Fault::Undisturbed, burns), rule("course-rule-commands", 7));
        // Asks in the background, also while no client wants the lock.
        let polls = |per_s: f64| move |fault: &mut FaultReport| fault.idle_commands = per_s;
        assert!(broken(7, Fault::Undisturbed, polls(16.0)).is_empty());
        assert_eq!(broken(7, Fault::Undisturbed, polls(400.0)), rule("course-rule-commands", 7));
    }
}
