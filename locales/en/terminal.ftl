# A lesson in a terminal.
terminal-run-one = Run one with: holdfast lesson NAME
terminal-page = The run with all details: { $page }
terminal-queued = queued: number { $place } in line
terminal-sample = { $strategy }: sold { $sold }, stock { $stock }, oversold { $oversold }, waiting { $waiting }
terminal-contradicts = contradicts the claim
terminal-shown = SHOWN: { $verdict }
terminal-not-shown = NOT SHOWN: { $verdict }
terminal-failed = FAILED: { $verdict }
terminal-next = Next: holdfast lesson { $name }
terminal-opening = opening
terminal-sound = sound
terminal-not-sound = NOT SOUND
terminal-more-events = … and { $count } more events, on the page of the run
terminal-legend =
    in order of time, gaps shortened:  · in flight  = holds the lock  - works without a lock
    w requests the lock, h acquires it, r reads, W writes, c before the commit, C committed,
    R releases the lock, e before EXPIRE, d before DEL, P paused, > resumed, X killed
