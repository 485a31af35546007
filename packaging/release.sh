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
	packaging/compiler.sh >/dev/null # a release is for glibc 2.28, or there is none
	make dist VERSION="$version"
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
