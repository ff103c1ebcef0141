# The swimlane: the drawing of requests over time, and its list of steps.
swimlane-name = Swimlane: arrow keys step, the space bar plays
swimlane-back = Back
swimlane-next = Next
swimlane-play = Play
swimlane-pause = Pause
swimlane-speed = Speed
swimlane-step = Step
swimlane-count = Step { $step } of { $steps }
swimlane-overlap = both read the same value
swimlane-legend-lock = has the lock
swimlane-legend-waiting = waits
swimlane-legend-loss = loss
swimlane-legend-working = works without a lock
swimlane-list = { $steps ->
    [one] The one step as a list
   *[other] The { $steps } steps as a list
}
swimlane-with-fence = { $text }, fence { $fence }
swimlane-with-key = { $text } ({ $key })
swimlane-event-sent = is sent
swimlane-event-answered = is answered { $value }
swimlane-event-broken = gets no answer
swimlane-event-begin = begins, without a lock
swimlane-event-wait = asks for the lock
swimlane-event-held = has the lock
swimlane-event-read = reads { $value }
swimlane-event-write = writes { $value }
swimlane-event-commit = is about to commit
swimlane-event-autocommit = is about to write and commit, in one statement
swimlane-event-committed = has committed
swimlane-event-release = releases the lock
swimlane-event-end = is finished
swimlane-event-expire = has created the key, and is about to set its expiry
swimlane-event-delete = has checked that it owns the lock, and is about to delete it
swimlane-event-paused = is paused
swimlane-event-resumed = continues
swimlane-event-killed = is killed
swimlane-event-refused = learns that its write was refused
swimlane-event-lost = releases the lock, and learns that it was lost
swimlane-label-read = read { $value }
swimlane-label-write = write { $value }
swimlane-label-held = lock
swimlane-label-release = unlock
swimlane-label-committed = commit
swimlane-label-paused = paused
swimlane-label-answered = answer { $value }
swimlane-label-rejected = rejected, { $value }
swimlane-label-killed = killed
swimlane-label-held-fence = lock, fence { $fence }
swimlane-label-loss = write { $value }, lost update
swimlane-label-refused = refused
swimlane-label-lost = lock lost
swimlane-label-resumed = continues

# A run saved as one HTML file.
saved-about = a saved run: it plays without a server, and a lab can open this file
saved-facts = Measurements
