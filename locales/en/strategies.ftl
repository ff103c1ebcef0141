# One line about each strategy, and about each other file that a lesson shows.
strategy-none = no lock: two orders can read 10 and both write 9
strategy-check-then-decrement = the stock is checked first, and later reduced without a condition: it falls below zero, or a constraint makes an error of it
strategy-local = a mutex in the process: exact on one replica, oversells on two
strategy-setnx = SETNX, then DEL: if the holder dies, the item stays locked forever
strategy-setnx-expire = SETNX, EXPIRE, then DEL: if the holder dies between the first two, the item stays locked forever
strategy-ttl = SET NX PX, then DEL: a late holder deletes the next holder’s lock
strategy-check-then-del = SET NX PX with an owner; GET, compare, DEL: the lock can change hands before DEL
strategy-expire-only = SET NX PX, never deleted: one change per lease, and two holders if the work takes longer
strategy-owner = the textbook Redis lock: SET NX PX with an owner, released by compare-and-delete; two holders if the work outlives the lease
strategy-watchdog = owner, renewed while the work runs: two holders if the process is paused
strategy-redlock = a lease on a majority of several Redis servers: two holders if the process is paused
strategy-early-release = owner, released before the commit: the next holder can read the old value
strategy-wrong-key = owner, on the order instead of the item: two orders never wait for each other
strategy-fenced = the lock of this project: each write needs its fencing token and the version that it read
strategy-row-lock = select … for no key update: Postgres locks the row for one transaction at a time
strategy-atomic = one conditional update, with no gap between read and write
strategy-version = update … where version = the version read; if no row matches, it reads again
strategy-serializable = isolation level serializable: Postgres aborts one of two conflicting transactions, which is retried
strategy-advisory = pg_advisory_xact_lock in a statement of its own, before the read
strategy-units = one row per unit: each order locks free ones and skips locked ones; sold out is not final
strategy-queue = a bounded queue and one consumer per item, in the process: exact on one replica, oversells on two
strategy-pre-deduct = stock is counted in Redis, and the order written to Postgres afterwards: undersells when a server dies between, oversells when Redis loses data
strategy-batched = fenced, and all waiting commands of an item share one lock, one read and one write

source-claim-lua = how a worker claims an entry of a sorted set: it postpones the entry and does not remove it
source-conditional-update-rs = the conditional update, in place of a read
source-deduct-lua = how a script takes units from the counter of an item
source-deducted-rs = how the order is written without the item’s row, and how the row follows behind it
source-expire-orders-rs = how the units of an unpaid order are returned to stock exactly once
source-place-rs = the write of an order: one statement, which stores the computed value
source-place-order-rs = what an order is rejected for: too little stock, a higher total than its customer expects, a limit
source-priority-rs = which command is executed first, and why no command waits forever
source-read-rs = the read from which the new value is computed
source-remove-hash-rs = how a big key is removed without blocking Redis
source-units-rs = the rows of units: lock free ones, sell them, give them back
