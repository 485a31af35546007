VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build.version=$(VERSION)
TARGETS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

# Compiling against the CUDA driver needs its declarations and no toolkit: they are our own, and come before any that are installed.
CUDA := CGO_CFLAGS='-O2 -g "-I$(CURDIR)/replay/cuda/driver/libcuda/include"'

# The stand-in GPU of estimate --allocator real travels in programs for Linux on amd64.
STANDIN := capture/standin/packed/libstandin.so.gz
HOST := $(shell go env GOHOSTOS)/$(shell go env GOHOSTARCH)
CAN_PACK := $(and $(filter linux/amd64,$(HOST)),$(or $(GMEMTOP_CXX),$(shell command -v g++)))
PACKED := $(if $(CAN_PACK),packed,unpacked)
PACK = @$(if $(CAN_PACK),go run ./scripts/packstandin $(if $(GLIBC),-glibc $(GLIBC)) $(STANDIN),echo "no g++ for Linux on amd64: the program will not carry the stand-in GPU, and estimate --allocator real will ask for g++")

.PHONY: build test test-cuda standin standin-quick quick mutate bench samples dist wheels release site generate clean binaries

build: ## the program, for this machine; with a C compiler it also reads the GPU's counters and replays on the GPU
	@command -v gcc >/dev/null || echo "no gcc: the program will not read the GPU's counters nor replay on the GPU"
	$(PACK)
	$(CUDA) go build -tags cuda,$(PACKED) -trimpath -ldflags '$(LDFLAGS)' -o bin/gmemtop ./cmd/gmemtop

test: test-cuda ## every test
	scripts/test.sh

test-cuda: ## replay on a GPU, on the stand-in (needs a C++ compiler)
	$(CUDA) go vet -tags cuda ./replay/cuda/... ./cmd/gmemtop
	$(CUDA) go test -timeout 30m -tags cuda ./replay/cuda/...
	$(CUDA) go test -timeout 30m -tags cuda -run TestOnADevice ./cmd/gmemtop

standin: ## all tests on the stand-in GPU (needs g++, and GMEMTOP_TORCH: a Python with a torch built for CUDA)
	$(CUDA) go vet -tags standin,cuda ./...
	$(CUDA) scripts/standin.sh

standin-quick: ## the part of it that CI runs
	go test -timeout 45m -tags standin -run '^TestQuick' ./capture/standin/... ./capture/pytorch \
		./capture/pytorch/estimate ./traces/described ./replay/allocator ./cmd/gmemtop ./scripts/autopsycases

quick: ## what takes under a minute and needs no torch
	env -u GMEMTOP_TORCH -u GMEMTOP_TRACES go test -short . ./traces/... ./timeline/... ./managers/plan/... ./capture/standin/...

N ?= 20
SEED ?= 1
CORES := ./traces/torchsnapshot ./timeline ./managers/pack ./managers/plan ./managers/joint ./replay/sim \
	./timeline/autopsy=./timeline/autopsy,./timeline ./timeline/runs=./timeline/runs,./timeline \
	./timeline/sites=./timeline/sites,./timeline ./timeline/steps=./timeline/steps,./timeline
mutate: ## change one place of the cores' code at a time: their tests must notice (N changes of each package, drawn by SEED)
	go run ./scripts/mutate -n $(N) -seed $(SEED) $(CORES)

bench: ## every benchmark, with memory
	go test -run '^$$' -bench . -benchmem ./...

samples: ## record the embedded samples again (needs python3 with torch)
	scripts/samples.sh

generate: ## generated files
	scripts/generate.sh

dist: ## static binaries for every target, with checksums; without cgo they read GPU counters from nvidia-smi
	@if [ -z "$(GMEMTOP_CXX)" ] && [ $(HOST) = linux/amd64 ] && compiler=$$(packaging/compiler.sh); then \
	  $(MAKE) --no-print-directory binaries GMEMTOP_CXX="$$compiler" GLIBC=2.28; \
	else \
	  $(MAKE) --no-print-directory binaries; \
	fi

binaries:
	@mkdir -p dist
	$(PACK)
	@for t in $(TARGETS); do \
	  out=dist/gmemtop-$(VERSION)-$${t%/*}-$${t#*/}; echo $$out; \
	  GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 go build -tags $(PACKED) -trimpath -ldflags '$(LDFLAGS)' -o $$out ./cmd/gmemtop || exit 1; \
	done
	@cd dist && sha256sum gmemtop-$(VERSION)-* > SHA256SUMS

wheels: dist ## the same as wheels for pip, with the Python package
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} python3 packaging/wheels.py --version $(VERSION) --binaries dist --output dist

release: ## all files of a release: docs/releasing.md
	packaging/release.sh

site: ## the documentation as HTML in dist/site; needs no network to read
	go run ./scripts/site -o dist/site

clean:
	rm -rf bin dist
