//! A model of the Lua scripts of the fenced lock (`crates/holdfast-lock/src/fenced/*.lua`), line by
//! line. `differential.rs` in the tests of the lock crate compares the two.
//!
//! Times are ticks, a few of them ([`Times`]): the order of events matters, not durations. A grant
//! has two fences. Numbers stay small because `actor` renumbers states that cannot be
//! distinguished.
//!
//! Every invariant of a *grant* is checked here, where grants are made: it goes to the first live
//! waiter, and no newcomer overtakes.
//!
//! Not modelled: the sweep of every 64th handoff, the expiry of fences after a day and of a queue
//! of dead waiters after a minute, tickets of the same microsecond, and a server clock that is set
//! back.

/// Fewer than in the scripts, to keep numbers small.
pub const FENCES_PER_GRANT: u8 = 2;

/// One lease of one process; zero is none.
pub type Owner = u8;
pub const NO_OWNER: Owner = 0;

/// A rule that is removed or broken, to show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// The scripts and the actor unchanged.
    None,
    ReleaseIgnoresOwner,
    ReleaseIgnoresQueue,
    GrantsToDeadWaiters,
    GrantsNeverExpire,
    OvertakesWaiters,
    LeaveStaysQueued,
    PollsAreNotRecorded,
    FencesDoNotGrow,
    HintCountsAsGrant,
    /// A message counts whenever its grant was made.
    StaleMessageCounts,
    DeadlineFromReply,
    LeaseIsNotChecked,
    ClockRunsSlow,
    RedisLosesData,
    /// A process polls only after a while without messages, so a busy one never polls.
    MessagesPostponePolls,
}

/// In ticks: a lease, a grant that is not confirmed yet, and the time without a poll after which a
/// waiter counts as dead.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub ttl: u8,
    pub grant: u8,
    pub waiter_timeout: u8,
}

/// The rules. Those that this model found to be missing from the scripts can be turned off.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub times: Times,
    pub mutant: Mutant,
    /// A try drops dead waiters of a free lock.
    pub try_drops_dead_waiters: bool,
    /// A repeated release does not enqueue the owner to which it granted the lock.
    pub requeue_unless_held: bool,
    /// A release removes its own owner from the queue.
    pub release_dequeues_owner: bool,
}

/// The rules of the current scripts. Turning off one of the last three brings back a defect that
/// this model found in them.
pub const CURRENT_RULES: Rules = Rules {
    times: Times { ttl: 2, grant: 2, waiter_timeout: 1 },
    mutant: Mutant::None,
    try_drops_dead_waiters: true,
    requeue_unless_held: true,
    release_dequeues_owner: true,
};

