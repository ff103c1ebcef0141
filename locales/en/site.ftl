# The site that runs without a server (site/). The program does not contain these texts.
site-lead = Two web servers order for two buyers from one Postgres. This race was recorded with real orders: play it, drag it, then switch the lock on.
site-what = Holdfast is a web shop that never sells more than it has, and a lab in which you switch off its lock and watch it oversell.
site-scrub = Position
site-why-title = What was oversold, and why
site-why = One unit was left. Both servers read 1, both wrote 0, and both answered “sold”. No request failed and the stock is not negative, but one unit was sold twice. This is a lost update. It happens wherever a program reads a value, computes a new one and writes it back.
site-cure = A lock prevents it if it covers the read and the write of every server. A mutex in each server does not. A lock in Redis does, until its holder is paused for longer than the lock lasts, or Redis fails over. With fencing tokens, Postgres rejects such a late write.
site-which-title = Which lock?
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
site-not-translated = English
site-scheduler-real = These are real statements on a real Postgres 18, which runs in this page: the same as the shop sends. One connection plays both orders, statement by statement. The lock in Redis is modelled: there is no Redis here.
site-scheduler-size = Playing loads Postgres: { $mb } MB, { $packed } MB if the server compresses. It starts in 5 to 20 seconds. Nothing is loaded before you press.
site-scheduler-loading = Loading Postgres …
site-scheduler-starting = Starting Postgres, creating the shop’s tables …
site-scheduler-no-wasm = Postgres cannot be loaded here (a page that is opened from a file cannot load WebAssembly). The recording below plays the best solution of each level, from the shop.
site-scheduler-failed = Postgres could not be loaded: { $why }. The recording below plays the best solution of each level.
site-scheduler-recording = Recording: the best solution, played in the shop
site-scheduler-watch = Watch the solution
site-scheduler-modelled = modelled
site-scheduler-no-script = Without JavaScript you cannot play. The best solution of the first level: A reads 1, B reads 1, A writes 0, B writes 0. Both orders are sold, and one unit was sold twice.
site-scheduler-undo-about = A committed statement cannot be undone: undo starts with a new item and repeats the steps before.
site-scheduler-previous = Back
site-scheduler-next = Forward
site-search = Search
site-search-about = a lock, a language, a store
site-search-found = { $count ->
    [one] 1 lock
   *[other] { $count } locks
}
site-columns-title = What the columns mean
site-judged-read = A number is the count of lost updates: changes that the ledger has and the stock does not. Read a row as what this lock leaves to you: a lost update under “pause” is no bug of a library.
site-course-short = Course
