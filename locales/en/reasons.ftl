# Lessons: what one needs to know before, and why each wrong answer is wrong.
