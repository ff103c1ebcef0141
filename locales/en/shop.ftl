# The bar above every page.
shop-bar = State of the shop
shop-bar-sound = { $items ->
    [one] 1 item
   *[other] { $items } items
} of the shop · the books balance
shop-bar-off = { $units ->
    [one] The books are off by 1 unit
   *[other] The books are off by { $units } units
}
shop-bar-stale = No answer from the shop · books last checked at { $time }
shop-bar-unknown = The books cannot be read now
shop-bar-broken = This shop will oversell: lock { $strategy }
shop-bar-figures = { $opening } at the start { $direction ->
    [removed] − { $restocked } written off
   *[added] + { $restocked } restocked
} { $sign } { $sold } sold or reserved + { $stock } left
shop-bar-replica = Answered by server
shop-bar-lock = Lock of the shop:
shop-bar-lab = Races and lessons choose a lock of their own. Their items are not counted above: each has its own ledger.
shop-and-more = and { $count } more

# Items.
shop-empty = There are no items yet.
shop-more-items = More items
shop-left = { $units } left
shop-sold-out = Sold out
shop-returns = A reserved unit may return { $when }, if it is not paid.
shop-returns-soon = A reserved unit may return within a minute.
shop-none-reserved = All units are sold. None is reserved.
shop-return-unknown = All units are sold or reserved. Units of unpaid orders return to the shop.
shop-hidden = This item is no longer sold.
shop-limit = At most { $limit } per customer.
shop-limit-reached = You have { $purchased } in your orders, the most a customer may have.
shop-buy = Add to basket
shop-buy-item = Add { $name } to the basket
shop-quantity = Quantity
shop-quantity-of = Quantity of { $name }
shop-quantity-range = Enter a whole number from { $least } to { $max }.
shop-quantity-most = The basket already has { $present }. The most is { $max } of each item.
shop-quantity-lines = An order has at most { $max } different items.
shop-sku = SKU
shop-item-tabs = Views of the item
shop-item-tab = Item
shop-ledger-tab = Ledger
shop-ledger-of = Ledger of { $name }
shop-go-to-shop = Go to the shop

# While nothing can be ordered.
shop-paused = Selling is paused.
shop-paused-why = The database records no orders now. Your basket is kept, and you can order again as soon as it does.
shop-paused-as-of = This page is as of

# The basket.
shop-basket-empty = Your basket is empty.
shop-each = { $price } each
shop-was = { $now }, was { $was }
shop-line-gone = The shop no longer has this item. Remove it.
shop-line-sold-out = Sold out. Remove it from the basket.
shop-line-few = Only { $units } left. Lower the quantity.
shop-line-beyond = { $left ->
    [0] Remove it from the basket.
   *[other] Lower the quantity to { $left }.
}
shop-limit-have = You already have { $purchased }.
shop-change = Update
shop-remove = Remove
shop-remove-item = Remove { $name }
shop-total = Total
shop-balance-now = Your balance
shop-balance-after = After paying
shop-missing = Missing
shop-order-needs-account = You need an account to order. Your basket is kept.
shop-create-account = Create an account
shop-not-orderable = This basket cannot be ordered. Correct the lines marked above.
shop-place-order = Place the order
shop-accept-total = Order for { $total }
shop-go-on = Continue shopping
shop-held-for = We hold the units for you for { $time }. You pay in the next step.
shop-top-up-later = You can top up then.

# An order.
shop-order-title = { $units ->
    [one] { $name }
   *[other] { $units } × { $name }
}{ $more ->
    [0] {""}
    [one] {" "}and 1 more item
   *[other] {" "}and { $more } more items
}
shop-status-pending = Not paid yet
shop-status-paid = Paid
shop-status-cancelled = Cancelled
shop-status-expired = Not paid in time
shop-status-refunded = Refunded
shop-late = The order was not paid in time
shop-late-detail = Nothing was paid. The time to pay ended at
shop-hold-over = The time to pay is over. The units return to the shop in a moment. Cancel the order to return them now.
shop-units-returned = The units are back in the shop. You can order them again while they last.
shop-held = Held for you for
shop-time-left = { $minutes } min { $seconds } s
shop-pay = Pay { $total }
shop-top-up-and-pay = Top up { $missing } and pay
shop-other-amount = Top up another amount
shop-pay-short = Your balance is { $balance }: { $missing } is missing.
shop-pay-after = Your balance is { $balance }. After paying: { $after }.
shop-cancel = Cancel the order
shop-cancel-question = Cancel the whole order? Its units go back to the shop. This cannot be undone.
shop-cancel-yes = Yes, cancel the order
shop-returned-by-shop = The shop did this.
shop-thanks = Thank you. Your balance is { $balance }.
shop-cancelled = Cancelled. The units are back in the shop, and nothing was paid.
shop-refunded = Refunded. { $total } is back on your account. Your balance is { $balance }. The units are back in the shop.
shop-refund = Refund { $total }
shop-refund-question = Refund the whole order? { $total } goes back to the account that paid, and the units to the shop. This cannot be undone.
shop-refund-yes = Yes, refund { $total }
shop-ordered = Your order
shop-stock-changes = Changes of stock
shop-money-changes = Changes of your balance
shop-no-money-changes = None. Your balance is { $balance }.
shop-ordered-at = Ordered

