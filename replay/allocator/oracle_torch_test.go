//go:build standin

package allocator

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

var (
	programs  = flag.Int("programs", 2, "random programs for each of the oracle's settings")
	firstSeed = flag.Uint64("seed", 0, "seed of the first random program")
	shrinks   = flag.Bool("shrink", true, "cut down programs that differ")
	length    = flag.Int("length", 800, "statements of a random program")
)

// oracle is a process that runs programs on the real allocator.
type oracle struct {
	t     *testing.T
	torch Version
	in    io.WriteCloser
	out   *json.Decoder
	close func() // ends it; the test's own context would kill it first
}

// newOracle starts PyTorch on the stand-in GPU.
func newOracle(t *testing.T) *oracle {
	t.Helper()
	m := standin.Machine{Context: "2MiB", Order: standin.Late, Polls: 1 << 30, Board: "private"}
	cmd, _ := standintest.Start(t, standintest.Library(t), m, standintest.Interpreter(t),
		"testdata/oracle/oracle.py")
	cmd.Stdout, cmd.Env = nil, append(cmd.Env, "TORCH_CPP_LOG_LEVEL=ERROR") // PyTorch warns of each refusal
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &oracle{t: t, in: in, out: json.NewDecoder(out)}
	o.close = func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the oracle: %v: %s", err, trouble.String())
		}
	}
	var head struct{ Torch string }
	if err := o.out.Decode(&head); err != nil {
		t.Fatalf("the oracle: %v: %s", err, trouble.String())
	}
	if o.torch, err = ParseVersion(head.Torch); err != nil {
		t.Fatal(err)
	}
	return o
}

// compared is one program on both sides.
type compared struct {
	lines   []string
	was, is []string
	at      int  // the first statement that differs, -1 for none
	died    bool // PyTorch's process ended by itself
}

// compare runs a program on both sides.
func (o *oracle) compare(lines []string) compared {
	o.t.Helper()
	text, err := json.Marshal(lines)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.in.Write(append(text, '\n')); err != nil {
		o.t.Fatal(err)
	}
	var answer real
	if err := o.out.Decode(&answer); err != nil {
		o.t.Fatal(err)
	}
	c := compared{lines: lines, at: -1, died: answer.Died != ""}
	if c.died {
		return c
	}
	if c.was, err = answer.written(lines); err != nil {
		o.t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	if c.is, err = emulated(lines, o.torch); err != nil {
		o.t.Fatal(err)
	}
	c.at = differs(c.was, c.is)
	return c
}

// String shows both sides where they differ.
func (c *compared) String() string {
	get := func(texts []string, i int) string {
		if i < len(texts) {
			return texts[i]
		}
		return "    nothing\n"
	}
	var b strings.Builder
	fmt.Fprintln(&b, c.lines[0])
	for i := range max(len(c.was), len(c.is)) {
		line := "at the end"
		if i+1 < len(c.lines) {
			line = c.lines[i+1]
		}
		fmt.Fprintln(&b, line)
		if was, is := get(c.was, i), get(c.is, i); was == is {
			b.WriteString(was)
		} else {
			fmt.Fprintf(&b, "  PyTorch:\n%s  the emulation:\n%s", was, is)
		}
	}
	return b.String()
}

// count returns how many segment events a text has, and how many requests were retried or failed.
func count(texts []string) (events, troubles int) {
	for _, text := range texts {
		events += strings.Count(text, "    segment_")
		f := strings.Fields(text)
		if n := len(f); n > 4 && f[n-2] == "ooms" {
			var retries, ooms int
			fmt.Sscan(f[n-3], &retries)
			fmt.Sscan(f[n-1], &ooms)
			troubles = max(troubles, retries+ooms)
		}
	}
	return events, troubles
}

// Dozens of programs; -programs runs thousands.
func TestQuickTheEmulationDecidesLikePyTorch(t *testing.T) {
	o := newOracle(t)
	defer o.close()
	for i, setting := range oracleSettings {
		t.Run(setting.String(), func(t *testing.T) {
			if o.torch.Before(Version{2, 13}) {
				setting.pools = false // there torch.cuda.use_mem_pool counts as the capture of a graph
			}
			exact, died, events, troubles := 0, 0, 0, 0
			var worst compared
			for k := range *programs {
				c := o.compare(generate(setting, *firstSeed+uint64(k*len(oracleSettings)+i), *length))
				e, n := count(c.was)
				events, troubles = events+e, troubles+n
				if c.died {
					died++
				} else if c.at < 0 {
					exact++
				} else if worst.lines == nil || c.at < worst.at {
					worst = c
				}
			}
			t.Logf("torch %s: %d of %d programs exact; %d segment events, %d retries and failures", o.torch,
				exact, *programs-died, events, troubles)
			if died > 0 {
				t.Logf("PyTorch itself fails an assertion and ends the process in %d other programs", died)
			}
			if worst.lines != nil && !*shrinks {
				t.Errorf("a program differs at statement %d", worst.at)
				return
			}
			if worst.lines == nil {
				return
			}
			fails := func(lines []string) bool {
				if !valid(lines) {
					return false
				}
				c := o.compare(lines)
				return c.at >= 0
			}
			small := o.compare(shrink(worst.lines[:min(worst.at+2, len(worst.lines))], fails))
			t.Errorf("the smallest program that differs:\n%s", small.String())
		})
	}
}
