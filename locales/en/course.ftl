# The course: write your own lock. Its terminal, the README of its folder, and its page.
course-title = Course: write your own lock
course-lead = Eight levels. Each adds a fault that real locks meet, until only a lock with a fence is left.
course-how = You write two functions, acquire and release. holdfast course check puts them to work: clients in two processes read a number of items in stock, subtract one, and write it back. Then it disturbs them, and reads from a ledger whether an update was lost.
course-needs = It needs Holdfast, and Python (3.9 or later), JavaScript (Node.js 18 or later) or Rust; Redis and Postgres are started for each check. Nothing is sent anywhere.
course-begin = Begin
course-levels = Levels
course-collision = Two requests that collide
course-solved = Level 1, solved

course-level = Level { $level } of 8: { $title }

course-1-title = a lock at all
course-1-fault = none
course-1-learned = Two clients that read the same number both subtract one from it, and one update is lost. A lock that one atomic command sets keeps them apart.
course-1-hint-1 = One command of Redis sets a key only if there is none: SET key value NX. Who gets no reply tries again after a short sleep.
course-1-hint-2 = GET, then SET, are two commands: another client comes between them. Sleep some 10 ms between two attempts, and give up after wait_s.

course-2-title = a lock must expire
course-2-fault = the holder is killed
course-2-learned = A process that died cannot release. A lease ends by itself, so the key needs an expiry when it is set, not afterwards. (A check does not see the difference: no process is killed between two commands here.)
course-2-hint-1 = Redis can delete the key by itself: PX is the time in milliseconds. Use ttl_ms.
course-2-hint-2 = SET and PEXPIRE are two commands: who is killed between them leaves a key that never ends. SET key value NX PX ttl_ms is one.

course-3-title = release only what is yours
course-3-fault = work that outlives the lease
course-3-learned = DEL deletes whoever's lock it is. A token says whose it is, and the comparison and the deletion are one step. (GET, then DEL, would have passed, too: here the lease hardly ever ends between them.)
course-3-hint-1 = Give each acquisition a value of its own, a random token, and delete the key only if it still has this value.
course-3-hint-2 = GET and DEL are two commands, between which the lease can end. A script is one step: EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 key token

course-4-title = renew while working
course-4-fault = work that outlives the lease
course-4-learned = A lease is a guess of how long the work takes. A renewal in the background ends the guess, and ends with the holder.
course-4-hint-1 = Start a thread (or a timer) in acquire that sets the expiry anew every third of the lease, and stop it in release.
course-4-hint-2 = Renew only what is yours: a script compares the token before it calls PEXPIRE. After a failed renewal of a lock that is not yours any more, stop.

course-5-title = the fence
course-5-fault = the holder's process is paused
course-5-learned = No lock can stop a process that does not know that time has passed. The store can: it compares the fence, and refuses who was overtaken.
course-5-hint-1 = From this level on, acquire returns two values: the token and the fence. INCR of a second key counts up.
course-5-hint-2 = The number must be drawn while you hold the lock, best in the same step: a script that sets the key and then returns INCR of another one.

course-6-title = fences must survive the store
course-6-fault = Redis loses its data
course-6-learned = A counter that can be lost is no order. The fence has to come from a store that does not forget what it gave out.
course-6-hint-1 = postgres(…) runs a statement. A sequence gives each number once, and Postgres keeps it. There is one: fences.
course-6-hint-2 = Draw from it after the key was set: select nextval('fences'). Drawn before, it may be lower than that of a client that was faster.

course-7-title = many clients
course-7-fault = twice as many clients
course-7-learned = Who asks again and again costs the server more than the lock, and is served by luck. Who waits in a queue asks once, and is woken in turn.
course-7-hint-1 = Redis can wait for you: BLPOP returns when another client pushes an element, and serves those who wait in their order.
course-7-hint-2 = Let release push one element, a baton, to a list beside the lock. Who gets the baton may set the key. A baton can be lost with its holder: something has to lay down a new one when there is neither a holder nor a baton, without two of them.

course-8-title = everything at once
course-8-fault = failover, partition, cancelled requests, closed connections
course-8-learned = Your lock now keeps what a lock on Redis can keep: exclusion most of the time, progress always, and a fence for the rest.
course-8-hint-1 = Read which fault fails, and what the two clients did. Every call of a server can raise; who waits for a message must survive that it never comes.
course-8-hint-2 = A cancelled acquire must not leave a lock, a place in the queue, or a renewal that goes on without its owner: clean up, and raise again. A background thread that ends with the first error is missed later.

