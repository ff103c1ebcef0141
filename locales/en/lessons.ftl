# Lessons: title, claim, primer, question, four answers and three takeaways of each, in teaching order.
lesson-chapter-why = Why a lock
lesson-chapter-writing = Writing the lock
lesson-chapter-failures = What still fails
lesson-chapter-costs = What it costs
lesson-chapter-beyond = Beyond locks
lesson-chapter-redis = Appendix: Redis

## Why a lock
lesson-lost-update-title = The lost update
lesson-lost-update-claim = Without a lock, two orders both read 10 and both write 9: two units are sold, but the stock drops by one. The stock never goes negative, yet more is sold than existed.
lesson-lost-update-primer = A shop with two servers, its replicas, keeps one number per item: the stock. To sell a unit, a server reads the stock; if it is at least 1, it subtracts one and writes the result back. The servers do this for many buyers at once.
lesson-lost-update-question = 100 units, 16 buyers, 400 orders, no lock. How many units are sold?
lesson-lost-update-guess-1 = exactly 100
lesson-lost-update-guess-2 = fewer than 100: overlapping orders fail
lesson-lost-update-guess-3 = more than 100, and the stock goes below zero
lesson-lost-update-guess-4 = more than 100, and the stock never goes below zero
lesson-lost-update-takeaway-1 = “Read, then update” is two steps, and another request can run between them.
lesson-lost-update-takeaway-2 = The stock never went below zero, so a check for negative stock finds nothing. The ledger finds it: two entries have the same `before`.
lesson-lost-update-takeaway-3 = A lock prevents it only if it goes around the whole transaction: acquired before the read, released after the commit.

lesson-one-replica-title = A mutex on two replicas
lesson-one-replica-claim = A mutex in the process sells no unit twice on one replica, and oversells on two.
lesson-one-replica-primer = A mutex lets one request at a time read the stock, subtract one and write it back; the others wait. It is a variable in the memory of one process. A shop with many requests runs the same program in several processes, its replicas.
lesson-one-replica-question = Each replica keeps a mutex per item in its own memory. 100 units are on sale. When are more than 100 sold?
lesson-one-replica-guess-1 = never: a mutex admits one request at a time
lesson-one-replica-guess-2 = as soon as two replicas serve orders
lesson-one-replica-guess-3 = only if a replica crashes while it holds the mutex
lesson-one-replica-guess-4 = only if the machine is overloaded
lesson-one-replica-takeaway-1 = A mutex isolates the threads of one process. A second process has its own mutex.
lesson-one-replica-takeaway-2 = It passes every test on one replica. It fails when the service scales to two, or when a rolling update runs the old and the new version side by side.
lesson-one-replica-takeaway-3 = Processes that share data need a lock that they share too.

lesson-database-title = Five ways inside Postgres
lesson-database-claim = Postgres alone has five ways to keep orders apart: none of them oversells, and each has its own price. An advisory lock in the statement that also reads comes too late: it still reads the old snapshot.
lesson-database-primer = Postgres has locks, too: `pg_advisory_xact_lock(key)` waits until no other transaction holds that key, and keeps it until its own transaction ends. What a transaction has written becomes visible to others when it is committed.
lesson-database-question = 10 units. A has sold one but not committed. B runs `select stock, pg_advisory_xact_lock(key) from items` and waits for A’s lock. A commits. Which stock does B see?
lesson-database-guess-1 = 9: it waited for the lock, so it sees the commit
lesson-database-guess-2 = none: Postgres aborts B with a serialization error
lesson-database-guess-3 = 10: the statement keeps the snapshot from its start
lesson-database-guess-4 = 8: A’s unit and its own are gone
lesson-database-takeaway-1 = If all data is in one Postgres, no lock in Redis is needed: each of the five ways is exact, even if a process is paused or killed.
lesson-database-takeaway-2 = `atomic` locks the row for one statement, if one statement is enough. `version` and `serializable` make the losers start again, and under contention most requests lose.
lesson-database-takeaway-3 = A statement sees what was committed when it began. Acquire the lock in a statement of its own, before the read.

