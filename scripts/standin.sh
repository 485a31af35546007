#!/usr/bin/env bash
# Runs only the tests that the build tags standin and cuda add; scripts/test.sh runs the others. It runs one
# package after the other, since they share the machine's processors. PACKAGES limits it to some: make standin
# PACKAGES=./replay/... Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=standin,cuda
files() { # the test files of a build, a line each
	local each='{{$dir}}/{{.}}{{"\n"}}'
	go list "$@" -f "{{\$dir := .Dir}}{{range .TestGoFiles}}$each{{end}}{{range .XTestGoFiles}}$each{{end}}" \
		${PACKAGES:-./...} | sed '/^$/d' | sort -u
}
added=$(comm -13 <(files) <(files -tags "$tags"))
status=0
while read -r dir; do
	names=$(grep -x "$dir/[^/]*" <<<"$added" |
		xargs sed -n 's/^func \(Test[A-Z][A-Za-z0-9_]*\)(t \*testing\.T).*/\1/p' | paste -sd '|')
	[ -z "$names" ] || go test -tags "$tags" -count 1 -timeout 120m -run "^($names)\$" "$@" "$dir" || status=1
done < <(sed 's|/[^/]*$||' <<<"$added" | sort -u)
exit $status
