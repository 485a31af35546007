//go:build !nobus

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
)

// A worker that a scheduler starts before its sweep says so and waits. Then it makes all plans, and the file
// is the one that a single machine writes.
func TestAWorkerWaitsForItsSweep(t *testing.T) {
	text, err := os.ReadFile("testdata/script/sweep.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("-- b2.jsonl --\n"))
	text, _, found := bytes.Cut(text, []byte("-- b4.jsonl --\n"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "b2.jsonl"), text, 0o600); err != nil || !found {
		t.Fatal("no trace in the script: ", err)
	}
	gmemtop := func(said *words, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "gmemtop", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
		return cmd
	}
	var impatient, said, other words
	err = gmemtop(&impatient, "worker", "--join-file", "s.join", "--wait", "10ms", "b2.jsonl").Run()
	if err == nil || !strings.Contains(impatient.String(), "no sweep has begun within 10ms: gmemtop sweep "+
		"--serve --join-file s.join writes that file") {
		t.Errorf("--wait: %v %s", err, &impatient)
	}
	worker := gmemtop(&said, "worker", "--join-file", "s.join", "b2.jsonl")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the worker says that it waits", func() bool {
		return strings.Contains(said.String(), "waiting for a sweep: gmemtop sweep --serve --join-file "+
			"s.join")
	})
	ask := []string{"sweep", "b2.jsonl", "--managers", "exact,caching", "--budgets", "90%,100%"}
	if err := gmemtop(&other, append(ask, "-o", "served.parquet", "--serve", "--join-file",
		"s.join")...).Run(); err != nil {
		t.Fatalf("the sweep: %v %s", err, &other)
	}
	if err := worker.Wait(); err != nil || !strings.Contains(said.String(), "4 plans made") {
		t.Errorf("the worker: %v %s", err, &said)
	}
	if err := gmemtop(&other, append(ask, "-o", "alone.parquet")...).Run(); err != nil {
		t.Fatalf("alone: %v %s", err, &other)
	}
	served, err := os.ReadFile(filepath.Join(dir, "served.parquet"))
	alone, err2 := os.ReadFile(filepath.Join(dir, "alone.parquet"))
	if err != nil || err2 != nil || len(served) == 0 || !bytes.Equal(served, alone) {
		t.Errorf("%v %v; %d bytes by workers, %d alone", err, err2, len(served), len(alone))
	}
}
