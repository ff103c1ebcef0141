# shellcheck shell=bash
# Sourced by the `run` scripts: starts the program of an adapter's folder with what judge/setup has
# installed or built for it.
folder=$(cd "$(dirname "$0")" && pwd)
installed=$folder/../.env/$(basename "$folder")
if [ -f "$folder/lock.js" ]; then
  NODE_PATH=$installed/node_modules exec node "$folder/lock.js"
elif [ -f "$folder/lock.py" ]; then
  python=$installed/bin/python
  # Some need no packages.
  [ -x "$python" ] || python=python3
  export PYTHONPATH=$folder/../common PYTHONDONTWRITEBYTECODE=1
  exec "$python" "$folder/lock.py"
fi
exec "$installed/adapter" "$@"