## Creating a folder
course-new = { $folder } is ready. Write acquire and release in { $file }, then run:
course-new-exists = { $folder } exists and is not empty. Name a new folder.
course-readme-files = { $file } is yours. { $helper } speaks with the judge, and has a Redis and a Postgres for you: its first lines say how to call them. .course.json keeps your progress, and can be handed in: it has no name, no password and no code.
course-readme-commands = holdfast course check judges { $file } at your level, in ten seconds to two minutes. With --hint it says what may help. holdfast course status shows all levels.
course-readme-first = Your first task

## Checking
course-passed = passed
course-failed = not passed
course-verdict = { $verdict } ({ $file }, seed { $seed })
course-next = Next: { $task }
course-last = You have passed all levels.
course-what-learned = What this level shows: { $learned }
course-violation = { $fault }: { $found }.
course-evidence = What happened, in order (w0 c2 is client 2 of process 0):
course-picture = Drawn, with all clients: { $file }
course-hint-offer = More hints: holdfast course check { $folder } --hint
course-hint-last = That was the last hint of this level.
course-hint = Hint { $number } of { $count }: { $hint }
course-level-of-option = Progress is not changed, since --level was given.
course-rule-lost = nothing lost
course-lost-late = { $lost }, and { $late } after a turn took half a lease
course-rule-fenced = nothing lost where the fence is compared
course-rule-held = held at least 30 % of the time
course-rule-redis = the lock is in Redis (commands a grant)
course-rule-store = clients of other servers are not excluded
course-rule-burn = at most 400 commands a second of waiting
course-rule-blocked = granted again within { $ms } ms
course-rule-leftover = no key left
course-rule-release = no “ok” for a lost lock
course-rule-true = no “lost” for a lock that is held
course-rule-kept = the next holder keeps the lock
course-rule-fences = fences never go back
course-rule-jain = served evenly: 0.9 or more
course-rule-wait = wait at most 3 × that of a fair queue
course-rule-commands = at most 6 commands a grant
course-rule-starved = nobody starves
course-rule-ran = the fault could strike
course-no-redis = These functions send Redis no command. A lock in a file or in the memory of one process keeps apart the processes of one machine only; the two processes of a check stand for two machines. (holdfast judge judges locks on other servers.)
course-no-store = Two clients, each with a Redis and a Postgres of its own, asked for one key, and only one of them got it. So the lock is not in those servers: it is a file, a socket or a variable of this machine, and two machines would not share it.
course-store-both = both were granted the lock
course-store-one = only one was granted the lock
course-sleeps = Nobody works with the lock for most of the time: clients sleep too long between two attempts, or release answers “true” and leaves the key in Redis.
course-errors = { $calls ->
    [one] 1 call
   *[other] { $calls } calls
} of acquire or release ended with an error, although Redis and Postgres were there. The last one: { $error }
course-burns = Clients that wait ask Redis again and again without a pause, and slow down the holder, too. Sleep some 10 ms between two attempts. (All commands count, those that a script calls, too, but for six a grant.)
course-commands = All commands of all clients are counted, those that a script calls, too: of attempts and renewals, and of what runs in the background, also while nobody wants the lock, those of 10 ms, a turn. Not counted is what opens a connection.
course-stderr = Written to stderr, the last lines under { $fault }:
course-rules = Rule
course-measured = Measured
course-rules-hold = { $rules ->
    [one] 1 other rule holds
   *[other] { $rules } other rules hold
}
course-empty = acquire granted nothing: it returned no token to any client. Is it still empty?
course-endless = A call of acquire did not end within wait_s and { $seconds } more seconds. It has to give up after wait_s.
course-endless-load = The file was not loaded within { $seconds } seconds. What stands outside of the functions runs at the start, and has to end.
course-endless-release = A call of release did not end within { $seconds } seconds. It must not wait for the lock, nor behind a call of acquire that never ends.
course-missing-file = { $file } is missing in { $folder }. A new folder of the course has it.
course-missing-program = { $program } is missing: { $how }
course-not-compiled = cargo could not compile { $file } (see above).
course-missing-crate = If you mean the crate { $name }, add it to Cargo.toml: cargo add --manifest-path { $manifest } { $name }

## Status
course-status-passed = passed { $date }
course-status-current = your level
course-status-open = open
course-status-checks = { $checks ->
    [one] 1 check so far
   *[other] { $checks } checks so far
}

## What happened to a client, or to a server
