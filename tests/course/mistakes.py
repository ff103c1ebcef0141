"""Mistakes of learners, each with what a check has to say: the file, the line and the reason.

`script/test-course` runs them. The code is that of `acquire`, from line 3 or 4 on; a whole file if it
has several lines.
"""

PYTHON = """from holdfast_course import redis
def acquire(key, wait_s, ttl_ms):
    {}
    return 'token'
def release(key, token):
    return True
"""
JAVASCRIPT = """const {{ redis, sleep }} = require('./holdfast_course.js');
exports.acquire = async (key, waitS, ttlMs) => {{
  {}
  return 'token';
}};
exports.release = async (key, token) => true;
"""
RUST = """#![allow(unused, unreachable_code)]
use std::time::Duration; use crate::{{redis, Cancelled, Reply, Result}};
pub fn acquire(key: &str, wait: Duration, ttl_ms: u64) -> Result<Option<(String, Option<i64>)>> {{
    {}
    Ok(Some((key.to_owned(), None)))
}}
pub fn release(key: &str, token: &str) -> Result<bool> {{ Ok(true) }}
"""
ENDLESS = "A call of acquire did not end within wait_s and 5 more seconds"

MISTAKES = {
    "python": (PYTHON, [
        ("print('here', 1)", "lock.py, line 3: it prints 'here 1' to stdout"),
        ("redis('SET', key", "lock.py, line 3: '(' was never closed"),
        ("return key.size", "lock.py, line 3: AttributeError"),
        ("raise SystemExit(1)", "lock.py, line 3: SystemExit"),
        ("import redys", "lock.py, line 3: it imports redys, which is not installed: python3 -m pip"),
        ("return None", "acquire granted nothing"),
        ("while True: pass", ENDLESS),
        ("from redys import x\ny = 1\n", "lock.py, line 1: it imports redys, which is not installed"),
        ("acquire = 1\n\n", "lock.py has no function acquire"),
        ("\n\nraise ValueError('early')\n", "lock.py, line 3: ValueError: early"),
    ]),
    "javascript": (JAVASCRIPT, [
        ("console.log('here');", "lock.js, line 3: it prints \"here\" to stdout"),
        ("redis('SET', key;", "lock.js, line 3: SyntaxError"),
        ("return key.size.of;", "lock.js, line 3: TypeError"),
        ("require('redys');", "lock.js, line 3: Error: Cannot find module 'redys': npm install it here"),
        ("return null;", "acquire granted nothing"),
        ("for (;;);", ENDLESS),
        ("await new Promise(() => {});", ENDLESS),
        ("setTimeout(() => { throw new Error('later'); }, 5);", "Error: later"),
        ("\nrequire('redys');\n", "lock.js, line 2: Error: Cannot find module 'redys': npm"),
        ("\nexports.acquire = 1;\n", "lock.js exports no function acquire"),
        ("\nthrow new Error('early');\n", "lock.js, line 2: Error: early"),
    ]),
    "rust": (RUST, [
        ("println!(\"here {key}\");", "src/lock.rs, line 4: it prints \"here item:"),
        ("redis(&[\"SET\", key;", "src/lock.rs:4"),
        ("let x: Option<u8> = None; x.unwrap();", "src/lock.rs:4"),
        ("use redys::x;", "If you mean the crate redys, add it to Cargo.toml: cargo add --manifest-path"),
        ("redys::get(key);", "If you mean the crate redys, add it to Cargo.toml: cargo add"),
        ("return Ok(None);", "acquire granted nothing"),
        ("loop {}", ENDLESS),
    ]),
}

# Locks that are wrong in one place: the solution of a level in Python with these replacements, and the
# rule that finds it.
WRONG = [
    (1, {"        sleep(0.01)\n": "        pass\n"}, "none at most 400 commands a second of waiting"),
    (3, {"redis(\"EVAL\", RELEASE, 1, key, token) == 1": "redis(\"DEL\", key) == -1"},
     "none no “lost” for a lock that is held"),
    (3, {"    return redis(\"EVAL\", RELEASE, 1, key, token) == 1":
         "    mine = redis(\"GET\", key) == token\n    redis(\"DEL\", key)\n    return mine"},
     "long-work the next holder keeps the lock"),
    (5, {"import threading\n": "import itertools\nimport threading\n",
         "renewals = {}\n": "renewals = {}\nnumbers = itertools.count(1)\n",
         "return token, fence": "return token, next(numbers)"}, "none fences never go back"),
]


def wrong_locks(solutions):
    """Returns of each wrong lock its level, its code and the rule, from the folder of the solutions."""
    for level, replacements, rule in WRONG:
        code = (solutions / f"level_{level}.py").read_text()
        for old, new in replacements.items():
            assert code.count(old) == 1, (level, old)
            code = code.replace(old, new)
        yield level, code, rule


def mistakes(language):
    """Returns the content of the lock's file, and what is to be said of it, per mistake."""
    frame, codes = MISTAKES[language]
    for code, said in codes:
        yield (code if "\n" in code else frame.format(code)), said
