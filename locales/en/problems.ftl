# Problem types: what their pages and the refused pages say.
problem-unknown-outcome = Look at your orders first: the change may have been made. Sending the same form again is safe; it is executed once.
problem-sold-out-detail = { $requested } of { $sku } requested, { $available } left
problem-price-changed-detail = it costs { $total_cents } cents now, and { $expected_cents } are expected
problem-price-changed-detail-page = The total was { $expected } on the page, and is { $total } now.
problem-limit-reached-detail = at most { $limit } of { $sku } per customer: you have { $already }, and requested { $requested }
problem-insufficient-funds-detail = { $needed_cents } cents due, { $balance_cents } cents in the { $account ->
    [lab] lab account, which pays for lab items; refund one to get its price back
   *[shop] account
 }
problem-insufficient-funds-detail-page = { $needed } due, { $balance } in the account.
problem-unsent-title = Not saved yet
problem-unsent = The session of this form had ended when it was sent: nothing was changed.
problem-unsent-advice = What you typed is below. Check it, and send it again.
problem-opened-by-title = Opened by { $name }
problem-opened-by = { $name } opened this form, and may have sent it already. Now nothing was changed.
problem-opened-by-advice = Check below what was changed last. To do this yourself, send it again.
problem-basket-title = The basket has changed
problem-basket-detail = The basket is no longer as that page showed it; nothing was ordered.
problem-basket-empty = It is empty now.
problem-basket-empty-advice = If it was ordered, the order is listed in your orders.
problem-basket-link = Your orders
problem-basket-other = Its current contents are shown below.
problem-basket-other-advice = Check the basket, then order.
problem-back = Back to where you were
problem-heading = Error messages explained
problem-lead = Every error response of the shop has one of these names. Each has an HTTP status and a next step.
problem-advice = What to do

# What is wrong with a request: the `detail` of problems, in English for programs.
problem-field = { $field }: { $why }
problem-range = { $least } to { $most }
problem-number = a number, { $least } to { $most }
problem-no-number = it is no number
problem-one-of = one of { $names }
problem-pause-of-two = only in a race of two buyers
problem-every-or-one-of = every, or one of { $names }
problem-valid-values = valid values: { $values }
problem-length = { $least } to { $most } characters
problem-line = 1 to { $most } characters on one line
problem-missing-field = it is missing
problem-object-expected = an object is expected
problem-ascii-only = visible ASCII only
problem-unreadable-body = the body can't be read: { $error }
problem-not-json = it is not JSON: { $error }
problem-send-json = send application/json in UTF-8
problem-send-form = send application/x-www-form-urlencoded
problem-compressed-body = send the body without compression
problem-body-length = { $most } bytes are the most
problem-late-body = the body did not arrive within { $seconds } s
problem-late-head = the request line and headers did not arrive within 5 s
problem-large-head = the request line and headers are too large: 128 KiB and 96 headers are the most
problem-invalid-head = the request line or a header is not valid HTTP/1.1; correct it, and send the request on a new connection
problem-unread-request = the request could not be read; send it again on a new connection
problem-wrong-method = { $path } is not for { $method }; { $allowed } is
problem-host = “{ $host }” is not a name of this shop
problem-rate-limit = the limit “{ $name }” is { $burst } at once, and then { $permits } a { $period }
problem-send-key = send a header Idempotency-Key with a fresh UUID
problem-different-keys = the request has different idempotency keys (Idempotency-Key, ?token=); send one
problem-key-in-flight = a request with this key is still running
problem-key-mismatch = this key was sent with a different payload before
problem-key-used = this key was used more than a day ago

problem-session-over = no session, or one that is over
problem-sign-in-wrong = name or password is wrong
problem-sign-in-disabled = an admin has disabled this user
problem-admin-only = only an admin can do this
problem-foreign-form = the form does not come from a page of this session; reload the page, then send it
problem-csrf-header = a browser's request must carry { $header }
problem-no-session-id = it is no id of a session
problem-wrong-password = this is not the current password
problem-user-name = 1 to { $most } of a-z, 0-9, dot, dash and underscore; capitals count as small
problem-reserved-name = names that begin with { $prefix } are reserved for { $of ->
    [lab] the lab
   *[class] students
 }
