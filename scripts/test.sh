#!/usr/bin/env bash
# Runs every test: one line a package, every failure in full, and at the end each skipped test with what it
# lacks, and the slowest. RACE=-race turns the race detector on. PACKAGES limits it to some packages. The
# arguments go to go test.
set -uo pipefail
cd "$(dirname "$0")/.."
gotestsum=gotest.tools/gotestsum@v1.13.0
events=$(mktemp)
trap 'rm -f "$events"' EXIT
processors=$(getconf _NPROCESSORS_ONLN)
jobs=$((processors < 8 ? 2 * processors : processors))
status=0
modules=(. traces/gmt/oracle)
[ -z "${PACKAGES:-}" ] || modules=(.)
for module in "${modules[@]}"; do
	# What lasts longest begins first: live trainings, which mostly wait. A small machine runs twice as many
	# packages at a time as it has processors, and as many tests of each.
	first=
	[ ! -d "$module/cmd" ] || first="./cmd/... ./replay/crew ./capture/pytorch/..."
	(cd "$module" && go run $gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
		--jsonfile "$events" -- ${RACE:-} \
		-p "$jobs" -parallel "$jobs" -timeout 70m "$@" ${PACKAGES:-$first ./...}) || status=1
	slowest=$(go run $gotestsum tool slowest --threshold 10s --jsonfile "$events" | sed -n 1,15p)
	[ -z "$slowest" ] || printf '\nSlowest:\n%s\n' "$slowest"
done
# The wheels and recipes of a release, where python3 has pytest; the rest of packaging/python is .ci/run's.
if [ -z "${PACKAGES:-}" ] && python3 -c 'import pytest' 2>/dev/null; then
	(cd packaging/python && python3 -B -m pytest -q -p no:cacheprovider -rs \
		tests/test_wheels.py tests/test_recipes.py) || status=1
fi
exit $status
