# shellcheck shell=bash
# Sourced by the `backend` scripts, which start a server of their own for a lock that needs one:
#
#   backend COMMAND…    runs the command with the server's address in its environment, then ends both
#
# Sets `folder`, a temporary one, and ends the processes in `servers` with the script.
set -euo pipefail

folder=$(mktemp -d)
servers=()
end_servers() {
  if [ ${#servers[@]} -gt 0 ]; then
    kill "${servers[@]}" 2>/dev/null || true
    wait "${servers[@]}" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap end_servers EXIT
trap 'exit 130' INT TERM HUP

# Waits until a command succeeds; for 10 s at most.
wait_for() {
  local tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
      echo "$0: the server did not start:" >&2
      tail -n 20 "$folder"/*.log >&2
      exit 2
    fi
    sleep 0.1
  done
}
