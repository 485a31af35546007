package bus

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func aJoin() Join {
	return Join{Version: 1, Run: "r", Host: "h", Socket: "/run/x/s", Addresses: []string{"node0:7422",
		"[::1]:1"},
		Certificate: "C", Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second),
		Seeds: map[Role]string{Agent: "A", Viewer: "V", Operator: "O"}, Orders: "P"}
}

func TestAJoinFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.join")
	j := aJoin()
	for range 2 { // a hub that starts again replaces it
		if err := j.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadJoin(path)
	if err != nil || !reflect.DeepEqual(got, j) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".gmemtop-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if v := j.ForViewers(); len(v.Seeds) != 1 || v.Seeds[Viewer] != "V" || len(j.Seeds) != 3 {
		t.Errorf("for viewers: %v", v.Seeds)
	}
}

func TestAJoinFileThatOthersCouldReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.join")
	if err := aJoin().Write(path); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620, 0o601} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJoin(path); err == nil ||
			!strings.Contains(err.Error(), "chmod 600 it, and start the hub again") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

// Those who wait for the hub tell this error from the others.
func TestAJoinFileThatIsNotThereIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.join")
	_, err := ReadJoin(path)
	if !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "r.join: file does not exist: name the file that gmemtop wrote") {
		t.Error(err)
	}
}

func TestABadJoinFileIsRefused(t *testing.T) {
	now := time.Now()
	for want, change := range map[string]func(j *Join){
		"expired":             func(j *Join) { j.Expires = now.Add(-time.Second) },
		"version 2":           func(j *Join) { j.Version = 2 },
		"does not name a run": func(j *Join) { j.Run = "" },
		"no address":          func(j *Join) { j.Socket, j.Addresses = "", nil },
		"not an absolute":     func(j *Join) { j.Socket = "../../etc/s" },
		"is not an address":   func(j *Join) { j.Addresses = []string{"tls://me:secret@x:1"} },
	} {
		j := aJoin()
		change(&j)
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseJoin(text, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := parseJoin(make([]byte, maxJoin+1), now); err == nil {
		t.Error("a file of any size is read")
	}
}

func FuzzJoin(f *testing.F) {
	good, err := json.Marshal(aJoin())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"run":"r","expires":"9999-12-31T23:59:59Z","addresses":["[::1]:7422"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := parseJoin(text, time.Unix(0, 0))
		if err != nil {
			return
		}
		if j.Run == "" || j.Socket == "" && len(j.Addresses) == 0 || j.Socket != "" &&
			!filepath.IsAbs(j.Socket) {
			t.Errorf("%q is taken for a join file: %+v", text, j)
		}
	})
}

// FuzzToken: every text is one word of a subject, and comes back from it.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"node-1", "a.b", "*", ">", "", "_5f", "węzeł", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		word := Token(text)
		if strings.ContainsAny(word, ".*> \t\r\n") {
			t.Errorf("%q becomes %q", text, word)
		}
		if got, ok := Untoken(word); text != "" && (!ok || got != text) {
			t.Errorf("%q comes back as %q, %v", text, got, ok)
		}
		if got, ok := Untoken(text); ok && Token(got) != text {
			t.Errorf("%q is read as %q, which is written %q", text, got, Token(got))
		}
	})
}
