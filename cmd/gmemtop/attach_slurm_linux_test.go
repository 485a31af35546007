//go:build !nobus

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/slurm"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// A job of a real Slurm trains with torchrun, without gmemtop. Its ranks are watched, then left, and it goes
// on.
func TestARunningJobOfSlurmIsAttachedTo(t *testing.T) {
	python := torchtest.Python(t)
	needSlurm(t)
	own, err := exec.LookPath("gmemtop")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	startSlurm(t, dir)
	script(t, filepath.Join(dir, "job.sh"), fmt.Sprintf("OMP_NUM_THREADS=1 PACE=0.02 exec srun --ntasks=1 "+
		"'%s' -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port %s "+
		"'%s' '%s' 0\n",
		python, freePort(t), absolute(t, "testdata/endless.py"), dir))
	text, err := exec.Command("sbatch", "--parsable", "--ntasks=1", "--output="+filepath.Join(dir, "out"),
		filepath.Join(dir, "job.sh")).CombinedOutput()
	if err != nil {
		t.Fatalf("sbatch: %v %s", err, text)
	}
	id := strings.TrimSpace(string(text))
	t.Cleanup(func() { endSlurmJob(t, id) })
	late := time.Now().Add(torchtest.Patience(t))
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if time.Now().After(late) {
				out, _ := os.ReadFile(filepath.Join(dir, "out"))
				t.Fatalf("gave up waiting until %s; the job: %s", what, out)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	progress := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "progress"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	until("the job trains", func() bool { return progress() > 2 })
	if id != "4242" {
		t.Fatalf("the page's job is 4242, this one %s", id)
	}
	showBothRanks(t, toType(t), (*terminal).quit)
	s, err := slurm.Attach(id, own)
	if err != nil {
		t.Fatal(err)
	}
	until("the steps of both ranks arrive", func() bool {
		ranks := 0
		for _, p := range s.Watch().Job().Processes() {
			if v := p.History.Snapshot(); len(v.Steps) > 3 && v.Info.IsRank() {
				ranks++
			}
		}
		return ranks == 2
	})
	captured, err := exec.Command(own, "capture", "slurm:"+id, "--ranks", "0,1", "-o",
		filepath.Join(dir, "captured")).CombinedOutput()
	if found, _ := filepath.Glob(filepath.Join(dir, "captured", "*.gmt")); err != nil || len(found) != 2 {
		t.Errorf("capture: %v %s", err, captured)
	}
	if err := s.Leave(); err != nil {
		t.Errorf("leaving: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "cache", "gmemtop", "hubs", ".attach*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, p := range s.Watch().Job().Processes() {
		if v := p.History.Snapshot(); v.End.Reason != "detached" {
			t.Errorf("%s ended: %+v", v.Info.Name(), v.End)
		}
	}
	before := progress()
	until("the job goes on", func() bool { return progress() > before+3 })
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until("the job ends as it would have", func() bool {
		out, _ := os.ReadFile(filepath.Join(dir, "out"))
		return strings.Count(string(out), "digest") == 2
	})
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
