# Judgements of services: the page of `holdfast judge service --html FILE`, and what leads to it.
service-facts = { $instances ->
    [one] 1 instance
   *[other] { $instances } instances
} · seed { $seed }
service-verdict-sound = Sound: nothing oversold, lost or doubled, and no drift, in { $orders } orders under { $passes }
service-verdict-found = Not sound: { $found }
service-verdict-undecided = Not decided: no pass has run besides the control
service-found-under = { $balance } under { $passes }
service-no-proof = The judge finds races that happen. That it found none does not prove that there is none.
service-neither = { $pass }: an answer that is neither sold nor sold out:
service-unanswered = { $pass }: an order without an answer:
service-by-count = Doubled orders were looked for only by their number: there is no `[books] by_key`.
service-found-by-schedule = { $pass }: found by schedule { $number }.
service-untried = { $pass }: { $count ->
    [one] 1 schedule of at most two switches was
   *[other] { $count } schedules of at most two switches were
} not tried: `--budget` gives more time.
service-passes-title = Passes
service-column-pass = Pass
service-column-oversold = oversold
service-column-drift = drift
service-column-lost = lost
service-column-doubled = doubled
service-column-orders = orders
service-column-sold = sold
service-column-books = books
service-column-unknown = unknown
service-column-errors = errors
service-column-p99 = p99, ms
service-column-gap = gap, ms
service-column-runs = runs (k/n)
service-key-title = What passes and columns mean
service-about-oversold = Orders answered with sold, or units in the books, beyond the opening stock.
service-about-drift = Opening stock minus stock minus units in the books: an update was lost, or stock was taken without an order.
service-about-lost = Orders answered with sold that are not in the books.
service-about-doubled = Keys with more than one order. If the books name no keys: orders beyond one of each key that may have one.
service-about-orders = Orders of one run, however often each was sent. A 0 is true of so many orders, and proves nothing of others.
service-about-sold = Orders answered with sold.
service-about-books = Units in the books’ orders.
service-about-unknown = Orders that were not answered.
service-about-errors = Orders with an answer that is neither sold nor sold out, even if another answer was sold.
service-about-p99 = 99 of 100 answers came sooner.
service-about-gap = The longest time without a sale while units were left.
service-about-runs = 3/10: three of ten runs found something. The other figures are those of the first of them. Of interleavings each run is a schedule, and the last one found it.

## Passes: their names, and what happens in them
service-pass-control = control
service-pass-none = none
service-pass-gate = gate
service-pass-retry = retry
service-pass-stretch = stretch
service-pass-interleavings = interleavings
service-pass-replay = replay
service-pass-lost-answer = lost-answer
service-pass-database-cut = database-cut
service-pass-pause = pause
service-pass-kill = kill
service-pass-restart = restart
service-pass-slow-commit = slow-commit
service-pass-redis-flush = redis-flush
service-pass-redis-restart = redis-restart
service-pass-redis-away = redis-away
service-happens-control = One buyer after the other, more than there are units. A shop that oversells here has no check at all.
service-happens-none = 16 buyers at once over all instances, with four times as many orders as units.
service-happens-gate = The judge locks the item’s row, starts more orders than there are units, and lets go. By then plain reads have passed, and writes have queued. If that finds nothing, it holds the row once more, for 2 s: an order that gives up waiting may go on without the lock.
service-happens-retry = Each order is sent twice with one key, at the same time and to two instances, and once more after the answers.
service-happens-stretch = Each answer of Postgres is delayed by 5 to 20 ms.
service-happens-interleavings = Two buyers want one unit. Their statements, and commands to Redis, pass one at a time, in one possible order after the other.
service-happens-replay = A recorded schedule again: two buyers want one unit, and their statements pass in the order in which something was found.
service-happens-lost-answer = The connection of every other order is cut after the order was sent. The buyer sends it again, with its key.
service-happens-database-cut = All connections of an instance to Postgres are cut when it has sent a commit of the stock: in one run after the commit, whose answer is lost, in another one before it arrives. Nobody sends the order again.
service-happens-pause = The instance whose read, write or commit was just answered is stopped for 3 s or longer than its lock lasts, then continued.
service-happens-kill = The instance whose read, write or commit was just answered is killed, and started again.
service-happens-restart = One instance after the other gets SIGTERM while it serves orders, and is started again when it has ended. One that has not ended after 10 s is killed.
service-happens-slow-commit = Each COMMIT of a transaction that has written the stock reaches Postgres 50 to 200 ms late, the first one later than the service’s lock lasts, if it has one. Meanwhile the transaction keeps its locks, and nobody sees what it has written. What commits by itself is not delayed.
service-happens-redis-flush = Redis loses all keys when an order has just read the stock or taken a unit. That order works on when another one has taken a unit, or after 3 s.
service-happens-redis-restart = Redis is killed and starts again, empty, when an order has just read the stock or taken a unit. That order works on when another one has taken a unit, or after 3 s.
service-happens-redis-away = When an order has just read the stock or taken a unit, Redis refuses all connections for 3 s. A buyer who gets an error waits for a second.

