"""Pages that the shop shows too: judged locks, recorded lessons, the course."""

import re
from html import escape, unescape

from frame import COMMAND, Page
from shop import LESSONS, main_of


def without_crumb(main):
    return re.sub(r'(?s)<p class="crumb">.*?</p>', "", main, count=1).strip()


def judged_names(list_page):
    return sorted(set(re.findall(r'href="/lab/judged/([a-z0-9-]+)"', list_page)))


def judged_list(t, list_page):
    main = without_crumb(main_of(list_page))
    main = re.sub(r'(?s)<section class="judged-open".*?</section>', "", main)
    main = re.sub(r'href="/lab/judged/([a-z0-9-]+)"', r'href="judged/\1.html"', main)
    columns = []
    for title, name in re.findall(r'<th scope="col" title="([^"]*)"><span class="turned">(.*?)</span>', main):
        about = re.split(r": |：", unescape(title), maxsplit=1)[-1]
        columns.append(f"<dt>{name}</dt><dd>{escape(about)}</dd>")
    if not columns:
        raise SystemExit("site: the shop's list of judged locks has no columns")
    main = re.sub(r'(<th scope="col") title="[^"]*"', r"\1", main)
    search = f"""<form class="search" id="search" role="search" data-none="{t("site-search-none", words="%")}" data-one="{t("site-search-found", count=1)}" data-other="{t("site-search-found", count="%")}" data-rows="{t("site-search-rows", locks="%locks", rows="%rows")}" hidden><label for="words">{t("site-search")}</label>
<input id="words" type="search" autocomplete="off" aria-describedby="words-about"> <span class="hint" id="words-about">{t("site-search-about")}</span>
<output for="words" id="found"></output></form>
<p><a href="docs/judge.html">{t("site-judged-own")}</a></p>
"""
    main = main.replace('<div class="scroll"', search + '<div class="scroll"', 1)
    main += f"""
<section aria-labelledby="columns"><h2 id="columns">{t("site-columns-title")}</h2>
<dl class="columns">{"".join(columns)}</dl></section>"""
    return Page(t, "judged.html", t("judge-title"), main, ("judged.css",), ("judged.js",))


def add_search_words(page, judgements):
    """Gives each row the words by which it is found: the lock's names, language and store."""
    def row(found):
        name = re.search(r'href="judged/([a-z0-9-]+)\.html"', found[0])
        if name:
            row.words = judgements[name[1]]
        # A row without a link is of the lock above: with its fence.
        part = "" if name else ' class="of-lock"'
        return found[0].replace("<tr>", f'<tr{part} data-words="{escape(row.words)}">', 1)

    row.words = ""
    head, body = page.main.split("<tbody>", 1)
    body, tail = body.split("</tbody>", 1)
    page.main = head + "<tbody>" + re.sub(r"(?s)<tr>.*?</tr>", row, body) + "</tbody>" + tail
    return page


def judged_page(t, name, page):
    content = without_crumb(main_of(page))
    main = f'<p class="crumb"><a href="../judged.html">{t("judge-title")}</a></p>\n{content}'
    title = unescape(re.search(r"<h1>(.*?)</h1>", main)[1])
    return Page(t, f"judged/{name}.html", title, main, ("swimlane.css", "judged.css"), ("charts.js",))


def lessons_page(t, sizes):
    cards = []
    for name in LESSONS:
        title, claim = t(f"lesson-{name}-title"), plain(t(f"lesson-{name}-claim"))
        size = f"{round(sizes[name] / 1000)} kB"
        cards.append(f'<li><h2><a href="lessons/{name}.html">{plain(title)}</a> <span class="hint">{size}</span></h2><p>{claim}</p></li>')
    main = f"""<h1>{t("site-lessons-title")}</h1>
<p class="lead">{t("site-lessons-lead")}</p>
<ul class="ways">{"".join(cards)}</ul>"""
    return Page(t, "lessons.html", t("site-lessons-title"), main)


def plain(text):
    """Returns a text of the catalogue without the marks of glossary words and code."""
    return escape(re.sub(r"\[([^\]|]*)(\|[^\]]*)?\]|`([^`]*)`", lambda it: it[1] or it[3] or "", text))


def saved_run(t, page):
    """Gives the file of a run, which the shop saves, a way back."""
    back = f'<a href="../lessons.html">{t("site-lessons-title")}</a>'
    marked = page.replace('<span class="brand">Holdfast</span>', f'<a class="brand" href="../index.html">Holdfast</a> <nav aria-label="{t("nav-label")}">{back}</nav>')
    if marked == page:
        raise SystemExit("site: the file of a run has no header")
    return marked


def course_page(t, page):
    main = without_crumb(main_of(page)) + f"\n<p>{t('site-run', command=COMMAND)}</p>"
    return Page(t, "course.html", t("course-title"), main, ("lab.css",))


def which_lock(t, shop):
    """The five questions, with the answer to each set of answers that the shop has one for."""
    form = re.search(r'(?s)<form action="/which-lock#answer">(.*?)</form>', main_of(shop.page("/which-lock", t.language)))[1]
    names = list(dict.fromkeys(re.findall(r'type="radio" name="(\w+)"', form)))
    choices = {name: re.findall(rf'name="{name}" value="(\w+)"', form) for name in names}
    answers = []

    def walk(given, left):
        query = "&".join(f"{name}={answer}" for name, answer in given.items())
        page = main_of(shop.page(f"/which-lock?{query}", t.language))
        found = re.search(r'(?s)<h2 id="answer-title"><code>(.*?)</section>', page)
        if given and found:
            answers.append((given, f"<h2><code>{on_site(t, found[1])}"))
        elif left:
            for answer in choices[left[0]]:
                walk({**given, left[0]: answer}, left[1:])

    walk({}, names)
    if len(answers) < 5:
        raise SystemExit(f"site: the shop's page answers {len(answers)} sets of answers")
    sections = "".join(
        f'<section class="notice" data-needs="{escape(" ".join(f"{name}={answer}" for name, answer in given.items()))}" hidden>{html}</section>'
        for given, html in answers
    )
    form = re.sub(r'(?s)<p class="buttons">.*?</p>', "", form)
    main = f"""<div class="column">
<h1>{t("choose-title")}</h1>
<p class="lead">{t("choose-lead")}</p>
<noscript><p><a href="docs/which-lock.html">{t("site-which-more")}</a></p></noscript>
<form id="questions">{form}</form>
<div id="answers" role="status">{sections}</div>
</div>"""
    return Page(t, "which-lock.html", t("choose-title"), main, ("lab.css",), ("which-lock.js",))


def on_site(t, html):
    """Leads links to lessons and judgements to those of the site; of other lessons it has the title, and where they are."""
    html = re.sub(r'href="/lab/judged/([a-z0-9-]+)"', r'href="judged/\1.html"', html)
    for name in LESSONS:
        html = html.replace(f'href="/lab/lessons/{name}"', f'href="lessons/{name}.html"')
    html = re.sub(r'(?s)<a href="/lab/lessons/[^"]*">(.*?)</a>', lambda it: t("site-in-the-lab", lesson=it[1]), html)
    return re.sub(r'(?s)<a href="/[^"]*">(.*?)</a>', r"\1", html)
