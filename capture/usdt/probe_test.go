//go:build linux && amd64

package usdt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// eachWay runs a test with both ways of attaching: the kernel's own links and, as on older kernels, perf.
func eachWay(t *testing.T, test func(t *testing.T, perf bool)) {
	t.Run("links", func(t *testing.T) {
		if h := thisHost("/proc"); !h.hasLinks() {
			t.Skipf("needs Linux 6.10: %s has no links for probes of processes", h.release)
		}
		test(t, false)
	})
	t.Run("perf", func(t *testing.T) { test(t, true) })
}

func TestEachPyTorchProbeReportsItsArguments(t *testing.T) {
	eachWay(t, func(t *testing.T, perf bool) {
		p := start(t, "libc10_cuda.so", "libcuda.so.570.1")
		k, sites := p.trace(Options{perf: perf})
		if len(sites) != 3 || !sites[0].Emulated {
			t.Fatalf("sites %+v", sites)
		}
		p.do("m 7f0000001000 1 200 5")
		p.do("m 7f0000002000 ff 8000000000 ffffffffffffffff") // device -1, half a terabyte, stream -1
		p.do("f 7f0000001000")
		p.do("u 7f0000002000") // the other site of the same probe
		p.do("d 3")            // the driver is not watched
		got := k.all(t)
		want := []event{
			{addr: 0x7f0000001000, device: 1, size: 0x200, stream: 5},
			{addr: 0x7f0000002000, device: -1, size: 0x8000000000, stream: 1<<64 - 1},
			{addr: 0x7f0000001000}, {addr: 0x7f0000002000},
		}
		does := []action{blockAlloc, blockAlloc, blockFree, blockFree}
		if len(got) != len(want) {
			t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
		}
		for i, e := range got {
			if sites[e.site].does != does[i] || e.thread != uint32(p.pid) || e.stack != -1 || e.time <= 0 ||
				i > 0 && e.time < got[i-1].time {
				t.Errorf("event %d: %+v", i, e)
			}
			e.time, e.thread, e.stack, e.site = 0, 0, 0, 0
			if e != want[i] {
				t.Errorf("event %d: %+v, want %+v", i, e, want[i])
			}
		}
		if lost := k.lost(); lost != [lossKinds]int64{} {
			t.Errorf("lost %v", lost)
		}
	})
}

func TestASemaphoreIsRaisedOnlyWhileWatched(t *testing.T) {
	eachWay(t, func(t *testing.T, perf bool) {
		p := start(t, "libc10_cuda.so")
		if n, _ := p.call("-", "torch_watchers"); n != 0 {
			t.Fatalf("%d watchers before", n)
		}
		first, _ := p.trace(Options{perf: perf})
		first.detach(t) // what the runtime opens once, such as its poller, is open from here on
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		k, _ := p.trace(Options{perf: perf})
		if n, _ := p.call("-", "torch_watchers"); n != 3 { // one for malloc, one for each site of free
			t.Errorf("%d watchers, want 3", n)
		}
		k.detach(t)
		if n, _ := p.call("-", "torch_watchers"); n != 0 {
			t.Errorf("%d watchers after", n)
		}
		if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) != len(open) {
			t.Errorf("%d files are open after, %d before, %v", len(after), len(open), err)
		}
	})
}

