#!/usr/bin/env bash
# Every test. Prints one line a package, every failure in full, and at the end each skipped test with the thing that it missed.
# RACE=-race turns the race detector on. Arguments are handed to go test.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

run() { # directory, arguments...
	local dir=$1
	shift
	(cd "$dir" && go test -v ${RACE:-} "$@" ./...) >"$log.part" 2>&1 || status=1
	cat "$log.part" >>"$log"
	if grep -qE '^(--- FAIL|FAIL|panic:|#)' "$log.part"; then
		grep -vE '^ *(=== |--- PASS|--- SKIP)' "$log.part" | grep -vE '^(PASS|ok |\?)' | tail -n 300
	fi
	grep -E '^(ok|FAIL)\s' "$log.part"
	rm -f "$log.part"
}

run . "$@"
run traces/gmt/oracle "$@"

skips=$(grep -cE '^ *--- SKIP' "$log")
printf '\n%s tests skipped\n' "$skips"
grep -A1 -E '^ *--- SKIP' "$log" | grep -vE '^--$' | sed -E 's/^ *--- SKIP: ([^ ]+).*/\1/; s/^ +[A-Za-z0-9_]+\.go:[0-9]+: /    /'
exit $status
