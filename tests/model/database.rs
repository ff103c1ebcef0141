//! One item row and the key records in Postgres, as other sessions observe them.
//!
//! A write is one autocommitted statement: it updates the row under its guard and inserts the key
//! records, or it does neither. It locks the row when it begins and releases it when it ends, so
//! others on that row wait. A statement whose sender has given up is *late*: it begins at any time,
//! or never.
//!
//! Not modelled: that Postgres compares and writes in one step, and that a duplicate key rolls the
//! whole statement back. Those are its guarantees, tested in `tests/it`.

/// A set of idempotency keys, one bit each.
pub type Keys = u8;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row {
    pub stock: i8,
    pub version: u8,
    pub fence: u8,
}

/// The condition of a write on the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    Nothing,
    Fence,
    Version,
    VersionAndFence,
}

/// The write of one request: one unit of stock for each of its keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Write {
    pub request: u8,
    pub keys: Keys,
    pub read: Row,
    pub fence: u8,
}

impl Write {
    /// Returns the row that it leaves, as its sender knows it without a read.
    pub fn leaves(self) -> Row {
        let stock = self.read.stock - sold(self.keys);
        Row { stock, version: self.read.version + 1, fence: self.fence }
    }
}

/// A statement whose sender no longer waits for its result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LateStatement {
    Write(Write),
    Invalidate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartResult {
    /// The row is locked; the statement will commit.
    Running,
    /// No row matched: its fence is larger.
    Stale,
    /// No row matched: its version is another one.
    RowChanged,
    /// Rolled back: a key has a record.
    Duplicate,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Database {
    pub row: Row,
    /// Which request wrote each key record, as (key, request), sorted.
    pub records: Vec<(Keys, u8)>,
    /// The statement that has locked the row.
    pub running: Option<Write>,
    pub late: Vec<LateStatement>,
    /// A write was accepted after one with a larger fence.
    pub is_out_of_order: bool,
}

impl Database {
    pub fn recorded(&self) -> Keys {
        self.records.iter().fold(0, |keys, (key, _)| keys | key)
    }

    /// Locks the row and checks everything that can fail. Callers see to it that none is running.
    pub fn begin(&mut self, write: Write, guard: Guard, unique: bool) -> StartResult {
        let checks_fence = matches!(guard, Guard::Fence | Guard::VersionAndFence);
        let checks_version = matches!(guard, Guard::Version | Guard::VersionAndFence);
        if checks_fence && self.row.fence > write.fence {
            return StartResult::Stale;
        }
        if checks_version && self.row.version != write.read.version {
            return StartResult::RowChanged;
        }
        if unique && self.recorded() & write.keys != 0 {
            return StartResult::Duplicate;
        }
        self.running = Some(write);
        StartResult::Running
    }

    pub fn commit(&mut self) -> Option<Write> {
        let write = self.running.take()?;
        let stock = write.read.stock - sold(write.keys);
        let fence = self.row.fence.max(write.fence);
        self.is_out_of_order |= write.fence < self.row.fence;
        self.row = Row { stock, version: self.row.version + 1, fence };
        let keys = (0..Keys::BITS).map(|bit| 1 << bit).filter(|key| write.keys & key != 0);
        self.records.extend(keys.map(|key| (key, write.request)));
        self.records.sort_unstable();
        Some(write)
    }

    /// `update … set version = version + 1`. Waits for a running write.
    pub fn invalidate(&mut self) {
        self.row.version += 1;
    }

    pub fn send_late(&mut self, statement: LateStatement) {
        self.late.push(statement);
        self.late.sort_unstable();
    }
}

pub fn sold(keys: Keys) -> i8 {
    i8::try_from(keys.count_ones()).unwrap_or(i8::MAX)
}
