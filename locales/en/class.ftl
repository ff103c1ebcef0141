# A class: joining it, the teacher's page, the exercise sheet.

join-title = Join the class
join-code-hint = 6 letters and digits, from the teacher’s screen
join-nickname = Nickname
join-nickname-hint = 1 to { $most } characters. The teacher sees it on the score board.
join-go = Join
join-wrong-code = No class has this code. Look at the teacher’s screen again.
join-wrong-nickname = Type 1 to { $most } characters that can be seen.
join-taken = Somebody is in the class as { $nickname }; capitals do not make another name. Choose another one; if it is yours, ask the teacher to free it.
join-full = { $most } students are in the class: no more can join. Ask the teacher.
join-other-device = There is no password. If your device has lost its place, ask the teacher to free your nickname, and join under it again.
join-teacher = I am the teacher: sign in
join-here = You are in the class as
join-go-on = Go on
join-other = Somebody else?
join-to-run = Join the class to run this.

class-title = Class
class-code = Class code
class-scan = Scan, or type
class-qr = QR code of { $address } with the class code
class-students = Students signed in
class-board = Score board
class-nobody = Nobody has joined yet.
class-count = { $here } of { $all } are signed in, a phone that sleeps too.
class-board-about = A lesson counts once its result was seen; of the answers, the first to each question.
class-run-now = Now: { $title }
class-run-over = Result: { $title }
class-away = signed out
class-answers = Answers
class-right = Right
class-stars = Stars
class-joined = Joined
class-csv-board = Score board (CSV)
class-csv-answers = Answers and hand-ins (CSV)
class-handed-in = Handed in
class-handed-none = Nothing yet. Print the sheet for it:
class-manage = Change
class-choose = choose …
class-all = all students: this computer has another address
class-free = Free the nickname
class-free-about = For a device that has lost its place: the session ends, and who joins under the nickname next goes on with its answers.
class-remove = Remove the student
class-remove-about = For a name that must not stay: the nickname and all answers are deleted. The device can join again under another name.
class-remove-sure = Yes, delete this nickname and its answers
class-reset = Reset the scores
class-reset-about = Deletes the answers, lessons done, stars and hand-ins of all students, who stay in the class. Save the CSV files first.
class-reset-sure = Yes, delete the answers and stars of all
class-end = End the class
class-end-about = { $count ->
    [one] The student leaves
   *[other] All { $count } students leave
} the class: nicknames, answers and hand-ins are deleted, and the code changes. Their orders stay in the ledgers, under random names. Save the CSV files first.
class-end-sure = Yes, end the class and delete nicknames and answers
class-not-sure = tick the box above the button first; nothing was deleted
class-done-free = The nickname is free.
class-done-remove = The student was removed.
class-done-reset = The scores were reset.
class-done-end = The class has ended. A new one joins with the new code.
class-forbidden = This is the teacher’s. If you need it, ask the teacher.
class-forbidden-link = Go to the lessons
class-wrong-host = Type { $address } instead, or scan the code on the teacher’s screen again. If that fails, ask the teacher.
class-no-sign-up = this shop is a class’s: join it with its code, without a password
class-teacher-only = in a class, only the teacher may do this
class-students-only = only a student of the class hands in a run

class-teacher = Teacher
class-go = Go where the teacher is
class-here = You are where the teacher is
class-nowhere = The teacher shows nothing yet
class-follow = Follow
class-show-answers = Show answers
class-late = Late: the answers of the class had been shown.
class-late-count = { $count } late
class-most-wrong = The most votes went to { $number }, and here is why not:
class-most-right = The most votes went to { $number }, and that is right.

hand-in-title = Hand in this run
hand-in-note = What happened, in your words
hand-in-hint = One to three sentences. The teacher reads it with your run; handing in again replaces it.
hand-in-rule = Write 1 to { $most } characters.
hand-in-go = Hand in
hand-in-done = Handed in.
hand-in-other = You have handed in another run of this lesson. This one would replace it.

exercise-title = Exercise sheet
exercise-lead = Answer the question of each lesson, run it, and look at the slow motion. Write one to three sentences, on the page of your run under “Hand in this run”, or here.
exercise-lesson = lesson { $number }
exercise-print = Printed, the sheet has lines to write on.
exercise-lost-update = Find two orders that read the same stock. Write what each read and wrote, and how many units the stock lost for how many sold.
exercise-one-replica = Compare one replica with two. Write why the same mutex holds once and fails once.
exercise-check-then-delete = Find the moment between `GET` and `DEL`. Write what happens in it, and whose lock is deleted.
exercise-outlived = Find the end of the lease. Write what its holder does after it, and why nothing stops the write.
exercise-fence = Find the write that was rejected. Write what Postgres compared, and why comparing the token alone is not enough.
exercise-double-submit = Find the two requests with the same idempotency key. Write what each of them got, and how many orders there are.
class-access-teacher = In a class the teacher starts these. Lessons and races are yours.
