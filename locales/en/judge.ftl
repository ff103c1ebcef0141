# Judgements of locks: the page of one, the list, and the form that opens a file.
judge-title = Judged locks and shops
judge-lead = Each lock does the same work under the same faults. The ledger shows which of them lost updates.
judge-link = Judged: real locks under these faults
judge-list-title = Verdict by fault
judge-list-none = No judgement comes with this version. Judge a lock, and open its file here.
judge-column-lock = Lock
judge-column-date = Judged on
judge-cell-lost = { $lost ->
    [one] lost update
   *[other] lost updates
}
judge-cell-runs = { $lost } of { $runs } runs lost updates
judge-cell-safe = no lost update in { $turns } turns
judge-cell-safe-runs = no lost update in { $turns } turns of { $runs } runs
judge-cell-elsewhere = does not touch this lock
judge-cell-back = no lost update; fences that went back without a fault: { $back }
judge-list-fenced = { $name }, the store checks its fence
judge-list-key = ▲ 7: seven lost updates at the end. ▲ 3/5: three of five runs lost updates. ✓ 784: none in 784 turns. ↓ 12: none, but twelve fences went back without a fault. ○: none, and the fault does not strike what this lock uses: its servers, or a connection. –: the fault did not run.
judge-search = Search
judge-search-about = a lock, a shop, a language, a store
judge-search-found = { $count } found
judge-search-none = No judged lock or shop has “{ $words }” in its name, group, language or store.
judge-search-rows = { $locks } in { $rows } rows: ↳ is the lock above with its fence
judge-group-lease = Leases in Redis
judge-group-session = Sessions: the lock ends with its connection
judge-group-consensus = Consensus of several servers
judge-group-file = A file of one machine
judge-group-shop = Shops
judge-columns-title = What the columns mean
judge-own-title = Judge your own
judge-own-how = Write an adapter of a few dozen lines and run `holdfast judge --json FILE -- COMMAND`. Of a shop it is `holdfast judge service --json FILE service.toml`. Then open FILE here, or the page that `--html FILE` writes. It is shown, and not stored.
judge-file-label = File of a judgement
judge-file-invalid = The file was not opened. This is not a file that `holdfast judge` or `holdfast judge service` has written, with `--json FILE` or `--html FILE`.
judge-file-too-long = The file was not opened. The page of this judgement would be longer than 2 MB: it names more than the judge reports. Open the page that `--html FILE` writes in a browser.
judge-not-drawn = Not drawn: this page draws { $events } events at most. The page that `holdfast judge --html FILE` writes has all of them.
judge-opened = Opened from a file. It is not stored, and nothing was checked here.