## The two requests of a finding
service-requests-title = The two requests
service-requests-lead = Two requests alone show each mistake again. Time goes from top to bottom, in milliseconds since the first request. Below each statement: how long it took, and what Postgres answered, or Redis. A dashed line is a statement that waits.
service-not-shown = { $passes }: two requests alone did not show what was found.
service-under = These two requests were sent under { $pass }, which shows the same mistake more clearly.
service-held = The judge held the item’s row meanwhile.
service-request = buyer { $buyer }, instance { $instance }
service-waits = waits
service-answered-after = answered after { $ms } ms
service-decisive = decisive
service-decisive-legend = ▶ decides: what an order read last before it wrote, and what it wrote.
service-left-out = (left out: { $names })
service-no-answer = no answer
service-struck-database-cut = its connections to Postgres are cut
service-struck-pause = the instance is stopped
service-struck-kill = the instance is killed
service-struck-restart = the instance gets SIGTERM
service-struck-redis-flush = Redis loses all keys
service-struck-redis-restart = Redis starts again, empty
service-struck-redis-away = Redis refuses all connections
service-cure-title = What to do
service-lesson-mistake = The mistake as a lesson: { $title }, `holdfast lesson { $name }`
service-lesson-cure = The cure as a lesson: { $title }, `holdfast lesson { $name }`
service-recipe = The cure as a recipe: `{ $file }` in the repository

## The known mistakes, as their sentences begin, and what to do about them
service-pattern-no-check = No check
service-pattern-read-then-write = Read, then write
service-pattern-check-then-decrement = Check, then relative decrement
service-pattern-check-then-insert = Check, then insert
service-pattern-check-elsewhere = Check in another transaction
service-pattern-order-without-unit = Order without a unit
service-pattern-two-transactions = Two transactions
service-pattern-released-before-commit = Lock released before the commit
service-pattern-lease-outlived = Lease outlived
service-pattern-key-not-unique = Key not unique
service-pattern-unknown = No known mistake
service-cure-no-check = Put the check into the write: `update products set stock = stock - 1 where id = $1 and stock >= 1`. If it changes no row, the item is sold out.
service-cure-read-then-write = Let the database compute, under a condition: `update products set stock = stock - 1 where id = $1 and stock >= 1`. If it changes no row, the item is sold out. If the program has to compute, read with `for no key update` in the transaction that writes, or write only if the row still has the version that was read.
service-cure-check-then-decrement = Repeat the check in the write: `update products set stock = stock - 1 where id = $1 and stock >= 1`. If it changes no row, the item is sold out. Or read with `for no key update` in the transaction that writes: then the second request waits, and reads what is left.
service-cure-check-then-insert = Lock what the count depends on, in a statement before it and in the transaction that inserts: the row that says how many there are, by `select … for no key update`, or `pg_advisory_xact_lock`. Or make the transactions `serializable`, and repeat one that Postgres refuses. Or keep a counter beside the rows: `update products set stock = stock - 1 where id = $1 and stock >= 1`. If it changes no row, the item is sold out.
service-cure-check-elsewhere = Check and write in one transaction, and lock the row at the check: `select … for no key update`. Or put the check into the write: `update … where id = $1 and stock >= 1`. What a transaction has read may be wrong as soon as it has ended.
service-cure-order-without-unit = Accept the order and take the unit in one transaction, and refuse the order if there is none: `update products set stock = stock - 1 where id = $1 and stock >= 1` must have changed a row before the order is paid.
service-cure-two-transactions = Write the stock and the order in one transaction, so that a crash leaves both or neither. If they are in two stores, first write down what is to be done, and let a job finish or undo what was left half done.
service-cure-released-before-commit = Release the lock after the commit: outside of the transaction, or with a lock that ends with it (`pg_advisory_xact_lock`). Or let the database compute under a condition, so that no lock is needed: `update products set stock = stock - 1 where id = $1 and stock >= 1`.
service-cure-lease-outlived = Let the database refuse the late write: the row keeps the highest fence and a version, and each write demands both. A longer lease makes it rarer, and does not prevent it.
service-cure-key-not-unique = Give the key a unique index, and write it in the transaction of the order: `insert … on conflict do nothing`. If it inserts no row, answer what the first request was answered. Or lock the row of the cart or of the customer first: then the second request waits, and finds the order.
service-cure-unknown = Find the statement or the call that decides that a unit is left, and see whether two requests can both pass it. A check in the write itself can’t be passed twice: `update … where id = $1 and stock >= 1`.
service-cure-redis-lock = The two held a lock in Redis, or looked for one: take it in one command, `set … nx px …`, and keep it until after the commit.

## Where other pages lead to the judge of services, and the list of judged ones
service-own-title = Does your own shop oversell?
service-own-about = A judge orders from it as sixteen buyers at once, and shows the two requests that collide. In any language, on Postgres.
service-own-link = And your own shop? `holdfast judge service` looks for two requests that collide
service-own-how = Judge your own: `holdfast judge service --init fastapi` (or `express`, `django`, `spring`, `actix`) writes a `service.toml` to fill in, and `holdfast judge service service.toml` judges. The guide is `docs/SERVICE.md` in the repository.
service-listed-sound = Sound: nothing oversold, lost or doubled, and no drift
service-judged-title = Judged services
service-judged-lead = `holdfast judge service` takes a whole shop and counts the units that it sold and does not have. Each of these is installed from its registry in a pinned version. The figures are of one machine, on which it depends how many units are sold twice.
