//go:build cgo && linux

package feed

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/nvml/nvmltest"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// The machine's view, from the vendor's mocks to the screen.
func TestTheMachineOfTheMocksIsDrawnWithItsProcesses(t *testing.T) {
	library := nvmltest.Mocked(t, map[int][]nvmltest.Holder{0: {{1 << 30, 9 << 30},
		{1<<30 + 1, nvmltest.NotTold}}, 5: {{1 << 30, 2 << 30}}})
	sampler, err := nvml.NewSampler(library, nvml.SamplerOptions{Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go sampler.Run(ctx)
	f := &Machine{sampler: sampler, driver: library.Driver(), checked: map[checkedProcess]string{}}
	v := machine.New()
	screen := func() string {
		c := canvas.New(120, 40, canvas.NoColor, false)
		v.Draw(&leaf.State{Display: leaf.Display{Theme: theme.Mono()}}, c)
		return ansi.Strip(c.String())
	}
	var got string
	await.Until(t, "a process has its memory over time", func() bool {
		f.take(sampler.View(), nil)
		v.Take(f.Look())
		got = screen()
		return strings.Contains(got, "GPU memory of 1073741824 program1073741824, the last")
	})
	for _, want := range []string{
		"Fullest of 8 GPUs: 12.0 GiB of 40.0 GiB used on GPU 0, " +
			"most by program1073741824 (1073741824), 11.0 GiB on 2 GPUs.",
		"0 Mock NVIDIA A100-SXM4-40GB", "12.0 of 40.0 GiB", "0,5            11.0", "1073741825",
		"GPU memory of 1073741824 program1073741824, the last",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if l := f.Look(); len(l.Devices) != 8 || !strings.Contains(l.Processes[1].No, "not visible from here") ||
		l.Processes[1].Bytes.IsKnown() {
		t.Errorf("%+v", l.Processes)
	}
}
