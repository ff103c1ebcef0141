//! The levels: which faults each adds, and what has to hold under them.
//!
//! A level has the faults and rules of all earlier ones. Until the fence exists (level 5), a pause
//! is not among the faults; from then on, writes are compared where the fence is.

use holdfast_base::message;
use holdfast_base::messages::{Message, Text};
use holdfast_base::output::grouped;

use crate::args::JudgeArgs;
use crate::report::{FaultReport, Judgement, UNDISTURBED, Violation};
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
const FAULTS: [(u32, &[&str]); 6] = [
    (2, &["kill-holder"]),
    (3, &["long-work"]),
    (5, &["pause"]),
    (6, &["redis-flush", "redis-restart"]),
    (8, &["redis-failover", "partition"]),
    (8, &["cancel", "client-kill"]),
];

impl Finding {
    /// Returns the level that adds the rule: its hints are about it.
    pub(super) fn added_by(&self) -> u32 {
        match (self.rule.id(), self.fault.as_str()) {
            ("course-rule-true" | "course-rule-release" | "course-rule-kept", _) => 3,
            ("course-rule-lost", "long-work") => 4,
            ("course-rule-jain" | "course-rule-wait" | "course-rule-commands", _) => MANY_CLIENTS,
            ("course-rule-starved", _) => EVERYTHING,
            ("course-rule-blocked", fault) if fault != "kill-holder" => EVERYTHING,
            ("course-rule-fences", fault) => first_level(fault).max(FENCES),
            (_, fault) => first_level(fault),
        }
    }
}

/// Returns the level that adds the fault.
fn first_level(fault: &str) -> u32 {
    FAULTS.iter().find(|(_, names)| names.contains(&fault)).map_or(1, |(level, _)| *level)
}

/// A rule, what was measured, and whether it holds.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) fault: String,
    pub(super) rule: Message,
    pub(super) measured: Text,
    pub(super) holds: bool,
    /// The kind of the violation that shows why not.
    kind: Option<&'static str>,
}

/// Returns the settings of a check; `command` runs the adapter.
pub(super) fn judge_args(level: u32, seed: Option<u64>, command: Vec<String>) -> JudgeArgs {
    let faults = FAULTS.iter().filter(|(first, _)| *first <= level);
    JudgeArgs {
        faults: faults.flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect(),
        ttl_ms: TTL_MS,
        seconds: 2.0,
        seed,
        repeat: 1,
        workers: 2,
        clients: if level >= MANY_CLIENTS { 16 } else { 8 },
        work_ms: 2,
        think_ms: 1,
        wait_ms: 5_000,
        answer_timeout_s: 5,
        // Longer than between two commands of whatever runs in the background: each meets it.
        outage_ms: if level >= EVERYTHING { TTL_MS } else { 0 },
        // Later, the lease is renewed, and nobody else gets the lock.
        second_holder: level == 3,
        // With fewer, a turn more or less would make an even share look uneven.
        min_turns: if level >= MANY_CLIENTS { 8 } else { 0 },
        env: vec![("HOLDFAST_COURSE_LEVEL".to_owned(), level.to_string())],
        json: None,
        html: None,
        history: None,
        command,
    }
}

/// Returns all rules of the level with what was found.
pub(super) fn examine(level: u32, judgement: &Judgement) -> Vec<Finding> {
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
    let undisturbed = judgement.faults.iter().find(|fault| fault.name == UNDISTURBED)?;
    undisturbed.failed_calls.as_ref()
}

/// Returns the violation that shows why the rule does not hold.
pub(super) fn evidence<'a>(judgement: &'a Judgement, finding: &Finding) -> Option<&'a Violation> {
    violation(judgement, finding, finding.kind?)
}

/// Returns the violation that names the keys which are left under the rule's fault.
pub(super) fn left_key<'a>(judgement: &'a Judgement, finding: &Finding) -> Option<&'a Violation> {
    violation(judgement, finding, "leftover-key")
}

fn violation<'a>(judgement: &'a Judgement, finding: &Finding, kind: &str) -> Option<&'a Violation> {
    let fault = judgement.faults.iter().find(|fault| fault.name == finding.fault)?;
    fault.violations.iter().find(|violation| violation.kind == kind)
}

