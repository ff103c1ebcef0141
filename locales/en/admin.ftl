# The pages for admins: audit, locks, jobs.
admin-audit-sound = Sound: all { $checks } checks hold.
admin-audit-unsound = Not sound: { $failed } of { $checks } checks do not hold.
admin-audit-holds = holds
admin-audit-broken = broken
admin-audit-notes = Notes
admin-audit-note-checked = checked as of { $at } UTC: { $items } items, { $orders } orders, { $entries } ledger entries
admin-audit-as-of = checked as of
admin-audit-read = read: { $items } items, { $orders } orders, { $entries } ledger entries
admin-audit-note-apart = counted separately: { $items } lab items with { $forks ->
    [one] 1 fork
   *[other] { $forks } forks
} in their ledgers, { $accounts } lab accounts
admin-audit-note-locks = Redis: { $held ->
    [one] 1 lock
   *[other] { $held } locks
} held, { $forever } of them without an expiry (the lock on an idempotency key stays for some seconds after its request)
admin-audit-note-without-redis = Redis was left out: { $error }
admin-audit-hint = All checks read one repeatable-read snapshot, so they are exact for one moment, even under load. On the command line: `holdfast audit`
admin-audit-running = The audit is running: { $done } of { $total } checks are done. Current check: `{ $check }`
admin-audit-reload = This page reloads until the result is available.

admin-locks-table = Held locks
admin-locks-none = No lock is held now.
admin-locks-lock = Lock
admin-locks-holder = Held by
admin-locks-since = Since
admin-locks-fence = Fencing token
admin-locks-remaining = Expires in
admin-locks-waiting = Waiting
admin-locks-unknown = unknown
admin-locks-no-expiry = never
admin-locks-no-queue = no queue
admin-locks-hint = The current state in Redis. “Held by” is the replica. “Waiting” counts the replicas in the lock’s queue; requests that wait within one replica count as one. Locks without a fencing token have no queue.
admin-refresh = Refresh

admin-jobs-lead = Tasks that the shop runs on a schedule. Every replica tries to start each run; a unique row in Postgres for each job and time admits one of them. The row has a lease: if its replica dies, another one takes the run over, as the next attempt.
admin-jobs-off = This replica runs no jobs (`HOLDFAST_JOBS=off`). Other replicas may.
admin-jobs-failed = It failed { $attempts } times.
admin-jobs-last-error = Last error
admin-jobs-next-attempt = Next attempt
admin-jobs-retry = Try again now
admin-jobs-schedule = Schedule
admin-jobs-every = every { $minutes } minutes
admin-jobs-schedule-lab = started by the lab
admin-jobs-next = Next run
admin-jobs-last = Last run
admin-jobs-never = never run
admin-jobs-result = Result
admin-jobs-replica = Replica
admin-jobs-running = running
admin-jobs-done = done
admin-jobs-failed-state = failed
admin-jobs-attempt = attempt { $attempt }
admin-jobs-job = Job
admin-jobs-clock = Times are those of Postgres, whose clock decides when a job is due. A failed run is retried with growing pauses, of five minutes at most.
admin-job-audit = Compares ledgers, orders and accounts with each other, and stores the result.
admin-job-purge = Deletes data that is kept for a limited time: stored responses for a day, sessions until they expire, job runs and items of the lab for a month.
admin-job-lab-tick = Does nothing for the shop. The lesson “A job that runs once” counts how often one tick runs.

admin-expiry-title = Unpaid orders
admin-expiry-about = An order that is not paid in time is cancelled, and its units are returned to stock. Any replica may do it; the order’s status in Postgres makes it happen once.
admin-expiry-due = Due now
admin-expiry-failed = Order { $order }: expiry failed
admin-expiry-parked = Order { $order } is parked
admin-expiry-parked-advice = Its units are still reserved. It is not retried automatically: find the cause first.
admin-expiry-failed-at = Last attempt

