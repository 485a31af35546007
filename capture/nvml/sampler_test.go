package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// machine is a source for tests, with the next answer of each device.
type machine struct {
	mu   sync.Mutex
	n    int
	read func(index int) (Reading, error)
}

func (m *machine) Devices() ([]Device, error) {
	var d []Device
	for i := range m.n {
		d = append(d, Device{Index: i})
	}
	return d, nil
}

func (m *machine) Read(i int) (Reading, error) {
	m.mu.Lock()
	read := m.read
	m.mu.Unlock()
	return read(i)
}

func mustSample(t *testing.T, m Source, o SamplerOptions) *Sampler {
	t.Helper()
	s, err := NewSampler(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASamplerPollsAtItsIntervalAndKeepsABoundedHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := int64(0)
		m := &machine{n: 1, read: func(int) (Reading, error) {
			count++
			return Reading{Time: time.Now(), Power: maybe.Known(count), ProcessesKnown: true,
				Processes: []Process{{PID: 1, Used: maybe.Known(count)}}}, nil
		}}
		s := mustSample(t, m, SamplerOptions{Interval: time.Second, History: 10})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(3500 * time.Millisecond)
		early := s.View()
		if n := len(early.Devices[0].Readings); n != 4 {
			t.Errorf("%d readings in 3.5 s, want 4", n)
		}
		time.Sleep(100 * time.Second)
		d := s.View().Devices[0]
		if len(d.Readings) != 10 || len(d.Processes) != 1 || len(d.Processes[0].Points) != 10 {
			t.Fatalf("history of %d readings, %d processes", len(d.Readings), len(d.Processes))
		}
		for i, r := range d.Readings {
			if r.Power != maybe.Known(count-9+int64(i)) || r.Processes != nil {
				t.Errorf("reading %d: %v", i, r.Power)
			}
		}
		if d.Last == nil || len(d.Last.Processes) != 1 || d.Last.Power != maybe.Known(count) || d.Late != 0 {
			t.Errorf("last: %+v, late %d", d.Last, d.Late)
		}
		for i, r := range early.Devices[0].Readings { // a view never changes
			if r.Power != maybe.Known(int64(i+1)) {
				t.Errorf("reading %d of the older view changed to %v", i, r.Power)
			}
		}
		select {
		case <-s.changed:
		default:
			t.Error("no change was announced")
		}
	})
}

func TestAHungDeviceDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := &machine{n: 2, read: func(i int) (Reading, error) {
			if i == 0 {
				<-release
			}
			return Reading{Index: i, Time: time.Now()}, nil
		}}
		s := mustSample(t, m, SamplerOptions{Interval: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10500 * time.Millisecond)
		v := s.View()
		if v.Devices[0].Last != nil || len(v.Devices[1].Readings) != 11 {
			t.Errorf("%d readings beside a hung device, want 11", len(v.Devices[1].Readings))
		}
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			t.Error("Run waits for the hung device")
		}
		close(release)
		synctest.Wait()
		if s.View().Devices[0].Last != nil {
			t.Error("a reading arrived after the end")
		}
	})
}

func TestReadingsThatTakeTooLongAreCountedAsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{n: 1, read: func(int) (Reading, error) {
			time.Sleep(2500 * time.Millisecond)
			return Reading{Time: time.Now()}, nil
		}}
		s := mustSample(t, m, SamplerOptions{Interval: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(2600 * time.Millisecond)
		if d := s.View().Devices[0]; d.Late != 2 || len(d.Readings) != 1 {
			t.Errorf("%d late after one reading of 2.5 s, want 2", d.Late)
		}
		cancel()
		time.Sleep(10 * time.Second)
	})
}

