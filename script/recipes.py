"""Runs the blocks of docs/FENCES.md and docs/LEDGER.md: called by script/test-recipes, with
Postgres in PGHOST and the program in HOLDFAST."""

import os
import pathlib
import re
import subprocess

import django
import psycopg
import sqlalchemy
from django.conf import settings
from sqlalchemy.orm import Session

PAGE = pathlib.Path("docs/FENCES.md").read_text()
LEDGER = pathlib.Path("docs/LEDGER.md").read_text()
MIGRATION = pathlib.Path("crates/holdfast-lock/src/fenced_table.sql").read_text()


def block(section, language, number=0, page=PAGE):
    """The code of a section, as it stands on the page."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.M | re.S).group(1)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)[number]


def run(code):
    """The names that a block defines."""
    names = {"__name__": "recipe"}
    exec(compile(code, "docs/FENCES.md", "exec"), names)
    return names


def check(name, write, read, save):
    """What any recipe must report, on a table of one row `tea`."""
    assert write("tea", 0, 65, stock=9) == ("done", None)
    assert write("tea", 1, 65, stock=8) == ("done", None)
    assert write("tea", 2, 1, stock=0) == ("stale", 65)
    assert write("tea", 0, 1, stock=0) == ("stale", 65)
    assert write("tea", 1, 65, stock=0) == ("changed", 2)
    assert write("tea", 1, 129, stock=0) == ("changed", 2)
    assert write("coffee", 0, 65, stock=0) == ("missing", None)
    assert read() == (8, 2, 65), read()
    try:
        save()
    except Exception as error:
        assert "the version must be incremented" in str(error), error
    else:
        raise AssertionError("the trigger let a writer without the guard pass")
    assert read() == (8, 2, 65), read()
    print(f"{name}: as the page says")


def reset(connection):
    connection.execute("drop table if exists items")
    connection.execute(block("The table", "sql", 0))
    connection.execute("insert into items (sku, stock) values ('tea', 10)")
    connection.execute(block("The table", "sql", 1))


def check_sql(connection):
    # psycopg has parameters of its own: a prepared statement takes those of the page.
    connection.execute(f"prepare guarded as {block('The write', 'sql')}")

    def write(key, version, fence, stock):
        done = connection.execute(f"execute guarded ('{key}', {version}, {fence}, {stock})")
        if done.rowcount:
            return "done", None
        found = connection.execute("select version, fence from items where sku = %s", [key])
        found = found.fetchone()
        if found is None:
            return "missing", None
        return ("stale", found[1]) if found[1] > fence else ("changed", found[0])

    check(
        "SQL",
        write,
        lambda: connection.execute("select stock, version, fence from items").fetchone(),
        lambda: connection.execute("update items set stock = 0"),
    )
    connection.execute("deallocate guarded")


def check_django():
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}
    database |= {"HOST": os.environ["PGHOST"], "USER": os.environ["PGUSER"]}
    settings.configure(DATABASES={"default": database})
    django.setup()
    recipe = run(block("Django", "python"))
    item = recipe["Item"]

    def save():
        row = item.objects.get(pk="tea")
        row.stock = 0
        row.save()

    check(
        "Django",
        lambda *row, **values: recipe["write"](item, *row, **values),
        lambda: item.objects.values_list("stock", "version", "fence").get(),
        save,
    )


def check_sqlalchemy():
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", connect_args={"host": os.environ["PGHOST"]}
    )
    recipe = run(block("SQLAlchemy", "python"))
    item = recipe["Item"]

    def write(*row, **values):
        with Session(engine) as session, session.begin():
            return recipe["write"](session, item, *row, **values)

    def read():
        with Session(engine) as session:
            row = session.get(item, "tea")
            return row.stock, row.version, row.fence

    def save():
        with Session(engine) as session, session.begin():
            session.get(item, "tea").stock = 0

    check("SQLAlchemy", write, read, save)


def holdfast(*options):
    url = "postgres:///{PGDATABASE}?host={PGHOST}&user={PGUSER}".format_map(os.environ)
    command = [os.environ["HOLDFAST"], "ledger", *options]
    environment = os.environ | {"DATABASE_URL": url}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def in_two_sessions(steps):
    """Runs lines as `select …;  -- 2: 10`: statement, session, and what it returns."""
    names = ["web-1", "web-2"]
    sessions = [psycopg.connect(autocommit=True, application_name=name) for name in names]
    for line in steps.splitlines():
        statement, session, _, value = re.match(r"(.*;) +-- (\d)(: (\d+))?$", line).groups()
        done = sessions[int(session) - 1].execute(statement)
        assert value is None or done.fetchone()[0] == int(value), line
    for session in sessions:
        session.close()


def check_ledger(connection):
    """The page's lost update is found as it says, and its guarded writes are none."""
    page = ["A lost update", "sql"]
    options = ["--table", "products", "--key", "id", "--value", "stock"]
    connection.execute(block(*page, 0, LEDGER))
    connection.execute(holdfast(*options).stdout)
    assert holdfast("audit").returncode == 0

    in_two_sessions(block(*page, 1, LEDGER))
    audit = holdfast("audit")
    assert audit.returncode == 1, audit
    texts = audit.stdout, block("A lost update", "text", 0, LEDGER)
    # Without times, addresses and processes.
    said, shown = [re.sub(r"\d{4}-\S+ \S+ by (\S+)[^)]*", r"\1", text) for text in texts]
    assert said == shown, said

    in_two_sessions(block(*page, 2, LEDGER))
    audit = holdfast("audit")
    assert "overlaps that are no forks: 1 computed" in audit.stdout, audit
    assert audit.stdout.count(" began before ") == 1, audit

    connection.execute(block("In production", "sql", 0, LEDGER))
    connection.execute(holdfast(*options, "--drop").stdout)
    assert holdfast("audit").returncode == 2
    print("ledger: as the page says")


def main():
    migration = block("The table", "sql", 1)
    assert migration == MIGRATION.replace("{table}", '"items"'), "the crate has another migration"
    with psycopg.connect(autocommit=True) as connection:
        for recipe in [lambda: check_sql(connection), check_django, check_sqlalchemy]:
            reset(connection)
            recipe()
        check_ledger(connection)


main()
