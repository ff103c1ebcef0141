//! What a lesson is, and what several lessons share.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks};
use holdfast_lock::{Redis, Settings, Wait};
use strum::IntoStaticStr;
use tokio::time::Instant;

use super::super::arm_spec::{DefaultLoad, Supply};
use super::super::progress::GUESSES;
use super::super::run::{ArmResult, told};
use super::super::scenario::Scenario;
use holdfast_base::messages::{Language, Message, message};
use holdfast_shop::audit::ItemAudit;
use holdfast_story::Value;

const TAKEAWAYS: usize = 3;

/// The chapters, in teaching order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Chapter {
    Why,
    Writing,
    Failures,
    Costs,
    Beyond,
    Redis,
}

impl Chapter {
    pub const ALL: [Self; 6] =
        [Self::Why, Self::Writing, Self::Failures, Self::Costs, Self::Beyond, Self::Redis];

    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn title(self, language: Language) -> String {
        language.text(&format!("lesson-chapter-{}", self.name()))
    }
}

/// A lesson. Its texts are in the catalogue, `locales/*/lessons.ftl`, and why an answer is wrong in
/// `reasons.ftl`.
#[derive(Debug)]
pub struct Lesson {
    /// Name in the URL and in `holdfast lesson NAME`.
    pub name: &'static str,
    pub chapter: Chapter,
    /// Index of the right answer among the guesses.
    pub right: usize,
    /// Id of the scene that the question asks about; it plays first. Empty if nothing is drawn.
    pub scene: &'static str,
    /// True if the question is about the load at the end, not about the scene that plays.
    pub asks_about_load: bool,
    /// Minutes to answer, watch and read it.
    pub minutes: u32,
    /// Difficulty, from 1 to 3.
    pub level: usize,
    /// Names of the lessons that it needs.
    pub after: &'static [&'static str],
    /// Default load, if the lesson ends with one; the visitor may change it.
    pub load: Option<DefaultLoad>,
    /// Names of the sources that it shows ([`super::source`]).
    pub shows: &'static [&'static str],
    pub(crate) run: for<'a> fn(&'a Scenario) -> LocalBoxFuture<'a, anyhow::Result<LessonResult>>,
}

impl Lesson {
    pub fn title(&self, language: Language) -> String {
        language.text(&format!("lesson-{}-title", self.name))
    }

    pub fn claim(&self, language: Language) -> String {
        language.text(&format!("lesson-{}-claim", self.name))
    }

    pub fn question(&self, language: Language) -> String {
        language.text(&format!("lesson-{}-question", self.name))
    }

    /// Returns what one must know to think about the question.
    pub fn primer(&self, language: Language) -> String {
        language.text(&format!("lesson-{}-primer", self.name))
    }

    pub fn guesses(&self, language: Language) -> Vec<String> {
        self.numbered("guess", GUESSES, language)
    }

    pub fn answer(&self, language: Language) -> String {
        self.guesses(language).swap_remove(self.right)
    }

    /// Returns why a guess is wrong; `None` for the right one.
    pub fn why_wrong(&self, guess: usize, language: Language) -> Option<String> {
        let id = format!("lesson-{}-wrong-{}", self.name, guess + 1);
        (guess < GUESSES && guess != self.right).then(|| language.text(&id))
    }

    pub fn takeaways(&self, language: Language) -> Vec<String> {
        self.numbered("takeaway", TAKEAWAYS, language)
    }

    /// Returns the name of one of its scenes; `None` if it has no such scene.
    pub fn scene_title(&self, id: &str, language: Language) -> Option<String> {
        Message::new(&format!("lesson-{}-scene-{id}", self.name)).format(language)
    }

