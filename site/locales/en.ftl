# The site that runs without a server (site/). The program does not contain these texts.
site-lead = Holdfast is a web shop that never oversells, and a lab in which you switch off its lock.
site-lead-none = These orders are real, recorded without the lock. Watch, then switch it on.
site-lead-fenced = These orders are real, recorded with the lock on. Switch it off to compare.
site-lead-local = These orders are real, recorded with a mutex in each server. It covers only its own.
site-what = Holdfast is a web shop that never sells more than it has, and a lab in which you switch off its lock and watch it oversell.
site-scrub = Position
site-why-title = What was oversold, and why
site-why = One unit was left. Both servers read 1, both wrote 0, and both answered “sold”. No request failed and the stock is not negative, but one unit was sold twice. This is a lost update. It happens wherever a program reads a value, computes a new one and writes it back.
site-cure = A lock prevents it if it covers the read and the write of every server. A mutex in each server does not. A lock in Redis does, until its holder is paused for longer than the lock lasts, or Redis fails over. With fencing tokens, Postgres rejects such a late write.
site-which-title = Which lock?
site-which-one = One process changes the value: a mutex in that process (local).
site-which-row = Several processes, and few want one value at a time: a row lock in Postgres (row-lock), or a version that the write compares (version).
site-which-hot = Many want one value at the same time: a Redis lock with fencing tokens that writes what waits together (batched).
site-which-store = The store can compare nothing: a Redis lock that is renewed (watchdog). After a pause or a failover two may hold it.
site-which-more = Five questions, with the price of each answer
site-more-title = Do more, here in the browser
site-scheduler-about = Two real transactions, one after the other or interleaved: you decide. Sell one unit twice in six steps.
site-judged-about = Lock libraries of many languages, and ours, under the same faults. Find the one you use.
site-lessons-about = Three recorded runs: what a pause, a wrong delete and a fencing token do.
site-course-about = Write a lock in your language. Each of eight levels adds a fault.
site-docs-about = How it works, what it costs, how to run it.
site-run = The program does much more than this site: { $command } starts Postgres, Redis and two servers on your machine.
site-embed-title = Put the race in your page
site-embed-about = It is one file of this site, in a frame of 320 px or more.
site-lessons-title = Recorded lessons
site-lessons-lead = Each is a run of the lab as its program saves it: play it, or step through it. All figures come from its ledger.
site-docs-title = Documentation
site-docs-lead = The documents of the repository. Most are in English; the course and the class have a Chinese edition.
site-docs-english = This document is in English only.
site-docs-clone = Commands such as script/…, judge/…, load/… and cargo are run in a clone of Holdfast’s repository; holdfast is the installed program.
site-not-translated = English
site-search = Search
site-search-about = a lock, a language, a store
site-search-found = { $count ->
    [one] 1 lock
   *[other] { $count } locks
}
site-search-none = None of the judged locks has “{ $words }” in its name, language or store.
site-search-rows = { $locks } in { $rows } rows: ↳ is the lock above with its fence
site-columns-title = What the columns mean
site-in-the-lab = { $lesson } (in the shop’s lab)
site-judged-own = Your lock is not here? Judge it yourself
site-nav-course = Course
site-nav-scheduler = Scheduler
site-nav-lessons = Lessons
site-nav-docs = Docs
