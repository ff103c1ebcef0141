# You are the scheduler: a game with real orders.
scheduler-lead = Two real orders want the last unit. They stop before every statement. You decide which one runs next.
scheduler-no-script = Without JavaScript you cannot play. The best solution of the first level: A reads 1, B reads 1, A writes 0, B writes 0. Both orders are sold, and one unit was sold twice.
scheduler-level-oversell-title = Sell one unit twice
scheduler-level-oversell-goal = There is no lock. Make both orders sell the last unit. It takes 6 steps.
scheduler-level-version-title = Let the version decide
scheduler-level-version-goal = There is no lock, but each write now requires the version that its order read ($3 in the statement). Take the same 6 steps, and see the second write rejected.
scheduler-level-useless-lock-title = Make the lock useless
scheduler-level-useless-lock-goal = Both orders use a Redis lock with a lease. Sell the unit twice in 9 steps. You can end the lease at any time.
scheduler-level-fence-title = Use the fence
scheduler-level-fence-goal = Every write now shows its fence. Let one order lose its lease, see its late write rejected, and let it respond. It takes 10 steps.
scheduler-level-free-title = Free game
scheduler-level-free-goal = Choose any order of steps. Can you sell more than there is?
scheduler-open = Your open games
scheduler-open-game = { $steps ->
    [one] 1 step
   *[other] { $steps } steps
} · { $minutes ->
    [one] 1 minute left
   *[other] { $minutes } minutes left
}
scheduler-continue = Continue
scheduler-end = End
scheduler-full-player = { $games } games of yours are open: continue one of them, or end it.
scheduler-full-replica = This server has as many games as it can play at a time. Try again in a minute.
scheduler-full-row-lock = No more orders can use the row lock at a time: choose another lock, or try again in a minute.
scheduler-play = Play
scheduler-strategy = Lock
scheduler-orders = Orders
scheduler-two = two, for the last unit
scheduler-three = three, for the last two units
scheduler-order = Order { $order }
scheduler-has-lock = has the lock
scheduler-believes-lock = believes it has the lock
scheduler-steps = { $steps ->
    [0] Choose who goes first
    [one] 1 step taken
   *[other] { $steps } steps taken
}
scheduler-reached = Goal reached in { $steps } steps
scheduler-missed = All orders have ended. The goal was not reached: undo a step, or start again.
scheduler-refused-over = All orders have ended, so there are no more steps. You can undo a step, or start again.
scheduler-refused-steps = The game has 100 steps, the maximum. You can undo a step, or start again.
scheduler-refused-undo = The undo failed, and this game is as before: the steps did not have the same effect again in time. Try it once more.
scheduler-stars = { $stars } of 3 stars
scheduler-books = stock at the start { $opening } · sold { $sold } · in stock { $stock }
scheduler-oversold = { $units ->
    [one] 1 unit sold twice
   *[other] { $units } units sold twice
}
scheduler-waits-lock = Waiting for the lock.
scheduler-waits-row = Waiting for Postgres: another order has locked the row and has not committed.
scheduler-undo = Undo
scheduler-expire = End the lease
scheduler-again = Start again
scheduler-next-level = Next level
scheduler-keys = Keys: { $orders ->
    [2] A and B
   *[other] A, B and C
} take a step, U undoes one{ $leases ->
    [yes] , X ends the lease
   *[no] {""}
}, R starts again.
scheduler-undo-about = A real order cannot be undone: undo starts a new game and repeats the steps before.
scheduler-left = { $minutes ->
    [one] This game ends in 1 minute.
   *[other] This game ends in { $minutes } minutes.
}
scheduler-taken = Steps
scheduler-goal = goal
scheduler-ledger = Ledger, newest entry first
scheduler-fences = Each lease reserves { $fences } fences, for orders of one server that follow one another without asking Redis. So the fence of the next lease is { $fences } higher.
scheduler-fork = Fork: another entry was computed from the same version.
scheduler-step = { $order }: { $did }
scheduler-step-expired = Redis deletes the lock: the lease has ended
scheduler-step-waits = waits
scheduler-step-waits-notice = waits until its server notices that the lease has ended
scheduler-rejected = write rejected: the row has version { $version }
scheduler-rejected-fenced = write rejected: the row has version { $version } and fence { $fence }
scheduler-rejected-again = { $rejected }; it reads again, and stock is { $value }
scheduler-saw = stock is { $value }
scheduler-fence = fence { $value }
scheduler-next-lock = get the lock
scheduler-next-read = read the stock
scheduler-next-compute = compute the new stock
scheduler-next-sold-out = find it sold out
scheduler-next-write = write the new stock
scheduler-next-write-commit = write and commit
scheduler-next-acknowledge = receive the confirmation
scheduler-next-prepare = prepare the commit
scheduler-next-commit = commit
scheduler-next-unlock = release the lock
scheduler-next-finish = finish the request
scheduler-next-respond = respond
scheduler-result-sold = ✓ sold: stock { $before } → { $after }
scheduler-result-sold-out = sold out
scheduler-result-timeout = timed out waiting for the lock
scheduler-result-stale = stale write rejected: the lease was lost and a later holder wrote
scheduler-result-failed = failed: { $why }
scheduler-code-compute = new stock = stock − 1
scheduler-code-sold-out = nothing in stock: sold out
scheduler-code-uncommitted = written, not committed
scheduler-code-acknowledged = committed
scheduler-code-finish = finish
scheduler-code-respond = respond
# On the site, where it is played on a Postgres in the browser.
site-scheduler-real = These are real statements on a real Postgres 18, which runs in this page: the same as the shop sends. One connection plays both orders, statement by statement. The lock in Redis is modelled: there is no Redis here.
site-scheduler-size = Playing loads Postgres: { $mb } MB, { $packed } MB if the server compresses; then it starts in 5 to 20 seconds. Watching loads { $kb } kB. Nothing is loaded before you press.
site-scheduler-loading = Loading Postgres: { $loaded } of { $total } MB. You can watch a solution meanwhile.
site-scheduler-loading-watched = Loading Postgres: { $loaded } of { $total } MB. Once it is here, press “Play” at a level.
site-scheduler-starting = Starting Postgres: 5 to 20 seconds …
site-scheduler-tables = Postgres runs. Creating the shop’s tables: { $done } of { $all } …
site-scheduler-opening = Putting the item into the shop …
site-scheduler-no-wasm = Postgres cannot be loaded here (a page that is opened from a file cannot load WebAssembly). The recording below plays the best solution of each level, from the shop.
site-scheduler-failed = Postgres could not be loaded: { $why }. The recording below plays the best solution of each level.
site-scheduler-broken = This did not work: { $why }. Start the level again.
site-scheduler-all-real = all real
site-scheduler-lock-modelled = lock modelled
site-scheduler-recording = Recording: the best solution, played in the shop
site-scheduler-watch = Watch the solution
site-scheduler-modelled = modelled
site-scheduler-undo-about = A committed statement cannot be undone: undo starts with a new item and repeats the steps before.
site-scheduler-previous = Back
site-scheduler-next = Forward
site-scheduler-pause = Pause
site-scheduler-resume = Play by itself
site-scheduler-moment = Step { $step } of { $steps }. { $words }
site-scheduler-moment-first = Both orders wait for their first step.
