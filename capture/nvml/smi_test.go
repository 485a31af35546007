package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// printing returns an smi whose runs print the given text, one after the other, and how often it ran. Time
// stands still.
func printing(texts ...string) (s *smi, runs *int, clock *time.Time) {
	runs, clock = new(int), new(time.Time)
	*clock = time.Unix(1000, 0)
	s = &smi{proc: processes{root: "/nowhere"}, now: func() time.Time { return *clock }}
	s.run = func(context.Context) ([]byte, error) {
		text := texts[min(*runs, len(texts)-1)]
		*runs++
		if text == "" {
			return nil, errors.New("exit status 9")
		}
		return []byte(text), nil
	}
	return s, runs, clock
}

func smiText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/smi.xml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFiguresOfNvidiaSMIAreRead(t *testing.T) {
	s, _, _ := printing(smiText(t))
	if d := s.driver(); d.Version != "570.86.15" || d.CUDA != "12.8" {
		t.Errorf("%+v", d)
	}
	devices, err := s.devices()
	if err != nil || len(devices) != 3 {
		t.Fatal(devices, err)
	}
	const mib = 1 << 20
	a, p, h := devices[0], devices[1], devices[2]
	if a.String() != "GPU 0 NVIDIA A100-SXM4-40GB" || a.Bus != "00000000:3B:00.0" || a.MIG ||
		a.Total.Or(0) != 40960*mib || a.PowerLimit.Or(0) != 400_000 || a.MaxSMClock.Or(0) != 1410 ||
		a.PCIeGeneration.Or(0) != 4 || a.PCIeWidth.Or(0) != 16 ||
		a.UUID != "GPU-00000000-0000-0000-0000-000000000001" {
		t.Errorf("%+v", a)
	}
	if p.PowerLimit.Or(0) != 75_000 || p.MaxSMClock.IsKnown() || !h.MIG {
		t.Errorf("%+v, %+v", p, h)
	}

	r, err := s.read(0)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Memory
	if m.Total.Or(0) != m.Reserved.Or(0)+m.Used.Or(0)+m.Free.Or(0) || m.Used.Or(0) != 30000*mib ||
		m.BAR1Used.Or(0) != 5*mib {
		t.Errorf("%+v", m)
	}
	if r.Busy.Or(0) != 97 || r.MemoryBusy.Or(0) != 41 || r.Power.Or(0) != 312_540 ||
		r.Temperature.Or(0) != 61 || r.SMClock.Or(0) != 1410 || r.PCIeGeneration.Or(0) != 3 ||
		r.PCIeWidth.Or(0) != 8 || r.PCIeSent.Or(0) != 2_500_000 || r.PCIeReceived.Or(-1) != 0 ||
		r.ECC.Or(0) != 1 || len(r.Absent) != 0 {
		t.Errorf("%+v", r)
	}
	if !r.ProcessesKnown || len(r.Processes) != 2 || r.Processes[0].PID != 7 ||
		r.Processes[0].Used.Or(0) != 28990*mib || r.Processes[1].Kind.String() != "C+G" ||
		r.Processes[1].Name != "python3 <train>" || r.Processes[1].GPUInstance.IsKnown() {
		t.Errorf("%+v", r.Processes)
	}

	if r, err = s.read(1); err != nil || r.ProcessesKnown || r.Busy.IsKnown() ||
		r.Memory.Reserved.IsKnown() || r.Power.Or(0) != 24_100 || len(r.Absent) == 0 ||
		r.Absent[0].Why != "nvidia-smi says N/A" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = s.read(2); err != nil || !r.ProcessesKnown || len(r.Processes) != 0 ||
		r.Memory.Used.IsKnown() || len(r.Instances) != 1 || r.Instances[0].Memory.Used.Or(0) != 44*mib ||
		r.Instances[0].GPUInstance.Or(0) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Readings within a second share a run, and a slow nvidia-smi runs a sixth of the time at most.
func TestReadingsShareARunOfNvidiaSMI(t *testing.T) {
	s, runs, clock := printing(smiText(t))
	run := s.run
	var takes time.Duration
	s.run = func(ctx context.Context) ([]byte, error) {
		*clock = clock.Add(takes)
		return run(ctx)
	}
	read := func(after time.Duration, want int) {
		t.Helper()
		*clock = clock.Add(after)
		for i := range 3 {
			if _, err := s.read(i); err != nil {
				t.Fatal(err)
			}
		}
		if *runs != want {
			t.Errorf("after %v there were %d runs, not %d", after, *runs, want)
		}
	}
	read(0, 1)
	read(smiFresh-1, 1)
	takes = 2 * time.Second
	read(1, 2)
	read(9*time.Second, 2)
	read(time.Second, 3)
}

func TestADeviceThatNvidiaSMINoLongerListsIsLost(t *testing.T) {
	text := smiText(t)
	s, _, clock := printing(text, text[:strings.LastIndex(text, "\t<gpu id")]+"</nvidia_smi_log>", "")
	if _, err := s.read(2); err != nil {
		t.Fatal(err)
	}
	*clock = clock.Add(time.Minute)
	if _, err := s.read(2); !errors.Is(err, errLost) {
		t.Error(err)
	}
	*clock = clock.Add(time.Minute)
	if _, err := s.read(0); err == nil || errors.Is(err, errLost) ||
		!strings.Contains(err.Error(), "status 9") {
		t.Errorf("a run failed: %v", err)
	}
}

func TestWhatNvidiaSMICannotSayIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, text := range []string{"NVIDIA-SMI has failed because it couldn't communicate with the driver",
		"<nvidia_smi_log><gpu>", "<html></html>", " "} {
		s, _, _ := printing(text)
		if _, err := s.devices(); err == nil || !strings.Contains(err.Error(), "run it") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The program is found on PATH and run; what it says when it fails is in the error.
func TestNvidiaSMIIsRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := openSMI(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "not on PATH") {
		t.Error(err)
	}
	script := func(text string) {
		t.Helper()
		err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+text), 0o755)
		if err != nil {
			t.Fatal(err)
		}
	}
	script("echo 'No devices were found'\nexit 6\n")
	if _, err := openSMI(); !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(err.Error(), "exit status 6: No devices were found") {
		t.Error(err)
	}
	at, err := filepath.Abs("testdata/smi.xml")
	if err != nil {
		t.Fatal(err)
	}
	script(`[ "$*" = "-q -x" ] && exec /bin/cat '` + at + "'\n")
	s, err := openSMI()
	if err != nil {
		t.Fatal(err)
	}
	if devices, err := s.devices(); err != nil || len(devices) != 3 {
		t.Error(devices, err)
	}
}

func FuzzNvidiaSMI(f *testing.F) {
	f.Add([]byte(smiText(f)))
	f.Fuzz(func(t *testing.T, text []byte) {
		log, err := parseSMI(text)
		if err != nil {
			return
		}
		for i := range log.GPUs {
			log.GPUs[i].device(i)
			r := log.GPUs[i].reading(processes{root: "/nowhere"})
			for _, n := range []int64{r.Memory.Used.Or(0), r.Power.Or(0), r.Temperature.Or(0)} {
				if n < 0 {
					t.Errorf("a negative figure: %+v", r)
				}
			}
		}
	})
}
