#!/usr/bin/env bash
# Compares two recordings and fails if one of some conditions holds, as `gmemtop diff --fail-if` does.
#   GMEMTOP_BASE, GMEMTOP_HEAD   the recordings: before and after
#   GMEMTOP_FAIL_IF              the conditions, one a line
#   GMEMTOP_REPORT               where to write the report, in Markdown
# It exits with 0, with 3 if a condition holds, and with gmemtop's own code if they cannot be compared.
set -euo pipefail
for name in GMEMTOP_BASE GMEMTOP_HEAD GMEMTOP_FAIL_IF GMEMTOP_REPORT; do
	[ -n "${!name:-}" ] || { echo "gate: $name is not set" >&2; exit 2; }
done
command -v gmemtop >/dev/null || { echo "gate: gmemtop is not installed: pip install gmemtop" >&2; exit 2; }
conditions=()
while IFS= read -r condition; do
	[[ $condition =~ ^[[:space:]]*$ ]] || conditions+=(--fail-if "$condition")
done <<<"$GMEMTOP_FAIL_IF"
[ ${#conditions[@]} -gt 0 ] ||
  { echo "gate: GMEMTOP_FAIL_IF has no condition, such as peak>+2%" >&2; exit 2; }
code=0
gmemtop diff --format markdown --force -o "$GMEMTOP_REPORT" "${conditions[@]}" \
	-- "$GMEMTOP_BASE" "$GMEMTOP_HEAD" || code=$?
if [ -s "$GMEMTOP_REPORT" ]; then
	cat "$GMEMTOP_REPORT"
	[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$GMEMTOP_REPORT" >>"$GITHUB_STEP_SUMMARY"
fi
exit $code
