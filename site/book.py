"""The documents of docs/ as pages, in the frame of the site."""

import os
import re
from html import escape, unescape
from pathlib import Path

from markdown_it import MarkdownIt

from frame import Page
from shop import main_of

DOCS = Path(__file__).parent.parent / "docs"
# In the order of the list: what a newcomer reads first.
NAMES = ("CONCEPTS", "WHICH-LOCK", "COURSE", "TEACHING", "JUDGE", "JUDGED", "FENCES", "PERFORMANCE",
         "ARCHITECTURE", "OPERATING", "CONFIGURATION", "SECURITY")
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def slug(name):
    return name.lower() + ".html"


def source(name, language):
    """Returns the file of a document in a language, else in English."""
    translated = DOCS / f"{name}.{language}.md"
    return translated if translated.exists() else DOCS / f"{name}.md"


def is_translated(name, language):
    return language == "en" or source(name, language).name.endswith(f".{language}.md")


def anchor(heading):
    """The anchor that GitHub gives to a heading."""
    kept = "".join(char for char in heading.strip().lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def with_anchors(html):
    times = {}

    def heading(found):
        level, inner = found[1], found[2]
        name = anchor(unescape(re.sub(r"<[^>]*>", "", inner)))
        times[name] = times.get(name, -1) + 1
        # As GitHub tells headings of the same words apart.
        name += f"-{times[name]}" if times[name] else ""
        return f'<h{level} id="{name}">{inner}</h{level}>'

    return re.sub(r"(?s)<h([1-6])>(.*?)</h\1>", heading, html)


def address(link, document, language):
    """Returns where a link of a document leads on the site; None if the site does not have it."""
    file, hash_mark, place = link.partition("#")
    if "://" in link or not file:
        return link
    path = os.path.normpath(file)
    name = path.removesuffix(".md").removesuffix(".zh")
    if path == "../README.md":
        return "../index.html"
    if name == "GLOSSARY":
        return "glossary.html"
    if path.endswith(".md") and name in NAMES:
        # Its translation, or what it is a translation of.
        is_other = name == document and path.endswith(".zh.md") == (language == "en")
        edition = {"en": "../zh/docs/", "zh": "../../docs/"}[language] if is_other else ""
        return edition + slug(name) + hash_mark + place
    if judged := re.fullmatch(r"judged/([a-z0-9-]+)\.json", path):
        return f"../judged/{judged[1]}.html"
    return None


def with_links(html, document, language):
    def link(found):
        to = address(unescape(found[1]), document, language)
        return found[2] if to is None else f'<a href="{escape(to)}">{found[2]}</a>'

    return re.sub(r'(?s)<a href="([^"]*)"[^>]*>(.*?)</a>', link, html)


def with_scrolling(html):
    """Tables and code wider than the page scroll, also by keyboard; they are named by their heading."""
    def scroll(found):
        heading = re.findall(r'<h[1-6] id="([^"]*)"', html[: found.start()])[-1]
        return f'<div class="scroll" tabindex="0" role="group" aria-labelledby="{heading}">{found[0]}</div>'

    return re.sub(r"(?s)<table>.*?</table>|<pre>.*?</pre>", scroll, html)


def document(t, name):
    html = MARKDOWN.render(source(name, t.language).read_text(encoding="utf-8"))
    html = with_scrolling(with_links(with_anchors(html), name, t.language))
    title = unescape(re.sub(r"<[^>]*>", "", re.search(r"(?s)<h1[^>]*>(.*?)</h1>", html)[1]))
    foreign = not is_translated(name, t.language)
    note = f'<p class="hint">{t("site-docs-english")}</p>' if foreign else ""
    language = ' lang="en"' if foreign else ""
    if re.search(r"<code[^>]*>[^<]*(?:script/|judge/|load/|cargo )", html):
        note += f'<p class="hint">{t("site-docs-clone")}</p>'
    main = f"""<p class="crumb"><a href="index.html">{t("site-docs-title")}</a></p>
{note}<article class="document"{language}>
{html}</article>"""
    return Page(t, f"docs/{slug(name)}", title, main)


def glossary(t, page):
    main = re.sub(r'(?s)<p class="crumb">.*?</p>', "", main_of(page), count=1)
    main = re.sub(r'(?s)<a href="/[^"]*">(.*?)</a>', r"\1", main)
    return Page(t, "docs/glossary.html", t("glossary-title"), main, ("lab.css",))


def index(t, pages):
    items = []
    for name, page in pages:
        english = "" if is_translated(name, t.language) else f' <span class="badge">{t("site-not-translated")}</span>'
        items.append(f'<li><a href="{slug(name)}">{escape(page.title)}</a>{english}</li>')
    items.append(f'<li><a href="glossary.html">{t("glossary-title")}</a></li>')
    main = f"""<h1>{t("site-docs-title")}</h1>
<p class="lead">{t("site-docs-lead")}</p>
<p>{t("site-docs-clone")}</p>
<ul class="documents">{"".join(items)}</ul>"""
    return Page(t, "docs/index.html", t("site-docs-title"), main)


def pages(t, glossary_page):
    documents = [(name, document(t, name)) for name in NAMES]
    return [index(t, documents), glossary(t, glossary_page), *(page for _, page in documents)]