## One judgement
judge-facts = lease { $ttl } ms · seed { $seed } · fences (fencing tokens): { $fencing } · renews its lease: { $renews }
judge-yes = yes
judge-no = no
judge-verdict-lost = Loses updates under { $under } of { $faults ->
    [one] 1 fault
   *[other] { $faults } faults
}
judge-verdict-lost-touched = Loses updates under { $under } of the { $faults ->
    [one] 1 fault that touches it
   *[other] { $faults } faults that touch it
}; { $others } do not apply
judge-verdict-lost-undisturbed = Loses updates even without a fault
judge-verdict-safe = No lost update in { $turns } turns { $faults ->
    [0] without a fault
    [one] under 1 fault
   *[other] under { $faults } faults
}
judge-verdict-safe-touched = No lost update in { $turns } turns { $faults ->
    [0] without a fault that touches it
    [one] under the 1 fault that touches it
   *[other] under the { $faults } faults that touch it
}; { $others } do not apply
judge-verdict-prevented = No client of the process to be struck got the lock, so { $prevented } of { $faults ->
    [one] 1 fault
   *[other] { $faults } faults
} did not run: what it does under them is not known
judge-verdict-stopped = Nobody got the lock any more under { $stopped ->
    [one] 1 fault
   *[other] { $stopped } faults
}, although it was free: what it does afterwards is not known
judge-unasked = { $verdict }; { $count ->
    [one] 1 fault was
   *[other] { $count } faults were
} not asked for: { $faults }
judge-bypassed = No connection went through the proxy of --backend-proxy: no fault of the network reached the lock’s connections to that server
judge-lost-under = Updates were lost under { $faults }
judge-reach = { $touching } of the { $ran ->
    [one] 1 fault that ran touches
   *[other] { $ran } faults that ran touch
} this lock: { $faults }
judge-bound = None of { $turns } turns without a fault lost an update: with 95 % confidence it is fewer than { $share } % of them
judge-verdict-nothing = Nothing was judged: no fault ran
judge-half-fence-safe = With its fence, which the store checks: nothing lost
judge-half-fence-back = With its fence, which the store checks: nothing lost, but fences went back under { $faults }, so that the store refuses a holder
judge-half-fence-misordered = With its fence, which the store checks: nothing lost, but fences went back even without a fault, so that the store may refuse any holder
judge-half-fence-lost = With its fence, which the store checks: updates are still lost under { $faults }
judge-half-no-fence = Without a store that checks it: { $verdict }
judge-not-compared = Numbers of lost updates are not to be compared: 1 is no better than 100. Each says only that updates can be lost here.
judge-list-read = A number is the count of lost updates: changes that the ledger has and the stock does not. Below its name stands what a lock leaves to you: a lost update under “pause” is no bug of a library.
judge-leaves = This lock leaves to you: { $what }
judge-leaves-fence = a store that checks its fence with each write
judge-leaves-late = writes that come too late
judge-leaves-lease = work that outlasts the lease
judge-leaves-memory = a Redis that forgets
judge-leaves-session = a connection that ends
judge-missing = { $faults ->
    [one] 1 fault
   *[other] { $faults } faults
} did not run.
judge-safety-title = Safety
judge-cost-title = Liveness and cost
judge-result-lost = loses updates
judge-result-safe = no loss
judge-result-back = fences go back
judge-result-not-run = did not run
judge-column-fault = Fault
judge-column-result = Verdict
judge-column-lost = lost updates (k/n: runs)
judge-column-turns = turns
judge-column-fenced = with the fence
judge-column-refused = refused by the fence
judge-column-saved = saved by a loss signal
judge-column-overlaps = overlapping holders
judge-column-release = bad releases
judge-column-fence = fences back
judge-column-busy = false busy
judge-column-blocked = blocked, ms
judge-column-starved = starved clients
judge-column-leftover = keys left
judge-column-held = held, % of time
judge-column-p50 = wait p50, ms
judge-column-p99 = wait p99, ms
judge-column-ratio = p99 ÷ fair queue
judge-column-jain = Jain’s index
judge-column-errors = errors
judge-column-commands = Redis commands per grant
judge-key-title = What faults and columns mean
judge-about-lost = Units that the ledger sold and the stock does not show at the end: a client wrote over a change that it had not read. It may have written over a hundred of them, and another client over its write in turn: then one is lost. So 1 and 100 say the same. 3/5: three of five runs lost updates.
judge-about-turns = Turns with a grant, of all runs: acquire, read, work, write, release. Other figures than the lost updates are those of one run.
judge-about-fenced = Lost updates if each read registers the fence and each write demands that no higher one was registered.
judge-about-refused = Turns that were refused so.
judge-about-saved = Turns that stopped before their write, because the adapter said that the lock was lost, and that would have lost an update.
judge-about-overlaps = Pairs of clients that held one key at the same time.
judge-about-release = Releases answered with ok, although another client held the lock by then.
judge-about-fence = Grants whose fence was not above all earlier ones of the key.
judge-about-busy = Answers busy or timeout while the backend was away and no client held the key. An error would be right.
judge-about-blocked = Longest time in which a client waited for a free key and none was granted it.
judge-about-starved = Clients that were never granted the lock.
judge-about-leftover = Keys in Redis that are left two leases after the work.
judge-about-held = Share of the time in which the key was held.
judge-about-p50 = Half of the grants came sooner.
judge-about-p99 = 99 of 100 grants came sooner.
judge-about-ratio = The 99th percentile of the wait over the wait in a fair queue. 1 is fair.
judge-about-jain = Evenness of the grants over the clients: 1 is even.
judge-about-errors = Requests for the lock that were answered with an error.
judge-about-commands = Commands in Redis per grant, without those of an idle server.

## Faults: their names, and what they do
judge-name-none = none
judge-name-pause = pause
judge-name-long-work = long-work
judge-name-kill-holder = kill-holder
judge-name-redis-flush = redis-flush
judge-name-redis-restart = redis-restart
judge-name-redis-failover = redis-failover
judge-name-redis-slow = redis-slow
judge-name-redis-away = redis-away
judge-name-client-kill = client-kill
judge-name-script-flush = script-flush
judge-name-evict = evict
judge-name-session-cut = session-cut
judge-name-partition = partition
judge-name-late-grant = late-grant
judge-name-clock-jump = clock-jump
judge-name-slow-commit = slow-commit
judge-name-cancel = cancel

