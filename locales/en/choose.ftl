# Which lock? Five questions, and the answers with their prices.
choose-title = Which lock?
choose-lead = For a value that is read, then updated. Five questions, and one answer with its price.
choose-processes = How many processes change the value?
choose-processes-one = One
choose-processes-several = Several, on one machine or on many
choose-money = What does a lost update cost?
choose-money-no = Little: a page is computed twice, a view is not counted
choose-money-yes = Money, goods or data
choose-fence = Can the store check a number with each write: a fence or a version?
choose-fence-no = No: files, a device, the API of another company
choose-fence-yes = Yes: a database, with `update … where version = 41`
choose-hot = Is the value hot: do many want to change it at once?
choose-hot-yes = Yes: the last tickets, one account into which all pay
choose-hot-no = No: two at once are rare
choose-wait = May a request wait for its turn?
choose-wait-yes = Yes, for some milliseconds
choose-wait-no = No: it is answered at once, also with “try again”
choose-show = Show the answer
choose-open = One more answer is needed
choose-price = Its price
choose-lesson = Lesson: { $title }
choose-judged = Judged: { $name }
choose-evidence = What the judge found
choose-one-statement = If one statement does it (`update items set stock = stock - 1 where stock >= 1`), you need no lock.
choose-local = A mutex in the process.
choose-local-price = It protects nothing once a second process runs. For several on one machine, lock a file (`flock`).
choose-owner = The textbook lock in Redis: a key with an owner and an expiry, deleted only by its owner.
choose-owner-price = If the work outlives the lease, or Redis fails over, two clients hold it, and an update is lost.
choose-batched = A lock with fencing tokens, under which all requests that wait share one read and one write.
choose-batched-price = The most code: for each value a queue, and a task that executes it in batches. Redis is one more server to run.
choose-fenced = A lock with fencing tokens, tried once: a request that does not get it is rejected at once.
choose-fenced-price = Under load most requests are rejected and sent again. Redis is one more server to run.
choose-row-lock = A row lock in the database: `select … for update`.
choose-row-lock-price = Each waiter keeps a connection, and a paused holder blocks the row until the database ends its session.
choose-version = No lock: write only if the version is still the one that was read; else read again.
choose-version-price = When two requests meet, one starts again; if that happens too often, requests give up.
choose-needed = Still needed
choose-local-needed = Idempotent requests: a client that repeats a request is served twice by any lock.
choose-owner-needed = Nothing, as long as a lost update costs little. Idempotent requests, if a repeated one costs more.
choose-advisory = A lock in the database that ends with its session: `pg_advisory_lock`. It has no lease that work could outlive.
choose-advisory-price = Each waiter keeps a connection. If the session is cut, or the database fails over, another client has the lock while the first one works on. With Redis alone, a lease that is renewed (`watchdog`) loses updates after each pause and failover.
choose-advisory-needed = A client that stops when its session ends, before it writes; idempotent requests. And a store that checks a number, as soon as there is one: no lock makes up for it.
choose-batched-needed = The check of the fence in each write: without it, the lock is one with a lease. Idempotent requests.
choose-fenced-needed = The check of the fence in each write: without it, the lock is one with a lease. Idempotent requests.
choose-row-lock-needed = Read and write in one transaction, with a limit for idle ones: then a session that is cut takes its write with it. (In the judge, lock and write have separate sessions, so the write survives the cut.) Idempotent requests: an answer to a commit can be lost.
choose-version-needed = Retries with a bound. Idempotent requests: an answer to a commit can be lost.

## The room of this page, of what was judged and of the course
prove-title = Choose and prove
prove-lead = The question: which lock does your value need? The evidence: locks and shops of others, under the same faults. The exercise: write a lock yourself.
prove-judged = Judged
prove-course = Course
