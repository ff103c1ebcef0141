"""Makes the site: a static folder, which needs no server. Called by script/site, with a running shop
from which races, games and lessons are recorded."""

import argparse
import gzip
import re
import shutil
from pathlib import Path

import book
import lab_pages
import race_pages
import scheduler_page
from frame import FONTS, edition
from shop import CROWD, LESSONS, LOCKS, Shop
from texts import LANGUAGES, Texts

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "static"
# Of the shop; race.js plays recorded races here.
ASSETS = ("charts.js", "holdfast.css", "holdfast.svg", "judged.css", "lab.css", "race.css", "race.js", "scheduler.css",
          "swimlane.css")
OWN_ASSETS = ("judged.js", "postgres-worker.js", "race-choices.js", "scheduler.js", "site.css", "which-lock.js")


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("shop", "data", "holdfast", "pglite", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--url", default="")
    return parser.parse_args()


class Site:
    def __init__(self, out, url):
        self.out, self.url = Path(out), url and url.rstrip("/") + "/"

    def write(self, path, content):
        path = self.out / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def add(self, *pages):
        for page in pages:
            self.write(page.address, page.render())


def without_comments(css):
    """A style sheet as it is served: the site has no compression of its own."""
    css = re.sub(r"(?s)/\*.*?\*/", "", css)
    return re.sub(r"\n\s*", "\n", css).strip() + "\n"


def write_assets(site, pglite):
    for folder, names in ((STATIC, ASSETS), (ROOT / "site", OWN_ASSETS)):
        for name in names:
            content = (folder / name).read_text(encoding="utf-8")
            if name.endswith(".css"):
                content = without_comments(content)
            elif name.endswith(".js"):
                # Not a module, which a page from the file system cannot load; its names are its own.
                content = f"(() => {{\n{content}}})();\n"
            site.write(f"assets/{name}", content)
    for font in FONTS:
        site.write(f"assets/{font}", (STATIC / "fonts" / font).read_bytes())

    for name in sorted(parts_of_pglite(pglite)):
        site.write(f"assets/pglite/{name}", (pglite / "dist" / name).read_bytes())
    site.write("assets/pglite/LICENSE", (pglite / "LICENSE").read_bytes())


def parts_of_pglite(pglite):
    """Returns the files that PGlite's module needs: those that it imports, and what they load."""
    needed, queue = set(scheduler_page.PGLITE_FILES), ["index.js"]
    while queue:
        name = queue.pop()
        if name in needed:
            continue
        needed.add(name)
        content = (pglite / "dist" / name).read_text(encoding="utf-8")
        queue += re.findall(r'(?:from|import)\s*\(?"\./([\w-]+\.js)"', content)
    return needed


def megabytes_to_play(out):
    """Returns the MB that a browser loads to play, plain and compressed."""
    files = [file.read_bytes() for file in [out / "assets/shop-sql.js", *(out / "assets/pglite").glob("*.*")]]
    packed = sum(len(gzip.compress(content, 6)) for content in files)
    return round(sum(map(len, files)) / 1e6), round(packed / 1e6)


def add_races(site, shop, all_texts):
    # The first race of a shop is slower: it creates the buyers.
    shop.race("none", 2)
    races = [shop.race(lock, buyers) for lock in LOCKS for buyers in (2, CROWD)]
    site.write("race.png", (STATIC / "race-preview/twice-en.png").read_bytes())
    for t in all_texts:
        films = [race_pages.paced(t, film) for film in shop.films(races, t.language)]
        stage = race_pages.stage(t, shop.page("/", t.language), films)
        image = f"{site.url}race.png" if site.url or t.language == "en" else "../race.png"
        head = race_pages.preview(t, films[0]["verdict"], image)
        site.add(race_pages.first_page(t, stage, head), race_pages.embedded_page(t, stage, head))


def add_scheduler(site, shop, all_texts):
    sql = {"statements": scheduler_page.statements(), "migrations": scheduler_page.migrations()}
    site.write("assets/shop-sql.js", scheduler_page.as_script("shopSql", sql))
    mb, packed = megabytes_to_play(site.out)
    sizes = {file.name: file.stat().st_size for file in (site.out / "assets/pglite").iterdir()}
    levels = scheduler_page.levels()["levels"]
    recorded = {level["name"]: shop.game(level, LANGUAGES) for level in levels}
    for t in all_texts:
        games = {level["name"]: scheduler_page.with_rejections(t, level, recorded[level["name"]][t.language]) for level in levels}
        recordings = scheduler_page.as_script("recordedGames", games)
        site.write(f"assets/recorded-{t.language}.js", recordings)
        data = scheduler_page.game_data(t, games, sizes)
        site.add(scheduler_page.scheduler_page(t, data, mb, packed, round(len(recordings.encode()) / 1000)))


def add_judged(site, shop, all_texts):
    for t in all_texts:
        listed = shop.page("/lab/judged", t.language)
        names = lab_pages.judged_names(listed)
        page = lab_pages.judged_list(t, listed)
        site.add(lab_pages.add_search_words(page, {name: words_about(name) for name in names}))
        site.add(*(lab_pages.judged_page(t, name, shop.page(f"/lab/judged/{name}", t.language)) for name in names))


def words_about(name):
    """Returns the words of what its adapter says of a lock; several judgements may be of one adapter."""
    folder = ROOT / "judge" / name
    while not folder.exists():
        folder = folder.with_name(folder.name.rpartition("-")[0])
    # The first paragraph begins with the library and its language; stores, as all names, have capitals.
    about, _, calls = (folder / "README.md").read_text(encoding="utf-8").split("\n\n")[1].partition(":")
    word = r"[A-Za-z][A-Za-z0-9+#-]+"
    words = re.findall(word, about) + [word for word in re.findall(word, calls) if word != word.lower()]
    return " ".join([name, *sorted({word.lower() for word in words})])


def add_lessons(site, shop, all_texts):
    runs = {name: shop.lesson(name) for name in LESSONS}
    for t in all_texts:
        sizes = {}
        for name, run in runs.items():
            page = lab_pages.saved_run(t, shop.saved_run(run, t.language))
            sizes[name] = len(page.encode())
            site.write(f"{edition(t.language)}lessons/{name}.html", page)
        site.add(lab_pages.lessons_page(t, sizes))


def main():
    options = arguments()
    shop = Shop(options.shop, options.data, options.holdfast)
    pglite = Path(options.pglite)
    out = Path(options.out)
    # Made beside, so that a failure leaves the site that was there.
    new = out.with_name(out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    site = Site(new, options.url)
    all_texts = [Texts(language) for language in LANGUAGES]

    write_assets(site, pglite)
    add_races(site, shop, all_texts)
    add_scheduler(site, shop, all_texts)
    add_judged(site, shop, all_texts)
    add_lessons(site, shop, all_texts)
    for t in all_texts:
        site.add(lab_pages.which_lock(t, shop))
        site.add(lab_pages.course_page(t, shop.page("/lab/course", t.language)))
        site.add(*book.pages(t, shop.page("/glossary", t.language)))
        for picture in (book.DOCS / "bench").glob("*.svg"):
            site.write(f"{edition(t.language)}docs/bench/{picture.name}", picture.read_bytes())

    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)


if __name__ == "__main__":
    main()
