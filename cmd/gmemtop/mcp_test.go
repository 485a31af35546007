package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// assistantOf starts gmemtop mcp as a coding assistant does, and returns what asks a tool.
func assistantOf(t *testing.T, paths ...string) (s *mcp.ClientSession,
	ask func(tool string, in any) (string, bool)) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	command := exec.Command("gmemtop", append([]string{"mcp"}, paths...)...)
	s, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, func(tool string, in any) (string, bool) {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if len(r.Content) != 1 {
			t.Fatalf("%s: %d answers", tool, len(r.Content))
		}
		return r.Content[0].(*mcp.TextContent).Text, r.IsError
	}
}

// recorded writes a snapshot of a made-up training to a folder.
func recorded(t *testing.T, dir, name string, words ...string) string {
	t.Helper()
	run, err := newTraining(words)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, run.json(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnAssistantIsAnsweredAboutWhatTheUserNamed(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	recorded(t, dir, "a.json")
	recorded(t, dir, "b.json", "batch=16")
	recorded(t, dir, "oom.json", "oom")
	secret := recorded(t, elsewhere, "secret.json")
	if err := os.Symlink(secret, filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	s, ask := assistantOf(t, dir)
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if a := tool.Annotations; a == nil || !a.ReadOnlyHint || a.OpenWorldHint == nil || *a.OpenWorldHint {
			t.Errorf("%s does not say that it only reads: %+v", tool.Name, tool.Annotations)
		}
	}
	if len(names) != 5 {
		t.Errorf("the tools are %v", names)
	}
	type in = map[string]any
	for _, c := range []struct {
		tool  string
		in    in
		wants []string
		fails bool
	}{
		{"list_recordings", in{}, []string{"a.json", "b.json", "oom.json"}, false},
		{"what_held_the_peak", in{"recording": "a.json"}, []string{"Peak 25.4 MiB"}, false},
		{"what_held_the_peak", in{"recording": filepath.Join(dir, "a.json")},
			[]string{"Peak 25.4 MiB"}, false},
		{"why_did_it_run_out", in{"recording": "oom.json"}, []string{"OOM: asked for"}, false},
		{"why_did_it_run_out", in{"recording": "a.json"}, []string{"Your peak of 25.4 MiB is the logits"},
			false},
		{"what_would_a_lever_save", in{"recording": "oom.json"},
			[]string{`"name":"`, `"saves_bytes":`}, false},
		{"what_would_a_lever_save", in{"recording": "oom.json", "lever": "magic"},
			[]string{`the lever "magic" does not apply`}, true},
		{"compare_two_runs", in{"before": "a.json", "after": "b.json"}, []string{"+"}, false},
		{"what_held_the_peak", in{"recording": secret}, []string{"not among the recordings"}, true},
		{"what_held_the_peak", in{"recording": "link.json"}, []string{"not among the recordings"}, true},
		{"what_held_the_peak", in{"recording": "../" + filepath.Base(elsewhere) + "/secret.json"},
			[]string{"not among the recordings"}, true},
	} {
		text, failed := ask(c.tool, c.in)
		if failed != c.fails {
			t.Errorf("%s %v: failed %v: %s", c.tool, c.in, failed, text)
		}
		for _, want := range c.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s %v: no %q in %s", c.tool, c.in, want, text)
			}
		}
	}
	if text, _ := ask("list_recordings", in{}); strings.Contains(text, "link.json") {
		t.Errorf("a link is listed: %s", text)
	}
}

func TestAnAssistantIsToldNoControlSequences(t *testing.T) {
	dir := t.TempDir()
	recorded(t, dir, "a.json", "user=\x1b[31m")
	_, ask := assistantOf(t, dir)
	for _, tool := range []string{"what_held_the_peak", "why_did_it_run_out", "what_would_a_lever_save"} {
		text, failed := ask(tool, map[string]any{"recording": "a.json"})
		if failed || strings.ContainsRune(text, '\x1b') {
			t.Errorf("%s: failed %v: %.300q", tool, failed, text)
		}
	}
}

func TestTheRecordingsOfAFolderAreThoseOfTheMoment(t *testing.T) {
	dir := t.TempDir()
	_, ask := assistantOf(t, dir)
	if text, _ := ask("list_recordings", map[string]any{}); !strings.Contains(text, "none") {
		t.Errorf("of an empty folder: %s", text)
	}
	recorded(t, dir, "new.json")
	if text, _ := ask("list_recordings", map[string]any{}); !slices.Contains(strings.Fields(text),
		filepath.Join(dir, "new.json")) {
		t.Errorf("a new one is not listed: %s", text)
	}
}

// An assistant's answers come only of what the user named, and the recorded program's files are not that.
func TestARecordingForAnAssistantBringsNoFilesOfTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "problem.csv")
	if err := os.WriteFile(path, []byte("id,lower,upper,size\na,0,4,100\nb,2,6,50\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	recorded, err := newApp(nil, quiet, quiet, nil).reader().Timeline(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Trace.Code != nil {
		t.Error("what opens recordings for gmemtop mcp attaches the program's files")
	}
}