lesson-check-then-decrement-title = Check, then decrement
lesson-check-then-decrement-claim = If a request checks the stock first and subtracts later, without a condition, two requests sell the last unit, and the stock falls below zero. A constraint turns the second sale into an error.
lesson-check-then-decrement-primer = `update items set stock = stock - 1` leaves the subtraction to Postgres: it locks the newest row, reads and writes it. Two such updates wait for each other. Many shops check the stock when a request begins, and send this update when they have done the rest.
lesson-check-then-decrement-question = One unit is left. A and B both check that there is one, and then each sends `update items set stock = stock - 1`. The column has no constraint. What is the result?
lesson-check-then-decrement-guess-1 = stock 0, both sold: one of the two updates is lost
lesson-check-then-decrement-guess-2 = stock 0, one sold: the second update changes no row
lesson-check-then-decrement-guess-3 = stock −1, both sold
lesson-check-then-decrement-guess-4 = stock 0, one sold: Postgres allows no stock below zero
lesson-check-then-decrement-takeaway-1 = `stock = stock - 1` prevents lost updates, not oversells: the ledger has no fork, and ends below zero.
lesson-check-then-decrement-takeaway-2 = What was checked may have changed before the write. Put the check into the update: `where id = $1 and stock >= 1`. If it changes no row, the item is sold out.
lesson-check-then-decrement-takeaway-3 = A constraint, `check (stock >= 0)`, saves the stock, and the customer gets an internal error instead of “sold out”. It is the last line of defence, not the first.

lesson-wrong-key-title = A lock on the wrong key
lesson-wrong-key-claim = A lock on the order’s id does not protect a balance that two orders share.
lesson-wrong-key-primer = A lock has a name, its key: only clients that lock the same key exclude each other. A payment reads the balance of the account, subtracts the price and writes the result back.
lesson-wrong-key-question = Each payment locks the id of the order that it pays. An account with 10.00 pays two orders of 1.00 at the same time. What is its balance afterwards?
lesson-wrong-key-guess-1 = 8.00: the locks isolate the payments
lesson-wrong-key-guess-2 = 9.00: one payment is rejected as busy
lesson-wrong-key-guess-3 = 9.00: both orders are paid, and 1.00 is never taken
lesson-wrong-key-guess-4 = 10.00: both payments are rejected
lesson-wrong-key-takeaway-1 = Lock what changes (here the balance), not what is at hand (the order).
lesson-wrong-key-takeaway-2 = Every test of this lock passes, because the lock itself works. Only the ledger shows the error.
lesson-wrong-key-takeaway-3 = In this shop each write names the key that it needs. A guard with another key is rejected as a bug.

## Writing the lock
lesson-dead-holder-title = The lock of a dead holder
lesson-dead-holder-claim = If its holder is killed, a lock without an expiry stays locked forever. SETNX and EXPIRE as two commands leave the same gap.
lesson-dead-holder-primer = A lock in Redis is a key that all servers agree on. `SETNX` sets a key only if it does not exist: whoever has set it holds the lock. When the work is done, the holder deletes the key with `DEL`.
lesson-dead-holder-question = The holder of a lock made with `SETNX` is killed. When can the next client acquire it?
lesson-dead-holder-guess-1 = at once: Redis notices the closed connection
lesson-dead-holder-guess-2 = after a while: Redis removes unused keys
lesson-dead-holder-guess-3 = when the killed process has restarted
lesson-dead-holder-guess-4 = only after the key is deleted by hand
lesson-dead-holder-takeaway-1 = Redis stores a key. It does not know which client set it, or whether that client is alive.
lesson-dead-holder-takeaway-2 = An expiry set by a second command may never be set. `SET key value NX PX ms` does both in one command.
lesson-dead-holder-takeaway-3 = If operators delete stale locks by hand, one day they delete the lock of a live holder.

lesson-let-it-expire-title = Never released, only expired
lesson-let-it-expire-claim = A lock that is never deleted is safe only while all work is shorter than the TTL, and it costs one TTL per change.
lesson-let-it-expire-primer = Redis can delete a key by itself after a time, its TTL. This lock relies on it: whoever sets the key holds the lock, and nobody deletes it. The next order sets the key again as soon as it is gone.
lesson-let-it-expire-question = The lock is never deleted and expires after 300 ms. One order takes 10 ms. How long do six orders for one item take at least?
lesson-let-it-expire-guess-1 = 60 ms: six times 10 ms
lesson-let-it-expire-guess-2 = 300 ms: one TTL
lesson-let-it-expire-guess-3 = 1.5 s: five times one TTL
lesson-let-it-expire-guess-4 = 3.6 s: two TTLs for each order
lesson-let-it-expire-takeaway-1 = Without a release, every change waits for a full TTL, which must cover the longest possible work.
lesson-let-it-expire-takeaway-2 = A shorter TTL sells more and breaks sooner: work that outlives it runs together with the next holder’s.
lesson-let-it-expire-takeaway-3 = This lock is right where something may happen at most once per period, such as a reminder mail.

