# Why an answer to a lesson's question is wrong: a sentence for each of its three wrong answers.

## Why a lock
lesson-lost-update-wrong-1 = Without a lock, two orders read the same stock and sell the same unit twice.
lesson-lost-update-wrong-2 = Overlapping orders do not fail: nothing compares the stock they read with the stock at their write.
lesson-lost-update-wrong-3 = An order sells only if it has read at least one unit, so it never writes less than zero.

lesson-one-replica-wrong-1 = Each replica has its own mutex, so two replicas admit two requests at a time.
lesson-one-replica-wrong-3 = No crash is needed: a request at the other replica never sees this replica’s mutex.
lesson-one-replica-wrong-4 = No overload is needed: two orders that overlap at two replicas read the same stock.

lesson-database-wrong-1 = B waits inside its statement, whose snapshot was taken before A committed.
lesson-database-wrong-2 = B runs at the default isolation level, read committed, at which Postgres raises no serialization errors.
lesson-database-wrong-4 = B has sold nothing yet: its statement is a `select`.

lesson-check-then-decrement-wrong-1 = Each update subtracts from the newest row, so both units are taken, and no update is lost.
lesson-check-then-decrement-wrong-2 = The update has no condition on the stock, so it changes the row whatever the stock is.
lesson-check-then-decrement-wrong-4 = Postgres refuses what a constraint forbids, and this column has none.

lesson-wrong-key-wrong-1 = The locks are on two different orders, so neither payment waits for the other.
lesson-wrong-key-wrong-2 = Neither lock is busy, because each payment locks the id of its own order.
lesson-wrong-key-wrong-4 = Nothing rejects them: both locks are free, and the 10.00 that both payments read is enough.

## Writing the lock
lesson-dead-holder-wrong-1 = Redis does notice the closed connection, but a key does not belong to the connection that set it.
lesson-dead-holder-wrong-2 = With time, Redis removes only keys that have a TTL, and `SETNX` sets none.
lesson-dead-holder-wrong-3 = The restarted process does not know that it held the lock, and finds it busy like any other client.

lesson-let-it-expire-wrong-1 = Each order leaves its lock behind, so the next order waits until that lock has expired.
lesson-let-it-expire-wrong-2 = One TTL separates two orders, and six orders have five such gaps.
lesson-let-it-expire-wrong-4 = An order waits only for the lock before it, which takes one TTL, and the first order waits for none.

lesson-wrong-delete-wrong-1 = Every holder uses the same key, so `DEL` finds B’s lock.
lesson-wrong-delete-wrong-2 = B deletes the key when it finishes, too, and by then it is C’s lock.
lesson-wrong-delete-wrong-3 = The next delete needs no expiry: B is not late, and still deletes C’s lock when it finishes.

lesson-check-then-delete-wrong-1 = `GET` returns who held the lock at that moment; when `DEL` runs, it can be another holder.
lesson-check-then-delete-wrong-3 = The ids do differ, but `DEL` does not compare them: it deletes whatever lock is there.
lesson-check-then-delete-wrong-4 = `DEL` needs only the name of the key, and after the expiry B’s lock has that name.

lesson-outlived-wrong-2 = The write goes to Postgres, which knows nothing of the lock in Redis.
lesson-outlived-wrong-3 = A releases after its write, and the script deletes the key only if it contains A’s own UUID.
lesson-outlived-wrong-4 = Nothing tells A that its lease has expired, so it does not acquire the lock again.

lesson-watchdog-wrong-1 = Only the renewals keep the lock from expiring, and a paused process sends none.
lesson-watchdog-wrong-2 = The run’s first order works for two leases and keeps the lock, because it is renewed in time.
lesson-watchdog-wrong-4 = However many clients wait, Redis grants a free lock to only one of them.

## What still fails
lesson-fence-wrong-1 = The row does not ask who was first: it compares the numbers, and has already seen 2.
lesson-fence-wrong-2 = A was paused: it does not know that its lease is over, and goes on where it was.
lesson-fence-wrong-3 = The write goes to Postgres, and Redis never sees it.

lesson-failover-wrong-1 = The primary died before it had replicated the key, so the promoted replica has no lock.
lesson-failover-wrong-3 = Redis does not announce a lost lock: the last thing that A heard is that it holds it.
lesson-failover-wrong-4 = A’s lease was only in the dead primary, so the promoted replica has no key that B could wait for.

lesson-redlock-wrong-1 = A second holder would need all three remaining nodes, and at least one of them stores the first holder’s lock.
lesson-redlock-wrong-2 = The two remaining nodes are no majority, so no client acquires the lock.
lesson-redlock-wrong-4 = One of them does: the lease expires on all five nodes while the holder’s process is paused.

## What it costs
lesson-waiting-wrong-1 = Both do, but later than they could: the lock is free before one of them asks again.
lesson-waiting-wrong-2 = The extra commands cost little; the time in which the lock is free and nobody tries costs more.
lesson-waiting-wrong-4 = How they wait decides only when they ask; Redis still grants the lock to one at a time.

