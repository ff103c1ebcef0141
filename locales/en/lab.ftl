# The lab: map of lessons, lesson page, run page.
lab-title = Lab
lab-lead = Answer a question, watch real orders race, and see what the ledger says.
lab-lessons = Lessons
lab-chapter-done = { $done } of { $all } done
lab-lesson-done = done
lab-start = Start here: { $title }
lab-continue = Continue: { $title }
lab-minutes = { $minutes } min
lab-level = difficulty { $level } of 3
lab-after = after { $lessons }
lab-scheduler-title = You are the scheduler
lab-scheduler-lead = Two orders, one unit. You decide which order takes the next step.
lab-scheduler-play = Play
lab-load-title = Your own load
lab-load-lead = Compare strategies under the same load
lab-runs-title = Recent runs
lab-runs-none = No runs yet.
lab-earlier-runs = Earlier runs
lab-nothing-run = Nothing was run
lab-run = Run
lab-own-run = Your own load: { $strategies }
lab-needs-redlock = Not available here: start the shop with --redlock 3.
lab-access-sign-in = Sign in to run this.
lab-access-admin = Only the admin may start a run in this lab.

## Lesson
lab-answer = Answer
lab-answer-and-run = Answer and run
lab-first-answer = The first answer counts.
lab-watch-run = Watch the run
lab-see-run = See what happened
lab-run-without-answer = Run without a guess
lab-present = Present
lab-present-end = End the presentation
lab-handout-answers = Answers
lab-handout-print = Print this page for a handout: the question, and the answers on a second page.
lab-settings = Settings
lab-settings-hint = (leave blank for the default)
lab-code-title = The code that runs
lab-claim-title = What happens
lab-claim-usual = What happens with the lesson’s own settings
lab-your-answer = Your answer:
lab-next-lesson = Next: { $title }
lab-takeaways = Takeaways
lab-handout-why = Your answer, and why:
lab-wrong-guess = Choose one of the answers.

## Settings
lab-field-strategies = Strategies, 1 to 6
lab-field-journey = Each buyer
lab-field-stock = Units in stock
lab-field-buyers = Concurrent buyers
lab-field-orders = Orders in total
lab-field-work-ms = Work between read and write, ms
lab-field-ttl-ms = Lease, ms
lab-field-seed = Random seed
lab-field-wait = If the lock is taken
lab-field-fault = Fault
lab-field-fault-at-ms = Starts after, ms
lab-field-fault-for-ms = Lasts, ms
lab-default-lease = the server’s
lab-any-number = any number
lab-range = { $least } to { $most }
lab-wrong-number = Type a whole number, { $range }.
lab-wrong-choice = Choose one from the list.
lab-wrong-lesson = Choose one of { $names }.
lab-wrong-strategy = { $name } is not one of { $names }.
lab-wrong-units = Under units the load orders, and there is at least one unit: payments change no unit.
lab-wrong-wait-name = Choose try, retry or notify.
lab-wrong-strategies = Choose 1 to 6 strategies.
lab-wrong-wait = One of the strategies does not have this mode.
lab-wrong-node = This shop has no quorum; start it with --redlock 3.
lab-wrong-redlock = { $strategy } is not available here; start the shop with --redlock 3.
lab-journey-order = orders one unit of the same item
lab-journey-pay = pays orders from the same account
lab-wait-default = strategy’s default
lab-wait-try = try: fail at once
lab-wait-retry = retry: poll
lab-wait-notify = notify: wait for the handoff
lab-wait-hint = for strategies with a choice
lab-fault-title = Add a fault
lab-fault-none = none
lab-fault-pause-replica = pause a replica
lab-fault-kill-replica = kill a replica
lab-fault-pause-redis = pause Redis
lab-fault-restart-redis = kill and restart Redis
lab-fault-flush-redis = delete all data in Redis
lab-fault-pause-node = pause one Redlock node
lab-fault-times = after { $at } ms, for { $for } ms

## States of a run
lab-state-queued = Queued
lab-state-running = Running
lab-state-failed = Failed
lab-state-shown = Effect shown
lab-state-not-shown = Effect not shown
lab-state-done = Done
lab-queued-at = Queued, { $position ->
    [1] 1st
    [2] 2nd
    [3] 3rd
   *[other] { $position }th
} in line
lab-live-title = The run so far
lab-reconnecting = Connection lost. Reconnecting …