problem-user-exists = the user { $user } already exists
problem-own-account = this is you: change your own password and sessions as every user does

problem-line-count = 1 to { $most } lines
problem-costs-too-much = it costs too much
problem-limit = 1 to { $most }, or null
problem-description = at most { $most } characters and line breaks (\n)
problem-changed-since = it is { $now } now: somebody has changed it since
problem-delta = it must be a whole number from −{ $most } to { $most }, and not 0
problem-reserved-reason = “{ $reason }” is reserved for the shop's own entries; use another word
problem-reason-missing = it is another user's order: say why, for the admin log
problem-reason-of-admin = only an admin gives one, for the admin log
problem-item-exists = there is an item { $sku }
problem-sku-of-lab = “lab-” and 32 hexadecimal digits name items of the lab: choose another
problem-stock-above = { $stock } units are in stock; the maximum is { $most }
problem-stock-below = only { $stock } units are in stock
problem-balance-above = no account holds more than { $most }
problem-too-many-unpaid = you have { $max } unpaid orders, the limit; pay or cancel one, or wait until one expires
problem-order-expired-detail = it can no longer be paid; nothing was paid
problem-busy-basket = other requests change the basket at the same time

problem-sold-in-units = it is sold in units: order it with Holdfast-Lock: units
problem-not-in-units = Holdfast-Lock: units is for items in units alone. The admin makes one with POST /api/lab/items and in_units
problem-too-many-units = at most { $most } units of items in units
problem-partly-in-units = { $sku } is not in units, and others are: place two orders
problem-units-kept = an item in units keeps the units and the settings that it was made with
problem-unit-count = 1 to { $most } in units
problem-no-limit-in-units = an item in units has none
problem-refund-in-units = an order of items in units is refunded only where Postgres isolates payments, and this shop's lock is { $strategy }
problem-not-pre-deducted = { $sku } is the shop's own, and is not sold under pre-deduct
problem-lab-and-shop = an order has items of the lab or the shop's own, not both: { $lab } is the lab's, and { $own } is the shop's own; place two orders
problem-kept-to-lab = this is kept to lab items, and { $sku } is the shop's own: { $why }
problem-kept-headers = only the admin may send lab headers (Holdfast-*) with it
problem-kept-strategy = under Holdfast-Lock: { $strategy } or with a Holdfast-Ttl-Ms, beside others under { $beside }, sales could be lost. The admin makes a lab item with POST /api/lab/items
problem-kept-window = it keeps its units unpaid for { $max_ms } ms at most (Holdfast-Pay-Within-Ms)
problem-no-redlock = { $name } is not configured here; it needs REDLOCK_URLS
problem-no-such-wait = { $strategy } has no waiting mode { $name }
problem-no-lab-header = the lab has no such header; it has { $names }
problem-no-effect-with-try = has no effect with Holdfast-Wait: try

problem-lab-off = the lab is off in this shop; one that is started with --lab on has it
problem-lab-readers = visitors of this lab may read it; only the admin may start a run
problem-lab-headers-off = Holdfast-* headers are the lab's, and the lab is off
problem-lab-headers-in-class = Holdfast-* headers pause and break requests: in a class they are the teacher's
problem-not-paused = no request { $id } is paused here
problem-not-beside = a strategy that holds beside { $strategy }
problem-pause-or-rest = not together with rest_ms
problem-no-failed-expiry = no unpaid order { $order } has failed
problem-jobs-off = jobs are off at this replica (HOLDFAST_JOBS)
problem-queued-runs = { $runs } runs of the lab are queued already
problem-open-runs = { $runs } of your runs are not over yet
problem-no-runner = no `holdfast up` runs this shop, and lessons and runs pause and kill its replicas. Run `holdfast up`, or one lesson with `holdfast lesson NAME`. The lab's headers and items, and load/, work here too
problem-run-of-lesson = one of a lesson, done
problem-run-without-result = one that has shown its result
problem-no-result = race { $race } has no result yet
problem-large-file = a file has at most 4 MiB; choose one that the lab or `holdfast judge --json` has written
problem-late-file = the file did not arrive within { $seconds } s
problem-other-files = other files are being read; try again in a few seconds
problem-choose-one = choose one
problem-free-or-remove = free or remove
problem-unplayable-level = this level cannot be played
problem-two-or-three = 2 or 3
problem-who-steps = the letter of an order, expire or undo

