"""Tests of the site in Chromium, called by script/test-site with the folder and the path of axe-core:
over HTTP under a sub-path, from the file system, and with what a visitor's browser or host refuses."""

import gzip
import json
import os
import re
import sys
import time
import urllib.parse
from html import unescape
from pathlib import Path

import host
from browser import Browser
from host import BROKEN, SLOW, STRICT, SUB_PATH

LEVELS = json.loads((Path(__file__).parents[2] / "crates/holdfast-lab/src/scheduler_game/levels.json").read_text())["levels"]
MAX_FIRST_PAGE = 150_000
RACE_ENDED = "return ['lost', 'held'].includes(document.querySelector('#race-stage').dataset.state)"
AXE = """const done = arguments[0];
    axe.run(document, { rules: { 'target-size': { enabled: true } }, resultTypes: ['violations'] }).then((found) => done(
        found.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`)));"""
# Plays eight times as fast.
FASTER = """const [now, later] = [performance.now.bind(performance), setTimeout];
    performance.now = () => now() * 8;
    globalThis.setTimeout = (what, ms, ...values) => later(what, ms / 8, ...values);"""
# What the orders' cards say of the lock once the goal is reached.
CHIPS = {"useless-lock": ["believes it has the lock", "has the lock"], "fence": ["has the lock"]}
# Those that no other test opens. Of judgements, lessons and the glossary the shop's tests examine all
# contents in both languages.
OTHER_PAGES = ("lessons.html", "zh/docs/index.html", "zh/course.html", "judged/flock.html", "zh/lessons/outlived.html",
               "docs/which-lock.html", "zh/docs/glossary.html")