# The list of orders.
shop-no-orders = You have no orders yet.
shop-pay-within = { $time } left to pay
shop-older-orders = Older orders
shop-lab-orders = { $orders ->
    [one] 1 order of lab items is not shown.
   *[other] { $orders } orders of lab items are not shown.
}
shop-lab-orders-show = Show them
shop-lab-orders-with = { $orders ->
    [one] 1 of these orders is of lab items.
   *[other] { $orders } of these orders are of lab items.
}
shop-lab-orders-hide = Show only the shop’s

# The account.
shop-balance = on your account
shop-top-up-amount = Amount
shop-top-up = Top up
shop-amount-unclear = Enter an amount without commas, such as 25 or 1000.50.
shop-amount-range = Choose 0.01 to 10,000,000.00.
shop-back-to-order = Back to the order
shop-account-ledger = Ledger of your account
shop-no-entries = No entries yet.

# The lab account.
lab-account = Lab account
lab-account-balance = Beside it, { $balance } on your lab account. It pays for items of the lab, and for nothing in the shop.
lab-pay-short = This is of the lab: your lab account pays. Its balance is { $balance }: { $missing } is missing. Refund another order of lab items to get its price back.
lab-pay-after = This is of the lab: your lab account pays. Its balance is { $balance }. After paying: { $after }.
lab-thanks = Paid from your lab account. Its balance is { $balance }.
lab-refunded = Refunded. { $total } is back on your lab account. Its balance is { $balance }. The units are back.
lab-no-money-changes = None. The balance of your lab account is { $balance }.

# Password and sessions.
shop-security = Password and sessions
shop-password-changed = Your password was changed. Your other sessions have ended.
shop-password-old = Current password
shop-password-new = New password
shop-password-change = Change the password
shop-password-wrong = This is not your current password.
shop-password-rule = { $min } to { $max } characters
shop-sessions = Sessions
shop-sessions-about = Your sessions, newest first. An ended session stops working within five seconds.
shop-session-began = Signed in { $when }
shop-session-ends = ends { $when }
shop-session-current = This session
shop-session-end = End session
shop-older-sessions = Older sessions

# Signing in and up.
shop-name = Name
shop-password = Password
shop-sign-in-wrong = The name or the password is wrong.
shop-sign-in-disabled = This account is disabled. Ask the keeper of the shop.
shop-session-ended = Your session has ended. Sign in again to continue.
shop-session-ended-form = Your session had ended when you sent the form: nothing was changed. Sign in again; what you typed is kept.
shop-new-here = New here?
shop-have-account = Already have an account?
shop-welcome = New accounts start with { $credit } to spend in this demo shop.
shop-name-rule = 1 to 64 characters: a–z (capitals count as small letters), 0–9, dot, dash and underscore; names that begin with “lab-” are reserved
shop-name-taken = This name is taken. Choose another one.

# Ledgers.
shop-books-sound = The books balance
shop-books-off = The books do not balance
shop-drift = drift
shop-oversold = oversold
shop-breaks = breaks
shop-forks = forks
shop-recent-only = Oversold, breaks and forks cover the latest { $entries } entries.
shop-audit-all = Audit the whole ledger
shop-ledger-about = Newest first. Each entry should begin where the entry below it ended.
shop-ledger-forks-about = Two entries that read the same version are a fork: a lost update.
shop-ledger-fence-about = A fencing token numbers the holders of the lock. A later holder has a higher number, and Postgres rejects writes with a lower one. Redis reserves 64 numbers with each grant.
shop-ledger-order = order
shop-ledger-version = version { $version }
shop-ledger-fence = fencing token { $fence }
shop-ledger-request = request
shop-ledger-fork = Fork: it read version { $version }, as did
shop-ledger-broken = The chain is broken here: the entry below ended at { $ended }, this one begins at { $begins }.
shop-ledger-newest = Newest entries
shop-ledger-older = Older entries
shop-reason-opening = opening stock
shop-reason-order = order
shop-reason-cancel = cancelled
shop-reason-refund = refund
shop-reason-expiry = not paid in time
shop-reason-restock = restock
shop-reason-correction = correction
shop-reason-damaged = damaged
shop-reason-payment = payment
shop-reason-top-up = top-up
shop-reason-welcome = welcome credit
shop-delta = Change by
shop-delta-unclear = Enter a whole number such as 20 or −3.
shop-reason = Reason
shop-reason-rule = Enter 1 to 64 characters on one line. The shop’s own reasons (order, refund …) are reserved.
shop-restock = Change the stock
shop-limit-label = Limit per customer
shop-limit-rule = Enter 1 to { $max }, or leave it blank for no limit.
shop-no-limit = no limit

# Times.
shop-time-now = just now
shop-ago-minute = { $count ->
    [one] 1 minute ago
   *[other] { $count } minutes ago
}
shop-ago-hour = { $count ->
    [one] 1 hour ago
   *[other] { $count } hours ago
}
shop-ago-day = { $count ->
    [one] 1 day ago
   *[other] { $count } days ago
}
shop-in-minute = { $count ->
    [one] in 1 minute
   *[other] in { $count } minutes
}
shop-in-hour = { $count ->
    [one] in 1 hour
   *[other] in { $count } hours
}
shop-in-day = { $count ->
    [one] in 1 day
   *[other] in { $count } days
}

# The API reference.
shop-api = API reference
shop-api-language = The descriptions are those of this document, in English:
shop-api-contents = Sections
shop-api-session = Session
shop-api-session-needed = needed: Authorization: Bearer TOKEN
shop-api-session-open = not needed
shop-api-in-header = header
shop-api-in-query = query
shop-api-in-path = path
shop-api-required = required
shop-api-body = Body
shop-api-problems = Problems
shop-api-schemas = Schemas