lesson-wrong-delete-title = Deleting another holder’s lock
lesson-wrong-delete-claim = This lock expires, and stores no owner. A outlives its lease and deletes B’s lock, B deletes C’s lock, C deletes D’s, and so on.
lesson-wrong-delete-primer = To release its lock, a holder deletes the key. A lock with an expiry is called a lease: if its holder dies, it ends by itself. One command sets key and expiry: a crash between `SETNX` and `EXPIRE` leaves it for ever. All servers use the same key for an item, and this lock stores nothing about its holder.
lesson-wrong-delete-question = A’s lease has expired, and B holds the lock. A finishes and deletes the key. How long does the damage last?
lesson-wrong-delete-guess-1 = no damage: A’s key has expired, so `DEL` finds nothing
lesson-wrong-delete-guess-2 = until B finishes
lesson-wrong-delete-guess-3 = until the TTL has passed once
lesson-wrong-delete-guess-4 = as long as clients come: each deletes the next lock
lesson-wrong-delete-takeaway-1 = `DEL key` deletes whatever lock is there. After an expiry it is another holder’s.
lesson-wrong-delete-takeaway-2 = One late holder is enough: B and C were never late, and still deleted the next lock.
lesson-wrong-delete-takeaway-3 = A release must prove ownership in the same step as the delete.

lesson-check-then-delete-title = Check, then delete
lesson-check-then-delete-claim = If the owner is checked in one command and the key deleted in another, the delete can still remove another holder’s lock.
lesson-check-then-delete-primer = An owner is a value that is new for each acquisition. It is stored in the lock, so that a client can see whose lock it is. `GET` returns it, and `DEL` deletes the key. Each command is a message to Redis and its response.
lesson-check-then-delete-question = Every lock stores its owner now. A runs `GET`, sees its own id, then runs `DEL`. Whose lock can that delete?
lesson-check-then-delete-guess-1 = only its own: it has just checked
lesson-check-then-delete-guess-2 = another holder’s, if the lease expires between the two
lesson-check-then-delete-guess-3 = another holder’s, but only if two owners have the same id
lesson-check-then-delete-guess-4 = no lock: `DEL` fails after an expiry
lesson-check-then-delete-takeaway-1 = A check can be stale by the time you act on it. This is “read, then update” again; the lock itself is the value.
lesson-check-then-delete-takeaway-2 = The gap is one network round trip, or as long as the process is paused.
lesson-check-then-delete-takeaway-3 = Compare and delete in one atomic step: a Lua script in Redis.

lesson-outlived-title = Work that outlives its lease
lesson-outlived-claim = The textbook lock (owner UUID, compare-and-delete in one script) deletes only its own key, and still has two holders if the work outlives the lease.
lesson-outlived-primer = A lease is a lock in Redis that expires by itself: a holder that died cannot keep it for ever. One command sets key and expiry; a crash between `SETNX` and `EXPIRE` would leave the lock for ever. The stock is in Postgres: the holder reads it, works, and writes it.
lesson-outlived-question = A’s lease of 300 ms expires while A is working, and B acquires the lock. What happens when A reaches its write?
lesson-outlived-guess-1 = it writes, and no error is reported
lesson-outlived-guess-2 = its write is rejected: it no longer holds the lock
lesson-outlived-guess-3 = it deletes B’s lock, then writes
lesson-outlived-guess-4 = it acquires the lock again, then writes
lesson-outlived-takeaway-1 = A lease protects until it expires, no matter how carefully it is released.
lesson-outlived-takeaway-2 = The textbook lock, `owner`, does not check the lock before the write. A check would not help: the lease can expire between the check and the write.
lesson-outlived-takeaway-3 = Longer leases make this rarer, but delay recovery after a crash. A watchdog, which renews the lease, makes it rarer too: a paused process renews nothing.

lesson-watchdog-title = Renewing the lease
lesson-watchdog-claim = Renewal keeps the lock for long work. A process that is paused after its read still resumes as a second holder.
lesson-watchdog-primer = A watchdog keeps a lease alive: a second thread of the holder’s process, which sets the full lease again while the work runs. If the process dies, nobody renews, and the lease expires.
lesson-watchdog-question = The lock is renewed every third of its lease while the work runs. Can two clients still hold it?
lesson-watchdog-guess-1 = no: it cannot expire while the work runs
lesson-watchdog-guess-2 = yes, if the work takes longer than the lease
lesson-watchdog-guess-3 = yes, if the process pauses: renewals stop too
lesson-watchdog-guess-4 = yes, if two clients wait for it at the same time
lesson-watchdog-takeaway-1 = Renewal replaces the question “how long may the work take?” by “how long may the process be paused?”. The question is better, but still open.
lesson-watchdog-takeaway-2 = Garbage collection, a suspended machine, a moved container or a slow disk can pause a process. It cannot notice: it does not run.
lesson-watchdog-takeaway-3 = The store must reject the write of a process that was paused too long; the process itself cannot know.