func TestEachOperandFormIsReadByTheKernelAsByTheParser(t *testing.T) {
	needProbes(t)
	dir := build(t)
	// Registers with values that tell them and their parts apart, and memory at a register and an absolute
	// distance.
	values := map[string]uint64{"rax": 0x11223344556688f1, "rbx": 0x8182838485868788, "rcx": 3,
		"rdx": 0xfffffffffffffffe, "rsi": 0x7172737475767778,
		"rdi": 0x6162636465666768, "r8": 0x0801020304050607, "r9": 0x0901020304050607,
		"r10": 0x1001020304050607, "r11": 0x9101020304050607,
		"r12": 0x1201020304050607, "r13": 0x1301020304050607, "r14": 0x1401020304050607,
		"r15": 0xf501020304050687}
	forms := []string{"8@$5", "-8@$-5", "-4@$-1", "4@$-1", "8@$0x7fffffffffffffff", "$17", "-1@$255", "2@$-2",
		"8@%rax", "-8@%rbx", "4@%ebx", "-4@%ebx", "2@%bx", "-2@%bx", "1@%bl", "-1@%bl", "1@%bh", "-1@%ah",
		"1@%ah", "%ax", "%r15", "%r15d", "%r15w",
		"%r15b", "-1@%r15b", "8@%rsi", "1@%sil", "1@%dil", "8@%rdi", "4@%rax", "8@%rdx", "8@%r8", "8@%r9",
		"8@%r10", "8@%r11", "8@%r12", "8@%r13",
		"8@%r14", "8@%rcx", "-2@%r10w",
		"8@(%rbp)", "8@8(%rbp)", "-8@-16(%rbp)", "4@-16(%rbp)", "-4@-16(%rbp)", "2@-16(%rbp)", "-2@-16(%rbp)",
		"1@-15(%rbp)", "-1@-9(%rbp)", "8@16(%rsp)",
		"8@(%rbp,%rcx)", "8@(%rbp,%rcx,1)", "8@(%rbp,%rcx,8)", "4@-8(%rbp,%rcx,4)", "-2@2(%rbp,%rcx,2)",
		"8@0x8(%rbp,%rdx,4)", "8@-8(,%rbp,1)", "8@010(%rbp)"}
	var src strings.Builder
	src.WriteString("#include \"sdt.inc\"\n\t.text\n")
	for i, form := range forms {
		fmt.Fprintf(&src, "\t.globl form%d\n\t.type form%d, @function\nform%d:\n", i, i, i)
		src.WriteString("\tpush %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush " +
			"%r15\n\tsub $128, %rsp\n\tlea 64(%rsp), %rbp\n")
		for at := -64; at < 64; at += 8 { // 16 words, those at -64 and up from %rbp
			fmt.Fprintf(&src, "\tmovabs $%#x, %%rax\n\tmov %%rax, %d(%%rbp)\n", word(at), at)
		}
		for _, r := range []string{"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
			"r13", "r14", "r15"} {
			fmt.Fprintf(&src, "\tmovabs $%#x, %%%s\n", values[r], r)
		}
		fmt.Fprintf(&src, "0:\tnop\n\tSDT pytorch, malloc, 0, \"%s -4@$%d 8@%%rbp 8@%%rsp\"\n", form, i)
		src.WriteString("\tadd $128, %rsp\n\tpop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop " +
			"%rbx\n\tpop %rbp\n\tret\n")
		fmt.Fprintf(&src, "\t.size form%d, . - form%d\n", i, i)
	}
	src.WriteString("\t.section .note.GNU-stack, \"\", @progbits\n")
	path := filepath.Join(t.TempDir(), "forms.S")
	lib := filepath.Join(dir, "libforms.so")
	if err := os.WriteFile(path, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-Itestdata", "-o", lib, path).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	p := start(t, lib)
	file, f, err := openELF(library{path: lib, mapped: lib})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	list, err := notes(f)
	if err != nil || len(list) != len(forms) {
		t.Fatalf("%d notes, %v", len(list), err)
	}
	o := Options{PID: p.pid}.withDefaults()
	const batch = 16 // each site is a program of its own
	for from := 0; from < len(forms); from += batch {
		end := min(from+batch, len(forms))
		var sites []Site
		for _, n := range list[from:end] {
			s, err := siteOf(n, f)
			if err != nil {
				t.Fatal(err)
			}
			s.path = lib
			sites = append(sites, s)
		}
		k := p.traceSites(o, sites)
		for i := from; i < end; i++ {
			p.do("s form%d", i)
		}
		events := k.all(t)
		if len(events) != end-from {
			t.Fatalf("%d events of %d forms", len(events), end-from)
		}
		for j, e := range events {
			i := from + j
			reg := func(id uint8) uint64 {
				switch id {
				case registers["rbp"].id:
					return e.size
				case registers["rsp"].id:
					return e.stream
				}
				for name, v := range values {
					if registers[name].id == id {
						return v
					}
				}
				t.Fatalf("register %d", id)
				return 0
			}
			load := func(addr uint64, size uint8) uint64 {
				at := int(int64(addr - e.size))
				if at < -64 || at+int(size) > 64 {
					t.Fatalf("form %q reads at %d from %%rbp", forms[i], at)
				}
				v := uint64(0)
				for b := range int(size) {
					v |= uint64(byteAt(at+b)) << (8 * b)
				}
				return v
			}
			if want := sites[j].addr.read(reg, load); e.addr != uint64(want) || e.device != int32(i) {
				t.Errorf("form %d %q: the kernel read %#x, want %#x", i, forms[i], e.addr, uint64(want))
			}
		}
		if lost := k.lost(); lost != [lossKinds]int64{} {
			t.Errorf("lost %v", lost)
		}
		k.detach(t)
	}
}

// word is the test's memory at a distance from %rbp that 8 divides; byteAt is one byte of it.
func word(at int) uint64 {
	v := uint64(0)
	for b := range 8 {
		v |= uint64(byteAt(at+b)) << (8 * b)
	}
	return v
}

func byteAt(at int) byte { return byte(0x5a + 37*at) }

func TestEachFunctionOfTheDriverIsSeen(t *testing.T) {
	eachWay(t, func(t *testing.T, perf bool) {
		p := start(t, "libcuda.so.570.1")
		k, sites := p.trace(Options{Probes: Driver, perf: perf})
		for _, s := range sites {
			if s.Name == "cuMemAllocAsync_ptsz" {
				t.Error("a function with two names is probed twice")
			}
			if want := s.Name != "cuMemMap"; s.Emulated != want {
				t.Errorf("%s emulated: %v, want %v", s.Name, s.Emulated, want)
			}
		}
		var want []event
		expect := func(addr, size, stream uint64, device, result int32) {
			want = append(want, event{addr: addr, size: size, stream: stream, device: device, result: result})
		}
		_, a := p.call("o", "cuMemAlloc_v2", 0, 2<<20)
		expect(a, 2<<20, 0, 0, 0)
		_, m := p.call("o", "cuMemAllocManaged", 0, 3<<20, 1)
		expect(m, 3<<20, 0, 0, 0)
		_, y := p.call("op", "cuMemAllocPitch_v2", 0, 0, 1000, 10)
		expect(y, 1024*10, 0, 0, 0)
		_, s := p.call("o", "cuMemAllocAsync_ptsz", 0, 4096, 0x77)
		expect(s, 4096, 0x77, 0, 0)
		p.call("-", "cuMemFree_v2", a)
		expect(a, 0, 0, 0, 0)
		p.call("-", "cuMemFreeAsync", s, 0x77)
		expect(s, 0, 0x77, 0, 0)
		_, h := p.call("oc", "cuMemCreate", 0, 2<<20, 0, 0)
		expect(h, 2<<20, 0, 3, 0)
		p.call("-", "cuMemMap", 0x300000000, 2<<20, 0, h, 0)
		expect(0x300000000, 2<<20, 0, 0, 0)
		p.call("-", "cuMemUnmap", 0x300000000, 2<<20)
		expect(0x300000000, 2<<20, 0, 0, 0)
		p.call("-", "cuMemRelease", h)
		expect(h, 0, 0, 0, 0)
		_, pinned := p.call("o", "cuMemHostAlloc", 0, 8192, 0)
		expect(pinned, 8192, 0, 0, 0)
		p.call("-", "cuMemFreeHost", pinned)
		expect(pinned, 0, 0, 0, 0)
		if rc, _ := p.call("o", "cuMemAlloc_v2", 0, 1<<50); rc != outOfMemory {
			t.Fatalf("result %d", rc)
		}
		expect(0, 1<<50, 0, 0, outOfMemory)
		got := k.all(t)
		if len(got) != len(want) {
			t.Fatalf("%d events, want %d", len(got), len(want))
		}
		for i, e := range got {
			name := sites[e.site].Name
			e.time, e.thread, e.stack, e.site = 0, 0, 0, 0
			if e != want[i] {
				t.Errorf("event %d of %s: %+v, want %+v", i, name, e, want[i])
			}
		}
	})
}

func TestNoEventOfFourThreadsIsLost(t *testing.T) {
	eachWay(t, func(t *testing.T, perf bool) {
		p := start(t, "libc10_cuda.so")
		k, sites := p.trace(Options{perf: perf})
		const each = 20_000
		counts, threads, n := map[action]int{}, map[uint32]bool{}, 0
		live := map[uint64]bool{}
		done := make(chan struct{})
		go func() { p.do("t %x", each); close(done) }()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true // and read once more
			default:
			}
			if err := k.read(20*time.Millisecond, func(e event) bool {
				n++
				threads[e.thread] = true
				counts[sites[e.site].does]++
				if alloc := sites[e.site].does == blockAlloc; alloc == live[e.addr] {
					t.Errorf("event %d out of order: %+v", n, e)
					return false
				}
				live[e.addr] = !live[e.addr]
				return true
			}); err != nil {
				t.Fatal(err)
			}
		}
		if counts[blockAlloc] != 4*each || counts[blockFree] != 4*each || len(threads) != 4 {
			t.Errorf("%v from %d threads; lost %v", counts, len(threads), k.lost())
		}
	})
}

