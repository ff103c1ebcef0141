# Which lock: five questions, and the answers.