problem-lock-held = another request holds the lock
problem-lock-waited = waited { $ms } ms
problem-lock-lost-detail = the lock was lost before the write; nothing was written
problem-row-locked = a row stayed locked in Postgres; nothing was changed
problem-late-request = the request took longer than { $seconds } s
problem-no-response = { $what } does not respond; send the request again, with the same key if it has one
component-postgres = Postgres
component-redis = Redis
component-batch-task = the batch's task
component-command-task = the command's task
component-lease-holder = the replica with the item's lease
problem-no-writes = Postgres accepts no writes now; nothing was written
problem-postgres-refuses = Postgres refuses the shop's user; nothing was written
problem-replica-stops = this replica finishes its requests and then stops; use another replica
problem-event-streams = this replica serves { $streams } event streams already, or as many to your address as one may have
problem-other-pages = other pages of this kind are being drawn and sent; try again in a few seconds
problem-page-length = this page would have more than { $max_bytes } bytes
problem-undrawn-page = the page can't be drawn
problem-unset-cookie = a cookie can't be set
problem-not-set-up = the site is not set up
problem-bug = the shop's log has the details
problem-missing-asset = there is no { $name }

problem-invalid-request-title = The request is invalid
problem-invalid-request-meaning = A field is missing, misspelt or out of range, or this address does not accept the method or the content type. Nothing was changed.
problem-invalid-request-advice = Read `detail`, and `errors` if it is there: it names each invalid field and what is expected. Correct the request and send it again.
problem-invalid-request-page-advice = Go back, correct the input and send the form again.

problem-unauthenticated-title = Not signed in
problem-unauthenticated-meaning = The request has no session, its session has expired, or its name or password is wrong.
problem-unauthenticated-advice = Get a token from POST /api/sessions and send it as `Authorization: Bearer …`.
problem-unauthenticated-page-advice = Sign in; you will return to this page.
problem-unauthenticated-link = Sign in

problem-forbidden-title = Not allowed
problem-forbidden-meaning = Your account cannot do this; or it belongs to the lab, and the lab is off.
problem-forbidden-advice = Sign in with an account that is allowed to do this, or start the shop with the lab on.
problem-forbidden-page-advice = If you came from a form, reload its page and try again. Otherwise sign in with an account that is allowed to do this.
problem-forbidden-link = Sign in with another account

problem-missing-page = there is nothing at { $path }
problem-missing-item = there is no item { $sku }
problem-item-hidden = { $sku } is no longer sold
problem-missing-account = you have no account
problem-missing-order = you have no order { $order }
problem-missing-session = you have no session { $id }
problem-missing-user = there is no user { $name }
problem-missing-race = there is no race { $id }
problem-missing-run = there is no run { $id }
problem-missing-lesson = there is no lesson { $name }
problem-missing-judgement = there is no judgement { $name }
problem-missing-problem = there is no problem { $name }
problem-missing-game = this game has ended
problem-missing-game-page = this game has ended: another one took its place, or ten minutes have passed. Begin again at /lab/scheduler
problem-not-found-title = Not found
problem-not-found-meaning = It does not exist, or it belongs to another user. The shop does not say which.
problem-not-found-advice = Check the address, the name or the id.
problem-not-found-link = Go to the first page

problem-exists-title = Already exists
problem-exists-meaning = The name is taken, or a run of the lab has not finished.
problem-exists-advice = Choose another name, or wait until the run has finished.

problem-sold-out-title = Not enough stock
problem-sold-out-meaning = Fewer units are left than requested. Nothing was ordered, not even the other items.
problem-sold-out-advice = Order fewer units, or wait for a restock. You may use the same idempotency key again.
problem-sold-out-page-advice = Lower the quantity, or remove the item from the basket.

problem-price-changed-title = The price has changed
problem-price-changed-meaning = The order would cost more than the total that its customer agreed to. Nothing was ordered. A lower total is charged without a question.
problem-price-changed-advice = Show `total_cents` to the customer. If they accept it, send it as `expected_total_cents`; you may use the same idempotency key again.
problem-price-changed-page-advice = Check the prices below. The button orders at the new total.