struct Rules {
    level: u32,
    findings: Vec<Finding>,
}

impl Rules {
    fn add(
        &mut self,
        fault: &FaultReport,
        rule: Message,
        holds: bool,
        measured: impl Into<Text>,
        kind: Option<&'static str>,
    ) {
        let measured = measured.into();
        self.findings.push(Finding { fault: fault.name.clone(), rule, measured, holds, kind });
    }

    fn count(&mut self, fault: &FaultReport, rule: &str, found: u64, kind: &'static str) {
        self.add(fault, Message::new(rule), found == 0, grouped(found), Some(kind));
    }

    /// As [`Self::count`], but with many clients one of a hundred grants may be one: these rules
    /// take the order of the answers for that of the lock, and under load some answers are late.
    fn count_but_few(&mut self, fault: &FaultReport, rule: &str, found: u64, kind: &'static str) {
        let few = if self.level < MANY_CLIENTS { 0 } else { fault.acquired / 100 };
        self.add(fault, Message::new(rule), found <= few, grouped(found), Some(kind));
    }

    fn examine(&mut self, fault: &FaultReport) {
        match fault.name.as_str() {
            UNDISTURBED => self.examine_undisturbed(fault),
            "kill-holder" => {
                self.nothing_lost(fault);
                self.granted_again(fault, MAX_BLOCKED_TTLS_AFTER_KILL);
                let left = fault.violations.iter().filter(|it| it.kind == "leftover-key").count();
                self.count(fault, "course-rule-leftover", left as u64, "leftover-key");
                self.fences_grow(fault);
            }
            "long-work" => {
                let wrong = fault.release_ok_when_lost;
                self.count(fault, "course-rule-release", wrong, "release-ok-when-lost");
                self.count_but_few(fault, "course-rule-kept", fault.early_grants, "early-grant");
                if self.level > 3 {
                    self.count(fault, "course-rule-lost", fault.lost_updates, "lost-update");
                }
                self.fences_grow(fault);
            }
            // Redis keeps its data when a client is paused, and loses it in the others.
            "pause" | "redis-flush" | "redis-restart" => {
                self.fences_grow(fault);
                self.nothing_lost(fault);
            }
            _ => self.nothing_lost(fault),
        }

        if self.level >= EVERYTHING {
            self.count(fault, "course-rule-starved", fault.waiters_starved, "starved");
            if fault.name != "kill-holder" {
                self.granted_again(fault, MAX_BLOCKED_TTLS);
            }
        }
    }