func TestNothingIsLostAt100000PairsASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it takes two seconds of events")
	}
	p := start(t, "libc10_cuda.so")
	s, stop := run(t, Options{PID: p.pid})
	const pairs = 200_000
	rate := 100_000
	if raceDetector { // the reader is an order of magnitude slower under it
		rate = 20_000
	}
	took, spent := p.cost("r %x %x", pairs, rate)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	n := 0
	for _, w := range s.windows {
		n += w.Trace.Events.Len()
	}
	t.Logf("%d events of %d pairs at %.0f pairs/s in %d windows, %d ns of processor a pair, lost %v", n,
		pairs, pairs/took.Seconds(), len(s.windows),
		spent.Nanoseconds()/pairs, s.lost)
	// A window that begins between an allocation and its free says so with an allocation of its own.
	if n < 2*pairs || n > 2*pairs+len(s.windows) || len(s.lost) > 0 {
		t.Errorf("%d events arrived, want %d; lost %v", n, 2*pairs, s.lost)
	}
}

func TestARingThatIsTooSmallCountsWhatItLoses(t *testing.T) {
	p := start(t, "libc10_cuda.so")
	k, _ := p.trace(Options{RingBytes: 1 << 16})
	p.do("p %x", 10_000) // and nobody reads meanwhile
	n := int64(len(k.all(t)))
	if lost := k.lost(); n+lost[lossRing] != 20_000 || lost[lossRing] == 0 {
		t.Errorf("%d events and %v lost of 20000", n, lost)
	}
}

