"""You are the scheduler, on a Postgres in the browser: the page, and the data of its script. Levels come
from the lab's description, statements and tables from the shop."""

import json
import re
from pathlib import Path

from frame import Page

ROOT = Path(__file__).parent.parent
LEVELS = ROOT / "crates/holdfast-lab/src/scheduler_game/levels.json"
# Words of which only one of the shop's statements has all.
STATEMENTS = {
    "create_item": ("insert into items (sku, name, price_cents, stock, opening",),
    "open_ledger": ("values ($1, 0, $2::bigint, $2, 0, 'opening', $3)",),
    "read": ("join lateral (select * from items where sku = any($1)", "nextval('stock_ledger_seq_seq')"),
    "place": ("locked_items as materialized", "inserted_lines as", "new_orders as"),
    "audit": ("sold_twice as", 'as "oversold!"', 'as "is_complete!"'),
}
PGLITE_FILES = ("pglite.wasm", "pglite.data", "initdb.wasm")


def statements():
    """Returns the shop's own statements, as sqlx has them."""
    queries = [json.loads(path.read_text(encoding="utf-8"))["query"] for path in sorted((ROOT / ".sqlx").glob("*.json"))]
    found = {}
    for name, words in STATEMENTS.items():
        matching = [query for query in queries if all(word in query for word in words)]
        if len(matching) != 1:
            raise SystemExit(f"site: {len(matching)} statements of the shop are like {name}")
        found[name] = matching[0]
    return found


def migrations():
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / "migrations").glob("*.sql"))]


def levels():
    return json.loads(LEVELS.read_text(encoding="utf-8"))


def segments(state):
    """Returns kind and code of an order's steps, from a game that has not begun."""
    first = re.search(r'(?s)<ol class="code">(.*?)</ol>', state)[1]
    found = re.findall(r'(?s)<li class="(\w+)[^>]*><pre>(.*?)</pre>', first)
    return [{"kind": kind, "code": code} for kind, code in found]


def card(state, who):
    found = re.search(rf'(?s)<article class="game-order" aria-labelledby="order-{who}">.*?</article>', state)
    return found[0] if found else ""


def with_rejections(t, level, states):
    """Says in a recorded game which writes were rejected, as scheduler.js does: in the order's card,
    from then on, and in the step."""
    cards, steps, shown = {}, {}, [states[0]]
    for number, (who, before, state) in enumerate(zip(level["solution"], states, states[1:])):
        tried = '<li class="write current"' in card(before, who)
        if tried and '<li class="write passed"' not in card(state, who):
            entry = re.search(r'<span class="fine">(.*?)</span>', state)[1]
            version, *fence = re.findall(r"\d+", entry)
            message = "site-scheduler-rejected-fenced" if fence else "site-scheduler-rejected"
            cards[who] = steps[number] = t(message, version=version, fence="".join(fence))
        shown.append(say_rejected(t, state, cards, steps))
    return shown


def say_rejected(t, state, cards, steps):
    for who, rejected in cards.items():
        of_order = card(state, who)
        said = re.sub(r'(?s)<p class="(?:next-step-of|result[^"]*)">.*?</p>', rf'\g<0><p class="rejected">✗ {rejected}</p>', of_order, count=1)
        state = state.replace(of_order, said)

    numbers = iter(range(len(state)))

    def step(found):
        rejected = steps.get(next(numbers))
        if not rejected:
            return found[0]
        # The shop says it without the version.
        for value in range(3):
            again = t("site-scheduler-rejected-again", rejected=rejected, value=value)
            if (said := found[0].replace(t("scheduler-step-conflict", value=value), again)) != found[0]:
                return said
        return re.sub(r"(?s)(?=\s*(?:<b>.*)?</li>)", f" → {rejected}", found[0], count=1)

    taken = lambda found: re.sub(r"(?s)<li.*?</li>", step, found[0])
    return re.sub(r'(?s)<ol class="taken-steps">.*?</ol>', taken, state)


def game_data(t, games, sizes):
    described = levels()
    described["bytes"] = {name: sizes[name] for name in PGLITE_FILES}
    for level in described["levels"]:
        level["segments"] = segments(games[level["name"]][0])
    texts = t.starting_with("scheduler-", "site-scheduler-", "shop-ledger-", "shop-reason-")
    return {**described, "language": t.language, "texts": texts}


def as_script(name, value):
    """A script that sets a variable: a page from the file system can load it, unlike JSON."""
    return f"window.{name} = {json.dumps(value, ensure_ascii=False, separators=(',', ':'))};\n"


def scheduler_page(t, data, mb, packed, kb):
    root = "" if t.language == "en" else "../"
    items = []
    for number, level in enumerate(data["levels"], 1):
        name = level["name"]
        colon = "：" if t.language == "zh" else ": "
        title = t(f"scheduler-level-{name}-title")
        real = t("site-scheduler-lock-modelled" if "held" in level["points"] else "site-scheduler-all-real")
        items.append(f"""<li class="level"><h2>{number}. {title}</h2>
<p>{t(f"scheduler-level-{name}-goal")} <span class="badge">{real}</span></p>
<p class="buttons"><button class="main" type="button" data-play="{name}">{t("scheduler-play")}<span class="unseen">{colon}{title}</span></button>
<button type="button" data-watch="{name}">{t("site-scheduler-watch")}<span class="unseen">{colon}{title}</span></button></p></li>""")
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    main = f"""<h1>{t("lab-scheduler-title")}</h1>
<p class="lead">{t("scheduler-lead")}</p>
<p>{t("site-scheduler-real")}</p>
<p class="hint">{t("site-scheduler-size", mb=mb, packed=packed, kb=kb)}</p>
<noscript><p>{t("site-scheduler-no-script")}</p></noscript>
<ol class="levels needs-script">{"".join(items)}</ol>
<p id="state" role="status"></p>
<p id="announce" class="unseen" role="status"></p>
<section id="recording" class="recording" aria-labelledby="recording-title" hidden></section>
<div id="game" tabindex="-1" data-assets="{root}assets/" data-recordings="{root}assets/recorded-{t.language}.js"></div>
<script type="application/json" id="scheduler-data">{embedded}</script>"""
    head = "<noscript><style>.needs-script { display: none; }</style></noscript>\n"
    return Page(t, "scheduler.html", t("lab-scheduler-title"), main, ("lab.css", "scheduler.css"), ("scheduler.js",), head)