    fn examine_undisturbed(&mut self, fault: &FaultReport) {
        let commands = fault.redis_commands;
        let rule = Message::new("course-rule-redis");
        self.add(fault, rule, commands >= MIN_COMMANDS, format!("{commands:.1}"), None);
        self.lost_in_time(fault);
        let held = fault.held_share;
        let rule = Message::new("course-rule-held");
        self.add(fault, rule, held >= MIN_HELD, format!("{:.0} %", 100.0 * held), None);
        if self.level >= 3 {
            self.count_but_few(fault, "course-rule-true", fault.early_losses, "early-loss");
        }
        self.fences_grow(fault);

        if self.level < MANY_CLIENTS {
            let of_waits = (commands - MAX_COMMANDS_IN_QUEUE).max(0.0) * fault.acquired as f64;
            let per_s = of_waits / fault.waited_s.max(f64::MIN_POSITIVE);
            let rule = Message::new("course-rule-burn");
            self.add(fault, rule, per_s <= MAX_COMMANDS_OF_WAIT, format!("{per_s:.0}"), None);
        } else {
            let commands = commands + fault.idle_commands * TURN_S;
            let is_cheap = commands <= MAX_COMMANDS_IN_QUEUE;
            let figures = [
                ("course-rule-jain", fault.jain >= 0.9, fault.jain),
                ("course-rule-wait", fault.wait_ratio <= 3.0, fault.wait_ratio),
                ("course-rule-commands", is_cheap, commands),
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
            self.count(fault, "course-rule-fences", back, "fence-regression");
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
        self.add(fault, rule, lost == 0, measured, Some("lost-update"));
    }

    /// From the level of the fence on, where the fence is compared.
    fn nothing_lost(&mut self, fault: &FaultReport) {
        if self.level < FENCES {
            return self.lost_in_time(fault);
        }
        let fenced = fault.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
        self.count(fault, "course-rule-fenced", fenced, "lost-with-fence");
    }

    /// The judge has a sentence for what is longer.
    fn granted_again(&mut self, fault: &FaultReport, limit_ttls: u64) {
        let limit_ms = limit_ttls * TTL_MS;
        let blocked = fault.blocked_ms_max;
        let rule = Message::new("course-rule-blocked").with("ms", grouped(limit_ms));
        let measured = format!("{} ms", grouped(blocked));
        self.add(fault, rule, blocked <= limit_ms, measured, Some("blocked"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Adapter;

    /// Returns the rules that do not hold for a lock that is right but for this.
    fn broken(level: u32, fault: &str, change: impl Fn(&mut FaultReport)) -> Vec<(String, u32)> {
        let names = [UNDISTURBED, "kill-holder", "long-work", "pause"];
        let report = |name: &&str| {
            let mut report = FaultReport { name: (*name).to_owned(), ran: true, ..good() };
            if *name == fault {
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
            faults: names.iter().map(report).collect(),
            safe: true,
            ttl_ms: TTL_MS,
            seed: 1,
            started_at: String::new(),
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
            acquired: 288,
            waited_s: 30.3,
            ..FaultReport::default()
        }
    }

    #[test]
    fn wrong_locks_break_the_rule_that_is_about_them() {
        let rule = |id: &str, level: u32| vec![(id.to_owned(), level)];
        // Deletes the key of whoever has it, and says `lost`.
        let denies = |fault: &mut FaultReport| fault.early_losses = 9;
        assert!(broken(2, UNDISTURBED, denies).is_empty());
        assert_eq!(broken(3, UNDISTURBED, denies), rule("course-rule-true", 3));
        let takes = |fault: &mut FaultReport| fault.early_grants = 1;
        assert_eq!(broken(3, "long-work", takes), rule("course-rule-kept", 3));
        // Counts in the memory of a process.
        let repeats = |fault: &mut FaultReport| fault.fence_regressions = 119;
        assert!(broken(4, UNDISTURBED, repeats).is_empty());
        for fault in [UNDISTURBED, "kill-holder", "long-work", "pause"] {
            assert_eq!(broken(5, fault, repeats), rule("course-rule-fences", 5), "{fault}");
        }
        let loses = |fault: &mut FaultReport| (fault.lost_updates, fault.lost_in_time) = (15, 1);
        assert_eq!(broken(2, UNDISTURBED, loses), rule("course-rule-lost", 1));
        assert_eq!(broken(2, "kill-holder", loses), rule("course-rule-lost", 2));
        // The machine stood still for longer than a lease.
        let is_late = |fault: &mut FaultReport| fault.lost_updates = 15;
        assert!(broken(3, UNDISTURBED, is_late).is_empty());
        // Asks without a pause.
        let burns = |fault: &mut FaultReport| fault.redis_commands = 204.0;
        assert_eq!(broken(1, UNDISTURBED, burns), rule("course-rule-burn", 1));
        // With a pause, on a machine on which a grant takes half a second.
        let is_slow = |fault: &mut FaultReport| {
            (fault.redis_commands, fault.acquired, fault.waited_s) = (272.0, 18, 44.7);
        };
        assert!(broken(1, UNDISTURBED, is_slow).is_empty());
        assert_eq!(broken(7, UNDISTURBED, burns), rule("course-rule-commands", 7));
        // Asks in the background, also while nobody wants the lock.
        let polls = |per_s: f64| move |fault: &mut FaultReport| fault.idle_commands = per_s;
        assert!(broken(7, UNDISTURBED, polls(16.0)).is_empty());
        assert_eq!(broken(7, UNDISTURBED, polls(400.0)), rule("course-rule-commands", 7));
    }
}
