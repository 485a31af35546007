package inject

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

func TestEveryPythonRunsTheSourceAndNothingIsLeft(t *testing.T) {
	each(t, func(t *testing.T, p interpreter) {
		for _, m := range mechanisms {
			switch {
			case m == PEP768 && p.minor < 14:
				continue
			case m == GDB && (testing.Short() || p.minor%3 != 2): // some seconds each: 3.8, 3.11 and 3.14
				continue
			}
			t.Run(string(m), func(t *testing.T) {
				p := start(t, p.command("asleep"))
				if m == GDB && !p.gdbWorks() {
					t.Skip("needs gdb: one that can write all registers of this processor")
				}
				p.inject(m, count) // an interpreter keeps arenas that it needed once
				p.inject(m, count)
				n, r := 2.0, Report{}
				var before, after map[string]string
				for range 3 { // its heap may grow once more by chance; what is left behind is left each time
					before = p.traces()
					r = p.inject(m, count)
					after = p.traces()
					if n++; maps.Equal(before, after) {
						break
					}
				}
				for k := range after {
					if before[k] != after[k] {
						t.Errorf("%s changed from\n%s\nto\n%s", k, before[k], after[k])
					}
				}
				for k := range before {
					if _, ok := after[k]; !ok {
						t.Errorf("%s is gone", k)
					}
				}
				t.Logf("%s: stopped %v in %v, waited %v, ran %v", r.Python, r.Stopped(), r.Stops,
					r.Waited, r.Ran)
				if found := p.finish(m); found["n"] != n {
					t.Errorf("the source ran %v times, not %v", found["n"], n)
				}
			})
		}
	})
}

func TestEveryPythonKeepsComputing(t *testing.T) {
	each(t, func(t *testing.T, p interpreter) {
		for _, mode := range []string{"compute", "signals", "blocked"} {
			t.Run(mode, func(t *testing.T) {
				p := start(t, p.command(mode))
				var halted []time.Duration
				for range 8 {
					halted = append(halted, p.inject(Ptrace, count).Stopped())
				}
				if found := p.finish(Ptrace); found["n"] != 8.0 {
					t.Errorf("the source ran %v times, not 8", found["n"])
				}
				slices.Sort(halted)
				t.Logf("%s: stopped %v, median %v, %v", mode, halted[0], halted[len(halted)/2],
					halted[len(halted)-1])
			})
		}
	})
}

func TestTwoHundredInjectionsIntoABusyProcess(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 20
	}
	source := count + strings.Repeat("# as long as the agent is\n", 5000)
	for _, v := range [][2]int{{8, 12}, {13, 14}} { // before and after the queue's lock changed
		t.Run(one(t, v[0], v[1]).String(), func(t *testing.T) {
			p := start(t, one(t, v[0], v[1]).command("compute"))
			var all, fed []time.Duration
			for range n {
				r := p.inject(Ptrace, source)
				all, fed = append(all, r.Stopped()), append(fed, r.Stopped()-r.Starved())
			}
			if found := p.finish(Ptrace); found["n"] != float64(n) {
				t.Errorf("the source ran %v times, not %d", found["n"], n)
			}
			t.Logf("stopped in all, %d injections: %s", n, percentiles(all))
			t.Logf("without the time spent waiting for a processor: %s", percentiles(fed))
		})
	}
}

func percentiles(d []time.Duration) string {
	slices.Sort(d)
	n := len(d)
	within, _ := slices.BinarySearch(d, 2*time.Millisecond)
	return fmt.Sprintf("least %v, median %v, 90%% %v, 99%% %v, most %v; %d within 2 ms", d[0], d[n/2],
		d[n*9/10], d[n*99/100], d[n-1], within)
}

func TestALargeSourceTravelsInTheMemory(t *testing.T) {
	p := start(t, one(t, 8, 14).command("compute"))
	var s strings.Builder
	for i := range 4000 {
		s.WriteString("def f(): return 'it\\'s \"quoted\"\\n\\x00 \u2026 \U0001F600'\n")
		if i%100 == 0 {
			s.WriteString("# a comment\\\n\n\ttab = 1\n"[:14] + "\n")
		}
	}
	s.WriteString("import __main__\n__main__.state['text'] = f()\n__main__.state['name'] = __name__ + " +
		"__file__\n")
	r := p.inject(Ptrace, s.String())
	t.Logf("%d bytes of source: mapped %d, stopped %v, ran %v", s.Len(), r.Mapped, r.Stops, r.Ran)
	found := p.finish(Ptrace)
	if want := "it's \"quoted\"\n\x00 \u2026 \U0001F600"; found["text"] != want {
		t.Errorf("text is %q, not %q", found["text"], want)
	}
	if found["name"] != "gmemtop<gmemtop>" {
		t.Errorf("name and file are %q", found["name"])
	}
}

