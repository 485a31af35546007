#!/usr/bin/env bash
# Writes every generated file anew: what go:generate lines in the tree say.
set -euo pipefail
cd "$(dirname "$0")/.."
go generate ./...
