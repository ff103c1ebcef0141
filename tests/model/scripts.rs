//! The scripts of the fenced lock (`crates/holdfast-lock/src/fenced/*.lua`), written down again
//! line by line. `tests/lock/differential.rs` compares the two.
//!
//! Times are ticks, a few of them ([`Times`]): the orders of events are what matters, not lengths.
//! A grant brings two fences. Numbers are kept small by `actor`, which renames states that cannot
//! be distinguished.
//!
//! Every promise about a *grant* is checked here, where grants are made: it goes to the first
//! waiter that is alive, and no newcomer overtakes.
//!
//! Not modelled: what a hand-off sweeps every 64th time, the day after which fences are forgotten,
//! the minute after which a line of the dead is, tickets drawn in one microsecond, a server's clock
//! that is set back.

/// Fewer than the scripts have, to keep numbers small.
pub const FENCES_PER_GRANT: u8 = 2;

/// One lease of one process; zero is none.
pub type Owner = u8;
pub const NOBODY: Owner = 0;

/// A rule that is left out, to show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// As the scripts and the actor are.
    None,
    ReleaseIgnoresTheOwner,
    ReleaseIgnoresTheLine,
    GrantsToTheUnseen,
    GrantsForEver,
    Barges,
    LeaveStaysInLine,
    PollsAreNotSeen,
    FencesStandStill,
    HintIsTakenForAGrant,
    /// A word is taken for true whenever its grant was made.
    WordOfAnyGrant,
    DeadlineFromTheAnswer,
    GuardsAreNotLookedAt,
    ClockRunsSlow,
    RedisForgets,
    /// A process polls only when it has heard nothing for a while, so a busy one never does.
    WordsPutOffThePoll,
}

/// In ticks: a lease, a grant that was not confirmed yet, and how long a waiter may go without a
/// poll before it counts as dead.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub ttl: u8,
    pub grant: u8,
    pub waiter_timeout: u8,
}

/// The rules, with what this model found to be missing from the scripts: each is on or off.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub times: Times,
    pub mutant: Mutant,
    /// A try sees that those who wait for a free lock are dead.
    pub try_sees_the_dead: bool,
    /// A release that is repeated leaves the one it granted to out of the line.
    pub again_unless_held: bool,
    /// A release strikes its own owner from the line.
    pub release_forgets: bool,
}

/// The scripts as they are. Turning off one of the last three brings back a defect that this model
/// found in them.
pub const AS_IT_IS: Rules = Rules {
    times: Times { ttl: 2, grant: 2, waiter_timeout: 1 },
    mutant: Mutant::None,
    try_sees_the_dead: true,
    again_unless_held: true,
    release_forgets: true,
};

