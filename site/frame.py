"""The frame of every page: head, navigation, footer. All addresses are relative, so the folder works
under any path and from the file system."""

from html import escape

from texts import LANGUAGES

OWN_NAMES = {"en": "English", "zh": "中文"}
FONTS = ("inter-4.0-regular.woff2", "inter-4.0-semibold.woff2")
COMMAND = "<code>pip install holdfast-lab &amp;&amp; holdfast up</code>"
LOGO = (
    '<svg aria-hidden="true" viewBox="0 0 24 24" width="22" height="22"><path d="M7 10V7a5 5 0 0 1 10 0v3" '
    'fill="none" stroke="currentColor" stroke-width="2"/><rect x="4" y="10" width="16" height="11" '
    'fill="currentColor"/></svg>'
)
NAVIGATION = (
    ("index.html", "nav-race"),
    ("scheduler.html", "site-nav-scheduler"),
    ("judged.html", "judge-title"),
    ("which-lock.html", "choose-title"),
    ("lessons.html", "site-nav-lessons"),
    ("course.html", "site-nav-course"),
    ("docs/index.html", "site-nav-docs"),
)


class Page:
    """A page of the site: `path` is its address within the edition of its language."""

    def __init__(self, texts, path, title, main, styles=(), scripts=(), head="", is_embedded=False):
        self.t, self.path, self.title, self.main = texts, path, title, main
        self.styles, self.scripts, self.head, self.is_embedded = styles, scripts, head, is_embedded

    @property
    def address(self):
        return edition(self.t.language) + self.path

    @property
    def up(self):
        """Leads from this page to the root of its edition."""
        return "../" * self.path.count("/")

    @property
    def root(self):
        return "../" * self.address.count("/")

    def assets(self):
        links = [f'<link rel="icon" href="{self.root}assets/holdfast.svg" type="image/svg+xml">']
        # A font that is not here at once is not used on this page, so that nothing moves.
        for font in FONTS:
            links.append(f'<link rel="preload" href="{self.root}assets/{font}" as="font" type="font/woff2" crossorigin>')
        for name in ("holdfast.css", *self.styles, "site.css"):
            links.append(f'<link rel="stylesheet" href="{self.root}assets/{name}">')
        for name in self.scripts:
            links.append(f'<script defer src="{self.root}assets/{name}"></script>')
        return "\n".join(links)

    def navigation(self):
        links = []
        for path, message in NAVIGATION:
            is_here = self.path == path or (path == "docs/index.html" and self.path.startswith("docs/"))
            is_here = is_here or self.path.split("/")[0] + ".html" == path
            current = ' aria-current="page"' if is_here else ""
            links.append(f'<a href="{self.up}{path}"{current}>{self.t(message)}</a>')
        return "\n    ".join(links)

    def languages(self):
        links = []
        for language in LANGUAGES:
            current = ' aria-current="true"' if language == self.t.language else ""
            links.append(
                f'<a href="{self.root}{edition(language)}{self.path}" lang="{language}" '
                f'hreflang="{language}"{current}>{OWN_NAMES[language]}</a>'
            )
        return "\n    ".join(links)

    def render(self):
        t = self.t
        top = footer = ""
        if not self.is_embedded:
            top = f"""<a class="skip" href="#main">{t("skip-to-content")}</a>
<header class="top">
  <a class="brand" href="{self.up}index.html">{LOGO}Holdfast</a>
  <nav aria-label="{t("nav-label")}">
    {self.navigation()}
  </nav>
</header>
"""
            footer = f"""<footer>
  <a href="{self.up}docs/glossary.html">{t("glossary-title")}</a>
  <nav class="languages" aria-label="{t("footer-language")}">
    {self.languages()}
  </nav>
</footer>
"""
        return f"""<!doctype html>
<html lang="{t.language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)} · Holdfast</title>
{self.assets()}
{self.head}</head>
<body{' class="embedded"' if self.is_embedded else ""}>
{top}<main id="main">
{self.main}
</main>
{footer}</body>
</html>
"""


def edition(language):
    return "" if language == "en" else f"{language}/"