class Links:
    """What a page refers to, and the places in it."""

    def __init__(self, html):
        self.links, self.ids = [], set()
        for tag, attributes in re.findall(r"<([a-z]\w*)(\s[^>]*)>", html):
            named = dict(re.findall(r'\s(href|src|data-recordings|id)="([^"]*)"', attributes))
            self.ids.add(named.pop("id", None))
            if tag != "use":
                self.links += map(unescape, named.values())


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
    const withoutWaits = (steps) => steps.map((step) => step.replace(/ → waits until its server notices .*$/, ''));
    return { chips: texts('.chip'), steps: withoutWaits(texts('.taken-steps li')), chains: texts('.ledger .chain'), books: texts('.books'), rejected: texts('.game-order .rejected'), code: texts('.code pre'), fine: texts('.ledger .fine') };"""


# How long the page does not respond: the tasks of at least 50 ms.
MEASURE_BUSY = """window.measuredFrom = performance.now();
window.busyMs = 0;
new PerformanceObserver((list) => { for (const task of list.getEntries()) busyMs += task.duration; }).observe({ type: "longtask" });"""


class Test:
    def __init__(self, folder, axe, server, browser):
        self.folder, self.browser, self.axe_script = folder, browser, axe.read_text()
        self.server = f"http://127.0.0.1:{server.server_port}"
        self.base = self.site(SUB_PATH)

    def site(self, root):
        return self.server + root

    def every_internal_link_leads_somewhere(self):
        pages = {path: Links(path.read_text(encoding="utf-8")) for path in self.folder.rglob("*.html")}
        assert len(pages) > 60, f"only {len(pages)} pages"
        of_course = {language: (self.folder / language / "docs/course.html").read_text(encoding="utf-8") for language in (".", "zh")}
        wrong = [] if 'href="../../docs/course.html">English' in of_course["zh"] else ["no link from a document to its original"]
        if 'href="../zh/docs/course.html">中文' not in of_course["."]:
            wrong.append("no link from a document to its translation")
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
        self.browser.command("Network.setCacheDisabled", cacheDisabled=False)

    def race_plays(self):
        """The first one as it moves; the others at once, as for who wants no motion."""
        browser = self.browser
        faster = browser.command("Page.addScriptToEvaluateOnNewDocument", source=FASTER)
        for path, width, scheme, motion in (("index.html", 1280, "dark", ""), ("zh/index.html", 390, "light", "reduce"), ("race.html", 320, "dark", "reduce")):
            browser.size(width)
            browser.prefer(scheme, motion)
            browser.open(self.base + path)
            self.choices_play()
            self.plays_all_races()
            self.hint_is_one_line()
            browser.size(width)
            self.examine(path)
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=faster["identifier"])

    def examine(self, path):
        """Finds violations of accessibility on the page as it is, and what is wider than the screen."""
        violations = []
        if not self.browser.run("return document.documentElement.scrollWidth <= innerWidth"):
            violations.append("wider than the screen")
        self.browser.run(self.axe_script)
        violations += self.browser.run_async(AXE)
        width = self.browser.run("return innerWidth")
        assert not violations, "\n".join(f"{path}, {width} px: {violation}" for violation in violations)

    def choices_play(self):
        """A tap on the hint, the switch or a lock plays at once, and the lead says what is shown."""
        browser, leads = self.browser, []
        browser.until("the race has ended", RACE_ENDED)
        for choice, state in (("#race-hint", "held"), ("#race-on", "lost"), ("[name=lock][value=fenced]", "held"), ("[name=lock][value=local]", "lost")):
            browser.click(choice)
            browser.until(f"{choice} plays to its end", "return document.querySelector('#race-stage').dataset.state === arguments[0]", state)
            leads.append(browser.text("#race-lead"))
        assert len(set(leads)) == 3 and leads[0] == leads[2] or not any(leads), leads
        browser.click("#race-on")

    def hint_is_one_line(self):
        for width in (390, 1280):
            self.browser.size(width)
            height = self.browser.run("return document.querySelector('#race-hint').getBoundingClientRect().height")
            assert 0 < height < 40, f"{width} px: the hint is {height} px high"

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
        """Of 320 px, which allows scripts and nothing else, as in a blog."""
        browser = self.browser
        browser.size(1280)
        browser.prefer()
        browser.open(self.base + "lessons.html")
        browser.run("""document.querySelector('main').innerHTML =
            '<iframe id="frame" src="race.html" title="Holdfast" width="320" height="760" sandbox="allow-scripts" style="border: 0"></iframe>'""")
        with browser.frame("#frame"):
            self.plays_all_races()
            width, seen = browser.run("""return [document.documentElement.scrollWidth, ['#race-go', '.race-switch', '#race-stage', '#race-verdict', '#race-scrub']
                .filter((part) => document.querySelector(part).getBoundingClientRect().bottom <= innerHeight)]""")
            assert width <= 320 and len(seen) == 5, f"{width} px, without scrolling one sees {seen}"
        assert browser.run("return scrollY") == 0, "the frame scrolls its page"

    def race_plays_without_scripts(self):
        """As drawings whose steps appear, for who wants motion; other pages say what they need."""
        browser = self.browser
        browser.size(390)
        browser.scripts(False)
        try:
            for path, first_step in (("index.html", "A reads 1"), ("zh/race.html", "A 读到 1")):
                for motion, moves in (("", True), ("reduce", False)):
                    browser.prefer(motion=motion)
                    browser.open(self.base + path)
                    drawings, stage, words, appearing = browser.evaluate("""[
                        document.querySelectorAll('.race-recorded svg').length, getComputedStyle(document.querySelector('#race')).display,
                        document.querySelector('.race-recorded').textContent,
                        document.getAnimations().filter((it) => it.animationName === 'appear').length]""")
                    assert drawings == 2 and stage == "none" and first_step in words, (drawings, stage, words)
                    assert appearing == (2 if moves else 0), f"{path}: {appearing} drawings appear"

            for path, shown, hidden in (("scheduler.html", "noscript p", ".levels"), ("zh/judged.html", "tbody tr", "#search"),
                                        ("which-lock.html", "noscript a", "#answers h2"), ("zh/lessons/fence.html", "svg", "#none")):
                browser.open(self.base + path)
                seen = browser.evaluate(f"""[{json.dumps([shown, hidden])}].flat().map((it) => !!document.querySelector(it)?.checkVisibility())""")
                assert seen == [True, False], f"{path}: {seen}"
        finally:
            browser.scripts(True)

    def levels_are_played_on_postgres(self):
        """With the same steps, entries and statements as in the shop, where they were recorded."""
        browser = self.browser
        browser.size(390)
        browser.prefer("dark")
        browser.requests()
        browser.open(self.site(SLOW) + "scheduler.html")
        assert not any("pglite" in address for address in browser.requests())
        self.slow_line_is_bearable()
        for level in LEVELS:
            assert is_solved(browser, level), f"{level['name']}: the goal is not reached"
            assert browser.run("return document.querySelector('#game .stars').textContent") == "★★★"
            here = browser.run(PLAYED, "#game")
            # It has read again, and there is nothing left to compute.
            assert level["name"] != "version" or browser.text("#step-B").endswith("find it sold out"), browser.text("#step-B")
            browser.click(f'[data-watch="{level["name"]}"]')
            browser.until("the recording", "return !document.querySelector('#recording').hidden && !!document.querySelector('#moment')")
            browser.run("const moment = document.querySelector('#moment'); moment.value = moment.max; moment.dispatchEvent(new Event('input'))")
            there = browser.run(PLAYED, "#recorded")
            assert here == there, f"{level['name']}: {here} is not {there}"
            assert len(here["rejected"]) == (level["goal"] != "oversold"), f"{level['name']}: {here['rejected']}"
            assert here["chips"] == CHIPS.get(level["name"], []), f"{level['name']}: {here['chips']}"
        self.examine("scheduler.html")
        browser.click('[data-play="oversell"]')
        browser.until("another game", "return !!document.querySelector('#step-A') && document.querySelector('#undo').disabled")
        browser.click("#step-A")
        browser.until("a step", "return document.querySelectorAll('.taken-steps li').length === 1")
        browser.click("#undo")
        browser.until("no step", "return !document.querySelector('.taken-steps') && document.querySelector('#undo').disabled")
        assert any("pglite.wasm" in address for address in browser.requests())
        self.examine("scheduler.html")

    def slow_line_is_bearable(self):
        """The page says how much is here, and plays a recording meanwhile."""
        browser = self.browser
        browser.click('[data-play="oversell"]')
        # All but a half of one file.
        browser.until("most is here", "return /: 1[0-9] of 1[0-9] MB/.test(document.querySelector('#state').textContent)")
        browser.click('[data-watch="oversell"]')
        browser.until("the recording", "return !!document.querySelector('#moment')")
        browser.click('[data-play="version"]')
        browser.run(MEASURE_BUSY)
        host.Handler.rest_may_follow.set()
        browser.until("the game has begun", "return !!document.querySelector('#step-A')")
        busy, took = browser.run("return [busyMs, performance.now() - measuredFrom]")
        assert busy < took / 3, f"the page did not respond for {busy:.0f} of {took:.0f} ms"
        assert browser.run("return document.querySelector('#recording').hidden && document.querySelector('#game').textContent.includes('version')")

    def solution_plays_by_itself(self):
        """For who wants motion, to its end; a button stops it."""
        browser = self.browser
        browser.prefer(motion="")
        browser.open(self.base + "scheduler.html")
        browser.click('[data-watch="oversell"]')
        browser.until("a step", "return document.querySelector('#moment')?.value > 1")
        browser.click("#playing")
        stopped = browser.run("return document.querySelector('#moment').value")
        browser.click("#playing")
        browser.until("the last step", "const moment = document.querySelector('#moment'); return moment.value > arguments[0] && moment.value === moment.max", stopped)
        browser.prefer()

    def locks_are_found(self):
        browser = self.browser
        for path, width, scheme in (("judged.html", 1280, "light"), ("zh/judged.html", 390, "dark")):
            browser.size(width)
            browser.prefer(scheme)
            browser.open(self.base + path)
            every = self.found("")
            hidden = self.browser.run("const box = document.querySelector('table').parentElement; return box.scrollWidth - box.clientWidth")
            assert width < 1280 or hidden == 0, f"{hidden} px of the table are hidden at {width} px"
            redis_py = self.found("Redis-PY")
            assert len(every) > 15 and 0 < len(redis_py) < 5 and redis_py[0].startswith("redis-py "), redis_py
            assert [name.split()[0] for name in self.found("java")] == ["Curator"], self.found("java")
            assert 1 < len(self.found("javas")) < len(every)
            assert 1 < len(self.found("rust")) < len(every)
            assert self.found("Go") == [] and "“Go”" in browser.text("#found"), browser.text("#found")
            assert not browser.run("return document.querySelector('table').checkVisibility()")
            assert browser.run("return document.querySelectorAll('.columns dd').length") > 10
            rows, said = len(self.found("redis")), browser.text("#found")
            assert re.search(rf"\b{rows}\b", said) and "↳" in said, f"{rows} rows: {said}"
            self.examine(path)

    def found(self, words):
        return self.browser.run("""const words = document.querySelector('#words'); words.value = arguments[0];
            words.dispatchEvent(new Event('input', { bubbles: true }));
            return [...document.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility()).map((row) => row.querySelector('th').textContent)""", words)

    def questions_lead_to_a_lock(self):
        choose = """for (const radio of document.querySelectorAll('#questions input')) radio.checked = arguments[0].includes(`${radio.name}=${radio.value}`);
            document.querySelector('#questions').dispatchEvent(new Event('change'));
            return [...document.querySelectorAll('[data-needs]')].filter((it) => !it.hidden).map((it) => it.querySelector('h2').textContent)"""
        for path in ("which-lock.html", "zh/which-lock.html"):
            self.browser.open(self.base + path)
            for given, lock in (([], []), (["processes=one"], ["local"]), (["processes=several"], []),
                                (["processes=several", "money=yes", "fence=yes", "hot=no", "wait=yes"], ["row-lock"])):
                assert self.browser.run(choose, given) == lock, given
            self.examine(path)

    def other_pages_are_accessible(self):
        for number, page in enumerate(OTHER_PAGES):
            self.browser.size((390, 1280)[number % 2])
            self.browser.prefer(("dark", "light")[number // 2 % 2])
            self.browser.open(self.base + page)
            self.examine(page)

    def charts_open_at_their_loss(self):
        self.browser.size(390)
        self.browser.open(self.base + "zh/judged/redis-py.html")
        seen = self.browser.run("""return [...document.querySelectorAll('.static-lanes .timeline')].filter((it) => it.querySelector('.loss')).map((it) => {
            const [box, loss] = [it, it.querySelector('.loss .mark')].map((part) => part.getBoundingClientRect());
            return box.left <= loss.left && loss.right <= box.right; })""")
        assert seen and all(seen), seen

    def plays_from_the_file_system(self):
        browser, root = self.browser, self.folder.resolve().as_uri()
        browser.size(1280)
        browser.open(f"{root}/zh/index.html")
        self.plays_all_races()

        browser.open(f"{root}/scheduler.html")
        browser.click('[data-play="fence"]')
        self.recording_plays("fence")

        browser.open(f"{root}/zh/lessons/fence.html")
        browser.until("the run can be stepped through", "return !!document.querySelector('.swimlane .controls button')?.checkVisibility()")
        browser.open(f"{root}/zh/judged.html")
        assert 1 < len(self.found("redis")) < len(self.found("")), "the search finds no lock"

    def recording_plays(self, level):
        """Instead of a game: to its end, and the page says why."""
        browser = self.browser
        browser.until("the recording", "return !!document.querySelector('#moment')")
        assert "Postgres" in browser.text("#state"), browser.text("#state")
        for _ in next(it for it in LEVELS if it["name"] == level)["solution"]:
            browser.click("#forward")
        assert browser.run("return !!document.querySelector('#recorded .goal.reached')")

    def recording_plays_without_webassembly(self):
        """The host forbids it, the browser has none, or a file is missing."""
        browser = self.browser
        browser.open(self.site(STRICT) + "zh/scheduler.html")
        browser.click('[data-play="oversell"]')
        self.recording_plays("oversell")
        assert "WebAssembly" in browser.text("#state"), browser.text("#state")
        self.examine("zh/scheduler.html")

        off = browser.command("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.WebAssembly")
        browser.open(self.base + "scheduler.html")
        browser.click('[data-play="version"]')
        self.recording_plays("version")
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=off["identifier"])

        browser.open(self.site(BROKEN) + "scheduler.html")
        browser.click('[data-play="useless-lock"]')
        self.recording_plays("useless-lock")
        assert "404" in browser.text("#state"), browser.text("#state")

    def sizes_are_said(self):
        """Before anything is loaded, and they are those of the files."""
        assets = self.folder / "assets"
        played = [file for file in (assets / "pglite").iterdir() if file.name != "LICENSE"] + [assets / "shop-sql.js"]
        plain = sum(file.stat().st_size for file in played) / 1e6
        packed = sum(len(gzip.compress(file.read_bytes(), 6)) for file in played) / 1e6
        for language in ("", "zh/"):
            page = (self.folder / language / "scheduler.html").read_text(encoding="utf-8")
            recording = (assets / "recorded.js").stat().st_size / 1e3
            for size, unit in ((plain, "MB"), (packed, "MB"), (recording, "kB")):
                assert f"{round(size)} {unit}" in page, f"{language}: not {size} {unit}"

            lessons = (self.folder / language / "lessons.html").read_text(encoding="utf-8")
            files = list((self.folder / language / "lessons").glob("*.html"))
            assert len(files) == 3, files
            for file in files:
                size = f"{round(file.stat().st_size / 1e3)} kB"
                assert re.search(rf'lessons/{file.name}">[^\n]*{size}', lessons), f"{file}: not {size}"

    def every_file_is_for_something(self):
        """Each page is reached from the first ones, each other file is linked, or was loaded above."""
        reached, queue = set(), [self.folder / "index.html", *self.folder.glob("assets/race-preview-*.png")]
        for path in host.Handler.asked:
            root = next((root for root in (SUB_PATH, SLOW) if path.startswith(root)), None)
            if root and "/assets/" in path:
                queue.append(self.folder / path.removeprefix(root))
        while queue:
            file = queue.pop()
            if file in reached:
                continue
            reached.add(file)
            if file.suffix == ".html":
                links = Links(file.read_text(encoding="utf-8")).links
                targets = [urllib.parse.unquote(link.partition("#")[0]) for link in links if "://" not in link]
                queue += [Path(os.path.normpath(file.parent / target)) for target in targets if target]
        files = {file for file in self.folder.rglob("*") if file.is_file() and file.name != "LICENSE"}
        assert not files - reached, sorted(str(file.relative_to(self.folder)) for file in files - reached)

    def no_other_host_was_asked(self):
        asked = [address for address in self.asked if not address.startswith((self.server, "file:", "data:", "blob:", "chrome:", "about:"))]
        assert len(self.asked) > 50 and not asked, asked

    def run_all(self):
        tests = [self.every_internal_link_leads_somewhere, self.first_page_is_small, self.race_plays, self.race_plays_in_a_frame,
                 self.race_plays_without_scripts, self.levels_are_played_on_postgres, self.solution_plays_by_itself, self.locks_are_found,
                 self.questions_lead_to_a_lock, self.other_pages_are_accessible, self.charts_open_at_their_loss, self.plays_from_the_file_system,
                 self.recording_plays_without_webassembly, self.sizes_are_said, self.every_file_is_for_something,
                 self.no_other_host_was_asked]
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
    server = host.serve(folder)
    with Browser() as browser:
        failed = Test(folder, axe, server, browser).run_all()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
