//! The levels: which faults each adds, and what has to hold under them.
//!
//! A level has the faults and rules of all earlier ones. Until the fence exists (level 5), a pause
//! is not among the faults; from then on, writes are compared where the fence is.

use holdfast_base::messages::Message;
use holdfast_base::output::grouped;

use crate::args::JudgeArgs;
use crate::report::{FaultReport, Judgement, UNDISTURBED, Violation};

pub const LAST_LEVEL: u32 = 8;
/// From this level on, `acquire` returns a fence.
const FENCES: u32 = 5;
const MANY_CLIENTS: u32 = 7;
const EVERYTHING: u32 = 8;
const TTL_MS: u64 = 500;
/// Below this, a lock has no part in Redis: each grant needs a command at least.
const MIN_COMMANDS: f64 = 0.5;
const MIN_HELD: f64 = 0.3;

/// The faults by the level that adds them.
const FAULTS: [(u32, &[&str]); 6] = [
    (2, &["kill-holder"]),
    (3, &["long-work"]),
    (5, &["pause"]),
    (6, &["redis-flush", "redis-restart"]),
    (8, &["redis-failover", "partition"]),
    (8, &["cancel", "client-kill"]),
];

/// A rule, what was measured, and whether it holds.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) fault: String,
    pub(super) rule: Message,
    pub(super) measured: String,
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
            let why = fault.why_not.clone().unwrap_or_default();
            rules.add(fault, Message::new("course-rule-ran"), false, why, None);
            continue;
        }
        rules.examine(fault);
    }
    rules.findings
}

/// Returns the violation that shows why the rule does not hold.
pub(super) fn evidence<'a>(judgement: &'a Judgement, finding: &Finding) -> Option<&'a Violation> {
    let kind = finding.kind?;
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
        measured: String,
        kind: Option<&'static str>,
    ) {
        self.findings.push(Finding { fault: fault.name.clone(), rule, measured, holds, kind });
    }

    fn count(&mut self, fault: &FaultReport, rule: &str, found: u64, kind: &'static str) {
        self.add(fault, Message::new(rule), found == 0, grouped(found), Some(kind));
    }

    fn examine(&mut self, fault: &FaultReport) {
        match fault.name.as_str() {
            UNDISTURBED => self.examine_undisturbed(fault),
            "kill-holder" => {
                self.nothing_lost(fault);
                // Under the last level's rule, three leases are enough.
                self.granted_again(fault, 2 * TTL_MS);
                let left = fault.violations.iter().filter(|it| it.kind == "leftover-key").count();
                self.count(fault, "course-rule-leftover", left as u64, "leftover-key");
            }
            "long-work" => {
                let wrong = fault.release_ok_when_lost;
                self.count(fault, "course-rule-release", wrong, "release-ok-when-lost");
                if self.level > 3 {
                    self.count(fault, "course-rule-lost", fault.lost_updates, "lost-update");
                }
            }
            "redis-flush" | "redis-restart" => {
                let back = fault.fence_regressions;
                self.count(fault, "course-rule-fences", back, "fence-regression");
                self.nothing_lost(fault);
            }
            _ => self.nothing_lost(fault),
        }

        if self.level >= EVERYTHING {
            self.count(fault, "course-rule-starved", fault.waiters_starved, "starved");
            if fault.name != "kill-holder" {
                self.granted_again(fault, 3 * TTL_MS);
            }
        }
    }

    fn examine_undisturbed(&mut self, fault: &FaultReport) {
        let commands = fault.redis_commands;
        let rule = Message::new("course-rule-redis");
        let measured = format!("{commands:.1} / grant");
        self.add(fault, rule, commands >= MIN_COMMANDS, measured, None);
        self.count(fault, "course-rule-lost", fault.lost_updates, "lost-update");
        let held = fault.held_share;
        let rule = Message::new("course-rule-held");
        self.add(fault, rule, held >= MIN_HELD, format!("{:.0} %", 100.0 * held), None);

        if self.level >= MANY_CLIENTS {
            let figures = [
                ("course-rule-jain", fault.jain >= 0.9, fault.jain),
                ("course-rule-wait", fault.wait_ratio <= 3.0, fault.wait_ratio),
                ("course-rule-commands", commands <= 6.0, commands),
            ];
            for (rule, holds, measured) in figures {
                self.add(fault, Message::new(rule), holds, format!("{measured:.2}"), None);
            }
        }
    }

    /// From the level of the fence on, where the fence is compared.
    fn nothing_lost(&mut self, fault: &FaultReport) {
        if self.level < FENCES {
            self.count(fault, "course-rule-lost", fault.lost_updates, "lost-update");
            return;
        }
        let fenced = fault.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
        self.count(fault, "course-rule-fenced", fenced, "lost-with-fence");
    }

    fn granted_again(&mut self, fault: &FaultReport, limit_ms: u64) {
        let blocked = fault.blocked_ms_max;
        let rule = Message::new("course-rule-blocked").with("ms", grouped(limit_ms));
        let measured = format!("{} ms", grouped(blocked));
        self.add(fault, rule, blocked <= limit_ms, measured, Some("blocked"));
    }
}