func TestStacksNameTheFunctionsThatWereProbed(t *testing.T) {
	p := start(t, "libc10_cuda.so")
	k, _ := p.trace(Options{Stacks: true})
	p.do("m 7f0000001000 0 200 0")
	events := k.all(t)
	if len(events) != 1 || events[0].stack < 0 {
		t.Fatalf("events %+v, lost %v", events, k.lost())
	}
	w := newWindower(0, true)
	w.resolve = k.resolver()
	w.open(0)
	w.take(events[0], blockAlloc)
	tr := w.close()
	var names []string
	for _, id := range tr.Stacks.At(tr.Events.Stack[0]) {
		fn, file, _ := tr.FrameText(id)
		names = append(names, fn+" "+filepath.Base(file))
	}
	if len(names) == 0 || names[0] != "torch_malloc libc10_cuda.so" ||
		!slices.ContainsFunc(names, func(s string) bool {
			return strings.HasSuffix(s, " target")
		}) {
		t.Errorf("stack %q", names)
	}
}

// BenchmarkAttach measures attaching all probes of a known plan, and removing them.
func BenchmarkAttach(b *testing.B) {
	for _, c := range []struct {
		library string
		probes  Probes
	}{{"libc10_cuda.so", PyTorch}, {"libcuda.so.570.1", Driver}} {
		b.Run(c.library, func(b *testing.B) {
			p := start(b, c.library)
			var away time.Duration
			for range b.N {
				k, sites := p.trace(Options{Probes: c.probes})
				b.ReportMetric(float64(len(sites)), "sites")
				b.StopTimer()
				begun := time.Now()
				k.detach(b)
				away += time.Since(begun)
				b.StartTimer()
			}
			b.ReportMetric(float64(away.Milliseconds())/float64(b.N), "detach-ms")
		})
	}
}

// BenchmarkPair is what one allocation and its free cost the watched process, in elapsed and in processor
// time: on a machine that is also doing other work, the second is the probes' own cost.
func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		name, library, command string
		probes                 Probes
		stacks                 bool
	}{
		{"pytorch", "libc10_cuda.so", "p", PyTorch, false},
		{"pytorch-stacks", "libc10_cuda.so", "p", PyTorch, true},
		{"driver", "libcuda.so.570.1", "d", Driver, false},
	} {
		for _, watched := range []bool{false, true} {
			name := c.name + "/unwatched"
			if watched {
				name = c.name + "/watched"
			}
			b.Run(name, func(b *testing.B) {
				p := start(b, c.library)
				stop := make(chan struct{})
				ended := make(chan struct{})
				if watched {
					k, _ := p.trace(Options{Probes: c.probes, Stacks: c.stacks})
					go func() {
						defer close(ended)
						for {
							select {
							case <-stop:
								return
							default:
								k.read(20*time.Millisecond, func(event) bool { return true })
							}
						}
					}()
				} else {
					close(ended)
				}
				b.ResetTimer()
				took, spent := p.cost("%s %x", c.command, b.N)
				b.StopTimer()
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/pair")
				b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/pair")
				close(stop)
				<-ended
			})
		}
	}
}
