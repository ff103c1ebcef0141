//! A judgement of a service from start to end: the runs of each pass, and their reports.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use anyhow::{Context as _, anyhow, bail};
use holdfast_base::message;
use holdfast_base::messages::Message;
use holdfast_base::output::print_progress;
use holdfast_services::TempFolder;
use tokio::sync::mpsc;

use super::balances::check_books;
use super::buyers::NotPrepared;
use super::database::Database;
use super::evidence;
use super::file::{OrderSettings, ServiceFile};
use super::instances::Instance;
use super::interleave::{self, Search};
use super::pass::{Load, Pass, Plan, Variant};
use super::recording::ScheduleRecording;
use super::report::{
    Figures, Imbalance, PassReport, ServiceEvidence, ServiceJudgement, ServiceName,
};
use super::sale::{GATE_HELD, Run, run_once};
use super::stage::ServiceStage;
use super::transactions::are_one_by_one;
use super::writes::learn_hidden_writes;
use crate::demands::Judged as _;
use crate::processes::{adopt_orphans, end_orphans};

/// Runs with a finding after which a pass is not repeated any more.
const CLEAR_FINDINGS: u32 = 3;
/// Two requests may miss each other: so often they are sent to show a finding.
const SHOW_ATTEMPTS: u64 = 3;

/// Runs all passes. `progress` is called with the number of the pass, and its name.
pub(super) async fn run(
    file: &ServiceFile,
    plan: &Plan,
    folder: &TempFolder,
    progress: impl FnMut(usize, &str),
    signals: &mut mpsc::UnboundedReceiver<&'static str>,
) -> anyhow::Result<ServiceJudgement> {
    adopt_orphans();
    let mut judge = ServiceJudge {
        stage: ServiceStage::new(file),
        plan,
        shown: BTreeSet::new(),
        is_unchecked: false,
    };
    // A signal waits for it: a half-made database would be forgotten.
    let passes = match judge.stage.make_database().await {
        Ok(()) => tokio::select! {
            passes = judge.run_all(folder, progress) => passes,
            Some(name) = signals.recv() => Err(anyhow!(name)),
        },
        Err(error) => Err(error),
    };

    // Before an error is returned: every way ends what was started.
    let database = judge.stage.end().await;
    end_orphans(database.as_ref().and_then(Database::pid)).await;
    if let Some(database) = database {
        database.end().await;
    }

    let passes = passes?;
    let attached = file.service.urls.len();
    let instances = if file.is_attached() { attached } else { file.service.instances };
    let mut judgement = ServiceJudgement {
        service: ServiceName { name: file.name.clone(), instances },
        sound: passes.iter().all(|pass| pass.lost_in == 0),
        passes,
        seed: plan.seed,
        started_at: plan.started_at.clone(),
    };
    judgement.sound &= judgement.undecided().is_none();
    Ok(judgement)
}

struct ServiceJudge<'a> {
    stage: ServiceStage<'a>,
    plan: &'a Plan,
    /// The patterns that were shown: another pass finds the same mistake.
    shown: BTreeSet<&'static str>,
    /// It sells too much to one buyer after the other.
    is_unchecked: bool,
}