    fn numbered(&self, what: &str, count: usize, language: Language) -> Vec<String> {
        let ids = (1..=count).map(|number| format!("lesson-{}-{what}-{number}", self.name));
        ids.map(|id| language.text(&id)).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonResult {
    /// True if the claim was shown; `None` without a claim.
    pub shown: Option<bool>,
    pub verdict: Message,
}

impl LessonResult {
    pub fn new(shown: bool, verdict: Message) -> Self {
        Self { shown: Some(shown), verdict }
    }

    /// Returns the result of scenes, of which the verdict is true only if they went as meant.
    pub fn of_scenes(shown: bool, verdict: Message) -> Self {
        Self::new(shown, told(shown, verdict))
    }

    /// Returns the result of the scenes and of the load behind them. `hindrance` is the reason why
    /// this load cannot show the claim.
    #[must_use]
    pub fn and_load(self, hindrance: Option<Message>, shown: bool) -> Self {
        let verdict = self.verdict;
        Self::of_load(hindrance, shown && self.shown == Some(true), verdict)
    }

    /// Returns the result of a load that the visitor may have changed. `hindrance` is the reason
    /// why this load cannot show the claim.
    pub fn of_load(hindrance: Option<Message>, shown: bool, verdict: Message) -> Self {
        match hindrance {
            Some(why) => Self::new(false, message!("run-not-shown", why)),
            None => Self::new(shown, verdict),
        }
    }
}

pub(crate) fn sales(audit: &ItemAudit) -> Message {
    message!("run-sales", sold = audit.sold, reduced = audit.opening - audit.stock)
}

pub(crate) fn yes_or_no(answer: bool) -> Message {
    if answer { message!("run-yes") } else { message!("run-no") }
}

pub(crate) fn whole_ms(time: Duration) -> Value {
    Value::Ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Executes the same load at one replica and at all of them. Returns why the load cannot show that
/// a lock of one process fails, whether it shows it, and a description of both.
pub(crate) async fn compare_replicas(
    lab: &Scenario,
    load: DefaultLoad,
    strategy: &str,
) -> anyhow::Result<(Option<Message>, bool, Message)> {
    lab.say(message!("run-replicas-step"));
    let mut specs = load.under(lab, &[strategy, strategy]);
    specs[0].replicas = 1;
    let arms = lab.run_arms(&specs).await?;

    let is_safe = arms[0].ok && arms[0].oversold == 0;
    let is_broken = !arms[1].ok && arms[1].forks > 0;
    let one = sold_and_forks(&arms[0]);
    let all = sold_and_forks(&arms[1]);
    lab.evidence(message!("run-replicas-one"), &one, is_safe);
    lab.evidence(message!("run-replicas-all"), &all, is_broken);

    let description = message!("run-replicas-verdict", one, all, replicas = specs[1].replicas);
    Ok((specs[1].hindrance(Supply::Any), is_safe && is_broken, description))
}

fn sold_and_forks(arm: &ArmResult) -> Message {
    let [sold, opening] = [arm.sold, arm.stock_opening].map(Value::Units);
    message!("run-replicas-sold", sold, opening, forks = arm.forks)
}

const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(700);

/// Creates the lock client of a separate process on the Redis at `url`, with keys under `prefix`.
pub(crate) fn lock_client(url: &str, prefix: &str, name: &str) -> anyhow::Result<Locks> {
    let settings = Settings::default()
        .with_key_prefix(prefix)
        .with_name(name)
        .with_acquire_timeout(ACQUIRE_TIMEOUT);
    Ok(Locks::new(Redis::open(url)?, settings)?)
}

/// Acquires a lock of `kind`; returns `None` if another owner held it during the whole wait.
pub(crate) async fn acquire(
    locks: &Locks,
    kind: LockKind,
    wait: Wait,
    key: &LockKey,
    ttl: Option<Duration>,
) -> anyhow::Result<Option<Guards>> {
    let deadline = Instant::now() + ACQUIRE_TIMEOUT;
    let keys = std::slice::from_ref(key);
    let mut request = AcquireRequest::new(kind, keys).with_wait(wait).with_deadline(deadline);
    request.ttl = ttl;
    match locks.acquire(request).await? {
        AcquireOutcome::Acquired(guards) => Ok(Some(guards)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::LESSONS;
    use super::*;

    #[test]
    fn scenes_of_questions_have_names() {
        for language in Language::ALL {
            for lesson in LESSONS.iter().filter(|lesson| !lesson.scene.is_empty()) {
                let title = lesson.scene_title(lesson.scene, language).unwrap_or_default();
                assert!((2..=40).contains(&title.chars().count()), "{}: {title}", lesson.name);
            }
        }
        assert_eq!(LESSONS[0].scene_title("of-a-file", Language::English), None);
    }

    #[test]
    fn scenes_that_went_another_way_show_nothing() {
        let verdict = || message!("run-sales", sold = 2, reduced = 1);
        let shown = LessonResult::of_scenes(true, verdict());
        assert_eq!(shown, LessonResult::new(true, verdict()));
        assert_eq!(shown.clone().and_load(None, false), LessonResult::new(false, verdict()));
        let hindrance = Some(message!("run-unsuitable-load", stock = 0, buyers = 1, orders = 1));
        let other = LessonResult::of_scenes(false, verdict());
        for result in [shown.and_load(hindrance, true), other] {
            assert_eq!(result.shown, Some(false));
            assert!(result.verdict.english().starts_with("not shown: "), "{result:?}");
        }
    }
}
