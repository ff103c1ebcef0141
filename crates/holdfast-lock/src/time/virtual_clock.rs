//! A clock for tests: it stands still while a task can run, and then moves to the next timer. With
//! it comes the order in which tasks run, at random but the same for the same seed.
//!
//! Where a thread has started none, time is tokio's. (The paused time of tokio is a feature that
//! would be built into every program of the workspace.)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, IntoFuture, poll_fn};
use std::ops::{Add, Range, Sub};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

thread_local! {
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

struct Clock {
    /// Of the real clock; virtual instants follow it.
    start: tokio::time::Instant,
    now_us: u64,
    /// By their times, and in the order in which they were set.
    timers: BTreeMap<(u64, u64), Waker>,
    timers_set: u64,
    /// That of the test itself.
    test: Option<Waker>,
    random: StdRng,
    /// A task is stopped once in this number of times that it could run; never with 0.
    stall_every: u32,
    max_stall: Duration,
}

/// Runs `test` on a clock of its own, with all tasks on this thread.
pub(crate) fn run<T>(seed: u64, test: impl Future<Output = T>) -> T {
    let clock = Clock {
        start: tokio::time::Instant::now(),
        // Not 0, which stands for *never* or *ended* in some fields.
        now_us: 1_000_000,
        timers: BTreeMap::new(),
        timers_set: 0,
        test: None,
        random: StdRng::seed_from_u64(seed),
        stall_every: 0,
        max_stall: Duration::ZERO,
    };
    CLOCK.set(Some(clock));

    let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(advance).build();
    let result = runtime.expect("a runtime").block_on(async {
        let mut test = pin!(test);
        poll_fn(|context| {
            with_clock(|clock| clock.test = Some(context.waker().clone()));
            test.as_mut().poll(context)
        })
        .await
    });
    // Its timers are dropped, with what their tasks own, when no one borrows it.
    drop(CLOCK.take());
    result
}

/// Stops a task for up to `max` once in `every` times that it could run.
pub(crate) fn stall_tasks(every: u32, max: Duration) {
    with_clock(|clock| (clock.stall_every, clock.max_stall) = (every, max));
}

/// Returns the microseconds of the clock that this thread has started.
pub(crate) fn now_us() -> Option<u64> {
    with_clock(|clock| clock.now_us)
}

/// Returns a number that depends on the seed only, if this thread has started a clock.
pub(crate) fn random(range: Range<f64>) -> Option<f64> {
    with_clock(|clock| clock.random.random_range(range))
}

/// Returns whether something happens that happens once in `times`.
pub(crate) fn once_in(times: u32) -> bool {
    with_clock(|clock| times > 0 && clock.random.random_range(0..times) == 0).unwrap_or(false)
}

/// Returns a duration of at most `max`.
pub(crate) fn up_to(max: Duration) -> Duration {
    max.mul_f64(random(0.0..1.0).unwrap_or(0.0))
}

fn with_clock<T>(work: impl FnOnce(&mut Clock) -> T) -> Option<T> {
    CLOCK.with_borrow_mut(|clock| clock.as_mut().map(work))
}

/// No task can run: moves to the next timer.
fn advance() {
    let due = with_clock(|clock| {
        let ((at_us, _), waker) = clock.timers.pop_first()?;
        clock.now_us = clock.now_us.max(at_us);
        Some((waker, clock.test.clone()))
    });
    let (due, test) = due.flatten().expect("all tasks wait, and none for a time: a deadlock");
    due.wake();
    // The timer may be one of a task that has ended: the thread must not park for ever.
    test.into_iter().for_each(Waker::wake);
}

/// Runs `task` so that it competes with others at random: each time it could run, it lets a random
/// number of others run before.
pub(crate) async fn shuffled<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    let mut turns: Option<u32> = None;
    let mut stall: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;

    poll_fn(move |context| {
        if let Some(stalled) = &mut stall {
            if stalled.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            stall = None;
        }

        match turns.get_or_insert_with(random_turns) {
            0 => {
                turns = None;
                task.as_mut().poll(context)
            }
            left => {
                *left -= 1;
                if let Some(time) = random_stall() {
                    stall = Some(Box::pin(sleep(time)));
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// 0 with a half, 1 with a quarter, and so on.
fn random_turns() -> u32 {
    with_clock(|clock| clock.random.random_range(1..=u32::MAX).leading_zeros()).unwrap_or(0)
}

fn random_stall() -> Option<Duration> {
    let max = with_clock(|clock| {
        let stalls = clock.stall_every > 0 && clock.random.random_range(0..clock.stall_every) == 0;
        stalls.then_some(clock.max_stall)
    });
    max.flatten().map(up_to)
}

/// As that of tokio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(tokio::time::Instant);

impl Instant {
    pub fn now() -> Self {
        let virtual_now = with_clock(|clock| clock.start + Duration::from_micros(clock.now_us));
        Self(virtual_now.unwrap_or_else(tokio::time::Instant::now))
    }

    pub fn elapsed(&self) -> Duration {
        Self::now() - *self
    }

    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }

    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

/// The error of [`timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

pub(crate) async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}

pub(crate) async fn sleep_until(at: Instant) {
    if with_clock(|_| ()).is_none() {
        return tokio::time::sleep_until(at.0).await;
    }
    let mut timer = Timer(None);
    poll_fn(|context| timer.poll(at, context)).await;
}

/// A timer that is set while a task waits for it.
struct Timer(Option<(u64, u64)>);

impl Timer {
    fn poll(&mut self, at: Instant, context: &mut Context<'_>) -> Poll<()> {
        self.clear();
        let key = with_clock(|clock| {
            let since_start = at.0.saturating_duration_since(clock.start);
            let at_us = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
            if at_us <= clock.now_us {
                return None;
            }
            clock.timers_set += 1;
            let key = (at_us, clock.timers_set);
            clock.timers.insert(key, context.waker().clone());
            Some(key)
        });
        self.0 = key.flatten();
        if self.0.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn clear(&mut self) {
        if let Some(key) = self.0.take() {
            let waker = with_clock(|clock| clock.timers.remove(&key));
            drop(waker);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.clear();
    }
}

pub(crate) async fn timeout<F: IntoFuture>(
    duration: Duration,
    future: F,
) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + duration, future).await
}

pub(crate) async fn timeout_at<F: IntoFuture>(
    at: Instant,
    future: F,
) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future.into_future() => Ok(output),
        () = sleep_until(at) => Err(Elapsed),
    }
}