## Verdict
lab-player-title = Slow motion
lab-pair = Both requests read { $before }, { $apart } apart, and both wrote { $after }.
lab-waits-retry = The lesson lets A work for 120 ms, so that B and C have to wait. Here they ask again every { $retry_ms } ms or so: after A’s release, the lock is idle until one of them asks.
lab-waits-queue = The same in a queue: A’s release wakes the next one, and nobody asks in vain. Here the last one got the lock { $ms } ms after A’s release.
lab-handle-ttl-ms = Lease of A
lab-handle-work-ms = Pause of A
lab-handle-gap-ms = Pause of A between its read and its write
lab-handle-retry-ms = Between two attempts
lab-run-it = Run it
lab-computed = Move a slider, or drag its mark in the drawing: picture and sentence are computed from the durations of this run. “Run it” measures. All else on this page is the run as it was recorded.
lab-outcome-kept = { $sold } sold, stock { $opening } → { $left }: nothing is lost.
lab-outcome-lost = { $sold } sold, stock { $opening } → { $left }: a sale is lost.
lab-outcome-waited = The last one gets the lock { $ms } ms after A’s release.
lab-compare = { $slow }: { $slow_orders } { $slow_orders ->
    [one] order
   *[other] orders
}, { $slow_commits } { $slow_commits ->
    [one] commit
   *[other] commits
}. { $fast }: { $fast_orders } { $fast_orders ->
    [one] order
   *[other] orders
}, { $fast_commits } { $fast_commits ->
    [one] commit
   *[other] commits
}. Both on one time scale.
lab-verdict-title = Result
lab-verdict-failed = The run failed
lab-verdict-oversold = { $units ->
    [one] unit sold twice
   *[other] units that do not exist
}
lab-verdict-overspent = paid without cover
lab-verdict-forks = { $forks ->
    [one] lost update
   *[other] lost updates
}
lab-verdict-drift = difference between stock and ledger
lab-verdict-sold = of { $opening } units sold, none twice
lab-verdict-paid = of { $opening } paid, nothing twice
lab-verdict-times = { $ratio } ×
lab-verdict-fastest = as many orders per second with { $fastest } as with { $slowest }
lab-books-balance = The books of this run balance
lab-books-off = The books of this run do not balance
lab-books-bar = (the bar above is about the shop’s)
lab-books-broken = books broken
lab-guess-was-right = That is what happened.
lab-guess-was-wrong = Not quite.
lab-guess-right-is = The answer is:
lab-guess-not-judged = This run did not show the effect, so your answer is not judged.
lab-beside-title = Side by side: the same arrivals
lab-run-again = Run it again
lab-back = Back to the lab

## Answers of all visitors
lab-guesses-title = { $count ->
    [one] 1 answer so far
   *[other] { $count } answers so far
}
lab-strategy-column = Strategy
lab-share-column = Share
lab-count-column = Visitors
lab-guess-own = your answer
lab-guess-right = correct

## Details of a run
lab-details = Details
lab-figures-title = Figures
lab-rates-title = Orders per second
lab-curves-title = Sold over time
lab-waits-title = Response times
lab-samples-title = { $strategy }: samples
lab-figure-opening = opening stock
lab-figure-sold = sold
lab-figure-left = left
lab-figure-oversold = oversold
lab-figure-undersold = undersold
lab-figure-money-sold = paid
lab-figure-money-left = balance
lab-figure-money-oversold = overspent
lab-figure-money-undersold = not spent
lab-figure-money-rate = payments/s
lab-figure-drift = drift
lab-figure-breaks = chain breaks
lab-figure-forks = forks
lab-figure-rate = orders/s
lab-figure-p50 = p50
lab-figure-p99 = p99
lab-figure-answered = responses
lab-figure-waiting = waiting
lab-figure-after = after
lab-figure-statuses = statuses
lab-forks-lead = Forks: entries computed from the same read. Every one after the first sold the same unit again.
lab-forks-lead-money = Forks: entries computed from the same read. Every one after the first spent the same money again.
lab-forks-count = { $forks ->
    [one] 1 fork
   *[other] { $forks } forks, the first { $shown } shown
}
lab-fork-before = before
lab-fork-pair = The first two read version { $version }, { $apart } apart.
lab-fork-all = All of them read version { $version }.
lab-and-more = and { $count } more
lab-unit-again = the same unit again
lab-money-again = the same money again
lab-scenes-title = More of this run
lab-crowds-title = Requests
lab-crowds-lead = One row per request, time from left to right. Long gaps are shortened.
lab-scene = { $requests } requests
lab-scene-under = { $requests } requests under { $strategy }
lab-request = request { $id }
lab-fork-fence = fence { $fence }
lab-steps-title = Steps
lab-started = Started

## Files
lab-file-label = Open a saved run
lab-file-open = Open
lab-file-save = Save this run
lab-file-invalid = The file was not opened. This is not a file that a run was saved to.
lab-file-too-long = The file was not opened. This run has more than 5,000 events, or more than 2 MB: no run of this lab is as long.
lab-not-drawn = Not everything is drawn: this page shows { $events } events at most.
lab-file-unverified = Opened from a file. Its content was not checked against a ledger here.

# A lesson’s primer, and the words of its sketch.
lab-primer = What you need to know first
sketch-read = read { $number }
sketch-write = write { $number }
sketch-order-of = order { $number }
sketch-waits = waits
sketch-works = works
sketch-killed = killed
sketch-commit = commit
sketch-promoted = promoted
sketch-retry = retry
sketch-renews = renews
sketch-order = order
sketch-tea = tea
sketch-coffee = coffee