problem-limit-reached-title = Limit per customer reached
problem-limit-reached-meaning = There is enough stock, but each customer may buy only a limited number. Units in your pending and paid orders count. Nothing was ordered, not even the other items.
problem-limit-reached-advice = Order at most `limit` − `already` units, or cancel an order that contains the item. You may use the same idempotency key again.
problem-limit-reached-page-advice = Lower the quantity or remove the item from the basket, or cancel an order that contains it.
problem-limit-reached-link = Your orders

problem-insufficient-funds-title = Balance too low
problem-insufficient-funds-meaning = The balance is smaller than the amount due. Nothing was paid.
problem-insufficient-funds-advice = Top up the account, then pay again. You may use the same idempotency key again.
problem-insufficient-funds-page-advice = Top up your account, then pay again.
problem-insufficient-funds-link = Top up

problem-order-state-detail = can't { $action } an order that is { $status }
problem-order-state-title = Not possible in the order's state
problem-order-state-meaning = An order can be paid or cancelled once, and refunded once after it was paid.
problem-order-state-advice = Read the order to see its state.
problem-order-state-page-advice = The current state of the order is shown below.

problem-order-expired-title = The order was not paid in time
problem-order-expired-meaning = Its units were reserved until `expires_at`. They are on sale again, or will be in a moment.
problem-order-expired-advice = Place a new order.
problem-order-expired-link = Go to the first page

problem-idempotency-key-missing-title = Idempotency key missing
problem-idempotency-key-missing-meaning = This request changes data, so it must be safe to send twice.
problem-idempotency-key-missing-advice = Send a header `Idempotency-Key` (or `?token=`) with a new UUID, and the same UUID with each retry.

problem-idempotency-key-in-flight-title = The same request is still running
problem-idempotency-key-in-flight-meaning = Another request with this key has not finished yet.
problem-idempotency-key-in-flight-advice = Wait for the time in `Retry-After`, then send the same request again: you will receive its response.
problem-idempotency-key-in-flight-page-advice = Wait a moment and send the form again: you will get the same order, not a second one.

problem-idempotency-key-mismatch-title = The key belongs to another request
problem-idempotency-key-mismatch-meaning = A key identifies one request: a form that was sent has been used, also after going back.
problem-idempotency-key-mismatch-advice = In a browser: load the page again, check its values, and send it. A client: create a new key.

problem-idempotency-key-used-title = The key was used more than a day ago
problem-idempotency-key-used-meaning = Its request was executed, and its response is no longer stored.
problem-idempotency-key-used-advice = Read the order in `order_id`. Create a new key for a new order.

problem-lock-busy-title = The lock is held
problem-lock-busy-meaning = Another request holds the lock, and this one does not wait for it. `holder_process`, `holder_since` and `holder_fence` describe the holder, if it is known.
problem-lock-busy-advice = Try again after `retry_after_ms`.
problem-lock-busy-page-advice = Wait a moment and try again. The shop accepts one order per user at a time, so that a double click makes one order.

problem-lock-timeout-title = Timed out waiting for the lock
problem-lock-timeout-meaning = The lock stayed held for longer than the request could wait. Nothing was changed. `holder_process`, `holder_since` and `holder_fence` describe the last holder, if it is known.
problem-lock-timeout-advice = Try again after `Retry-After`, with the same key.
problem-lock-timeout-page-advice = Wait a moment and try again.

problem-lock-lost-title = The lock was lost
problem-lock-lost-meaning = The lease expired before the work was done, so nothing was written.
problem-lock-lost-advice = Try again with the same key.
problem-lock-lost-page-advice = Wait a moment and try again.