judge-fault-none = No fault: only load.
judge-fault-pause = The holder is stopped for 2.5 leases between read and write, then continued.
judge-fault-long-work = The work takes longer than the lease.
judge-fault-kill-holder = The holder’s process is killed between read and write.
judge-fault-redis-flush = Redis loses all keys. The holder works on for half a lease, so that others can get the lock.
judge-fault-redis-restart = Redis restarts empty. The holder works on for half a lease.
judge-fault-redis-failover = The primary is killed, and a replica that lags is promoted. The holder works on for half a lease.
judge-fault-redis-slow = Each message to and from Redis takes 200 ms.
judge-fault-redis-away = Redis does not respond for 5 s.
judge-fault-client-kill = Redis closes all connections, twenty times under load, then once while a client holds the lock.
judge-fault-script-flush = Redis forgets its scripts, twenty times under load, then once while a client holds the lock.
judge-fault-evict = Redis reaches its maxmemory and evicts keys of any kind. The holder works on for half a lease.
judge-fault-session-cut = The connections of the holder’s process to the lock’s servers are closed. The holder works on for half a lease.
judge-fault-partition = One worker process is cut off from the lock’s servers.
judge-fault-late-grant = A server grants the lock, and its answer arrives after the lease, when another client has the lock.
judge-fault-clock-jump = The clock of one process is an hour behind the others, and jumps to an hour ahead of them: the wall clock and the monotonic one.
judge-fault-slow-commit = Commits in Postgres are slow.
judge-fault-cancel = One of three requests, to acquire or to release, is cancelled on its way.

