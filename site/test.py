"""Tests of the site in Chromium, called by script/test-site with the folder, the path of axe-core and
that of the repository: over HTTP under a sub-path, and from the file system."""

import functools
import http.server
import json
import re
import sys
import threading
import time
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

from browser import Browser

SUB_PATH = "/some/where/"
LEVELS = json.loads((Path(__file__).parent.parent / "crates/holdfast-lab/src/scheduler_game/levels.json").read_text())["levels"]
MAX_FIRST_PAGE = 150_000
RACE_ENDED = "return ['lost', 'held'].includes(document.querySelector('#race-stage').dataset.state)"
AXE = """const done = arguments[0];
    axe.run(document, { rules: { 'target-size': { enabled: true } }, resultTypes: ['violations'] }).then((found) => done(
        found.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`)));"""
PAGES = ("index.html", "race.html", "scheduler.html", "judged.html", "which-lock.html", "lessons.html", "docs/index.html")
# Their contents are the shop's, whose tests examine them in both languages, or English documents.
PAGES_ONCE = ("zh/course.html", "judged/redis-py.html", "lessons/fence.html", "docs/concepts.html", "zh/docs/glossary.html")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder under the sub-path, and nothing else."""

    def translate_path(self, path):
        if not path.startswith(SUB_PATH):
            return "/nothing/here"
        return super().translate_path("/" + path.removeprefix(SUB_PATH))

    def log_message(self, *_):
        pass


class Links(HTMLParser):
    """What a page refers to, and the places in it."""

    def __init__(self, html):
        super().__init__()
        self.links, self.ids, self.texts = [], set(), []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        for name in ("href", "src", "data-recordings"):
            if name in attributes and tag != "use":
                self.links.append(attributes[name])


def is_solved(browser, level):
    browser.click(f'[data-play="{level["name"]}"]')
    browser.until("the game has begun", "return !!document.querySelector('#step-A') && !document.querySelector('.taken-steps')")
    for number, who in enumerate(level["solution"], 1):
        browser.click("#expire" if who == "X" else f"#step-{who}")
        browser.until(f"step {number} of {level['name']}", "return document.querySelectorAll('.taken-steps li').length === arguments[0]", number)
    return browser.run("return !!document.querySelector('#game .goal.reached') && document.querySelector('#game .taken-steps li:last-child').classList.contains('reached')")


PLAYED = """const root = document.querySelector(arguments[0]);
    const texts = (selector) => [...root.querySelectorAll(selector)].map((it) => it.textContent.replace(/\\s+/g, ' ').trim());
    // How long an order waits for a lock that is free again depends on the machine.
    const withoutWaits = (steps) => steps.map((step) => step.replace(/ → waits$/, ''));
    return { steps: withoutWaits(texts('.taken-steps li')), chains: texts('.ledger .chain'), books: texts('.books'), code: texts('.code pre'), fine: texts('.ledger .fine') };"""


class Test:
    def __init__(self, folder, axe, server, browser):
        self.folder, self.axe, self.browser = folder, axe, browser
        self.base = f"http://127.0.0.1:{server.server_port}{SUB_PATH}"

    def every_internal_link_leads_somewhere(self):
        pages = {path: Links(path.read_text(encoding="utf-8")) for path in self.folder.rglob("*.html")}
        assert len(pages) > 60, f"only {len(pages)} pages"
        wrong = []
        for path, page in pages.items():
            for link in page.links:
                if re.match(r"https?:|mailto:|data:", link):
                    continue
                file, _, place = urllib.parse.unquote(link).partition("#")
                target = (path.parent / file).resolve() if file else path.resolve()
                if not target.is_file() or not target.is_relative_to(self.folder.resolve()):
                    wrong.append(f"{path.relative_to(self.folder)}: {link}")
                elif place and target.suffix == ".html" and place not in pages[self.folder / target.relative_to(self.folder.resolve())].ids:
                    wrong.append(f"{path.relative_to(self.folder)}: {link} (no such place)")
        assert not wrong, "\n".join(wrong)

    def first_page_is_small(self):
        self.browser.size(390)
        self.browser.prefer()
        self.browser.command("Network.setCacheDisabled", cacheDisabled=True)
        self.browser.requests()
        self.browser.open(self.base + "index.html")
        self.browser.until("the race has ended", RACE_ENDED)
        files = [address.removeprefix(self.base) for address in self.browser.requests()]
        loaded = {file: (self.folder / file).stat().st_size for file in files}
        assert "assets/race.js" in loaded and any("woff2" in file for file in loaded), loaded
        total = sum(loaded.values())
        assert total <= MAX_FIRST_PAGE, f"{total} bytes: {loaded}"

    def race_plays(self):
        """The first one as it moves; the others at once, as for who wants no motion."""
        still = "reduce"
        for path, width, motion in (("index.html", 1280, ""), ("zh/index.html", 390, still), ("race.html", 320, still)):
            self.browser.size(width)
            self.browser.prefer(motion=motion)
            self.browser.open(self.base + path)
            self.plays_all_races()
            assert self.browser.run("return document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {width} px"

    def plays_all_races(self):
        """It plays by itself without a lock; then as chosen. The scrubber shows any moment."""
        browser = self.browser
        browser.until("the race has ended", RACE_ENDED)
        assert re.match(r"\D*2 · \D*1|2 sold · 1", browser.text("#race-verdict")), browser.text("#race-verdict")
        browser.run("const scrub = document.querySelector('#race-scrub'); scrub.value = 500; scrub.dispatchEvent(new Event('input', { bubbles: true }))")
        shown = browser.run("return [document.querySelectorAll('#race-drawing .step.later').length, document.querySelectorAll('#race-drawing .step').length]")
        assert 0 < shown[0] < shown[1], shown
        assert browser.text("#race-verdict") == ""
        for lock, buyers, state in (("fenced", 2, "held"), ("local", 2, "lost"), ("local", 40, "lost"), ("fenced", 40, "held"), ("", 40, "lost")):
            browser.run(
                """const form = document.querySelector('#race');
                   form.elements.on.checked = !!arguments[0];
                   if (arguments[0]) form.elements.lock.value = arguments[0];
                   form.elements.buyers.value = arguments[1];
                   form.dispatchEvent(new Event('input', { bubbles: true }));
                   form.requestSubmit();
                   const scrub = document.querySelector('#race-scrub');
                   scrub.value = scrub.max;
                   scrub.dispatchEvent(new Event('input', { bubbles: true }));""",
                lock, buyers)
            assert browser.run("return document.querySelector('#race-stage').dataset.state") == state, (lock, buyers)

    def race_plays_in_a_frame(self):
        browser = self.browser
        browser.size(1280)
        browser.open(self.base + "lessons.html")
        browser.run("""document.querySelector('main').innerHTML =
            '<iframe id="frame" src="race.html" title="Holdfast" width="320" height="760" style="border: 0"></iframe>'""")
        browser.until("the race has ended", """const race = document.querySelector('#frame').contentDocument;
            return race?.querySelector('#race-stage')?.dataset.state === 'lost'""")
        width, scrolled = browser.run("return [document.querySelector('#frame').contentDocument.documentElement.scrollWidth, scrollY]")
        assert width <= 320 and scrolled == 0, (width, scrolled)

    def race_is_a_picture_without_scripts(self):
        self.browser.scripts(False)
        self.browser.open(self.base + "index.html")
        # The protocol reads the page also while its scripts are off.
        seen = self.browser.command("Runtime.evaluate", returnByValue=True, expression="""[
            document.querySelectorAll('.race-recorded svg').length, getComputedStyle(document.querySelector('#race')).display,
            document.querySelector('.race-recorded').textContent]""")["result"]["value"]
        self.browser.scripts(True)
        assert seen[0] == 2 and seen[1] == "none" and "A reads 1" in seen[2], seen

    def levels_are_played_on_postgres(self):
        """With the same steps, entries and statements as in the shop, where they were recorded."""
        browser = self.browser
        browser.size(390)
        browser.open(self.base + "scheduler.html")
        browser.requests()
        assert not any("pglite" in address for address in browser.requests())
        for level in LEVELS:
            assert is_solved(browser, level), f"{level['name']}: the goal is not reached"
            assert browser.run("return document.querySelector('#game .stars').textContent") == "★★★"
            here = browser.run(PLAYED, "#game")
            browser.click(f'[data-watch="{level["name"]}"]')
            browser.until("the recording", "return !document.querySelector('#recording').hidden && !!document.querySelector('#moment')")
            browser.run("const moment = document.querySelector('#moment'); moment.value = moment.max; moment.dispatchEvent(new Event('input'))")
            there = browser.run(PLAYED, "#recorded")
            assert here == there, f"{level['name']}: {here} is not {there}"
        browser.click('[data-play="oversell"]')
        browser.until("another game", "return !!document.querySelector('#step-A') && document.querySelector('#undo').disabled")
        browser.click("#step-A")
        browser.until("a step", "return document.querySelectorAll('.taken-steps li').length === 1")
        browser.click("#undo")
        browser.until("no step", "return !document.querySelector('.taken-steps') && document.querySelector('#undo').disabled")
        assert any("pglite.wasm" in address for address in browser.requests())

    def locks_are_found(self):
        browser = self.browser
        for path, width in (("judged.html", 1280), ("zh/judged.html", 390)):
            browser.size(width)
            browser.open(self.base + path)
            find = """const words = document.querySelector('#words'); words.value = arguments[0];
                words.dispatchEvent(new Event('input', { bubbles: true }));
                return [...document.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility()).map((row) => row.querySelector('th').textContent)"""
            every = browser.run(find, "")
            redis_py = browser.run(find, "Redis-PY")
            assert len(every) > 15 and 0 < len(redis_py) < 5 and any(name.startswith("redis-py ") for name in redis_py), redis_py
            assert 1 < len(browser.run(find, "rust")) < len(every)
            assert browser.run(find, "no such lock") == []
            assert browser.run("return document.querySelectorAll('.columns dd').length") > 10

    def questions_lead_to_a_lock(self):
        choose = """for (const radio of document.querySelectorAll('#questions input')) radio.checked = arguments[0].includes(`${radio.name}=${radio.value}`);
            document.querySelector('#questions').dispatchEvent(new Event('change'));
            return [...document.querySelectorAll('[data-needs]')].filter((it) => !it.hidden).map((it) => it.querySelector('h2').textContent)"""
        for path in ("which-lock.html", "zh/which-lock.html"):
            self.browser.open(self.base + path)
            for given, lock in (([], []), (["processes=one"], ["local"]), (["processes=several"], []),
                                (["processes=several", "money=yes", "fence=yes", "hot=no", "wait=yes"], ["row-lock"])):
                assert self.browser.run(choose, given) == lock, given

    def has_no_violation(self):
        """Of accessibility: phone and desktop, light and dark, both languages."""
        browser, script, found = self.browser, self.axe.read_text(), []
        pages = list(PAGES) + [f"zh/{page}" for page in PAGES] + list(PAGES_ONCE)
        for number, page in enumerate(pages):
            width, scheme = ((390, "dark"), (1280, "light"))[number % 2]
            browser.size(width)
            browser.prefer(scheme)
            browser.open(self.base + page)
            if page.endswith(("index.html", "race.html")):
                browser.run("const scrub = document.querySelector('#race-scrub'); if (scrub) { scrub.value = scrub.max; scrub.dispatchEvent(new Event('input', { bubbles: true })); }")
            browser.run(script)
            found += [f"{page} {width} px, {scheme}: {violation}" for violation in browser.run_async(AXE)]
            if not browser.run("return document.documentElement.scrollWidth <= innerWidth && innerWidth === arguments[0]", width):
                found.append(f"{page} is wider than {width} px")
        assert not found, "\n".join(found)

    def plays_from_the_file_system(self):
        browser = self.browser
        browser.size(1280)
        browser.open((self.folder / "zh/index.html").resolve().as_uri())
        self.plays_all_races()
        browser.open((self.folder / "scheduler.html").resolve().as_uri())
        browser.click('[data-play="fence"]')
        browser.until("the recording", "return !!document.querySelector('#moment')")
        assert "WebAssembly" in browser.text("#state")
        for _ in LEVELS[2]["solution"]:
            browser.click("#forward")
        assert browser.run("return !!document.querySelector('#recorded .goal.reached')")

    def recording_plays_without_webassembly(self):
        browser = self.browser
        off = browser.command("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.WebAssembly")
        browser.open(self.base + "zh/scheduler.html")
        browser.click('[data-play="oversell"]')
        browser.until("the recording", "return !!document.querySelector('#moment')")
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=off["identifier"])
        assert "WebAssembly" in browser.text("#state")
        assert browser.run("return document.querySelectorAll('#recorded .game-order').length") == 2

    def no_other_host_was_asked(self):
        asked = [address for address in self.asked if not address.startswith((self.base, "file:", "data:", "blob:", "chrome:", "about:"))]
        assert len(self.asked) > 50 and not asked, asked

    def run_all(self):
        tests = [self.every_internal_link_leads_somewhere, self.first_page_is_small, self.race_plays, self.race_plays_in_a_frame,
                 self.race_is_a_picture_without_scripts, self.levels_are_played_on_postgres, self.locks_are_found,
                 self.questions_lead_to_a_lock, self.has_no_violation, self.plays_from_the_file_system,
                 self.recording_plays_without_webassembly, self.no_other_host_was_asked]
        self.asked, failed = [], 0
        take = self.browser.requests
        self.browser.requests = lambda: self.keep(take())
        for test in tests:
            begin = time.monotonic()
            try:
                self.browser.requests()
                test()
                self.browser.requests()
                print(f"ok {time.monotonic() - begin:5.1f} s  {test.__name__}", flush=True)
            except Exception as error:  # one test says nothing about the next
                failed += 1
                print(f"FAILED {test.__name__}: {type(error).__name__}: {error}", flush=True)
        print(f"{len(tests) - failed} passed, {failed} failed")
        return failed

    def keep(self, addresses):
        self.asked += addresses
        return addresses


def main():
    folder, axe = Path(sys.argv[1]), Path(sys.argv[2])
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Browser() as browser:
        failed = Test(folder, axe, server, browser).run_all()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
