"""pretix, with the URLs that its first request would load: `--preload` loads them per instance."""

from importlib import import_module

from pretix.wsgi import application  # noqa: F401

import_module("pretix.multidomain.maindomain_urlconf")
