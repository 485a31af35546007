package allocator

import (
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

func TestTheSmallestCapIsFoundToThePage(t *testing.T) {
	const need, high = 777 << 20, 1 << 30
	tries := 0
	at := func(limit int64) (int64, bool, error) { tries++; return limit, limit >= need, nil }
	if got, err := SmallestCap(0, high, at); err != nil || got < need || got > need+torchalloc.Granularity {
		t.Errorf("the cap of a program that needs %d is %d (%v)", need, got, err)
	}
	if tries > 10 {
		t.Errorf("%d tries, although 9 are enough to halve the gap down to a page", tries)
	}
	exact := func(limit int64) (int64, bool, error) { return need, limit >= need, nil }
	if got, _ := SmallestCap(0, high, exact); got != need {
		t.Errorf("a try completed with %d, but the answer is %d", need, got)
	}
	tries = 0
	stop := errors.New("enough")
	spent := func(limit int64) (int64, bool, error) {
		if tries++; tries > 1 {
			return 0, false, stop
		}
		return limit, true, nil
	}
	if got, err := SmallestCap(0, high, spent); got != high/2 || !errors.Is(err, stop) {
		t.Errorf("a search that stops after one try answers %d (%v)", got, err)
	}
	tries = 0
	if _, err := SmallestCap(0, 1<<49, at); err != nil || tries != bisections {
		t.Errorf("a wide search took %d tries (%v)", tries, err)
	}
}

func TestEveryPolicyIsMadeAndSaysWhatItCanDo(t *testing.T) {
	for _, name := range Policies() {
		a, err := New(name, Config{Driver: NewDriver(1 << 30)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := a.Malloc(64<<20, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := a.Free(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if held := a.Stats().Reserved > 0; held != (Caches(name) || name == "arena") {
			t.Errorf("%s keeps memory: %v, and says %v", name, held, Caches(name))
		}
	}
	if Caches("async") || InTorch("gmlake") || !InTorch("caching") {
		t.Error("an allocator claims what it cannot do")
	}
}