## What still fails
lesson-fence-title = The fencing token
lesson-fence-claim = A was paused for too long. The row has seen B’s fence 2, so Postgres rejects A’s late write with fence 1. The fence alone is not enough: if A writes before B, both writes pass, and a sale is lost. So each write also needs the version of the row that it read.
lesson-fence-primer = A fencing token is a number that grows with every grant of a lock. The holder sends it with its write, and the row in the database remembers the highest one that it has seen. So the store can reject a holder that comes too late.
lesson-fence-question = A gets the lock with number 1, reads 10, and is paused until its lease is over. B gets the lock with number 2, reads 10, and writes 9. Then A goes on, and writes 9. What happens?
lesson-fence-guess-1 = the row stores it: A had the lock first
lesson-fence-guess-2 = A notices that its lease is over, and does not write
lesson-fence-guess-3 = Redis rejects it: A’s lease is over
lesson-fence-guess-4 = the row rejects it: 1 is smaller than 2
lesson-fence-takeaway-1 = The store itself must reject a late write. A paused client cannot know that its lease has expired, and a check of the lock can be stale.
lesson-fence-takeaway-2 = A fencing token shows that a later holder wrote. Only an equal row version proves that nobody wrote in between.
lesson-fence-takeaway-3 = Redlock tolerates dead Redis servers, not a paused client, and has no number that the row could compare.

lesson-failover-title = A failover of Redis
lesson-failover-claim = The primary grants the lock and dies before its replica has received it. The promoted replica grants it again: two holders.
lesson-failover-primer = One Redis, the primary, answers all clients. Another one, its replica, receives a copy of each write, shortly after the client has its response. If the primary dies, the replica is promoted: it becomes the primary.
lesson-failover-question = The Redis primary grants A the lock and dies before its replica has the key. The replica is promoted, and B asks it for the lock. What happens?
lesson-failover-guess-1 = B is refused: the lock survives a failover
lesson-failover-guess-2 = B acquires it, while A still holds it
lesson-failover-guess-3 = B acquires it, and A is notified that it lost the lock
lesson-failover-guess-4 = B waits until A’s lease has expired
lesson-failover-takeaway-1 = Redis responds before its replicas have the write. After a failover, the last grants may never have happened.
lesson-failover-takeaway-2 = `WAIT` returns how many replicas have the write, and undoes nothing. It makes the gap smaller.
lesson-failover-takeaway-3 = A lock service that can lose a lock needs a store that rejects stale writes: see the fencing token.

lesson-redlock-title = Redlock: a majority of five
lesson-redlock-claim = With two of five nodes down the lock works; with three down it refuses. A paused holder still breaks it, and it has no fencing token to stop that.
lesson-redlock-primer = Redlock stores a lock on five Redis servers that know nothing of each other. A client that gets it on three of them, a majority, holds the lock, until its lease expires.
lesson-redlock-question = The lock is stored on a majority of five independent Redis nodes. Which of these still results in two holders?
lesson-redlock-guess-1 = two of the five nodes die at once
lesson-redlock-guess-2 = three of the five nodes die
lesson-redlock-guess-3 = the holder pauses past its lease
lesson-redlock-guess-4 = none of these
lesson-redlock-takeaway-1 = A majority survives the loss of any two of five nodes, and reports an error when three are gone.
lesson-redlock-takeaway-2 = Redlock tolerates node failures, not paused clients: five nodes expire a lease as surely as one does.
lesson-redlock-takeaway-3 = It has no number that increases with every grant, so the store has nothing to compare: see the fencing token.

## What it costs
lesson-waiting-title = Fail, retry or queue
lesson-waiting-claim = A request that fails at once does not wait, and gets nothing. With retries, the free lock waits until somebody asks again. In a queue, the release wakes the next one at once.
lesson-waiting-primer = A request that finds the lock held can fail at once. It can sleep and try again, here every 50 ms or so. Or it joins a queue: then the holder wakes the first in the queue when it releases the lock.
lesson-waiting-question = A holds the lock, and B and C wait for it. They ask again every 50 ms or so. What does that cost, compared with a queue?
lesson-waiting-guess-1 = nothing: in the end, both get the lock
lesson-waiting-guess-2 = only some more commands to Redis
lesson-waiting-guess-3 = time: the free lock is idle until one of them asks
lesson-waiting-guess-4 = correctness: both may get the lock at the same time
lesson-waiting-takeaway-1 = Failing at once is cheap, and leaves the waiting to the client.
lesson-waiting-takeaway-2 = With retries, the lock is idle until the next attempt, the waiters are served by luck, and the unlucky wait without bound.
lesson-waiting-takeaway-3 = In a queue that is notified, each waiter waits as long as the others work, and all wait about equally long.