func TestALostDeviceIsNotPolledAgainButARefusedOneIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := [2]int{}
		m := &machine{n: 2, read: func(i int) (Reading, error) {
			calls[i]++
			if i == 0 {
				return Reading{}, fmt.Errorf("read: %w", errLost)
			}
			if calls[1] < 3 {
				return Reading{}, errors.New("busy")
			}
			return Reading{Index: 1, Time: time.Now()}, nil
		}}
		s := mustSample(t, m, SamplerOptions{Interval: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		time.Sleep(1500 * time.Millisecond)
		if err := s.View().Devices[1].Err; err == nil {
			t.Error("the refusal is not shown")
		}
		time.Sleep(3 * time.Second)
		cancel()
		synctest.Wait()
		v := s.View()
		if calls[0] != 1 || !errors.Is(v.Devices[0].Err, errLost) {
			t.Errorf("the lost device was read %d times: %v", calls[0], v.Devices[0].Err)
		}
		if v.Devices[1].Err != nil || len(v.Devices[1].Readings) == 0 {
			t.Errorf("device 1: %v", v.Devices[1].Err)
		}
	})
}

func TestEndedProcessesAreRememberedUpToALimit(t *testing.T) {
	s := mustSample(t, &machine{n: 1}, SamplerOptions{Processes: 3})
	base := time.Unix(1000, 0)
	for i := range 10 { // ten processes of one number, one after the other
		s.take(0, Reading{Time: base.Add(time.Duration(i) * time.Second), ProcessesKnown: true,
			Processes: []Process{{PID: 1, Start: maybe.Known(int64(i)), Used: maybe.Known(5)}}}, nil, 0)
	}
	p := s.View().Devices[0].Processes
	if len(p) != 4 || p[0].Key.Start != maybe.Known(9) || p[1].Key.Start != maybe.Known(8) ||
		p[3].Key.Start != maybe.Known(6) || !p[0].Gone.IsZero() || p[1].Gone.IsZero() {
		t.Errorf("processes %+v", p)
	}
	s.take(0, Reading{Time: base.Add(time.Hour)}, nil, 0) // without a list, no process counts as gone
	if p := s.View().Devices[0].Processes; !p[0].Gone.IsZero() {
		t.Errorf("process %+v disappeared because it was not reported", p[0])
	}
}

func TestASamplerMayBeViewedWhileItPolls(t *testing.T) { // for the race detector
	m := &machine{n: 4, read: func(i int) (Reading, error) {
		return Reading{Index: i, Time: time.Now(), ProcessesKnown: true, Processes: []Process{{PID: i}}}, nil
	}}
	s := mustSample(t, m, SamplerOptions{Interval: 10 * time.Microsecond, History: 4})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	for range 2000 {
		for _, d := range s.View().Devices {
			for _, r := range d.Readings {
				_ = r.Time
			}
			for _, p := range d.Processes {
				for _, q := range p.Points {
					_ = q.Used
				}
			}
		}
	}
	cancel()
	<-ended
}

func TestTheRateOfALinkIsUnknownAcrossAReload(t *testing.T) {
	at := func(sec int64, sent maybe.Int) *Reading {
		return &Reading{Time: time.Unix(sec, 0), NVLinkSent: sent, NVLinkReceived: maybe.Known(0)}
	}
	sent, received := at(12, maybe.Known(5000)).NVLinkRate(at(10, maybe.Known(1000)))
	if sent != maybe.Known(2000) || received != maybe.Known(0) {
		t.Errorf("rates %v %v", sent, received)
	}
	if sent, _ := at(12, maybe.Known(5)).NVLinkRate(at(10, maybe.Known(1000))); sent.IsKnown() {
		t.Errorf("a counter that decreased gives %v", sent)
	}
	if sent, _ := at(12, maybe.Int{}).NVLinkRate(at(10, maybe.Known(1000))); sent.IsKnown() {
		t.Errorf("an unknown counter gives %v", sent)
	}
	if sent, _ := at(10, maybe.Known(1)).NVLinkRate(at(10, maybe.Known(1))); sent.IsKnown() {
		t.Errorf("no time gives %v", sent)
	}
}
