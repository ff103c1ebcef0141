# The shop's keeper: items, orders, users and the admin log.
keeper-nav = Admin pages
keeper-items = Items
keeper-items-none = No item matches.
keeper-sku = Sku
keeper-name = Name
keeper-name-zh = Chinese name
keeper-name-zh-about = On Chinese pages. Without one, they show the name above.
keeper-price = Price
keeper-stock = Stock
keeper-limit = Limit
keeper-is-hidden = hidden
keeper-find = Find
keeper-find-item = Sku or name, or a part of it
keeper-more = More

keeper-add = Add an item
keeper-add-button = Add the item
keeper-opening = Opening stock
keeper-description = Description
keeper-settings = Settings
keeper-in-shop = In the shop
keeper-manage = Manage
keeper-hide = Hide from the shop
keeper-hide-about = It is not listed and takes no new orders. Orders that exist go on.
keeper-reason-about = For the ledger, which every customer can read. Such as restock, correction or damaged.
keeper-save = Save
keeper-done-edit = Saved. It applies to orders from now on.
keeper-done-create = The item was added.
keeper-done-stock = The stock was changed. It is in the ledger.
keeper-description-stored = The shop shows the description of this demo item in the visitor’s language. You edit the stored one; once changed, all visitors see it as it is.
keeper-sku-rule = 1 to 64 characters: a–z, 0–9 and dash
keeper-sku-taken = There already is an item with this sku.
keeper-sku-lab = “lab-” and 32 hexadecimal digits name items of the lab. Choose another sku.
keeper-name-rule = Enter 1 to 200 characters on one line.
keeper-price-rule = Enter an amount from 0 to 10,000,000.00 without commas, such as 14.50.
keeper-stock-rule = Enter a whole number from 0 to 1,000,000,000.
keeper-description-rule = At most 2,000 characters.
keeper-delta-below = Only { $stock } in stock: you can remove { $stock } at most.
keeper-delta-above = { $stock } in stock, and at most { $most } can be.
keeper-delta-range = Enter a whole number from −1,000,000,000 to 1,000,000,000, but not 0.
keeper-edit-changed = Somebody has changed this since you opened the page. It is now “{ $now }”. Save again to replace it.

keeper-log = Log
keeper-log-of = Log of { $name }
keeper-log-whole = Whole log
keeper-log-older = Older changes
keeper-log-about = What admins changed, newest first. Stock and money are in their own ledgers.
keeper-colon = {": "}
keeper-log-none = Nothing was changed yet.
keeper-log-when = When
keeper-log-who = Who
keeper-log-what = What
keeper-log-changes = Changes
keeper-action-create-item = item added
keeper-action-edit-item = item changed
keeper-action-cancel-order = order cancelled
keeper-action-refund-order = order refunded
keeper-action-disable-user = user disabled
keeper-action-enable-user = user enabled
keeper-action-end-sessions = sessions ended
keeper-action-set-password = password reset
keeper-field-name = name
keeper-field-name-zh = Chinese name
keeper-field-price-cents = price
keeper-field-description = description
keeper-field-hidden = hidden
keeper-field-limit-per-user = limit
keeper-field-stock = stock
keeper-field-disabled = disabled
keeper-field-status = status
keeper-field-reason = reason
keeper-value-yes = yes
keeper-value-no = no
keeper-value-none = none

# Orders of all users.
keeper-orders = Orders
keeper-order = Order
keeper-order-id = Order, or a part of its number
keeper-user = User
keeper-status = Status
keeper-time-placed = Placed
keeper-time-due = To be paid by
keeper-time-paid = Paid
keeper-time-cancelled = Cancelled
keeper-time-expired = Expired
keeper-time-refunded = Refunded
keeper-any-status = any status
keeper-with-lab = with orders of lab items
keeper-orders-none = No order matches.
keeper-orders-looked = The newest { $orders } were looked through.
keeper-orders-further = Look further back
keeper-no-such-order = there is no order { $order }
keeper-of-user = Order of { $name }
keeper-ordered = Ordered items
keeper-money-changes = Changes of the balance
keeper-no-money-changes = None.
keeper-cancel-question = Cancel the whole order? { $units ->
    [one] One unit goes
   *[other] { $units } units go
} back to stock. This cannot be undone.
keeper-refund-question = Refund the whole order? { $total } goes back to the account of { $name }, and { $units ->
    [one] one unit
   *[other] { $units } units
} to stock. This cannot be undone. Units that do not come back: change the item’s stock by −n afterwards.
keeper-return-reason = Reason, for the log
keeper-return-rule = Enter 1 to { $max } characters on one line.
keeper-done-cancel = The order is cancelled, and its units are back in stock.
keeper-done-refund = { $total } is back on the account of { $name }, and the units are back in stock.
keeper-csv = Download as CSV

# Users.
keeper-users = Users
keeper-users-none = No user matches.
keeper-user-part = User name, or a part of it
keeper-user-since = Signed up
keeper-user-orders = Orders of this user
keeper-user-ledger = Ledger of the account
keeper-user-admin = admin
keeper-user-active = can sign in
keeper-user-disabled = disabled { $when }
keeper-balance = Balance
keeper-user-change = Change this user
keeper-user-self = This is you. You change your own password and sessions on your own page.
keeper-user-disable = Disable
keeper-user-disable-about = A disabled user is signed out and cannot sign in. Orders, account and ledgers stay.
keeper-user-enable = Enable
keeper-user-end = End all sessions
keeper-user-sessions = Sessions now: { $count }
keeper-user-reset = Reset the password
keeper-done-disable = { $name } is disabled. All sessions have ended; other servers notice within five seconds.
keeper-done-enable = { $name } can sign in again.
keeper-done-sessions = All sessions of { $name } have ended; other servers notice within five seconds.
keeper-done-password = The password of { $name } was reset. All sessions have ended; other servers notice within five seconds.
