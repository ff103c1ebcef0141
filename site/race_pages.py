"""The first page, with the race, and the race alone, for a frame of another page. The stage is that
of the shop's first page; its races are recorded."""

import json
import re
from html import escape

from frame import COMMAND, Page
from shop import CROWD, LOCKS, main_of

STYLES = ("swimlane.css", "race.css")
SCRIPTS = ("race.js", "race-choices.js")
# Two races and a tap between them are over within ten seconds.
PLAY_MS = 3_800
NO_SCRIPT = "<noscript><style>#race, #race-proof { display: none; }</style></noscript>\n"


def one(pattern, text):
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise SystemExit(f"site: the shop's race has {len(found)} parts like {pattern}")
    return found[0]


def paced(t, film):
    """Returns a film at the pace of the site; its sentence on the pace says so."""
    pace = PLAY_MS / film["playMs"]
    scale = re.escape(t("race-scale", ms="MS", factor="FACTOR")).replace("MS", r"(\d+)").replace("FACTOR", r"(\d+)")

    def slower(found):
        return t("race-scale", ms=found[1], factor=max(1, round(int(found[2]) * pace)))

    proof, scales = re.subn(scale, slower, film["proof"])
    if scales != ("steps" in film):
        raise SystemExit(f"site: a race has another pace than {scale}: {film['proof']}")
    return {**film, "playMs": PLAY_MS, "proof": proof}


def stage(t, shop_page, films):
    """Returns the shop's stage, with a scrubber and the choices that were recorded."""
    main = main_of(shop_page)
    marks = one(r'(?s)<svg class="unseen".*?</svg>', main)
    form = one(r'(?s)<form class="race" id="race".*?</form>', main)
    texts = one(r'(?s)<script type="application/json" id="race-texts">.*?</script>', main)
    pictures = moving(one(r"(?s)<noscript>.*?</noscript>", main))
    one(r'<p class="race-slider">', form)
    one(r'(?s)<details class="race-locks">.*?</details>', form)

    two, crowd = t("race-crowd-two"), t("race-crowd", buyers=CROWD, stock=CROWD // 2)
    choices = f"""<p class="race-slider"><label for="race-scrub">{t("site-scrub")}</label> <input type="range" id="race-scrub" min="0" max="1000" value="0"></p>
  <fieldset class="race-choice"><legend>{t("race-buyers")}</legend><label><input type="radio" name="buyers" value="2" checked> {two}</label><label><input type="radio" name="buyers" value="{CROWD}"> {crowd}</label> <output class="unseen" id="race-crowd-size"></output></fieldset>
  <fieldset class="race-choice"><legend>{t("race-lock")}</legend>{lock_choice(t, "fenced", True)}{lock_choice(t, "local", False)}</fieldset>"""
    form = re.sub(r'(?s)<p class="race-slider">.*</details>', lambda _: choices, form)
    form = form.replace(' method="post" action="/race"', "")
    form = re.sub(r"\n\s+", "\n", form)

    data = json.dumps(films, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""{marks}
{form}
<div class="race-proof pending" id="race-proof"><p><span id="race-proof-text"></span></p></div>
{texts}
<script type="application/json" id="race-films">{data}</script>
{pictures}"""


def moving(pictures):
    """Lets each step of the drawings appear at its time, also without scripts: one race after the
    other, once, and not for who wants no motion (site.css)."""
    races = iter(range(100))

    def play(drawing):
        begin = next(races)

        def appear(found):
            at = begin + float(re.search(r'x="([\d.]+)%"', found[0])[1]) / 100
            return re.sub(r'class="((?:step|overlap)[^"]*)"', rf'class="\1 appears" style="--at: {at:.3f}"', found[0], count=1)

        steps = re.sub(r'(?s)<g class="step.*?</g>|<rect class="overlap"[^>]*>', appear, drawing[0])
        overlap = re.search(r'class="overlap appears" style="([^"]*)"', steps)
        # Its label appears with it.
        return steps if not overlap else re.sub(r'class="(overlap-label [^"]*)"', rf'class="\1 appears" style="{overlap[1]}"', steps)

    return re.sub(r"(?s)<svg .*?</svg>", play, pictures)


def lock_choice(t, lock, is_chosen):
    checked = " checked" if is_chosen else ""
    return f'<label><input type="radio" name="lock" value="{lock}"{checked}> {t(f"race-lock-{lock}")}</label>'


def preview(t, verdict, image):
    return f"""<meta property="og:title" content="{t("race-question")}">
<meta property="og:description" content="{escape(t("site-what"))}">
<meta property="og:image" content="{image}">
<meta property="og:image:width" content="1200">
<meta property="og:image:height" content="630">
<meta property="og:image:alt" content="{verdict}">
<meta name="twitter:card" content="summary_large_image">
"""


def card(t, path, title, about):
    return f'<li><h3><a href="{path}">{t(title)}</a></h3><p>{t(about)}</p></li>'


def first_page(t, stage_html, head):
    frame = '<iframe src="…/race.html" title="Holdfast" width="100%" height="760"></iframe>'
    answers = [t(f"site-which-{name}") for name in ("one", "row", "hot", "store")]
    locks = "".join(f"<li>{answer}</li>" for answer in answers)
    space = "" if t.language == "zh" else " "
    leads = "".join(f' data-{lock}="{escape(t(f"site-lead-{lock}"))}"' for lock in LOCKS)
    main = f"""<h1 class="race-question" id="race-question">{t("race-question")}</h1>
<p class="race-lead">{t("site-lead")}{space}<span id="race-lead"{leads}>{t("site-lead-none")}</span></p>
{stage_html}
<section aria-labelledby="why"><h2 id="why">{t("site-why-title")}</h2>
<p>{t("site-why")}</p>
<p>{t("site-cure")}</p></section>
<section aria-labelledby="which"><h2 id="which">{t("site-which-title")}</h2>
<ul class="which">{locks}</ul>
<p><a href="which-lock.html">{t("site-which-more")}</a></p></section>
<section aria-labelledby="more"><h2 id="more">{t("site-more-title")}</h2>
<ul class="ways">
{card(t, "scheduler.html", "lab-scheduler-title", "site-scheduler-about")}
{card(t, "judged.html", "judge-title", "site-judged-about")}
{card(t, "lessons.html", "site-lessons-title", "site-lessons-about")}
{card(t, "course.html", "course-title", "site-course-about")}
{card(t, "docs/index.html", "site-docs-title", "site-docs-about")}
</ul>
<p>{t("site-run", command=COMMAND)}</p></section>
<section aria-labelledby="embed"><h2 id="embed">{t("site-embed-title")}</h2>
<p>{t("site-embed-about")} <a href="race.html">race.html</a></p>
<div class="scroll" tabindex="0" role="group" aria-labelledby="embed"><pre><code>{escape(frame)}</code></pre></div></section>"""
    return Page(t, "index.html", t("race-question"), main, STYLES, SCRIPTS, NO_SCRIPT + head)


def embedded_page(t, stage_html, head):
    main = f"""<h1 class="race-question" id="race-question">{t("race-question")}</h1>
{stage_html}
<p class="hint"><a href="index.html" target="_top">Holdfast{"：" if t.language == "zh" else ": "}{t("site-why-title")}</a></p>"""
    return Page(t, "race.html", t("race-question"), main, STYLES, SCRIPTS, NO_SCRIPT + head, is_embedded=True)