func TestTheSourcesExceptionsAreReportedAndHiddenFromTheProgram(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"1/0", "ZeroDivisionError: division by zero (line 1)"},
		{"\n\nraise SystemExit(3)", "SystemExit: 3 (line 3)"},
		{"def f(:", "SyntaxError"},
		{"raise GeneratorExit", "GeneratorExit"},
	} {
		p := start(t, one(t, 8, 14).command("compute"))
		r, err := Inject(within(10*time.Second), p.pid,
			Bootstrap{Source: c.source, Mechanisms: []Mechanism{Ptrace}})
		if !errors.Is(err, errRaised) || !strings.Contains(err.Error(), c.want) || r.Left != 0 {
			t.Errorf("%q: %v, not one with %q (%+v)", c.source, err, c.want, r)
		}
		p.finish(Ptrace)
	}
}

func TestASignalHandlersExceptionReachesTheProgram(t *testing.T) {
	for _, v := range [][2]int{{8, 8}, {9, 10}, {11, 12}, {13, 14}} {
		p := start(t, one(t, v[0], v[1]).command("raising"))
		p.expect("handlers set")
		const n = 5
		for range n {
			// The handler runs while the source does, and raises in the middle of it.
			_, err := Inject(within(10*time.Second), p.pid, Bootstrap{Mechanisms: []Mechanism{Ptrace},
				Source: "import signal\nsignal.raise_signal(signal.SIGALRM)\nfor i in range(1000): " +
					"pass\nimport __main__; __main__.state['n'] += 1\n"})
			if !errors.Is(err, errRaised) || !strings.Contains(err.Error(), "interrupted by Interrupted") {
				t.Fatalf("%v", err)
			}
			p.expect("seen")
		}
		if found := p.finish(Ptrace); found["raised"] != float64(n) || found["seen"] != float64(n) {
			t.Errorf("the handler raised %v times and the program saw %v, want %d",
				found["raised"], found["seen"], n)
		}
	}
}

func TestSignalsSentDuringAnInjectionArrive(t *testing.T) {
	p := start(t, one(t, 8, 14).command("signals"))
	p.expect("handlers set")
	const n = 40
	sent := make(chan error, 1)
	go func() { // each one is acknowledged before the next is sent
		for range n {
			if err := syscall.Kill(p.pid, syscall.SIGUSR1); err != nil {
				sent <- err
				return
			}
			if !p.lines.Scan() || p.lines.Text() != "ack" {
				sent <- errors.New("not acknowledged")
				return
			}
		}
		sent <- nil
	}()
	injected := 0
	for done := false; !done; injected++ {
		p.inject(Ptrace, count)
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
	}
	if found := p.finish(Ptrace); found["acked"] != float64(n) || found["n"] != float64(injected) {
		t.Errorf("%v signals of %d were handled, %v of %d injections ran", found["acked"], n,
			found["n"], injected)
	}
}

func TestALongCallIsWaitedFor(t *testing.T) {
	p := start(t, one(t, 8, 14).command("incall"))
	p.expect("in call")
	awaitState(t, p.pid, 'S') // it says so just before
	for try := 1; ; try++ {   // one call follows the other, and this may come at the end of one
		var stages []Stage
		r, err := Inject(within(20*time.Second), p.pid, Bootstrap{Source: count, Watch: func(at Stage) {
			stages = append(stages, at)
		}})
		if err == nil && r.Waited >= 500*time.Millisecond && slices.Equal(stages, []Stage{Queued}) {
			break
		}
		if err != nil || try == 5 {
			t.Fatalf("%v, %+v, %v", err, r, stages)
		}
	}
	p.finish(Ptrace)
}

func TestGivingUpRemovesTheSource(t *testing.T) {
	for _, m := range []Mechanism{Ptrace, PEP768} {
		t.Run(string(m), func(t *testing.T) {
			from := 8
			if m == PEP768 {
				from = 14
			}
			p := start(t, one(t, from, 14).command("incall"))
			p.expect("in call")
			awaitState(t, p.pid, 'S') // it says so just before
			var r Report
			var err error
			before, ran := 0, -1.0
			// an injection that comes at the end of a call runs: try again
			for ; err == nil && ran < 5; ran++ {
				before = strings.Count(p.traces()["maps"], "\n")
				r, err = Inject(within(600*time.Millisecond), p.pid,
					Bootstrap{Source: count, Mechanisms: []Mechanism{m}})
			}
			if !errors.Is(err, errPending) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
			if m == Ptrace {
				if after := strings.Count(p.traces()["maps"], "\n"); r.Left == 0 || after > before+1 {
					t.Errorf("%d mappings, %d before; %d bytes are left", after, before, r.Left)
				}
			}
			if found := p.finish(m); found["n"] != ran {
				t.Error("the source ran although it had been taken back")
			}
		})
	}
}