lesson-reentrant-title = A nested call
lesson-reentrant-claim = With the textbook lock, a nested call waits for its own caller until it times out. With a counting lock, or with the guard passed down, it does not.
lesson-reentrant-primer = The textbook lock is a key that `SET NX` sets only if it does not exist. Its value is a random owner id, a new one for each acquisition. A caller that finds the key tries again until its time is up.
lesson-reentrant-question = A function acquires the lock of an item and calls another function, which acquires the same lock. What happens with the textbook lock?
lesson-reentrant-guess-1 = nothing: both calls have the same caller
lesson-reentrant-guess-2 = the second call waits for the first and times out
lesson-reentrant-guess-3 = the second call replaces the first one’s lock
lesson-reentrant-guess-4 = Redis detects the deadlock and returns an error at once
lesson-reentrant-takeaway-1 = A plain lock has a new owner for each acquisition, so it treats the nested call as another client.
lesson-reentrant-takeaway-2 = A counting lock needs an owner name. If that is the name of the process, two requests of the process are admitted at once.
lesson-reentrant-takeaway-3 = Passing the guard down states in the code which function holds the lock. It costs nothing, and the compiler checks it.

lesson-two-items-title = Two items in opposite order
lesson-two-items-claim = Two orders lock two items in opposite order. With Redis locks both wait until they time out; with row locks Postgres aborts one. Sorted keys prevent the deadlock.
lesson-two-items-primer = A transaction that changes a row locks it until its commit. Another transaction that wants to change the same row waits until then. An order of two items changes two rows, one after the other.
lesson-two-items-question = A holds the row lock of tea and wants coffee. B holds coffee and wants tea. Both are row locks of Postgres. What happens?
lesson-two-items-guess-1 = both wait until they time out
lesson-two-items-guess-2 = Postgres aborts both
lesson-two-items-guess-3 = Postgres detects the deadlock and aborts one
lesson-two-items-guess-4 = the transaction that began first gets both
lesson-two-items-takeaway-1 = A deadlock needs two holders that lock in different orders. Sort the keys, and it cannot occur.
lesson-two-items-takeaway-2 = Postgres detects deadlocks among its own locks. Redis detects none, and a cycle across Redis and Postgres is found by neither.
lesson-two-items-takeaway-3 = So use one order for all locks: keys, then orders, then items by name, then accounts; and acquire them before the database connection.

lesson-early-release-title = Released before the commit
lesson-early-release-claim = A lock that is released before the commit lets the next holder read the old value.
lesson-early-release-primer = A transaction’s writes become visible to others when it commits. Here a request acquires a lock in Redis, begins a transaction, reads and writes; it releases the lock, and then it commits.
lesson-early-release-question = A reads and writes under the lock, releases it, and commits just after. Who can read the old value?
lesson-early-release-guess-1 = the next holder, if it reads before A commits
lesson-early-release-guess-2 = no request: A wrote under the lock
lesson-early-release-guess-3 = only a request that takes no lock
lesson-early-release-guess-4 = no request: A’s row lock blocks readers
lesson-early-release-takeaway-1 = Other transactions see a write when it is committed, not when it is made.
lesson-early-release-takeaway-2 = `@Transactional` around a method that locks inside is this bug: the lock ends first, then the transaction commits.
lesson-early-release-takeaway-3 = The lock goes around the transaction: acquire it before the begin, release it after the commit.

lesson-hot-item-title = One hot item
lesson-hot-item-claim = All buyers want one item. A batch, which executes all waiting orders under one lock and in one transaction, sells at least three times as much as the textbook lock. All strategies here are exact.
lesson-hot-item-primer = In a flash sale, all buyers order the same item. An order acquires the item’s lock in Redis, begins a transaction, reads the stock, writes it, commits, and then releases the lock. An order that finds the lock held tries again later.
lesson-hot-item-question = All buyers want the same item. What limits the sales per second under the textbook lock?
lesson-hot-item-guess-1 = the number of processors
lesson-hot-item-guess-2 = the speed of Redis
lesson-hot-item-guess-3 = the number of database connections
lesson-hot-item-guess-4 = one lock and one commit at a time
lesson-hot-item-takeaway-1 = One order after the other means one commit after the other, and each commit waits for the disk. No lock that admits one order at a time can be faster.
lesson-hot-item-takeaway-2 = The textbook lock is slower still: it is idle until the next retry.
lesson-hot-item-takeaway-3 = Requests that wait anyway can be executed as a batch: one lock, one read, one write, and a separate response for each.

