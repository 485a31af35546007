//go:build !nobus

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// Other users of a machine can read command lines, and batch systems keep what programs print. None of a
// run's keys is in either, whether a hub serves or a sweep that hands out plans.
func TestNoKeyIsSaidOrOnACommandLine(t *testing.T) {
	dir := t.TempDir()
	trace, err := filepath.Abs("../../traces/samples/resnet18-steps-cpu.gmt")
	if err != nil {
		t.Fatal(err)
	}
	join := filepath.Join(dir, "r.join")
	for name, args := range map[string][]string{
		"hub": {"hub", "--run", "r1", "--listen", "127.0.0.1:0", "--join-file", join},
		"sweep": {"sweep", trace, "-o", filepath.Join(dir, "s.parquet"), "--serve", "--listen", "127.0.0.1:0",
			"--join-file", join},
	} {
		ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
		log := filepath.Join(dir, name)
		f, err := os.Create(log)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, "gmemtop", args...)
		cmd.Stdout, cmd.Stderr = f, f
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var seeds []string
		await.Until(t, "the keys are written", func() bool {
			j, err := bus.ReadJoin(join)
			for _, s := range j.Seeds {
				seeds = append(seeds, s)
			}
			text, _ := os.ReadFile(log)
			return err == nil && strings.Contains(string(text), "--join-file")
		})
		said := ""
		proc := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join(proc, file))
			if err != nil {
				t.Fatal(err)
			}
			said += string(text)
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		stop()
		text, err := os.ReadFile(log)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		said += string(text)
		if len(seeds) == 0 {
			t.Errorf("%s: no keys", name)
		}
		for _, s := range seeds {
			if strings.Contains(said, s) {
				t.Errorf("%s: a key is in what everybody can read: %s", name, said)
			}
		}
		_ = os.Remove(join)
	}
}