admin-result-sound = sound: all { $checks } checks hold
admin-result-unsound = not sound: { $failed } of { $checks } checks fail: { $names }
admin-result-nothing = nothing to do
admin-result-deleted =
    { $number ->
        [one] { $count } record deleted
       *[other] { $count } records deleted
    }
admin-result-rest = the next run does the rest

## The checks of an audit: their rules
audit-check-stock-drift = the stock of each item equals the sum of its ledger
audit-check-stock-oversold = no item was sold beyond its stock
audit-check-stock-chain = each entry begins with the value at which the previous entry ended, under no lower fence, with a higher seq
audit-check-stock-forks = no two entries were computed from the same read
audit-check-stock-opening = each ledger begins with one opening entry
audit-check-running-sums = the running sums of each item equal the sums of its ledger and its orders
audit-check-row-versions = each item and each account is past the versions of its ledger, and not below its fences
audit-check-order-lines = each order line took its units once, with the entry that it names, and returned them once if its order was cancelled or refunded
audit-check-lines-counted = each order line counts for its buyer while its order is pending or paid
audit-check-customer-limits = no user bought more of an item than the limit at that time
audit-check-unit-entries = only items of the lab have entries of units
audit-check-stock-entries = each entry has its item, and if it names an order, the line of that order; a line has one sale
audit-check-order-references = each order has its user
audit-check-line-references = each order line has its order and its item
audit-check-order-totals = the total of each order equals the sum of its lines
audit-check-payments = each order has exactly the payment and the refund that its status requires, on its buyer's account or, of lab items, lab account
audit-check-balance-entries = each entry is the payment or the refund of an order of its user, or the opening of a lab account, a top-up or welcome credit
audit-check-counted-apart = only items and accounts of the lab are counted separately
audit-check-balance-drift = the balance of each account equals the sum of its ledger
audit-check-balance-chain = each entry begins with the value at which the previous entry ended, under no lower fence, with a higher seq
audit-check-balance-forks = no two entries were computed from the same read
audit-check-top-ups = each top-up has its entry, and each such entry its top-up
audit-check-money-conserved = balances plus spending equal the money paid in
audit-check-nothing-negative = no stock, balance, quantity or total is below zero
audit-check-key-records = each order has the record of its idempotency key
audit-check-stored-responses = each key record has its own id, and is about its order or its top-up
audit-check-nicknames = each nickname is stored in the form in which it is compared, and is one student's
audit-check-sequences = the next number of each sequence is above those of its table

# Items, orders, users and the admin log.
admin-nav = Admin pages
admin-items = Items
admin-items-none = No item matches.
admin-sku = Sku
admin-name = Name
admin-name-zh = Chinese name
admin-name-zh-about = On Chinese pages. Without one, they show the name above.
admin-price = Price
admin-stock = Stock
admin-limit = Limit
admin-is-hidden = hidden
admin-find = Find
admin-find-item = Sku or name, or a part of it
admin-more = More

admin-add = Add an item
admin-add-button = Add the item
admin-opening = Opening stock
admin-description = Description
admin-settings = Settings
admin-in-shop = In the shop
admin-manage = Manage
admin-hide = Hide from the shop
admin-hide-about = It is not listed and takes no new orders. Orders that exist go on.
admin-reason-about = For the ledger, which every customer can read. Such as restock, correction or damaged.
admin-save = Save
admin-done-edit = Saved. It applies to orders from now on.
admin-done-create = The item was added.
admin-done-stock = The stock was changed. It is in the ledger.
admin-description-stored = The shop shows the description of this demo item in the visitor’s language. You edit the stored one; once changed, all visitors see it as it is.
admin-sku-rule = 1 to 64 characters: a–z, 0–9 and dash
admin-sku-taken = There already is an item with this sku.
admin-sku-lab = “lab-” and 32 hexadecimal digits name items of the lab. Choose another sku.
admin-name-rule = Enter 1 to 200 characters on one line.
admin-price-rule = Enter an amount from 0 to 10,000,000.00 without commas, such as 14.50.
admin-stock-rule = Enter a whole number from 0 to 1,000,000,000.
admin-description-rule = At most 2,000 characters.
admin-delta-below = Only { $stock } in stock: you can remove { $stock } at most.
admin-delta-above = { $stock } in stock, and at most { $most } can be.
admin-delta-range = Enter a whole number from −1,000,000,000 to 1,000,000,000, but not 0.
admin-edit-changed = Somebody has changed this since you opened the page. It is now “{ $now }”. Save again to replace it.