impl ServiceJudge<'_> {
    async fn run_all(
        &mut self,
        folder: &TempFolder,
        mut progress: impl FnMut(usize, &str),
    ) -> anyhow::Result<Vec<PassReport>> {
        if !self.stage.file.is_attached() {
            print_progress("starting the service …");
        }
        self.stage.set_up(folder).await?;
        let first = self.stage.make_item(1).await?;
        self.stage.check_opening(&first, 1).await?;
        self.stage.learn(&first).await?;
        self.stage.try_gate(&first).await;

        if let Some(recording) = &self.plan.replay {
            if let Some(why) = why_not(&self.stage, Pass::Interleavings) {
                bail!("--replay: {}", why.english());
            }
            return Ok(vec![self.replay(recording, |run| progress(0, run)).await?]);
        }

        let mut reports = Vec::new();
        for (number, pass) in self.plan.passes.iter().enumerate() {
            let report = Box::pin(self.run_pass(*pass, |run| progress(number, run))).await;
            let report = report.map_err(|error| self.with_last_words(error));
            reports.push(report.with_context(|| format!("in the pass `{}`", pass.name()))?);
        }
        Ok(reports)
    }

    /// Runs a pass as often as asked for, and shows two requests of what it finds.
    async fn run_pass(
        &mut self,
        pass: Pass,
        mut progress: impl FnMut(&str),
    ) -> anyhow::Result<PassReport> {
        if let Some(why) = why_not(&self.stage, pass) {
            return Ok(not_run(pass, why));
        }
        if pass == Pass::Interleavings {
            return self.search_schedules(progress).await;
        }

        let mut report = PassReport { name: pass.name().to_owned(), ..PassReport::default() };
        let Plan { repeat, seed, .. } = self.plan;
        let mut found_at = None;
        let mut why_nothing = None;
        let load = pass.load(self.stage.instances.len());
        let commands = self.stage.redis_commands().await?;
        let is_held_already = self.stage.file.beyond_lease() >= Some(GATE_HELD);
        for number in 0..*repeat {
            if report.lost_in >= CLEAR_FINDINGS && number > 0 {
                break;
            }
            let mut is_sound = false;
            for variant in pass.variants() {
                // It is for orders that have waited in the short one, and were sound.
                if variant == Variant::Held && (!is_sound || is_held_already) {
                    continue;
                }
                match *repeat {
                    1 => progress(pass.name()),
                    _ => progress(&format!("{}, run {} of {repeat}", pass.name(), number + 1)),
                }
                let seed = seed.wrapping_add(u64::from(number));
                let run = run_once(&mut self.stage, pass, load, variant, seed).await?;
                let is_found = !run.figures.found().is_empty();
                // A strike in a run that shows nothing does not count.
                let nothing =
                    run.nothing_sold().or_else(|| never_at_once(self.stage.file, load, &run));
                let hits = if nothing.is_some() { 0 } else { run.hits };
                is_sound = hits > 0 && !is_found;
                why_nothing = why_nothing.or(nothing);
                report.runs += 1;
                report.hits += hits;
                report.lost_in += u32::from(is_found);
                // The first one that was struck, and before all the first one with a finding.
                let is_first_hit = report.hits > 0 && report.hits == hits;
                let is_first = report.lost_in == 0 && (report.runs == 1 || is_first_hit);
                if is_first || (is_found && report.lost_in == 1) {
                    report.figures = run.figures;
                }
                if is_found && found_at.is_none() {
                    found_at = Some((seed, variant));
                }
            }
        }

        if pass == Pass::Control {
            self.check_control(&report.figures)?;
            self.stage.uses_redis = self.stage.redis_commands().await? > commands;
            learn_hidden_writes(&mut self.stage, *seed).await?;
        }
        report.ran = report.hits > 0;
        if !report.ran {
            let why = why_nothing.unwrap_or_else(|| why_no_strike(&self.stage, pass));
            report = without_strike(pass, report, why);
        }
        self.is_unchecked |= pass == Pass::Control && report.figures.oversold > 0;
        if let Some((seed, variant)) = found_at {
            report.evidence = self.show_if_possible(pass, &report.figures, seed, variant).await;
        }
        Ok(report)
    }

    /// Shows what was found. The finding stays if it can't be shown.
    async fn show_if_possible(
        &mut self,
        pass: Pass,
        figures: &Figures,
        seed: u64,
        variant: Variant,
    ) -> Vec<ServiceEvidence> {
        let shown = self.show(pass, figures, seed, variant).await;
        shown.unwrap_or_else(|error| {
            print_progress(&format!(
                "two requests can't show what the pass `{}` has found: {error:#}",
                pass.name()
            ));
            Vec::new()
        })
    }

    /// Tries the possible orders of the statements of two requests, and writes down the one that
    /// finds something.
    async fn search_schedules(
        &mut self,
        mut progress: impl FnMut(&str),
    ) -> anyhow::Result<PassReport> {
        let pass = Pass::Interleavings;
        let Plan { budget, seed, recording, .. } = self.plan;
        let tell = |tried| progress(&format!("{}, schedule {}", pass.name(), tried + 1));
        let search = interleave::search(&mut self.stage, *budget, *seed, tell).await?;
        if !search.has_run {
            return Ok(not_run(pass, message!("service-why-no-schedule")));
        }
        search.tell_gaps(&self.stage.watch);
        let Search { tried, finished, left, run, found, .. } = search;
        if let Some(found) = &found {
            // The finding stays without it.
            print_progress(&match found.write(recording) {
                Ok(()) => format!(
                    "{} has the schedule that found it: --replay {0} runs it again",
                    recording.display()
                ),
                Err(error) => format!("{error:#}"),
            });
        }
        let report = self.report_schedules(run, tried, finished);
        Ok(PassReport { untried: NonZeroUsize::new(left), ..report })
    }

    /// Runs a recorded schedule again.
    async fn replay(
        &mut self,
        recording: &ScheduleRecording,
        mut progress: impl FnMut(&str),
    ) -> anyhow::Result<PassReport> {
        let Plan { repeat, seed, .. } = self.plan;
        progress("replay");
        interleave::warm_up(&mut self.stage, *seed).await?;
        learn_hidden_writes(&mut self.stage, *seed).await?;
        let run = interleave::replay(&mut self.stage, recording, *seed).await?;
        let mut report = self.report_schedules(run, *repeat, *repeat);
        for number in 2..=*repeat {
            progress(&format!("replay, run {number} of {repeat}"));
            let run = interleave::replay(&mut self.stage, recording, *seed).await?;
            let is_found = !run.figures.found().is_empty();
            if is_found && report.lost_in == 0 {
                report = self.report_schedules(run, *repeat, *repeat);
            } else {
                report.lost_in += u32::from(is_found);
            }
        }
        Ok(report)
    }

    /// Reports a run of two requests; it shows what it has found.
    fn report_schedules(&mut self, run: Run, runs: u32, hits: u32) -> PassReport {
        let pass = Pass::Interleavings;
        let found = run.figures.found();
        let shown = evidence::of(&self.stage, pass, &found, &run);
        let evidence = shown.filter(|shown| self.shown.insert(shown.pattern.name()));
        PassReport {
            name: pass.name().to_owned(),
            ran: true,
            hits,
            runs,
            lost_in: u32::from(!found.is_empty()),
            replay: self.plan.replay.is_some(),
            figures: run.figures,
            evidence: evidence.into_iter().collect(),
            ..PassReport::default()
        }
    }

    fn last_words(&self) -> Option<String> {
        self.stage.instances.first().and_then(Instance::last_words)
    }

    /// Adds what the service has printed, if it is why a buyer can't prepare its order.
    fn with_last_words(&self, error: anyhow::Error) -> anyhow::Error {
        match self.last_words() {
            Some(said) if error.is::<NotPrepared>() => anyhow!("{error:#}. {said}"),
            _ => error,
        }
    }

    /// Fails if nothing was sold to one buyer after the other, or the books can't be right.
    fn check_control(&self, figures: &Figures) -> anyhow::Result<()> {
        let Figures { sold, error, .. } = figures;
        if *sold == 0 {
            let error = error.as_deref().unwrap_or("each answer was *sold out*");
            let OrderSettings { sold, sold_out, command, .. } = &self.stage.file.order;
            // A program knows itself what was sold.
            let statuses = match command.is_empty() {
                true => format!("[order] has sold = {sold:?}, sold_out = {sold_out:?}. "),
                false => String::new(),
            };
            let said = self.last_words();
            bail!(
                "the service sold nothing to one buyer after the other, so it can't be judged: \
                 {error}. {statuses}{}",
                said.unwrap_or_default()
            );
        }
        check_books(figures)
    }

    /// Shows with two requests what a pass has found, unless another one has shown it.
    async fn show(
        &mut self,
        pass: Pass,
        figures: &Figures,
        seed: u64,
        variant: Variant,
    ) -> anyhow::Result<Vec<ServiceEvidence>> {
        let found = figures.found();
        // Its statements are not seen, and each run leaves an item in its database.
        if self.stage.file.is_attached() {
            return Ok(Vec::new());
        }
        // It needs no other request to sell too much.
        if self.is_unchecked && pass != Pass::Control && found == [Imbalance::Oversold] {
            return Ok(Vec::new());
        }

        // What the gate shows is mostly no matter of the fault. Only a key that is sold twice needs
        // its retry.
        let candidates = match pass {
            Pass::Control => vec![Pass::Control],
            _ if found.contains(&Imbalance::Doubled) => vec![pass],
            // Alone, two requests seldom meet.
            Pass::None | Pass::Gate => vec![Pass::Gate, Pass::Stretch],
            // At the gate a lock may last too short, which is another mistake.
            _ if pass.strikes_redis() => vec![pass],
            _ => vec![Pass::Gate, pass],
        };
        for attempt in 0..SHOW_ATTEMPTS {
            let seed = seed.wrapping_add(attempt);
            for candidate in candidates.iter().copied() {
                if why_not(&self.stage, candidate).is_some() {
                    continue;
                }
                let load = evidence::load(candidate, &found);
                let variant = if candidate == pass { variant } else { Variant::Plain };
                let run = run_once(&mut self.stage, candidate, load, variant, seed).await?;
                if let Some(evidence) = evidence::of(&self.stage, candidate, &found, &run) {
                    let is_new = self.shown.insert(evidence.pattern.name());
                    return Ok(is_new.then_some(evidence).into_iter().collect());
                }
            }
        }
        Ok(Vec::new())
    }
}

