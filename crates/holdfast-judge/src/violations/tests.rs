//! What the judge says of each violation, and how long turns take.

use clap::{Args as _, FromArgMatches as _};
use holdfast_base::messages::{Language, is_chinese};

use super::*;
use crate::args::JudgeArgs;
use crate::protocol::ReleaseAnswer;

#[test]
fn turns_after_the_work_do_not_shorten_it() {
    let hold = |answered_us| Turn { answered_us, ..Turn::default() };
    let recording = Recording { began_us: 1_000, ended_us: 5_000, ..Recording::default() };
    let holds = [2_000, 4_000, 5_500, 6_000].map(hold);
    assert_eq!(turn_ms(&holds, &recording), 2.0);
    assert_eq!(turn_ms(&holds[2..], &recording), 4.0);
}

/// Two clients hold the lock at once: everything that can go wrong does.
#[test]
fn every_violation_is_told_in_each_language() {
    let command = JudgeArgs::augment_args(clap::Command::new("judge"));
    let matches = command.get_matches_from(["judge", "--ttl-ms", "4000", "--", "lock"]);
    let args = JudgeArgs::from_arg_matches(&matches).expect("they are valid");
    let plan = JudgePlan::new(&args).expect("they are valid");

    let (first, second) = (client(1, 5), client(0, 4));
    let turns = [
        Turn {
            asked_us: 1_261_000,
            answered_us: 2_515_000,
            outcome: TurnOutcome::Timeout,
            ..Turn::default()
        },
        hold(first, (6_000_000, 6_019_000), 6_663_000, ReleaseAnswer::Ok),
        hold(second, (6_100_000, 6_532_000), 6_548_000, ReleaseAnswer::Lost),
        Turn { fence: None, ..hold(first, (7_000_000, 19_500_000), 19_900_000, ReleaseAnswer::Ok) },
    ];
    let recording = |ended_us| Recording {
        ended_us,
        turns: turns.into(),
        outage: Some((1_000_000, 3_000_000)),
        ..Recording::default()
    };
    let (ended, cut_off) = (recording(20_000_000), recording(19_500_000));
    let holds = holds::holds(&ended);

    let report = FaultReport::default();
    let mut evidence = FaultEvidence { plan: &plan, recording: &ended, holds: &holds, report };
    evidence.overlaps();
    evidence.wrong_releases();
    evidence.early_losses();
    evidence.early_grants();
    evidence.fence_regressions();
    evidence.misreported();
    evidence.held_times();
    evidence.recording = &cut_off;
    evidence.held_times();
    evidence.grants();
    evidence.leftover_keys(&BTreeSet::from(["lock:7".to_owned()]));

    let entry = |id, granted_us, sent_us, stock_before| ChainEntry {
        id,
        granted_us,
        before: 1_000,
        fence: Some(7),
        sent_us,
        stock_before,
    };
    // The second one was killed before it was answered.
    let early = entry(first, 6_019_000, 6_020_000, 1_000);
    let late = entry(second, 0, 6_540_000, 990);
    for found in [
        evidence.describe(&early, &late),
        evidence.describe(&early, &entry(second, 0, 6_540_000, 999)),
        evidence.describe(&early, &entry(first, 0, 6_540_000, 999)),
        evidence.describe_with_fence(&early, &entry(first, 0, 6_540_000, 990)),
        lost_units(1_234),
    ] {
        evidence.add(ViolationKind::LostUpdate, found, 0, 0, &[]);
    }

    let violations = &evidence.report.violations;
    let texts: Vec<&str> = violations.iter().map(|found| found.text.as_str()).collect();
    assert_eq!(texts, SENTENCES);
    for violation in violations {
        let chinese = violation.text_in(Language::Chinese).expect("a message");
        assert!(chinese.contains(is_chinese), "{chinese}");
    }
}

const SENTENCES: [&str; 15] = [
    "w1 c5 held the lock from 6,019 ms to 6,663 ms, and w0 c4 was granted it at 6,532 ms: both \
     held it for 16 ms",
    "w1 c5 released the lock at 6,663 ms and was answered ok, although w0 c4 had been granted \
     it at 6,532 ms",
    "w0 c4 was granted the lock at 6,532 ms, released it at 6,548 ms, and was answered that it \
     had lost it, although its lease of 4,000 ms had not ended",
    "w1 c5 was granted the lock at 6,019 ms and held it until 6,663 ms, and w0 c4 was granted \
     it at 6,532 ms, although the first one's lease of 4,000 ms had not ended: a release has \
     taken it away",
    "w0 c4 was granted the lock with fence 7 at 6,532 ms, after w1 c5 had it with fence 7 at \
     6,019 ms",
    "w0 c0 asked for the lock at 1,261 ms and was answered timeout at 2,515 ms, while Redis was \
     away and no client held the lock: the answer should have been error",
    "from 7,000 ms on, no client got the lock for 12,500 ms, although none held it; the TTL is \
     4,000 ms",
    "from 7,000 ms on, no client got the lock for 12,500 ms, until the work ended, although \
     none held it; the TTL is 4,000 ms",
    "14 of 16 clients never got the lock, which was granted 3 times: w0 c0, w0 c1, w0 c2, w0 \
     c3, w0 c5, w0 c6, w0 c7, w1 c0 and 6 more",
    "keys left in Redis 8,000 ms after the work, beyond those that remain without a fault: 1: \
     lock:7",
    "w1 c5 and w0 c4 both read 1,000: w1 c5 wrote 999 at 6,020–6,663 ms, and w0 c4 wrote 999 \
     over 990 at 6,540 ms, which undid 10 units",
    "w1 c5 and w0 c4 both read 1,000: w1 c5 wrote 999 at 6,020–6,663 ms, and w0 c4 wrote 999 \
     over 999 at 6,540 ms, so both took a unit, and the stock shows one",
    "w1 c5 read 1,000 twice: w1 c5 wrote 999 at 6,020–6,663 ms, and w1 c5 wrote 999 over 999 at \
     6,540 ms, so both took a unit, and the stock shows one",
    "with fence 7, w1 c5 read 1,000 twice: w1 c5 wrote 999 at 6,020–6,663 ms, and w1 c5 wrote \
     999 over 990 at 6,540 ms, which undid 10 units",
    "the ledger has 1,234 units more than the stock lost",
];

fn client(worker: u32, client: u32) -> ClientId {
    ClientId { worker, client }
}

fn hold(
    id: ClientId,
    (asked_us, answered_us): (u64, u64),
    release_us: u64,
    release: ReleaseAnswer,
) -> Turn {
    let (outcome, fence) = (TurnOutcome::Granted, Some(7));
    let released_us = release_us + 1_000;
    Turn {
        id,
        asked_us,
        answered_us,
        outcome,
        fence,
        release_us,
        released_us,
        release,
        ..Turn::default()
    }
}