lesson-units-title = A row for each unit
lesson-units-claim = With one row per unit, orders of one item do not wait for each other, and none is sold twice. In return, an order can be rejected as sold out although a unit is left in the end.
lesson-units-primer = Instead of one number, the item has a row for each of its units. An order locks a free row with `select … for update skip locked limit 1`, which passes over rows that others have locked, marks it as sold, and commits.
lesson-units-question = One unit is left. A has locked its row and has not committed. What happens to B’s order?
lesson-units-guess-1 = it waits until A commits or gives up
lesson-units-guess-2 = it is rejected at once as sold out, though nobody has bought it
lesson-units-guess-3 = it gets the same unit, which is sold twice
lesson-units-guess-4 = it waits in line behind A, and gets the unit as soon as A gives up
lesson-units-takeaway-1 = Many rows instead of one: orders of one item lock different rows, so they commit side by side, and the disk writes several commits at once.
lesson-units-takeaway-2 = `skip locked` promises no order and no last word: whoever comes first may go away empty, and what is sold out can come back. Let rejected buyers try again, or put them in a queue.
lesson-units-takeaway-3 = The price is a row per unit and a dead version of it per sale, for vacuum. A rule about the whole item, like a limit per customer, needs a lock on the item again.

lesson-pre-deduct-title = Counted in Redis first
lesson-pre-deduct-claim = A flash sale that counts in Redis, and writes the order afterwards, leaves a unit unsold if the server dies between the two, and sells one twice if Redis loses its data. A reconciliation with the ledger repairs both.
lesson-pre-deduct-primer = In a flash sale, a script takes a unit from a counter in Redis; only then the order is written to Postgres. Where the counter is at 0, the buyer is rejected at once. The stock in the item’s row follows behind the orders.
lesson-pre-deduct-question = Three units. A takes one from the counter, and A’s server is killed before the order is written. Then three others order: how many units are sold?
lesson-pre-deduct-guess-1 = three: A’s unit returns to the counter
lesson-pre-deduct-guess-2 = two: nobody can buy A’s unit
lesson-pre-deduct-guess-3 = four: A’s unit is sold a second time
lesson-pre-deduct-guess-4 = none: the counter stays locked by A
lesson-pre-deduct-takeaway-1 = Redis and Postgres have no common transaction: what dies between the two leaves them different. The counter falls first, so the shop undersells, and no customer gets an order without a unit.
lesson-pre-deduct-takeaway-2 = A flush, or a failover that loses the last changes, is worse: the counter comes back without the orders on their way, and the shop oversells.
lesson-pre-deduct-takeaway-3 = The ledger knows every order. Compare the counter with it while no order is on its way: put back what was lost, and cancel the orders that have no unit.

## Beyond locks
lesson-double-submit-title = The double click
lesson-double-submit-claim = A double click, a lost response, a crash between commit and response: with its idempotency key, the order is placed once and paid once, and every try gets the same response.
lesson-double-submit-primer = A client that gets no response cannot know whether its order was placed, so it sends it again. An idempotency key is an id that it makes for one order and sends with every try of it, so that the shop recognizes the repetition.
lesson-double-submit-question = A replica commits an order and is killed before it responds. The client sends the request again with the same idempotency key. What does it get?
lesson-double-submit-guess-1 = a second order
lesson-double-submit-guess-2 = an error: the key was used
lesson-double-submit-guess-3 = the first request’s response
lesson-double-submit-guess-4 = a rejection until the key expires
lesson-double-submit-takeaway-1 = The client creates one idempotency key per order and sends the same key with every retry.
lesson-double-submit-takeaway-2 = One statement writes the change, the key and the response, so a crash never leaves half of them.
lesson-double-submit-takeaway-3 = The lock on the key only makes the answer faster. The unique row in Postgres guarantees a single order.

lesson-machine-gun-title = The rapid-fire client
lesson-machine-gun-claim = A lock on the client’s idempotency key admits one request at a time and does not slow other clients down. It limits overlap, not rate: that needs a rate limit.
lesson-machine-gun-primer = The shop locks the idempotency key of a request before anything else. While a request with a key is being executed, another one with the same key is rejected.
lesson-machine-gun-question = A client sends 40 orders, each as soon as the previous one has its response, each with a new idempotency key. How many does the lock on the key reject?
lesson-machine-gun-guess-1 = all but the first
lesson-machine-gun-guess-2 = about half
lesson-machine-gun-guess-3 = all that follow within the same second
lesson-machine-gun-guess-4 = none
lesson-machine-gun-takeaway-1 = The key is locked before anything else, so a duplicate costs one round trip to Redis, and no row, lock or connection that others need.
lesson-machine-gun-takeaway-2 = A lock prevents two requests at once. A client that waits for each response never has two at once, however many it sends.
lesson-machine-gun-takeaway-3 = Requests per second need a counter with a time: a rate limit (`--limit-client`). It is off while the lab is on, because all load comes from one address.

