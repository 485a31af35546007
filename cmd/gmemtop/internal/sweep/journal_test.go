package sweep

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wherever a journal is cut, as kill -9 or a full disk may do, the units before the cut are there, and the
// sweep goes on.
func TestAJournalMayEndAnywhere(t *testing.T) {
	s, err := New(t.Context(), asked(tracesOf(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "j")
	j, err := OpenJournal(path, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range s.units[:3] {
		if err := j.put(Done{u.key, []Row{{Trace: "naïve\nname", Status: fits}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenJournal(path, s); !errors.Is(err, errBusy) {
		t.Errorf("a second sweep: %v", err)
	}
	j.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		want := max(bytes.Count(whole[:cut], []byte("\n"))-1, 0)
		_, done, _, err := readJournal(bytes.NewReader(whole[:cut]))
		if err != nil || len(done) != want {
			t.Fatalf("cut at %d: %d units, want %d, %v", cut, len(done), want, err)
		}
		if cut%97 != 0 && cut < len(whole)-3 {
			continue // files are slow
		}
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path, s)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(j.done) != want {
			t.Fatalf("cut at %d: %d units, want %d", cut, len(j.done), want)
		}
		if err := j.put(Done{s.units[5].key, nil}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, again, sound, err := readJournal(bytes.NewReader(text))
		if err != nil || len(again) != want+1 || sound != int64(len(text)) {
			t.Fatalf("cut at %d and gone on: %d units, %v", cut, len(again), err)
		}
	}
}

func TestADamagedJournalIsRefusedWithItsPlace(t *testing.T) {
	s, err := New(t.Context(), asked(tracesOf(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "j")
	for text, want := range map[string]string{
		"{\"unit\":\"a\",\"rows\":[]}\n{\"unit\" 5\n{}\n": "damaged at byte 23",
		"PAR1\n":                            "damaged at byte 0",
		`{"sweep":"a","version":99}` + "\n": "version 99",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenJournal(path, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%q was changed to %q", text, got)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"sweep\":\"a\",\"version\":1," +
		"\"shard\":1,\"shards\":2,\"units\":[\"k\"],\"all\":2}\n{\"unit\":\"k\"," +
		"\"rows\":[{\"trace\":\"t\",\"step_ns\":3}]}\n"))
	f.Add([]byte("{\"unit\":\"k\"}\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _, sound, err := readJournal(bytes.NewReader(text))
		if sound > int64(len(text)) || err == nil && bytes.Count(text[sound:], []byte("\n")) > 0 {
			t.Errorf("sound to %d of %d: %v", sound, len(text), err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "1.part"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := Merge(dir); err == nil {
			if err := WriteParquet(&bytes.Buffer{}, list); err != nil {
				t.Error(err)
			}
		}
	})
}
