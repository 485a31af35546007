#!/usr/bin/env bash
# Builds HiGHS, the solver of integer programs, from its source:
#
#   scripts/highs.sh wasm      managers/milp/highs.wasm.zst, which the program embeds
#   scripts/highs.sh native    bin/highs, twice as fast, which tests and the program use if it is on PATH
#
# HIGHS_SOURCE may name a clone of HiGHS' repository. The commit and the hash of its files must be those below
# in any case. wasm needs git, cmake, Emscripten and zstd (on Debian 12: apt-get install git cmake emscripten
# node-acorn zstd), native needs git, cmake and a C++ compiler. It takes 20 minutes of two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=v1.15.1
commit=04024d701f79feb8e2f18bc3df0dffc04ef05088
files=03a6b22649295016efc4f5016cda76c6673d0bcc752306affce455a2fe442e14 # sha256 of git archive --format=tar
emscripten=3.1.6
target=${1:-}
case $target in wasm|native) ;; *) echo "usage: scripts/highs.sh wasm|native" >&2; exit 2 ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q --no-checkout ${HIGHS_SOURCE:+--shared} -c advice.detachedHead=false \
  "${HIGHS_SOURCE:-https://github.com/ERGO-Code/HiGHS}" "$work/clone"
[ "$(git -C "$work/clone" rev-parse "$tag^{commit}")" = $commit ] || {
  echo "highs.sh: $tag is not $commit" >&2
  exit 1
}
git -C "$work/clone" archive --format=tar $commit > "$work/files.tar"
echo "$files  $work/files.tar" | sha256sum -c --quiet
git -C "$work/clone" checkout -q $commit # a build states the commit that it is of

options=(-S "$work/clone" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF
  -DBUILD_TESTING=OFF -DBUILD_EXAMPLES=OFF -DZLIB=OFF -DBUILD_SHARED_EXTRAS_LIB=OFF
  -DCMAKE_C_FLAGS_RELEASE="-O3 -DNDEBUG" -DCMAKE_CXX_FLAGS_RELEASE="-O3 -DNDEBUG")
if [ "$target" = native ]; then
  cmake "${options[@]}"
  cmake --build "$work/build" -j"$(nproc)"
  mkdir -p bin
  cp "$work/build/bin/highs" bin/highs
  bin/highs --version
  exit
fi

em++ --version | grep -qF " $emscripten " ||
  echo "highs.sh: Emscripten is not $emscripten: the checksum will differ" >&2
export NODE_PATH=${NODE_PATH:-/usr/share/nodejs} # where Debian puts acorn
emcmake cmake "${options[@]}" -DBUILD_CXX_EXE=OFF
cmake --build "$work/build" --target highs -j"$(nproc)"
exports=_malloc,_free
for name in create version setBoolOptionValue setIntOptionValue setDoubleOptionValue passMip setSolution run \
  getModelStatus getIntInfoValue getDoubleInfoValue getInt64InfoValue getSolution getBasis setBasis; do
  exports+=,_Highs_$name
done
em++ -O3 --no-entry "$work/build/lib/libhighs.a" "$work/build/lib/libhighs_extras.a" -sALLOW_MEMORY_GROWTH=1 \
  -sMAXIMUM_MEMORY=2GB -sEXPORTED_FUNCTIONS=$exports -o "$work/highs.wasm"
zstd -19 -q -f "$work/highs.wasm" -o managers/milp/highs.wasm.zst
sha256sum "$work/highs.wasm"
echo "put this checksum and wasmVersion into managers/milp (README.md, wasm.go, wasm_test.go), then:"
echo "go test ./managers/milp"
