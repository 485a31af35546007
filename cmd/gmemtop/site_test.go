//go:build !nobus

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/bus/sitetest"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A site's own NATS servers carry a run. Its credentials open it, and nothing else does.
func TestASitesOwnServersCarryARun(t *testing.T) {
	s := sitetest.Start(t)
	t.Setenv("SSL_CERT_FILE", s.Roots)
	// Nobody has more permissions than docs/fleet.md asks for.
	me := s.User(t, []string{"gmt.v1.>", "_GMT.>", "$JS.API.>", "$JS.ACK.>"},
		[]string{"gmt.v1.>", "_GMT.>"})
	looking := s.User(t, []string{"$JS.API.>"}, []string{"_GMT.>"})
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	join, sealed := filepath.Join(dir, "r.join"), filepath.Join(dir, "sealed")
	gmemtop := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "gmemtop", args...).CombinedOutput()
		return string(out), err
	}
	start := func(args ...string) (*exec.Cmd, *words) {
		t.Helper()
		var said words
		hub := exec.CommandContext(t.Context(), "gmemtop", append([]string{"hub", "--hub", s.URL, "--creds",
			me, "--run", "r", "--join-file", join}, args...)...)
		hub.Stdout, hub.Stderr = &said, &said
		if err := hub.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hub.Process.Kill(); _ = hub.Wait() })
		await.Until(t, "the hub says where the run is", func() bool {
			return strings.Contains(said.String(), "run r: "+s.URL+" carries it") || hub.ProcessState != nil
		})
		return hub, &said
	}
	hub, _ := start("-o", sealed)
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	defer j.Close()
	first.Process.Begin(capture.Info{PID: 7, Started: 1, Rank: maybe.Known(3), WorldSize: maybe.Known(4)})
	for i := range int64(5) {
		x := capture.Step{Index: i, Start: i, End: i + 1}
		if i < 4 { // in the newest step nobody looked
			x.Allocated = maybe.Known(100 + i)
		}
		first.Process.Step(x)
	}
	node := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identity{Node: "n1"}, Join: join,
		Credentials: me})
	look := func(args ...string) (r struct{ Ranks []struct{ Rank, Step int64 } }) {
		out, err := exec.CommandContext(t.Context(), "gmemtop", append([]string{"view", "--json"},
			args...)...).Output()
		if err == nil {
			_ = json.Unmarshal(out, &r)
		}
		return r
	}
	for _, way := range [][]string{{"--hub", s.URL, "--creds", me, "--run", "r"},
		{"--hub", s.URL, "--creds", looking, "--run", "r"},
		{"--join-file", join, "--creds", me}} {
		await.Until(t, "view "+strings.Join(way, " ")+" shows the run", func() bool {
			r := look(way...)
			return len(r.Ranks) == 1 && r.Ranks[0].Rank == 3 && r.Ranks[0].Step == 4
		})
	}
	// The order arrives, and this rank can carry out none.
	obeys := func() bool {
		out, err := gmemtop("capture", "--join-file", join, "--creds", me, "--ranks", "3")
		if err == nil || !strings.Contains(out, "no rank is running that could be captured") {
			t.Fatalf("capture: %v %s", err, out)
		}
		return !strings.Contains(out, "n1") // does not answer
	}
	if !obeys() {
		t.Error("the node does not answer an order")
	}
	// A hub that is started again has another key for orders, and all messages are still there.
	_ = hub.Process.Kill()
	_ = hub.Wait()
	hub, said := start("-o", sealed)
	await.Until(t, "the node obeys the new hub", obeys)
	t.Run("refused", func(t *testing.T) {
		readable := filepath.Join(dir, "readable.creds")
		text, err := os.ReadFile(me)
		if err == nil {
			err = os.WriteFile(readable, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		secret := strings.Replace(s.URL, "tls://", "tls://me:secret@", 1)
		for _, c := range []struct {
			name, want string
			args       []string
		}{
			{"no credentials", "refused the key", []string{"view", "--text", "--hub", s.URL, "--run", "r"}},
			{"not encrypted", "is not encrypted: write tls://", []string{"view", "--text", "--hub", s.Plain,
				"--creds", me, "--run", "r"}},
			{"a secret in the URL", "holds a secret that others", []string{"view", "--text", "--hub", secret,
				"--creds", me, "--run", "r"}},
			{"credentials that others can read", "be read by others", []string{"view", "--text", "--hub",
				s.URL, "--creds", readable, "--run", "r"}},
			{"credentials without a site", "name them with --hub or --leaf", []string{"hub", "--creds", me,
				"--run", "q", "--join-file", join + "2"}},
			{"no run", "--run NAME", []string{"view", "--text", "--hub", s.URL, "--creds", me}},
			{"a join file as well", "--run NAME", []string{"view", "--text", "--hub", s.URL, "--run", "r",
				"--join-file", join}},
			{"a hub that is a leaf node as well", "leave out --listen", []string{"hub", "--hub", s.URL,
				"--run", "q", "--leaf", s.Leaf, "--join-file", join + "2"}},
			{"a leaf node without encryption", "is not encrypted: write tls://", []string{"hub", "--leaf",
				s.Plain, "--creds", me, "--run", "q", "--join-file", join + "2"}},
			{"a leaf node by a file that others can read", "be read by others", []string{"hub", "--leaf",
				s.Leaf, "--creds", readable, "--run", "q", "--join-file", join + "2"}},
			{"a hub that listens", "leave out --listen", []string{"hub", "--hub", s.URL, "--run", "q",
				"--listen", "127.0.0.1:0", "--join-file", join + "2"}},
			{"a hub that may not make streams", "prepare the stream", []string{"hub", "--hub", s.URL,
				"--creds", s.Looking, "--run", "q", "--join-file", join + "2"}},
		} {
			out, err := gmemtop(c.args...)
			if err == nil || !strings.Contains(out, c.want) || strings.Contains(out, "secret@") ||
				strings.Contains(out, "me:secret") {
				t.Errorf("%s: %v %s", c.name, err, out)
			}
		}
		// Without the site's root certificate it is some other server.
		cmd := exec.CommandContext(t.Context(), "gmemtop", "view", "--text", "--hub", s.URL, "--creds",
			me, "--run", "r")
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+os.DevNull, "SSL_CERT_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "certificate") {
			t.Errorf("an unknown certificate: %v %s", err, out)
		}
		// Another account of the site has no such run, and an order without the operator's key is none.
		conn, err := bus.Dial(t.Context(), bus.Access{Join: bus.Join{Run: "r"}, URL: s.URL,
			Credentials: me, Role: bus.Operator})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.Ask(t.Context(), bus.Prepare, nil, nil); err == nil ||
			!strings.Contains(err.Error(), "no operator's key") {
			t.Errorf("an order without a key: %v", err)
		}
	})
	node.Close()
	_ = hub.Process.Signal(syscall.SIGTERM)
	if err := hub.Wait(); err != nil || !strings.Contains(said.String(), "5 steps of 1 process recorded") {
		t.Errorf("the hub: %v %s", err, said)
	}
	if r := look(sealed); len(r.Ranks) != 1 || r.Ranks[0].Step != 4 {
		t.Errorf("sealed: %+v", r)
	}
	// The memory is the newest that was measured. replay shows the same.
	shown, err := gmemtop("view", "--text", sealed)
	if again, err2 := gmemtop("replay", sealed); err != nil || err2 != nil || again != shown ||
		!strings.Contains(shown, "103 B") || !strings.HasSuffix(shown, "  ended\n") {
		t.Errorf("sealed, as text: %v %v %s%s", err, err2, shown, again)
	}
	if _, err := os.Stat(join); err == nil {
		t.Error("the hub leaves the keys behind")
	}
	hub, _ = start()
	if r := look("--join-file", join, "--creds", me); len(r.Ranks) != 0 {
		t.Errorf("the site still has what was recorded: %+v", r)
	}
	_ = hub.Process.Signal(syscall.SIGTERM)
	if err := hub.Wait(); err != nil {
		t.Errorf("the second hub: %v", err)
	}
}