problem-overloaded-title = Overloaded
problem-overloaded-queue = too many requests wait already; nothing was changed
problem-overloaded-connections = every connection to Postgres is in use; nothing was changed
problem-overloaded-cancelled = Postgres cancelled a statement that took too long; nothing was changed
problem-overloaded-given-up = its time was over before anything was written; nothing was changed
problem-overloaded-conflicts = { $attempts ->
    [one] another change was written first
   *[other] in each of { $attempts } attempts another change was written first
}; nothing was changed
problem-lab-connections = requests on lab items hold all connections that the lab may use at a time, or yours hold as many as one user's may; nothing was changed
problem-lab-pauses = as many requests of the lab are paused here as may be at a time, or as many of yours as one user's may; nothing was changed
problem-overloaded-meaning = The shop has more to do than it can: too many requests wait, or other changes of the same goods or balance came first each time. This request changed nothing. An earlier request with the same key may have been executed.
problem-overloaded-advice = Try again after `Retry-After`, with the same key: a request that was executed is not executed again.
problem-overloaded-page-advice = Wait a moment and try again.

problem-unavailable-title = Postgres or Redis is unavailable
problem-unavailable-meaning = Without them the shop cannot guarantee that a unit is sold only once, so it does not sell. If `outcome` is `unknown`, the change may have been made.
problem-unavailable-advice = Try again after `Retry-After`, with the same key: you will receive the actual result.
problem-unavailable-detail-page = { $what } does not respond
problem-unavailable-page-advice = Wait a moment and try again. Sending the same form again is safe.
problem-session-ended = Postgres ended a session that was idle for too long, or a migration changed a table; nothing was changed
problem-redis-refused = Redis refused: { $code ->
    [NOAUTH] NOAUTH (it demands a password)
    [WRONGPASS] WRONGPASS (it does not accept the user and the password)
    [NOPERM] NOPERM (the user lacks a permission)
    [NODB] it has no database of that number
    [NOPRIMARY] the sentinels do not know the primary
    [NOTREDIS] the server at its address is not Redis
    [MOVED] MOVED (it is one node of a Cluster)
    [CROSSSLOT] CROSSSLOT (it is a Cluster)
    [READONLY] READONLY (it is a read-only replica)
    [MASTERDOWN] MASTERDOWN (it is a replica without its primary)
    [OOM] OOM (its memory is full)
    [NOREPLICAS] NOREPLICAS (it has too few replicas)
    [MISCONF] MISCONF (it can't save its data)
    [WRONGTYPE] WRONGTYPE (another program uses its keys)
    [LOADING] LOADING (it is loading its data)
    [CLUSTERDOWN] CLUSTERDOWN (a part of the Cluster is down)
   *[other] its error { $code }
 }

problem-shutting-down-title = This replica is shutting down
problem-shutting-down-meaning = It accepts requests for a few more seconds, finishes them and then stops. Only `/readyz` responds with this problem.
problem-shutting-down-advice = Send requests to another replica.

problem-too-many-requests-title = Too many requests
problem-too-many-requests-meaning = A rate limit was exceeded: of one user, of one address, or of the attempts to sign in with one name. `limit` says which. Nothing was changed.
problem-too-many-requests-advice = Wait for the time in `Retry-After` (`retry_after_ms` is more exact), then try again; an order with the same key. `RateLimit` in every response says how many requests are left.
problem-too-many-requests-page-advice = Wait a moment and try again.

problem-request-timeout-title = The request did not arrive in time
problem-request-timeout-meaning = Its body arrived too slowly or not at all. Nothing was changed, and the connection is closed.
problem-request-timeout-advice = Send it again, with the same key.
problem-request-timeout-page-advice = Check your connection and send the form again.

problem-wrong-host-title = Not an address of this shop
problem-wrong-host-meaning = The request names a host that this shop does not serve. Nothing was changed.
problem-wrong-host-advice = Use an address in `HOLDFAST_PUBLIC_HOSTS`, or add this one to it.
problem-wrong-host-page-advice = Open the shop at its own address. Its operator can add this one to HOLDFAST_PUBLIC_HOSTS.

problem-payload-too-large-title = The request is too large
problem-payload-too-large-meaning = A request may have at most 64 KiB of data, a form too; a file for the lab, 4 MiB. Nothing was changed.
problem-payload-too-large-advice = Send less data.
problem-payload-too-large-page-advice = Go back with the browser’s button: what you typed is still there. Make it shorter, or choose a smaller file.

problem-internal-error-title = Internal error
problem-internal-error-meaning = The shop has a bug. Nothing was changed.
problem-internal-error-advice = Try again with the same key. If it fails again, report the `X-Request-Id`.