impl Rules {
    pub fn has(self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lock {
    pub owner: Owner,
    pub fence: u8,
    pub left: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    pub owner: Owner,
    /// Since its ticket, or its last poll.
    pub ticks_since_poll: u8,
    /// Its last poll is recorded. That of a waiter queued by a handoff is not, until it polls.
    pub poll_is_recorded: bool,
}

impl Waiter {
    /// Returns whether a handoff skips it.
    fn is_dead(self, rules: Rules) -> bool {
        self.ticks_since_poll > rules.times.waiter_timeout
            && !rules.has(Mutant::GrantsToDeadWaiters)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Redis {
    pub lock: Option<Lock>,
    /// By ticket.
    pub queue: Vec<Waiter>,
    /// The number of the last grant.
    pub grants: u8,
    /// The *granted* message that is about to be sent: the owner and the fence.
    pub message: Option<(Owner, u8)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    Try,
    Acquire,
    Confirm,
    Release { again: Owner },
    Leave,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    Held(u8),
    /// Held by another owner, lost, or irrelevant.
    NotHeld,
}

impl Redis {
    /// Runs one script, atomically.
    pub fn run(&mut self, verb: Verb, owner: Owner, rules: Rules) -> Result<Reply, String> {
        match verb {
            Verb::Try => self.acquire(owner, false, rules),
            Verb::Acquire => self.acquire(owner, true, rules),
            Verb::Confirm => Ok(self.confirm(owner, rules)),
            Verb::Release { again } => self.release(owner, again, rules),
            Verb::Leave => self.leave(owner, rules),
        }
    }

    pub fn tick(&mut self, rules: Rules) {
        if let Some(lock) = &mut self.lock
            && lock.left != u8::MAX
        {
            lock.left -= 1;
            if lock.left == 0 {
                self.lock = None;
            }
        }
        for waiting in &mut self.queue {
            waiting.ticks_since_poll =
                (waiting.ticks_since_poll + 1).min(rules.times.waiter_timeout + 1);
        }
    }

    /// acquire.lua
    fn acquire(&mut self, owner: Owner, waits: bool, rules: Rules) -> Result<Reply, String> {
        if self.is_held_by(owner) {
            return Ok(self.confirm(owner, rules));
        }
        let free = self.lock.is_none();
        // As in the script: dead waiters are dropped only when the lock is free.
        let has_waiters = free
            && if rules.try_drops_dead_waiters {
                self.live_head(rules).is_some()
            } else {
                self.has_waiters()
            };
        if free && (!has_waiters || rules.has(Mutant::OvertakesWaiters)) {
            return self.grant(owner, rules.times.ttl, owner, rules).map(Reply::Held);
        }
        if !waits {
            if free && self.first_live_waiter(rules).is_none() {
                return Err(
                    "a try was rejected although no owner holds or waits for the lock".to_owned()
                );
            }
            return Ok(Reply::NotHeld);
        }
        self.enqueue(owner, rules);
        self.prune(rules);
        if free {
            if self.live_head(rules) == Some(owner) {
                return self.grant(owner, rules.times.ttl, owner, rules).map(Reply::Held);
            }
            self.grant_to_next(owner, rules)?;
        }
        Ok(Reply::NotHeld)
    }

    /// confirm.lua
    fn confirm(&mut self, owner: Owner, rules: Rules) -> Reply {
        match &mut self.lock {
            Some(lock) if lock.owner == owner => {
                lock.left = rules.times.ttl;
                Reply::Held(lock.fence)
            }
            _ => Reply::NotHeld,
        }
    }

    /// handoff.lua: returns whether the release is complete.
    fn handoff(&mut self, owner: Owner, again: Owner, rules: Rules) -> Result<bool, String> {
        if !self.is_held_by(owner) {
            return Ok(false);
        }
        if again != NO_OWNER && !self.is_queued(again) {
            self.queue.push(Waiter { owner: again, ticks_since_poll: 0, poll_is_recorded: false });
        }
        let Some(first) = self.queue.first().copied() else {
            self.lock = None;
            return Ok(true);
        };
        if first.owner == again || first.is_dead(rules) {
            self.queue.remove(0);
            return Ok(false);
        }
        self.lock = None;
        self.grant_to_next(again, rules)?;
        Ok(true)
    }

    /// release.lua
    fn release(&mut self, owner: Owner, again: Owner, rules: Rules) -> Result<Reply, String> {
        if !rules.has(Mutant::ReleaseIgnoresQueue) && self.handoff(owner, again, rules)? {
            return Ok(Reply::NotHeld);
        }
        let others = self.lock.is_some() && !self.is_held_by(owner);
        if rules.requeue_unless_held
            && let Some(lock) = self.lock
            && lock.owner == again
        {
            return Ok(Reply::Held(lock.fence));
        }
        if rules.release_dequeues_owner && !self.is_held_by(owner) {
            self.dequeue(owner);
        }
        if others && !rules.has(Mutant::ReleaseIgnoresOwner) {
            if again != NO_OWNER {
                self.enqueue(again, rules);
            }
            return Ok(Reply::NotHeld);
        }
        self.lock = None;
        let first = self.live_head(rules);
        if first.is_some_and(|first| first != again) && !rules.has(Mutant::ReleaseIgnoresQueue) {
            if again != NO_OWNER {
                self.enqueue(again, rules);
            }
            self.grant_to_next(again, rules)?;
        } else if again != NO_OWNER {
            return self.grant(again, rules.times.ttl, again, rules).map(Reply::Held);
        }
        Ok(Reply::NotHeld)
    }

    /// leave.lua
    fn leave(&mut self, owner: Owner, rules: Rules) -> Result<Reply, String> {
        if !rules.has(Mutant::LeaveStaysQueued) {
            self.dequeue(owner);
        }
        if self.is_held_by(owner) {
            self.lock = None;
        }
        if self.lock.is_none() {
            self.grant_to_next(NO_OWNER, rules)?;
        }
        if self.is_queued(owner) {
            return Err("an owner that has left is still queued".to_owned());
        }
        Ok(Reply::NotHeld)
    }

    pub fn is_held_by(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|lock| lock.owner == owner)
    }

    fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }

    fn is_queued(&self, owner: Owner) -> bool {
        self.queue.iter().any(|waiting| waiting.owner == owner)
    }

    /// The first live waiter. Used by the checks: it changes nothing.
    fn first_live_waiter(&self, rules: Rules) -> Option<Owner> {
        self.queue
            .iter()
            .find(|waiting| waiting.ticks_since_poll <= rules.times.waiter_timeout)
            .map(|waiting| waiting.owner)
    }

    fn dequeue(&mut self, owner: Owner) {
        self.queue.retain(|waiting| waiting.owner != owner);
    }

    fn enqueue(&mut self, owner: Owner, rules: Rules) {
        match self.queue.iter_mut().find(|waiting| waiting.owner == owner) {
            Some(_) if rules.has(Mutant::PollsAreNotRecorded) => {}
            Some(_) => self.record_poll(owner),
            None => self.queue.push(Waiter { owner, ticks_since_poll: 0, poll_is_recorded: true }),
        }
    }

    pub fn record_poll(&mut self, owner: Owner) {
        for waiting in self.queue.iter_mut().filter(|waiting| waiting.owner == owner) {
            (waiting.ticks_since_poll, waiting.poll_is_recorded) = (0, true);
        }
    }

    fn prune(&mut self, rules: Rules) {
        self.queue.retain(|waiting| !(waiting.poll_is_recorded && waiting.is_dead(rules)));
    }

    /// Drops dead waiters at the head, and returns the new head.
    fn live_head(&mut self, rules: Rules) -> Option<Owner> {
        while self.queue.first()?.is_dead(rules) {
            self.queue.remove(0);
        }
        self.queue.first().map(|waiting| waiting.owner)
    }

    fn grant_to_next(&mut self, caller: Owner, rules: Rules) -> Result<(), String> {
        if let Some(next) = self.live_head(rules) {
            let time =
                if rules.has(Mutant::GrantsNeverExpire) { u8::MAX } else { rules.times.grant };
            let fence = self.grant(next, time, caller, rules)?;
            self.message = Some((next, fence));
        }
        Ok(())
    }

    /// Makes an owner the holder. It must be the first living waiter, or, without one, the caller.
    fn grant(&mut self, owner: Owner, left: u8, caller: Owner, rules: Rules) -> Result<u8, String> {
        if self.lock.is_some() {
            return Err("the lock was granted while it was held".to_owned());
        }
        match self.first_live_waiter(rules) {
            Some(first) if first != owner => return Err("a newcomer overtook a waiter".to_owned()),
            None if owner != caller => {
                return Err("the lock was granted to a dead waiter".to_owned());
            }
            _ => {}
        }
        if !rules.has(Mutant::FencesDoNotGrow) {
            self.grants += 1;
        }
        let fence = self.grants * FENCES_PER_GRANT;
        self.lock = Some(Lock { owner, fence, left });
        self.dequeue(owner);
        Ok(fence)
    }
}