/// Returns why a run of many buyers shows nothing: none of their orders met in the service. What
/// they wait for outside of its database is not seen.
fn never_at_once(file: &ServiceFile, load: Load, run: &Run) -> Option<Message> {
    let are_to_meet = load.buyers > 1 && !run.seen.is_empty() && !file.has_lock();
    let shows_nothing = are_to_meet && run.figures.found().is_empty() && are_one_by_one(&run.seen);
    shows_nothing.then(|| message!("service-why-one-by-one"))
}

fn not_run(pass: Pass, why: Message) -> PassReport {
    PassReport {
        name: pass.name().to_owned(),
        why_not: Some(why.english()),
        why_not_message: Some(why),
        ..PassReport::default()
    }
}

/// Returns why the fault of a pass struck nothing.
fn why_no_strike(stage: &ServiceStage<'_>, pass: Pass) -> Message {
    let tables = stage.learned.tables.join(", ");
    match pass {
        Pass::Gate => message!("service-why-no-waiter"),
        Pass::SlowCommit => message!("service-why-no-commit", tables),
        _ => message!("service-why-no-strike", tables),
    }
}

/// Reports a pass that struck nothing as one that did not run. What it has found all the same
/// stays: orders did that to each other, without a fault.
fn without_strike(pass: Pass, report: PassReport, why: Message) -> PassReport {
    if report.lost_in == 0 {
        return not_run(pass, why);
    }
    let why = message!("service-why-found-unstruck");
    let PassReport { why_not, why_not_message, .. } = not_run(pass, why);
    PassReport { ran: false, why_not, why_not_message, ..report }
}

