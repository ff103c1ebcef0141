"""Records what the site shows, from a running `holdfast up`: races, games of the scheduler, lessons,
and pages that are the same without a server."""

import http.cookiejar
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request

LOCKS = ("none", "fenced", "local")
CROWD = 40
LESSONS = ("outlived", "wrong-delete", "fence")
ATTEMPTS = 5
STEP_TIMEOUT_S = 20


def main_of(page):
    return re.search(r'(?s)<main id="main">(.*?)</main>', page)[1]


class Shop:
    def __init__(self, address, data, program):
        self.address, self.data, self.program = address, data, program
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def request(self, path, language="en", accept="text/html", body=None, kind=None):
        headers = {"Accept": accept, "Accept-Language": language, "Origin": self.address}
        if kind:
            headers["Content-Type"] = kind
        request = urllib.request.Request(self.address + path, data=body, headers=headers)
        with self.opener.open(request, timeout=60) as response:
            return response.geturl().removeprefix(self.address), response.read()

    def page(self, path, language):
        return self.request(path, language)[1].decode()

    def json(self, path, language="en", send=None):
        body = None if send is None else json.dumps(send).encode()
        return json.loads(self.request(path, language, "application/json", body, "application/json")[1])

    def post(self, path, fields):
        body = urllib.parse.urlencode(fields).encode()
        kind = "application/x-www-form-urlencoded"
        path, page = self.request(path, body=body, kind=kind)
        return path, page.decode()

    # ---- Races ----

    def race(self, lock, buyers):
        """Runs a race that shows what its lock does: without one, units are sold twice."""
        for _ in range(ATTEMPTS):
            stock = buyers // 2
            race = self.json("/api/race", send={"lock": lock, "buyers": buyers, "stock": stock, "seed": 1})
            while race["state"] in ("queued", "running"):
                time.sleep(0.2)
                race = self.json(f"/api/race/{race['id']}")
            if (race["oversold"] == 0) == (lock == "fenced") and race["sold"] >= stock:
                return race
        raise SystemExit(f"site: no race under {lock} with {buyers} buyers had the expected result")

    def films(self, races, language):
        films = []
        for race in races:
            film = self.json(f"/race/{race['id']}/film", language)
            film["lock"] = race["lock"]
            for step in film.get("steps", []) + film.get("cells", []):
                step["at"] = round(step["at"], 4)
            films.append(film)
        return films

    # ---- The scheduler ----

    def game(self, level, languages):
        """Plays the best solution of a level; returns, by language, the game as its page shows it before
        the first step and after each."""
        path, page = self.post("/lab/scheduler", {"csrf": "", "level": level["name"], "previous": ""})
        states = {language: [game_of(self.page(path, language))] for language in languages}
        for who in level["solution"]:
            page = self.wait_for_step(path, page, who)
            fields = {"csrf": "", "who": "expire" if who == "X" else who}
            if since := re.search(rf'name="since" value="(\d+)">\s*<button[^>]*id="step-{who}"', page):
                fields["since"] = since[1]
            page = self.post(f"{path}/steps", fields)[1]
            for language in languages:
                states[language].append(game_of(self.page(path, language)))
        if "goal reached" not in states[languages[0]][-1]:
            raise SystemExit(f"site: the solution of {level['name']} did not reach its goal")
        # A visitor can have a few games at a time.
        self.post(f"{path}/end", {"csrf": ""})
        return states

    def wait_for_step(self, path, page, who):
        """An order that waits for a lock has it a moment after it is free."""
        end = time.monotonic() + STEP_TIMEOUT_S
        while who != "X" and f'id="step-{who}"' not in page:
            if time.monotonic() > end:
                raise SystemExit(f"site: order {who} of {path} is not paused")
            time.sleep(0.05)
            page = self.page(path, "en")
        return page

    # ---- Lessons ----

    def lesson(self, name):
        """Runs a lesson; returns the id of its run."""
        command = [self.program, "lesson", name, "--data", self.data, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise SystemExit(f"site: lesson {name} did not show its claim")
        return json.loads(done.stdout)["id"]

    def saved_run(self, run, language):
        return self.page(f"/lab/runs/{run}/file", language)


def game_of(page):
    """Returns the contents of the game, without its forms' fields and what belongs to the shop."""
    game = re.search(r'(?s)<div id="game"[^>]*>(.*)</div>\s*$', main_of(page).rstrip())[1]
    game = re.sub(r'(?s)<div class="actions">.*?</div>\s*<p class="hint keys">.*?</p>\s*<p class="hint">.*?</p>', "", game)
    game = re.sub(r'(?s)<form method="post"[^>]*>.*?<button[^>]*><kbd>.</kbd> (.*?)</button>\s*</form>',
                  r'<p class="next-step-of">\1</p>', game)
    game = re.sub(r'<a href="/lab/scheduler/[^"]*">.*?</a>', "", game)
    return re.sub(r"\n+", "\n", game)
