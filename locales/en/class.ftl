# A class: joining, its page, hand-ins.