/// Returns why a pass can't run.
fn why_not(stage: &ServiceStage<'_>, pass: Pass) -> Option<Message> {
    let file = stage.file;
    match pass {
        Pass::Retry | Pass::LostAnswer if !file.has_key() => Some(message!("service-why-no-key")),
        Pass::LostAnswer if !file.order.command.is_empty() => Some(message!("service-why-program")),
        Pass::Control | Pass::None | Pass::Retry | Pass::LostAnswer => None,
        _ if pass != Pass::Gate && file.is_attached() => Some(message!("service-why-attached")),
        _ if stage.learned.tables.is_empty() => Some(message!("service-why-no-table")),
        Pass::Interleavings if stage.instances.len() < 2 => {
            Some(message!("service-why-one-instance"))
        }
        Pass::Gate => stage.no_gate.clone(),
        _ if pass.strikes_redis() && !stage.uses_redis => Some(message!("service-why-no-redis")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_services::Exchange;

    use super::*;
    use crate::service::watch::Seen;

    /// It is no result of the fault, and no orders are sound under it.
    #[test]
    fn pass_that_struck_nothing_did_not_run_whatever_it_has_found() {
        let report = |lost_in, oversold| {
            let figures = Figures { oversold, ..Figures::default() };
            let report =
                PassReport { ran: true, runs: 1, lost_in, figures, ..PassReport::default() };
            without_strike(Pass::Restart, report, message!("service-why-all-sold-out"))
        };
        let nothing = report(0, 0);
        assert!(!nothing.ran && nothing.why_not.is_some_and(|why| why.contains("sold out")));
        let found = report(1, 2);
        assert_eq!((found.ran, found.lost_in, found.figures.oversold), (false, 1, 2));
        let why = found.why_not.expect("why it did not run");
        assert!(why.contains("struck nothing"), "{why}");
    }

    /// Orders that never met in the database are no proof, unless they may wait elsewhere.
    #[test]
    fn run_whose_orders_never_met_shows_nothing() {
        let shows_nothing = |lease: &str, oversold, second_us| {
            let file = format!("name = \"shop\"\n[service]\n{lease}\n[order]\n[books]\n");
            let file: ServiceFile = toml::from_str(&file).expect("it is whole");
            let seen = [(1, 10), (2, second_us)].map(|(connection, sent_us)| {
                let mut exchange = Exchange::default();
                (exchange.connection, exchange.sent_us) = (connection, sent_us);
                exchange.answered_us = sent_us + 10;
                Seen { instance: 0, exchange }
            });
            let figures = Figures { oversold, ..Figures::default() };
            let run = Run { figures, seen: seen.into(), ..Run::default() };
            never_at_once(&file, Load { units: 1, attempts: 2, buyers: 2 }, &run).is_some()
        };
        assert!(shows_nothing("", 0, 20) && !shows_nothing("", 0, 19));
        assert!(!shows_nothing("lease_ms = 1000", 0, 20) && !shows_nothing("", 1, 20));
    }
}
