//go:build standin

package standin_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// distributed runs testdata/distributed.py on several ranks, with torchrun or by itself, which is faster.
func distributed(t *testing.T, m standin.Machine, ranks int, torchrun bool,
	parts ...string) standintest.Result {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "distributed.py"))
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{path}, parts...)
	if torchrun {
		args = append([]string{"-m", "torch.distributed.run", "--standalone",
			fmt.Sprintf("--nproc-per-node=%d", ranks)}, args...)
	} else {
		t.Setenv("RANKS", fmt.Sprint(ranks))
	}
	r := standintest.Run(t, standintest.Library(t), m, standintest.Interpreter(t), args...)
	r.Check(t)
	for rank := range ranks {
		if !strings.Contains(r.Stdout, fmt.Sprintf("ok %d\n", rank)) {
			t.Errorf("rank %d did not finish:\n%s%s", rank, r.Stdout, r.Stderr)
		}
	}
	return r
}

var same = regexp.MustCompile(`(?m)^same .*$`)

// digests returns the output that is equal for two runs with the same results to the bit.
func digests(t *testing.T, r standintest.Result, want int) []string {
	t.Helper()
	all := same.FindAllString(r.Stdout, -1)
	slices.Sort(all)
	if len(all) != want {
		t.Fatalf("%q are not %d digests", all, want)
	}
	return all
}

// FSDP2 on two ranks gives what one process gives on the CPU (the script compares). It is the shortest test
// of all that NCCL does: two communicators' streams, gathers, scatters and their order.
func TestQuickTwoRanksTrainWithFSDP(t *testing.T) {
	digests(t, distributed(t, standin.Machine{Devices: 2, Order: standin.Late, Compute: true}, 2, false,
		"fsdp"), 1)
}

// Collectives, DDP and FSDP2 give on two ranks what one process gives on the CPU (the script compares), and
// give the same to the bit whether streams do their work at once, as late as possible, or in a drawn order.
func TestRanksTrainAlikeInEveryOrder(t *testing.T) {
	var first []string
	for _, order := range []string{standin.Once, standin.Late, "7"} {
		r := distributed(t, standin.Machine{Devices: 2, Order: order, Compute: true}, 2,
			order == standin.Late, "collectives", "ddp", "fsdp")
		now := digests(t, r, 2)
		if first == nil {
			first = now
		} else if !slices.Equal(first, now) {
			t.Errorf("order %s ends with %q, at once with %q", order, now, first)
		}
	}
}

// Collectives of four ranks, and of communicators that are split from one another rather than created again.
// Only NCCL computes here: no op takes part.
func TestFourRanksSplitTheirCommunicators(t *testing.T) {
	for _, order := range []string{standin.Once, standin.Late} {
		r := distributed(t, standin.Machine{Devices: 4, Order: order}, 4, false, "split", "collectives")
		splits := uint64(0)
		for _, p := range r.Reports {
			splits += p.Calls["ncclCommSplit"]
		}
		if splits == 0 {
			t.Error("nobody called ncclCommSplit")
		}
	}
}

// A killed rank, a rank that does something different from the others, and a receive of another size end in
// NCCL's errors: no rank is left waiting, and misuse is in the report.
func TestBrokenRanksEndInErrors(t *testing.T) {
	for _, test := range []struct{ mode, stdout, violation string }{
		{"killed", "rank 0: remote process exited", ""},
		{"count", "invalid usage", "rank 0 ncclAllReduce of 4 × float32, sum, rank 1 " +
			"ncclAllReduce of 5 × float32, sum"},
		{"type", "invalid usage", "rank 0 ncclAllReduce of 4 × float32, sum, rank 1 " +
			"ncclAllReduce of 4 × float64, sum"},
		{"receive", "invalid usage", "rank 1 receives 12 bytes (float32) from rank 0, " +
			"which sends 20 (float32)"},
		{"absent", "rank 0 goes on; the abort answered [0]", ""},
		{"never", "rank 0: unhandled system error: rank 0 has waited for rank 1", ""},
		{"unsent", "rank 0: unhandled system error: rank 0 has waited for rank 1", ""},
	} {
		t.Run(test.mode, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("testdata", "brokenranks.py"))
			if err != nil {
				t.Fatal(err)
			}
			r := standintest.Run(t, standintest.Library(t), standin.Machine{Order: standin.Late},
				standintest.Interpreter(t), path, test.mode)
			if !strings.Contains(r.Stdout, test.stdout) {
				t.Errorf("no %q in the ranks' output:\n%s%s", test.stdout, r.Stdout, r.Stderr)
			}
			var violations []string
			for _, p := range r.Reports {
				violations = append(violations, p.Violations...)
			}
			if test.violation == "" && len(violations) > 0 {
				t.Errorf("violations %q", violations)
			}
			if !slices.ContainsFunc(append(violations, ""), func(v string) bool {
				return strings.Contains(v, test.violation) && (test.violation != "") == (v != "")
			}) {
				t.Errorf("violations %q, none with %q", violations, test.violation)
			}
		})
	}
}

// One process drives several devices, as DataParallel does: all communicators of a group advance together.
func TestOneProcessReducesOverItsDevices(t *testing.T) {
	for _, order := range []string{standin.Once, standin.Late} {
		standintest.Python(t, standin.Machine{Devices: 3, Order: order, Compute: true}, `
import torch
from torch.cuda import nccl
xs = [torch.full((5,), float(d + 1), device=f"cuda:{d}") for d in range(3)]
nccl.all_reduce(xs)
for x in xs:
    assert x.cpu().tolist() == [6.0] * 5, x.cpu()
out = torch.zeros(5, device="cuda:1")
nccl.reduce(xs, out, root=1)
assert out.cpu().tolist() == [18.0] * 5, out.cpu()
`)
	}
}

// The library reports the NCCL that it stands in for: the one that came with PyTorch.
func TestTheLibraryReportsTheVersionOfPyTorchsNCCL(t *testing.T) {
	out := standintest.Python(t, standin.Machine{}, `
import ctypes, glob, os, torch
site = os.path.dirname(os.path.dirname(torch.__file__))
v = ctypes.c_int()
ctypes.CDLL(None).ncclGetVersion(ctypes.byref(v)); seen = v.value
ctypes.CDLL(glob.glob(site + "/nvidia/nccl/lib/libnccl.so.2")[0]).ncclGetVersion(ctypes.byref(v))
print(seen == v.value and seen > 0)
real = ctypes.CDLL(glob.glob(site + "/nvidia/cudnn/lib/libcudnn.so.9")[0]).cudnnGetVersion
real.restype = ctypes.c_size_t
print(torch.backends.cudnn.version() == real())
`)
	if out != "True\nTrue\n" {
		t.Errorf("NCCL's and cuDNN's versions are theirs: %q", out)
	}
}