admin-log = Log
admin-log-of = Log of { $name }
admin-log-whole = Whole log
admin-log-older = Older changes
admin-log-about = What admins changed, newest first. Stock and money are in their own ledgers.
admin-colon = {": "}
admin-log-none = Nothing was changed yet.
admin-log-when = When
admin-log-who = Who
admin-log-what = What
admin-log-changes = Changes
admin-action-create-item = item added
admin-action-edit-item = item changed
admin-action-cancel-order = order cancelled
admin-action-refund-order = order refunded
admin-action-disable-user = user disabled
admin-action-enable-user = user enabled
admin-action-end-sessions = sessions ended
admin-action-set-password = password reset
admin-field-name = name
admin-field-name-zh = Chinese name
admin-field-price-cents = price
admin-field-description = description
admin-field-hidden = hidden
admin-field-limit-per-user = limit
admin-field-stock = stock
admin-field-disabled = disabled
admin-field-status = status
admin-field-reason = reason
admin-value-yes = yes
admin-value-no = no
admin-value-none = none

# Orders of all users.
admin-orders = Orders
admin-order = Order
admin-order-id = Order, or a part of its number
admin-user = User
admin-status = Status
admin-time-placed = Placed
admin-time-due = To be paid by
admin-time-paid = Paid
admin-time-cancelled = Cancelled
admin-time-expired = Expired
admin-time-refunded = Refunded
admin-any-status = any status
admin-with-lab = with orders of lab items
admin-orders-none = No order matches.
admin-orders-looked = The newest { $orders } were looked through.
admin-orders-further = Look further back
admin-no-such-order = there is no order { $order }
admin-of-user = Order of { $name }
admin-ordered = Ordered items
admin-money-changes = Changes of the balance
admin-no-money-changes = None.
admin-cancel-question = Cancel the whole order? { $units ->
    [one] One unit goes
   *[other] { $units } units go
} back to stock. This cannot be undone.
admin-refund-question = Refund the whole order? { $total } goes back to the account of { $name }, and { $units ->
    [one] one unit
   *[other] { $units } units
} to stock. This cannot be undone. Units that do not come back: change the item’s stock by −n afterwards.
admin-return-reason = Reason, for the log
admin-return-rule = Enter 1 to { $max } characters on one line.
admin-done-cancel = The order is cancelled, and its units are back in stock.
admin-done-refund = { $total } is back on the account of { $name }, and the units are back in stock.
admin-csv = Download as CSV

# Users.
admin-users = Users
admin-users-none = No user matches.
admin-user-part = User name, or a part of it
admin-user-since = Signed up
admin-user-orders = Orders of this user
admin-user-ledger = Ledger of the account
admin-user-admin = admin
admin-user-active = can sign in
admin-user-disabled = disabled { $when }
admin-balance = Balance
admin-user-change = Change this user
admin-user-self = This is you. You change your own password and sessions on your own page.
admin-user-disable = Disable
admin-user-disable-about = A disabled user is signed out and cannot sign in. Orders, account and ledgers stay.
admin-user-enable = Enable
admin-user-end = End all sessions
admin-user-sessions = Sessions now: { $count }
admin-user-reset = Reset the password
admin-done-disable = { $name } is disabled. All sessions have ended; other servers notice within five seconds.
admin-done-enable = { $name } can sign in again.
admin-done-sessions = All sessions of { $name } have ended; other servers notice within five seconds.
admin-done-password = The password of { $name } was reset. All sessions have ended; other servers notice within five seconds.