## Violations
judge-violations-title = Violations
judge-violations-lead = The first few of each kind, with the events around them. w0 c3 is client 3 of worker process 0.
judge-violations-none = None was found.
judge-kind-lost-update = Lost update
judge-kind-lost-with-fence = Lost update with the fence
judge-kind-overlap = Overlapping holders
judge-kind-release-ok-when-lost = Bad release
judge-kind-early-loss = Held lock denied
judge-kind-early-grant = Lock taken away
judge-kind-fence-regression = Fence back
judge-kind-misreported-busy = False busy
judge-kind-blocked = Blocked
judge-kind-starved = Starved client
judge-kind-leftover-key = Key left behind
judge-swimlane = Swimlane: a lane per client, time from left to right
judge-swimlane-scale = Short gaps are stretched, long gaps (//) are shortened.
judge-overlap = both between read and write

## A violation in a sentence without its full stop; it begins as a clause does
judge-found-both-read = { $first } and { $second } both read { $read }: { $first } wrote { $wrote } at { $first_at } ms, and { $second } wrote { $wrote } over { $over } at { $second_at } ms, so both took a unit, and the stock shows one
judge-found-read-twice = { $first } read { $read } twice: { $first } wrote { $wrote } at { $first_at } ms, and { $first } wrote { $wrote } over { $over } at { $second_at } ms, so both took a unit, and the stock shows one
judge-found-both-read-undid = { $first } and { $second } both read { $read }: { $first } wrote { $wrote } at { $first_at } ms, and { $second } wrote { $wrote } over { $over } at { $second_at } ms, which undid { $undone } units
judge-found-read-twice-undid = { $first } read { $read } twice: { $first } wrote { $wrote } at { $first_at } ms, and { $first } wrote { $wrote } over { $over } at { $second_at } ms, which undid { $undone } units
judge-found-with-fence = with fence { $fence }, { $found }
judge-found-units = the ledger has { $units } units more than the stock lost
judge-found-overlap = { $first } held the lock from { $from } ms to { $until } ms, and { $second } was granted it at { $granted } ms: both held it for { $both } ms
judge-found-bad-release = { $first } released the lock at { $released } ms and was answered ok, although { $second } had been granted it at { $granted } ms
judge-found-early-loss = { $client } was granted the lock at { $granted } ms, released it at { $released } ms, and was answered that it had lost it, although its lease of { $lease } ms had not ended
judge-found-early-grant = { $first } was granted the lock at { $from } ms and held it until { $until } ms, and { $second } was granted it at { $granted } ms, although the first one's lease of { $lease } ms had not ended: a release has taken it away
judge-found-fence-back = { $later } was granted the lock with fence { $later_fence } at { $later_at } ms, after { $before } had it with fence { $before_fence } at { $before_at } ms
judge-found-false-busy = { $client } asked for the lock at { $asked } ms and was answered { $answer } at { $answered } ms, while Redis was away and no client held the lock: the answer should have been error
judge-found-blocked = from { $from } ms on, no client got the lock for { $blocked } ms, although none held it; the TTL is { $ttl } ms
judge-found-blocked-to-end = from { $from } ms on, no client got the lock for { $blocked } ms, until the work ended, although none held it; the TTL is { $ttl } ms
judge-found-starved = { $starved } of { $clients } clients never got the lock, which was granted { $grants } times: { $names }
judge-found-keys-left = keys left in Redis { $after } ms after the work, beyond those that remain without a fault: { $keys }: { $names }
judge-found-more = { $names } and { $more } more

## Why a fault did not run
judge-why-no-cancel = the adapter has no `cancel`
judge-why-no-holder = no client of worker { $worker } got the lock, so there was no holder to strike
judge-why-no-grant = no client got the lock, so nothing was changed
judge-why-no-faketime = libfaketime is not installed
judge-why-go = { $program } is a Go program, which libfaketime does not reach
judge-why-not-loaded = { $program } does not load libfaketime
judge-why-fails = the adapter fails under libfaketime: { $error }
judge-why-crippled = the adapter hardly works under libfaketime: { $grants } grants

# Of `holdfast judge service`: what two requests show.
service-found-no-check = No check: { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }. Nothing in the order refuses a unit that is not there, and its write has no condition
service-found-read-then-write = Read, then write: both requests read the stock before either wrote it, and each wrote what it had computed. { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }, and one write undid the other
service-found-check-then-decrement = Check, then relative decrement: both requests found the last unit before either took it, and each subtracted one. { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }
service-found-check-then-insert = Check, then insert: both requests counted what was taken before either had added its own. { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }
service-found-check-elsewhere = Check in another transaction: both requests found the last unit, and each took one in a later transaction that did not look again. { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }
service-found-order-without-unit = Order without a unit: { $sold } orders were accepted for { $opening ->
    [one] 1 unit
   *[other] { $opening } units
}, and the stock was written once. What the first order took did not stop the other one
service-found-two-transactions = Two transactions: the stock and the order are not written together. What struck the instance came between the two
service-found-released-before-commit = Lock released before the commit: the next request got the lock and read the stock before the first one’s transaction had written it
service-found-lease-outlived = Lease outlived: one request worked for longer than its lock lasts, the other one got the lock meanwhile, and the first one wrote what it had computed before
service-found-key-not-unique = Key not unique: both requests had one key, neither found it in the books, and each wrote an order
service-found-unknown = { $sold ->
    [one] 1 unit was sold
   *[other] { $sold } units were sold
} of { $opening }. The statements show none of the known mistakes: the check may be in a function, or outside of the database
service-why-no-key = the order has no { "{key}" }, so it can’t be sent again as the same one
service-why-program = the buyer is a program, whose connections the judge can’t cut
service-why-attached = the service runs already: its processes and its connections are not the judge’s
service-why-no-table = the judge knows of no table in Postgres that has the stock
service-why-no-waiter = no order waited for the row of the item: name the row that orders write in [books] row
service-why-no-strike = no statement was seen that reads or writes { $tables }, and none that commits it
service-why-found-unstruck = its fault struck nothing. What was found needs no fault: see none
service-why-no-commit = no COMMIT was seen of a transaction that writes { $tables }
service-why-no-redis = the service sends no commands to a Redis of the judge’s own, and the judge strikes no other one
service-why-no-row = the row of the item can’t be locked ({ $error }): name it in [books] row
service-why-nothing-sold = nothing was sold: { $error }
service-why-gave-up = nothing was sold: the judge held the row of the item for { $ms } ms, and each order gave up meanwhile: { $error }
service-why-one-instance = the two requests need an instance each, and there is one
service-why-one-by-one = no two orders were in the service at once: the buyer’s program, or the service, takes one after the other
service-why-no-schedule = no schedule in which the orders take turns came to its end and sold a unit: they sent nothing that can be held, neither of two went on, both failed, or --budget left no time
service-why-all-sold-out = nothing was sold: each order was answered with sold out, though there were units