lesson-unpaid-title = Unpaid orders
lesson-unpaid-claim = An unpaid order returns its units to stock exactly once, even if the worker dies halfway. If payment and expiry happen at the same moment, one wins, and money and stock agree.
lesson-unpaid-primer = An order that is not paid in time is cancelled, and its units return to stock. A queue says which orders are due. It delivers an order to a worker, and delivers it again if the worker has not removed it after a while.
lesson-unpaid-question = A worker takes an order from a queue, returns a unit to stock, commits, and is killed before it removes the order from the queue. The queue delivers the order to the next worker. How often is the unit returned?
lesson-unpaid-guess-1 = once
lesson-unpaid-guess-2 = twice: the queue delivers it twice
lesson-unpaid-guess-3 = never: the next worker skips it, and the first one’s work is undone
lesson-unpaid-guess-4 = once or twice, depending on the timing
lesson-unpaid-takeaway-1 = A queue that loses nothing delivers at least once. The row that changes must make the effect happen once.
lesson-unpaid-takeaway-2 = The order’s status changes by compare-and-set, in the statement that moves stock or money. Of two competing changes, one succeeds.
lesson-unpaid-takeaway-3 = What a flush of Redis deletes is lost for ever, unless another record says what was in it. The order’s row is that record, and can be the queue itself.

lesson-price-changed-title = The price changed
lesson-price-changed-claim = A lock covers an order, not the time since its page was shown. If the price rises in between, the customer buys at a price that nobody showed them. An order that says which total was shown is rejected if the row, read under the lock, says more.
lesson-price-changed-primer = A page reads the price without a lock, and its customer decides some time later. The order then acquires the lock on the item (`fenced`), reads the row, which has stock and price, writes and commits. A change of the price acquires the same lock.
lesson-price-changed-question = A’s page shows 1.00, and A orders. Before the order has its lock, the keeper raises the price to 2.00. Nothing fails: the order acquires the lock, reads the row, writes and commits. What has gone wrong?
lesson-price-changed-guess-1 = the order costs 2.00, and A saw 1.00
lesson-price-changed-guess-2 = an update is lost: the row says 1.00 again
lesson-price-changed-guess-3 = the order costs 1.00, less than the shop asks
lesson-price-changed-guess-4 = nothing: under the lock, no price can change
lesson-price-changed-takeaway-1 = A lock isolates what is done under it. What a customer saw before may have changed since, like any value read without the lock.
lesson-price-changed-takeaway-2 = Send the total that was shown with the order (here `expected_total_cents`), and compare it with the row that the order reads, in its transaction. A check when the request begins is too early.
lesson-price-changed-takeaway-3 = Reject only what is worse for the customer: charge a lower total, and ask about a higher one. The rejection stores nothing, so the order can be sent again with the new total and the same idempotency key.

lesson-queue-title = A queue instead of a lock
lesson-queue-claim = A bounded queue with one consumer per item sells no unit twice on one replica, and oversells on two. If it is full, an offer can fail, be refused, wait, or wait for a limited time. Its contents are lost with the process.
lesson-queue-primer = Instead of locking an item, a replica can let one thread sell it. Orders wait in a queue in the replica’s memory, and that thread, the consumer, executes one after the other.
lesson-queue-question = Two orders wait in the memory of a replica, in its queue. The replica is killed. What happens to them?
lesson-queue-guess-1 = the other replica takes them over
lesson-queue-guess-2 = they are gone and get no response
lesson-queue-guess-3 = they are executed when the replica has restarted
lesson-queue-guess-4 = the replica rejects them before it stops
lesson-queue-takeaway-1 = A single consumer needs no lock, because no other one runs. A second replica is a second consumer.
lesson-queue-takeaway-2 = A bound shows overload early: fail, refuse, wait, or wait for a limited time. Commands that end the shortage, such as a restock, get priority.
lesson-queue-takeaway-3 = Keep in memory only what may be lost with the process: a place in the queue or a renewal timer, but no order and no due time. A rendezvous stores nothing, so the sender knows whether its offer was taken.