func TestForkedChildrenDoNotRunTheSource(t *testing.T) {
	p := start(t, one(t, 8, 14).command("forks"))
	for range 30 {
		p.inject(Ptrace, count)
	}
	if found := p.finish(Ptrace); found["n"] != 30.0 {
		t.Errorf("the source ran %v times, not 30", found["n"])
	}
}

func TestAProgramReplacedMeanwhileIsLeftAlone(t *testing.T) {
	p := start(t, one(t, 8, 13).command("exec"))
	p.expect("in call")
	awaitState(t, p.pid, 'S') // it says so just before
	_, err := Inject(within(20*time.Second), p.pid, Bootstrap{Source: count, Mechanisms: []Mechanism{Ptrace}})
	if !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if found := p.end(); found["replaced"] != true {
		t.Errorf("%v", found)
	}
}

func TestFaultHandlersAreNotInvolved(t *testing.T) {
	p := start(t, one(t, 8, 14).command("faulthandler"))
	for range 10 {
		p.inject(Ptrace, count)
	}
	p.finish(Ptrace)
}

func TestASeccompFilterSeesNothingUnusual(t *testing.T) {
	for _, v := range [][2]int{{8, 12}, {13, 14}} {
		p := start(t, one(t, v[0], v[1]).command("seccomp"))
		p.expect("filtered")
		for range 10 {
			p.inject(Ptrace, count)
		}
		if notes := Check(p.pid).Notes; len(notes) == 0 || !strings.Contains(notes[0], "seccomp") {
			t.Errorf("the filter is not mentioned: %q", notes)
		}
		p.finish(Ptrace)
	}
}

// TestTrainingIsBitIdentical trains with PyTorch, with and without injections, and compares losses and
// weights to the last bit.
func TestTrainingIsBitIdentical(t *testing.T) {
	python := torchtest.Python(t)
	const program = `
import hashlib, os, torch
torch.manual_seed(1)
torch.set_num_threads(2)
state = {"n": 0, "stop": False}
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.1),
                            torch.nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters())
os.write(1, b"ready\n")
h = hashlib.sha256()
for i in range(300):
    x = torch.randn(64, 64)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    h.update(loss.detach().numpy().tobytes())
for p in model.parameters():
    h.update(p.detach().numpy().tobytes())
print('{"sha": "%s", "n": %d}' % (h.hexdigest(), state["n"]))
`
	p := start(t, exec.Command(python, "-u", "-c", program))
	want := p.end()
	p = start(t, exec.Command(python, "-u", "-c", program))
	var halted []time.Duration
	for {
		r, err := Inject(within(30*time.Second), p.pid,
			Bootstrap{Source: count, Mechanisms: []Mechanism{Ptrace}})
		if errors.Is(err, ErrGone) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		halted = append(halted, r.Stopped())
		time.Sleep(20 * time.Millisecond) // it trains in between
	}
	got := p.end()
	if got["sha"] != want["sha"] {
		t.Errorf("with injections %v, without %v", got, want)
	}
	if got["n"] == 0.0 || len(halted) == 0 {
		t.Fatal("training ended before anything was injected")
	}
	slices.Sort(halted)
	n := len(halted)
	t.Logf("%v injections into 300 steps, stopped %v, median %v, 90%% %v, %v", got["n"], halted[0],
		halted[n/2], halted[n*9/10], halted[n-1])
}

func TestAnotherMountNamespaceIsNoObstacle(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a mount namespace")
	}
	py := one(t, 8, 13)
	for _, m := range mechanisms {
		if m == PEP768 {
			py = one(t, 14, 14)
		}
		if m == GDB && testing.Short() {
			continue
		}
		cmd := py.command("compute")
		cmd.Args = append([]string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none $0/tmp; exec "$@"`,
			py.root}, cmd.Args...)
		var err error
		if cmd.Path, err = exec.LookPath("unshare"); err != nil {
			t.Skip("needs unshare: it makes a mount namespace")
		}
		p := start(t, cmd)
		if m == GDB && !p.gdbWorks() {
			continue
		}
		p.inject(m, count)
		if len(Check(p.pid).Notes) == 0 {
			t.Error("the other namespace is not mentioned")
		}
		p.finish(m)
	}
}
