#!/usr/bin/env bash
# Every test: one line a package, every failure in full, and at the end each skipped test with the thing that it missed.
# RACE=-race turns the race detector on. Arguments are handed to go test.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
for module in . traces/gmt/oracle; do
	(cd "$module" && go run gotest.tools/gotestsum@v1.13.0 --format pkgname-and-test-fails --format-hide-empty-pkg -- ${RACE:-} "$@" ./...) || status=1
done
exit $status
