"""The messages of locales/, for the site: a message becomes a list of parts, which this module and
static scripts fill in. Of Fluent, only what the catalogue uses: variables, texts in quotes, and
selections by a number or a word."""

import re
from pathlib import Path

SITE = Path(__file__).parent
LOCALES = SITE.parent / "locales"
LANGUAGES = ("en", "zh")


def parse_pattern(text):
    """Returns the parts of a pattern: strings, {"var": name}, {"select": name, "variants": {…},
    "default": key}."""
    parts, rest = [], text
    while rest:
        before, brace, rest = rest.partition("{")
        if before:
            parts.append(before)
        if not brace:
            break
        inner, rest = split_placeable(rest)
        parts.append(parse_placeable(inner))
    return parts


def split_placeable(text):
    """Splits at the brace that closes a placeable."""
    depth = 1
    for at, char in enumerate(text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return text[:at].strip(), text[at + 1 :]
    raise ValueError(f"no closing brace: {text!r}")


def parse_placeable(inner):
    if literal := re.fullmatch(r'"(.*)"', inner):
        return literal[1]
    if variable := re.fullmatch(r"\$([a-z0-9_]+)", inner):
        return {"var": variable[1]}
    selection = re.fullmatch(r"(?s)\$([a-z0-9_]+)\s*->\s*(.*)", inner)
    if not selection:
        raise ValueError(f"not understood: {{{inner}}}")
    variants, default = {}, None
    for star, key, value in re.findall(r"(?ms)^\s*(\*?)\[(\w+)\] (.*?)(?=^\s*\*?\[|\Z)", selection[2]):
        variants[key] = parse_pattern(value.rstrip())
        default = key if star else default
    return {"select": selection[1], "variants": variants, "default": default}


def load(language):
    messages = {}
    # Those of the site alone are no part of the program.
    for path in [*sorted((LOCALES / language).glob("*.ftl")), SITE / "locales" / f"{language}.ftl"]:
        source = re.sub(r"(?m)^#.*\n?", "", path.read_text(encoding="utf-8"))
        # A message goes on in the lines that begin with a space or a brace.
        for name, pattern in re.findall(r"(?m)^([a-z][a-z0-9-]*) = ?(.*(?:\n(?:[ \t}].*|$))*)", source):
            messages[name] = parse_pattern(pattern.strip())
    return messages


def variant(part, values, language):
    value = values[part["select"]]
    keys = [str(value)]
    if isinstance(value, int):
        keys.append("one" if value == 1 and language == "en" else "other")
    return next((part["variants"][key] for key in keys if key in part["variants"]),
                part["variants"][part["default"]])


def fill(parts, values, language):
    filled = []
    for part in parts:
        if isinstance(part, str):
            filled.append(part)
        elif "var" in part:
            filled.append(str(values[part["var"]]))
        else:
            filled.append(fill(variant(part, values, language), values, language))
    return "".join(filled)


class Texts:
    """The messages of one language."""

    def __init__(self, language):
        self.language = language
        self.messages = load(language)

    def __call__(self, name, **values):
        return fill(self.messages[name], values, self.language)

    def starting_with(self, *prefixes):
        """Returns the parts of messages, for a script."""
        return {name: parts for name, parts in self.messages.items() if name.startswith(prefixes)}
