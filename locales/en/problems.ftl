# Problem types: what their pages and the refused pages say.
problem-unknown-outcome = Look at your orders first: the change may have been made. Sending the same form again is safe; it is executed once.
problem-sold-out-detail = { $requested } of { $sku } requested, { $available } left.
problem-price-changed-detail = The total was { $expected } on the page, and is { $total } now.
problem-limit-reached-detail = At most { $limit } of { $sku } per customer: you have { $already }, and requested { $requested }.
problem-insufficient-funds-detail = { $needed } due, { $balance } in the account.
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
problem-table = All problem types
problem-name = Name
problem-status = Status
problem-summary = Summary
problem-meaning = What it means
problem-advice = What to do

problem-invalid-request-title = The request is invalid
problem-invalid-request-meaning = A field is missing, misspelt or out of range, or this address does not accept the method or the content type. Nothing was changed.
problem-invalid-request-advice = Read `detail`, and `errors` if it is there: it names each invalid field and what is expected. Correct the request and send it again.
problem-invalid-request-page-advice = Go back, correct the input and send the form again.

problem-unauthenticated-title = Sign in first
problem-unauthenticated-meaning = The request has no session, or its session has expired.
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
