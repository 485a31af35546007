#!/usr/bin/env bash
# Builds everything that a release consists of, into dist/, and publishes nothing: docs/releasing.md. The same
# commit gives the same bytes, with the same release of Go.
#   packaging/release.sh            for what `git describe` says, such as v1.2.0
#   packaging/release.sh --reuse    from the binaries that are in dist/ already
set -euo pipefail
cd "$(dirname "$0")/.."
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
version=${VERSION:-$(git describe --tags --always --dirty)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

if [ "${1:-}" != --reuse ]; then
	rm -rf dist
	# This compiler brings the C library of RHEL 8 and Debian 10, so the stand-in GPU runs wherever PyTorch
	# does. It stays in the cache, under its version: the stand-in's objects are kept by the compiler's path,
	# and a folder that is new each time would have all of them compiled again.
	zig=0.17.1
	compiler=${XDG_CACHE_HOME:-$HOME/.cache}/gmemtop/ziglang-$zig
	if ! "$compiler/bin/python" -m ziglang version >/dev/null 2>&1; then
		rm -rf "$compiler"
		python3 -m venv "$compiler"
		"$compiler/bin/pip" install -q --disable-pip-version-check "ziglang==$zig"
	fi
	export GMEMTOP_CXX="$compiler/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.28"
	GMEMTOP_CXX+=" -fno-sanitize=undefined"
	make dist VERSION="$version" GLIBC=2.28
fi
package=$(python3 packaging/recipes.py version "$version")

echo "manual pages and completions"
host=dist/gmemtop-$version-$(go env GOHOSTOS)-$(go env GOHOSTARCH)
mkdir "$stage/man" "$stage/completions"
"$host" man --dir "$stage/man"
gzip -n -9 "$stage"/man/*.1
for shell in bash zsh fish; do "$host" completion $shell >"$stage/completions/gmemtop.$shell"; done

echo "wheels"
python3 packaging/wheels.py --version "$version" --binaries dist --output dist

for arch in amd64 arm64; do
	for packager in deb rpm; do
		ARCH=$arch BINARY=dist/gmemtop-$version-linux-$arch STAGE=$stage PACKAGE_VERSION=$package \
			go run $nfpm package --config packaging/nfpm.yaml --packager $packager --target dist/
	done
done

echo "bill of materials"
go run $cyclonedx mod -json -noserial -notimestamp -output "$stage/sbom.json" .
python3 packaging/recipes.py sbom "$stage/sbom.json" "$version" >"dist/gmemtop-$version.cdx.json"

echo "formula and recipe"
(cd dist && rm -f SHA256SUMS && sha256sum gmemtop* >"$stage/SHA256SUMS" && mv "$stage/SHA256SUMS" .)
python3 packaging/recipes.py formula dist/SHA256SUMS "$version" >dist/gmemtop.rb
python3 packaging/recipes.py conda dist/SHA256SUMS "$version" >dist/meta.yaml
ls -l dist
