//go:build standin && linux && cgo

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/books"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/machine"
)

// watchedOnStandin marks a process started on a stand-in machine, so that gmemtop's own code finds its NVML.
const watchedOnStandin = "GMEMTOP_TEST_ON_STANDIN"

// TestTheBooksOfAStandinGPU watches a training beside another process that holds memory of the GPU, on a
// machine with the stand-in's NVML: the machine's screen and the split of the GPU's memory add up to what is
// used.
func TestTheBooksOfAStandinGPU(t *testing.T) {
	const (
		total, contexts, other = int64(40 << 30), int64(300 << 20), int64(10 << 30)
	)
	if os.Getenv(watchedOnStandin) == "" {
		lib := standintest.Library(t)
		m := standin.Machine{Devices: 2, Memory: "40GiB", Context: "300MiB",
			Others: []string{"10GiB", "1GiB"}, Board: filepath.Join(t.TempDir(), "board")}
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(lib.Environ(m), watchedOnStandin+"=1", "OMP_NUM_THREADS=1",
			"CUBLAS_WORKSPACE_CONFIG=:16:8", "CUBLASLT_WORKSPACE_SIZE=128")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}

	command, err := pytorch.Start(pytorch.Launch{Argv: []string{torchtest.Python(t), "../../examples/mlp.py",
		"--device", "cuda", "--steps", "1000000", "--batch", "1024", "--inputs", "64", "--width", "64"}})
	if err != nil {
		t.Fatal(err)
	}
	session := capture.NewHistory(capture.Limits{})
	watching, unwatch := context.WithCancel(context.Background())
	t.Cleanup(func() {
		_ = command.Signal(os.Kill)
		_, _ = command.Wait(context.Background())
		unwatch()
	})
	go command.Run(watching, session)
	await.Until(t, "there are three steps", func() bool { return len(session.Snapshot().Steps) >= 3 })
	v := session.Snapshot()
	pid := v.Info.PID

	// The split of the watched job's GPU.
	b := books.New(session)
	var parts []books.Entry
	var whole books.Entry
	var last capture.Step
	await.Until(t, "the GPU is split up", func() (ok bool) {
		steps := session.Snapshot().Steps
		last = steps[len(steps)-1]
		parts, whole, ok = b.Parts(pid, &last)
		// The context's bound is known after a reading between two steps that reserve the same.
		return ok && has(parts, "CUDA context and libraries")
	})
	t.Logf("\n%s", table(parts, whole))
	sum, ours := int64(0), int64(0)
	for _, p := range parts {
		sum += p.Bytes
		switch {
		case strings.Contains(p.Name, "process"):
			if p.Bytes != other {
				t.Errorf("%s has %d bytes, the other process %d", p.Name, p.Bytes, other)
			}
		case p.Name == "CUDA context and libraries":
			if p.Bytes != contexts {
				t.Errorf("the context has %d bytes, not %d", p.Bytes, contexts)
			}
		case p.Unexplained:
			t.Errorf("%d bytes are not explained", p.Bytes)
		default:
			ours += p.Bytes
		}
	}
	reserved, _ := last.Reserved.Value()
	if sum != whole.Bytes || whole.Bytes != other+contexts+reserved || ours != reserved || reserved <= 0 {
		t.Errorf("parts add up to %d, used are %d; the allocator's to %d, it reserves %v", sum, whole.Bytes,
			ours, last.Reserved)
	}
	if !slices.ContainsFunc(parts, func(p books.Entry) bool { return strings.Contains(p.Name, "process") }) ||
		!strings.Contains(whole.Name, "GPU 0") {
		t.Errorf("%+v of %q", parts, whole.Name)
	}

	// The machine's screen.
	machines, closing := feed.OpenMachine()
	defer closing()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go machines.Run(ctx)
	var look machine.Look
	mine := func(p machine.Process) bool { return p.PID == pid && p.Bytes.IsKnown() }
	await.Until(t, "the machine is read", func() bool {
		look = machines.Look()
		return len(look.Devices) == 2 && slices.ContainsFunc(look.Processes, mine)
	})
	held := map[int]int64{}
	for _, p := range look.Processes {
		if len(p.Devices) == 1 {
			held[p.Devices[0]] += p.Bytes.Or(0)
		}
	}
	for i, used := range []int64{other + contexts + reserved, 1 << 30} {
		if d := look.Devices[i]; d.Used != maybe.Known(used) || held[i] != used ||
			d.Total.Minus(d.Reserved) != maybe.Known(total) ||
			!strings.Contains(d.Name, "H100") {
			t.Errorf("GPU %d (%s): %v of %v bytes used, %v of them the driver's; processes hold %d; want "+
				"%d of %d", i, d.Name, d.Used, d.Total, d.Reserved, held[i], used, total)
		}
	}
	p := look.Processes[slices.IndexFunc(look.Processes, mine)]
	if p.Bytes != maybe.Known(contexts+reserved) || !slices.Equal(p.Devices, []int{0}) ||
		!p.Torch || p.No != "" ||
		!strings.Contains(p.Command, "mlp.py") {
		t.Errorf("the training: %+v", p)
	}
	if look.NoDevices != "" || look.Driver == "" {
		t.Errorf("driver %q, %q", look.Driver, look.NoDevices)
	}
}

func has(parts []books.Entry, name string) bool {
	return slices.ContainsFunc(parts, func(p books.Entry) bool { return p.Name == name })
}

func table(parts []books.Entry, whole books.Entry) string {
	var s strings.Builder
	for _, p := range append(parts, whole) {
		fmt.Fprintf(&s, "%s: %.3g", p.Name, float64(p.Bytes)/(1<<30))
		if p.Derived {
			s.WriteString(" derived")
		}
		if p.Unexplained {
			s.WriteString(" unexplained")
		}
		s.WriteByte('\n')
	}
	return s.String()
}