lesson-run-once-title = A job that runs once
lesson-run-once-claim = On two replicas, a scheduled job runs twice without a lock. With a lock that is released after the work, a late replica runs it again. A unique row of job name and scheduled time makes it run once, even if a holder dies.
lesson-run-once-primer = A job, such as a report, has a time at which it is to run, and each replica has its own clock. At 12:00 by its clock, a replica tries to acquire the job’s lock; if it finds it held, it does nothing.
lesson-run-once-question = Two replicas have the same schedule. The job acquires a lock, works briefly and releases it. One clock is a second late. How often does the 12:00 job run?
lesson-run-once-guess-1 = once: the second replica finds the lock held
lesson-run-once-guess-2 = twice: the second replica finds the lock free
lesson-run-once-guess-3 = once: the lock stores the scheduled time
lesson-run-once-guess-4 = never: each replica waits for the other
lesson-run-once-takeaway-1 = A lock prevents two runs at the same time. To prevent a second run later, something must remain after the release.
lesson-run-once-takeaway-2 = Identify a run by its job and scheduled time, and make the pair unique. A late replica then finds that it was done.
lesson-run-once-takeaway-3 = A holder can die between the work and its record, so the work is repeated. Give the effect the same unique name, and the repetition changes nothing.

## Appendix: Redis
lesson-big-key-title = Deleting a big key
lesson-big-key-claim = DEL of a big hash blocks every client until all of its fields are freed. Batches and UNLINK block them for a fraction of that time.
lesson-big-key-primer = A hash is one key with many fields, each with its own memory. One thread of Redis executes the commands of all clients, one after the other.
lesson-big-key-question = A hash with hundreds of thousands of fields is no longer needed. What does `DEL` of this one key cost the other clients?
lesson-big-key-guess-1 = nothing: it is one command, which takes microseconds
lesson-big-key-guess-2 = only clients that read this hash wait
lesson-big-key-guess-3 = nothing: a background thread frees the memory
lesson-big-key-guess-4 = all clients wait until every field is freed
lesson-big-key-takeaway-1 = Redis executes one command at a time, and `DEL` takes longer the larger the key is. The same is true of an expiry, of `RENAME` onto the key, and of `HGETALL`.
lesson-big-key-takeaway-2 = `UNLINK` removes the name and frees the memory in a background thread. Without it, `HSCAN` and `HDEL` of a few hundred fields at a time leave gaps for other clients.
lesson-big-key-takeaway-3 = `redis-cli --bigkeys` finds big keys in advance. A server can also make `DEL` lazy: `lazyfree-lazy-user-del`, off in Redis, on in Valkey since version 8.

lesson-pipeline-title = A thousand commands, one round trip
lesson-pipeline-claim = Many commands in one round trip take a fraction of the time of as many round trips.
lesson-pipeline-primer = A client sends a command to Redis and waits for the response: one round trip. In a pipeline it sends many commands without waiting, and then reads all responses.
lesson-pipeline-question = A thousand small commands go to a Redis on the same machine: one by one, then in one pipeline. How much faster is the pipeline?
lesson-pipeline-guess-1 = several times: most of the time was round trips
lesson-pipeline-guess-2 = not at all: Redis has the same work
lesson-pipeline-guess-3 = a thousand times: one round trip instead of a thousand
lesson-pipeline-guess-4 = it is slower: Redis must buffer all responses
lesson-pipeline-takeaway-1 = Redis spends little time on such a command. The rest is the round trip.
lesson-pipeline-takeaway-2 = A pipeline saves round trips and nothing else. It is not a transaction: commands of other clients can run in between.
lesson-pipeline-takeaway-3 = Over a real network a round trip takes longer than here, and a pipeline saves more.

lesson-no-rollback-title = MULTI does not roll back
lesson-no-rollback-claim = MULTI/EXEC does not roll back what ran before an error. A command that cannot be queued aborts everything. DISCARD only drops the queue.
lesson-no-rollback-primer = After `MULTI`, Redis only collects the commands that follow. `EXEC` then executes them one after the other, and no other client’s command comes in between. `LPUSH` is a command for lists.
lesson-no-rollback-question = The stock is 10. `MULTI`, `SET stock 9`, `LPUSH stock x` (stock is not a list), `SET sold 1`, `EXEC`. What is in Redis afterwards?
lesson-no-rollback-guess-1 = stock 10, nothing sold: one command failed, so all are rolled back
lesson-no-rollback-guess-2 = stock 9, nothing sold: it stops at the error
lesson-no-rollback-guess-3 = stock 9, sold 1: the error undoes nothing
lesson-no-rollback-guess-4 = stock 10, sold 1: only the changes of that key are undone
lesson-no-rollback-takeaway-1 = `EXEC` runs a queue of commands without interruption. It isolates them, and does not undo them.
lesson-no-rollback-takeaway-2 = A malformed command is found when it is queued, and aborts everything. A command of the wrong type fails during `EXEC`, when the others take effect.
lesson-no-rollback-takeaway-3 = Changes that belong together go into Postgres, or into a script that checks everything before its first write.