impl Rules {
    pub fn lack(self, mutant: Mutant) -> bool {
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
pub struct Waiting {
    pub owner: Owner,
    /// Since the ticket, or since it was seen last.
    pub unseen: u8,
    /// Among the last seen. Who got in line in a hand-off is not, until they ask again.
    pub listed: bool,
}

impl Waiting {
    /// Returns whether a handoff skips it.
    fn is_dead(self, rules: Rules) -> bool {
        self.unseen > rules.times.waiter_timeout && !rules.lack(Mutant::GrantsToTheUnseen)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Redis {
    pub lock: Option<Lock>,
    /// By ticket.
    pub queue: Vec<Waiting>,
    /// The number of the last grant.
    pub grants: u8,
    /// The word that is about to be sent: who was granted the lock, with which fence.
    pub word: Option<(Owner, u8)>,
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
    No,
}

impl Redis {
    /// One script from its first line to its last: nothing comes between.
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
            waiting.unseen = (waiting.unseen + 1).min(rules.times.waiter_timeout + 1);
        }
    }

    /// acquire.lua
    fn acquire(&mut self, owner: Owner, waits: bool, rules: Rules) -> Result<Reply, String> {
        if self.is_of(owner) {
            return Ok(self.confirm(owner, rules));
        }
        let free = self.lock.is_none();
        // In the script's order: the dead are dropped only when the lock is free.
        let line = free
            && if rules.try_sees_the_dead { self.head(rules).is_some() } else { self.is_lined() };
        if free && (!line || rules.lack(Mutant::Barges)) {
            return self.grant(owner, rules.times.ttl, owner, rules).map(Reply::Held);
        }
        if !waits {
            if free && self.alive(rules).is_none() {
                return Err("a try was refused a lock that nobody has or waits for".to_owned());
            }
            return Ok(Reply::No);
        }
        self.stand_in_line(owner, rules);
        self.prune(rules);
        if free {
            if self.head(rules) == Some(owner) {
                return self.grant(owner, rules.times.ttl, owner, rules).map(Reply::Held);
            }
            self.hand_on(owner, rules)?;
        }
        Ok(Reply::No)
    }

    /// confirm.lua
    fn confirm(&mut self, owner: Owner, rules: Rules) -> Reply {
        match &mut self.lock {
            Some(lock) if lock.owner == owner => {
                lock.left = rules.times.ttl;
                Reply::Held(lock.fence)
            }
            _ => Reply::No,
        }
    }

    /// handoff.lua: whether that was all
    fn hand_off(&mut self, owner: Owner, again: Owner, rules: Rules) -> Result<bool, String> {
        if !self.is_of(owner) {
            return Ok(false);
        }
        if again != NOBODY && !self.is_lined_as(again) {
            self.queue.push(Waiting { owner: again, unseen: 0, listed: false });
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
        self.hand_on(again, rules)?;
        Ok(true)
    }

    /// release.lua
    fn release(&mut self, owner: Owner, again: Owner, rules: Rules) -> Result<Reply, String> {
        if !rules.lack(Mutant::ReleaseIgnoresTheLine) && self.hand_off(owner, again, rules)? {
            return Ok(Reply::No);
        }
        let others = self.lock.is_some() && !self.is_of(owner);
        if rules.again_unless_held
            && let Some(lock) = self.lock
            && lock.owner == again
        {
            return Ok(Reply::Held(lock.fence));
        }
        if rules.release_forgets && !self.is_of(owner) {
            self.forget(owner);
        }
        if others && !rules.lack(Mutant::ReleaseIgnoresTheOwner) {
            if again != NOBODY {
                self.stand_in_line(again, rules);
            }
            return Ok(Reply::No);
        }
        self.lock = None;
        let first = self.head(rules);
        if first.is_some_and(|first| first != again) && !rules.lack(Mutant::ReleaseIgnoresTheLine) {
            if again != NOBODY {
                self.stand_in_line(again, rules);
            }
            self.hand_on(again, rules)?;
        } else if again != NOBODY {
            return self.grant(again, rules.times.ttl, again, rules).map(Reply::Held);
        }
        Ok(Reply::No)
    }

    /// leave.lua
    fn leave(&mut self, owner: Owner, rules: Rules) -> Result<Reply, String> {
        if !rules.lack(Mutant::LeaveStaysInLine) {
            self.forget(owner);
        }
        if self.is_of(owner) {
            self.lock = None;
        }
        if self.lock.is_none() {
            self.hand_on(NOBODY, rules)?;
        }
        if self.is_lined_as(owner) {
            return Err("who has left is still in line".to_owned());
        }
        Ok(Reply::No)
    }

    pub fn is_of(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|lock| lock.owner == owner)
    }

    fn is_lined(&self) -> bool {
        !self.queue.is_empty()
    }

    fn is_lined_as(&self, owner: Owner) -> bool {
        self.queue.iter().any(|waiting| waiting.owner == owner)
    }

    /// The first in line who was seen of late. For judging: it changes nothing.
    fn alive(&self, rules: Rules) -> Option<Owner> {
        self.queue
            .iter()
            .find(|waiting| waiting.unseen <= rules.times.waiter_timeout)
            .map(|waiting| waiting.owner)
    }

    fn forget(&mut self, owner: Owner) {
        self.queue.retain(|waiting| waiting.owner != owner);
    }

    fn stand_in_line(&mut self, owner: Owner, rules: Rules) {
        match self.queue.iter_mut().find(|waiting| waiting.owner == owner) {
            Some(_) if rules.lack(Mutant::PollsAreNotSeen) => {}
            Some(_) => self.is_seen(owner),
            None => self.queue.push(Waiting { owner, unseen: 0, listed: true }),
        }
    }

    pub fn is_seen(&mut self, owner: Owner) {
        for waiting in self.queue.iter_mut().filter(|waiting| waiting.owner == owner) {
            (waiting.unseen, waiting.listed) = (0, true);
        }
    }

    fn prune(&mut self, rules: Rules) {
        self.queue.retain(|waiting| !(waiting.listed && waiting.is_dead(rules)));
    }

    /// The dead are dropped when they come first.
    fn head(&mut self, rules: Rules) -> Option<Owner> {
        while self.queue.first()?.is_dead(rules) {
            self.queue.remove(0);
        }
        self.queue.first().map(|waiting| waiting.owner)
    }

    fn hand_on(&mut self, caller: Owner, rules: Rules) -> Result<(), String> {
        if let Some(next) = self.head(rules) {
            let time = if rules.lack(Mutant::GrantsForEver) { u8::MAX } else { rules.times.grant };
            let fence = self.grant(next, time, caller, rules)?;
            self.word = Some((next, fence));
        }
        Ok(())
    }

    /// Makes an owner the holder. It must be the first living waiter, or, without one, the caller.
    fn grant(&mut self, owner: Owner, left: u8, caller: Owner, rules: Rules) -> Result<u8, String> {
        if self.lock.is_some() {
            return Err("the lock was granted while somebody had it".to_owned());
        }
        match self.alive(rules) {
            Some(first) if first != owner => return Err("somebody barged".to_owned()),
            None if owner != caller => return Err("the lock was granted to the dead".to_owned()),
            _ => {}
        }
        if !rules.lack(Mutant::FencesStandStill) {
            self.grants += 1;
        }
        let fence = self.grants * FENCES_PER_GRANT;
        self.lock = Some(Lock { owner, fence, left });
        self.forget(owner);
        Ok(fence)
    }
}
