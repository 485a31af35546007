// Package pool makes a running training process allocate as a plan says: torch's allocator serves the planned
// allocations of a step from one block, at planned addresses, and everything else as before.
//
// It has three parts. shim/pool.c intercepts torch's allocator in the process; its opening comment says how,
// and why memory is never handed out twice, whatever a plan says. The agent's module pool finds that
// allocator, checks that it knows it, and is the rest of the agent's interface to it. This package compiles
// the shim ([Build]) and turns its recording into a trace for planners ([FromEvents]). The table that it
// serves comes from package replay/live.
//
// # What was tried
//
// On the CPU, with torch 2.2, 2.6 and 2.15: the tests train real networks with the pool, without it, and
// switching it at random steps, and compare every bit of losses, gradients and parameters. On a GPU it never
// ran: there the table of functions was checked in those versions' libraries, which load without a GPU, and
// the code was run against a stand-in for torch's allocator and the CUDA runtime (testdata/stand_in.c).
//
// # What it costs
//
// An allocation of 4 KiB and its free, on a core of a virtual machine (Xeon, 2.5 GHz): 166 ns by
// posix_memalign, as torch's allocator for the CPU calls it; 7 ns more with the pool in front and idle; 52 ns
// from the arena; 115 ns more than torch's own while recording. On a GPU each allocation also asks CUDA for
// the current stream and whether it is captured. To measure it:
//
//	go test ./capture/pytorch/pool -run TestCosts -v
//
// # What it does not do
//
// An arena serves one stream, the training's; allocations of others are torch's. While a plan does not match,
// both the arena and what torch allocates beside it are held, until the plan counts as stale after three
// iterations. torch.profiler does not see allocations that the pool serves.
package pool

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed shim
var shim embed.FS

// ErrNoCompiler means that there is no compiler for the shim.
var ErrNoCompiler = errors.New("no C compiler")

// flags compile the shim so that torch can throw through it and it stays loaded.
var flags = []string{"-std=gnu11", "-O2", "-fPIC", "-shared", "-fexceptions", "-fvisibility=hidden",
	"-pthread", "-Wl,-z,nodelete"}

// Build returns the path of the shim for this machine. It is compiled once, with $CC or cc, and kept in the
// user's cache folder.
func Build(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("the live pool runs on Linux, not on %s: the other live managers work "+
			"without it", runtime.GOOS)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder to keep the live pool's library in: %w; set XDG_CACHE_HOME", err)
	}
	folder := filepath.Join(cache, "gmemtop")
	sources, err := shim.ReadDir("shim")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, runtime.GOARCH, flags)
	texts := map[string][]byte{}
	for _, s := range sources {
		if texts[s.Name()], err = shim.ReadFile("shim/" + s.Name()); err != nil {
			return "", err
		}
		_, _ = sum.Write(texts[s.Name()])
	}
	path := filepath.Join(folder, "pool-"+hex.EncodeToString(sum.Sum(nil)[:8])+".so")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	compiler, err := findCompiler()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", notKept(err)
	}
	work, err := os.MkdirTemp(folder, "pool-*")
	if err != nil {
		return "", notKept(err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o644); err != nil {
			return "", err
		}
	}
	made := filepath.Join(work, "pool.so")
	cmd := exec.CommandContext(ctx, compiler[0],
		append(append(compiler[1:], flags...), "-o", made, filepath.Join(work, "pool.c"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s cannot compile the live pool (%w): %s: install gcc and the headers of "+
			"the C library (apt install gcc libc6-dev), "+
			"or name another compiler in CC; the other live managers work without it",
			strings.Join(compiler, " "), err, firstLine(out))
	}
	// Several processes may build at once: each renames a complete file over the others', and all are equal.
	if err := os.Rename(made, path); err != nil {
		return "", notKept(err)
	}
	return path, nil
}

// notKept is the error for a cache folder that cannot be written to.
func notKept(err error) error {
	return fmt.Errorf("keep the live pool's library: %w; set XDG_CACHE_HOME to a folder that you can "+
		"write to", err)
}

// findCompiler returns the command that compiles C.
func findCompiler() ([]string, error) {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		if _, err := exec.LookPath(cc[0]); err != nil {
			return nil, fmt.Errorf("%w: CC names %s, and it is not on PATH: unset CC, or name a compiler "+
				"that is there; the other live managers work without one", ErrNoCompiler, cc[0])
		}
		return cc, nil
	}
	for _, cc := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); err == nil {
			return []string{path}, nil
		}
	}
	return nil, fmt.Errorf("%w to build the live pool with: apt install gcc, or name one in CC; the other "+
		"live managers work without one", ErrNoCompiler)
}

func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
