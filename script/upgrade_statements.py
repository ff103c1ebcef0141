#!/usr/bin/env python3
"""Prepares the statements of a release against a newer schema; called by script/check-upgrade.

    script/upgrade_statements.py QUERIES PSQL SOCKETS NAME

QUERIES is a folder of descriptions that sqlx wrote; the databases `old` and `new` have the schema of
that release and today's. Prints each incompatibility; exit code 1 if there is one.
"""

import json
import subprocess
import sys
from pathlib import Path

# Types that sqlx and Postgres name differently; arrays have the suffix Array.
TYPES = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean",
         "float4": "real", "float8": "double precision", "timestamptz": "timestamp with time zone"}

UTILITIES = ("lock", "set")

# Columns that an insert must name, and columns that may be null.
REQUIRED = """
select c.relname || '.' || a.attname from pg_attribute a
  join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'public' and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
   and {not_null} {without_default}"""
NOT_NULL = "(a.attnotnull or (select typnotnull from pg_type where oid = a.atttypid))"
WITHOUT_DEFAULT = "and not a.atthasdef and a.attidentity = ''"


def type_name(described) -> str:
    if not isinstance(described, str):
        return described["Custom"]["name"] if "Custom" in described else str(described)
    if described.endswith("Array"):
        return type_name(described.removesuffix("Array")) + "[]"
    return TYPES.get(described.lower(), described.lower())


def main() -> int:
    queries, psql, sockets, name = sys.argv[1:]

    def run(database: str, script: str) -> subprocess.CompletedProcess:
        command = [psql, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", sockets,
                   "-p", "5432", "-U", "holdfast", "-d", database, "-f", "-"]
        return subprocess.run(command, input=script, text=True, capture_output=True)

    def columns(database: str, without_default: str) -> set:
        listed = run(database, REQUIRED.format(not_null=NOT_NULL, without_default=without_default))
        if listed.returncode != 0:
            sys.exit(f"script/check-upgrade: {listed.stderr}")
        return set(listed.stdout.split())

    faults = []
    not_null = columns("new", "")
    tables = run("old", "select relname from pg_class where relkind in ('r', 'p')").stdout.split()
    for column in sorted(columns("new", WITHOUT_DEFAULT) - columns("old", WITHOUT_DEFAULT)):
        if column.split(".")[0] in tables:
            faults.append(f"{column} is not null and has no default: older inserts fail")
    files = sorted(Path(queries).glob("query-*.json"))
    if not files:
        sys.exit(f"script/check-upgrade: {name} has no .sqlx/query-*.json")
    for file in files:
        query = json.loads(file.read_text())
        text, described = query["query"], query["describe"]
        parameters = (described.get("parameters") or {}).get("Left") or []
        declared = f"({', '.join(map(type_name, parameters))})" if parameters else ""
        # The SQL command accepts no utility statements, which have no parameters either.
        is_utility = text.split()[0].lower() in UTILITIES
        prepare = "" if is_utility else f"prepare statement {declared} as {text}\n;\n"
        result = run("new", f"{prepare}{text}\n\\gdesc\n")
        if result.returncode != 0:
            faults.append(f"{result.stderr.strip()}\n    in: {text}")
            continue
        found = [tuple(line.split("\t")) for line in result.stdout.splitlines() if "\t" in line]
        expected = [(it["name"], type_name(it["type_info"])) for it in described["columns"]]
        custom = [i for i, it in enumerate(described["columns"]) if not isinstance(it["type_info"], str)]
        for index in custom:  # A domain is described as its base type.
            if index < len(found):
                expected[index] = (expected[index][0], found[index][1])
        if expected and found != expected:
            faults.append(f"the result has the columns {found}, not {expected}\n    in: {text}")
        for column, nullable in zip(described["columns"], described.get("nullable", [])):
            origin = column.get("origin")
            table = origin.get("Table") if isinstance(origin, dict) else None
            if table and nullable is False:
                origin = f"{table['table'].removeprefix('public.')}.{table['name']}"
                if origin not in not_null:
                    faults.append(f"{origin} may be null now\n    in: {text}")
    for fault in faults:
        print(fault)
    verdict = f"{len(faults)} incompatibilities" if faults else "all work on today's schema"
    print(f"{len(files)} statements of {name}: {verdict}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