lesson-reentrant-wrong-1 = Each acquisition has a new owner id, so to the lock the second call is another client.
lesson-reentrant-wrong-3 = `SET NX` sets nothing while the key exists, so the first call’s lock stays.
lesson-reentrant-wrong-4 = Redis detects no deadlocks: it knows that the key exists, not who waits for it.

lesson-two-items-wrong-1 = With two locks in Redis they would; Postgres looks for a deadlock after one second and ends it.
lesson-two-items-wrong-2 = One abort is enough: it releases that transaction’s rows, and the other one goes on.
lesson-two-items-wrong-4 = Beginning first does not help: the row that it wants stays locked until the other transaction ends.

lesson-early-release-wrong-2 = A’s write becomes visible at its commit, and by then the lock has been released.
lesson-early-release-wrong-3 = A request that takes the lock can read the old value, too: A released the lock before its commit.
lesson-early-release-wrong-4 = In Postgres, a row lock blocks other writers of the row, but no plain `select`.

lesson-hot-item-wrong-1 = Only one order runs at a time, so more processors would be idle.
lesson-hot-item-wrong-2 = Redis grants a lock in microseconds; waiting for the next retry and for the commit takes milliseconds.
lesson-hot-item-wrong-3 = The holder uses one connection, and the others wait for the lock, not for a connection.

lesson-units-wrong-1 = `skip locked` waits for no row: it passes over what others have locked.
lesson-units-wrong-3 = A row can be locked by one transaction at a time, and `skip locked` does not return a locked one.
lesson-units-wrong-4 = There is no line: B has its response already, and the next order gets the unit.

## Beyond locks
lesson-pre-deduct-wrong-1 = Only A’s server would have returned it, and it is dead; Redis knows a number, and not whose unit is missing.
lesson-pre-deduct-wrong-3 = The counter fell before the kill, so no other order gets the same unit from it.
lesson-pre-deduct-wrong-4 = A script holds nothing when it has ended, so the counter serves the others.
lesson-double-submit-wrong-1 = The key was committed with the order, and Postgres admits no second row with the same key.
lesson-double-submit-wrong-2 = The same request with a used key is a retry; only a different request with it is an error.
lesson-double-submit-wrong-4 = Only a request that is still running is rejected, and this one’s response was committed with its order.

lesson-machine-gun-wrong-1 = Only requests with the same key exclude each other, and each of these orders has a new one.
lesson-machine-gun-wrong-2 = No two of these orders overlap, because each is sent after the response to the previous one.
lesson-machine-gun-wrong-3 = A lock does not count requests per second; that is what a rate limit does.

lesson-unpaid-wrong-2 = It is delivered twice, but the second worker finds the order cancelled and returns nothing.
lesson-unpaid-wrong-3 = The first worker committed before it was killed, so its change stays.
lesson-unpaid-wrong-4 = Timing decides only which worker does it: the statement that returns the unit also changes the status, once.

lesson-price-changed-wrong-2 = Both changes hold the lock, one after the other, and the order writes the stock, not the price.
lesson-price-changed-wrong-3 = The order records the price of the row that it has read under the lock, which is the new one.
lesson-price-changed-wrong-4 = The lock does prevent that, but this price changed before the order had the lock.

lesson-queue-wrong-1 = They were only in the memory of the killed replica, which the other replica cannot read.
lesson-queue-wrong-3 = The restarted replica begins with an empty queue, and the two orders were stored nowhere else.
lesson-queue-wrong-4 = A killed process runs no more code, so it cannot reject anything.

lesson-run-once-wrong-1 = The work is brief: when the late replica asks, the other one has already released the lock.
lesson-run-once-wrong-3 = This lock does not store the scheduled time, and its key is gone after the release.
lesson-run-once-wrong-4 = The first replica waits for nobody: it finds the lock free and does the work.

## Appendix: Redis
lesson-big-key-wrong-1 = `DEL` of a small key takes microseconds, but here it frees every field, one by one.
lesson-big-key-wrong-2 = Redis executes the commands of all clients one after the other, whichever key they use.
lesson-big-key-wrong-3 = That is what `UNLINK` does; `DEL` frees the memory itself, unless `lazyfree-lazy-user-del` is on.

lesson-pipeline-wrong-2 = Redis has the same work, but one by one, most of the time is spent on round trips.
lesson-pipeline-wrong-3 = There are a thousand times fewer round trips, but Redis still executes a thousand commands.
lesson-pipeline-wrong-4 = A thousand small responses are a few kilobytes, which cost far less than a thousand round trips.

lesson-no-rollback-wrong-1 = `EXEC` cannot undo anything: `SET stock 9` has taken effect before `LPUSH` fails.
lesson-no-rollback-wrong-2 = `EXEC` does not stop at an error, so `SET sold 1` is executed, too.
lesson-no-rollback-wrong-4 = Redis undoes nothing, not even the changes of the key whose command failed.
