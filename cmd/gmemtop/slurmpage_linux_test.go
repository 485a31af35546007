//go:build !nobus

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

// The batch script of docs/fleet.md runs in a real Slurm of one node as job 4242, and is watched and captured
// by the commands of the page. Two ranks train.
func TestThePageAboutSlurmIsTyped(t *testing.T) {
	python := torchtest.Python(t)
	needSlurm(t)
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{"bin", "job"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, others := typedOn(fleetPage(t))
	batch := slices.IndexFunc(others, func(text string) bool { return strings.HasPrefix(text, "J=") })
	if batch < 0 {
		t.Fatal("the page has no batch script")
	}
	train, err := os.ReadFile("testdata/page.py")
	if err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(dir, "stop")
	train = []byte(strings.ReplaceAll(string(train), "/shared/stop", stop))
	if err := os.WriteFile(filepath.Join(dir, "job/train.py"), train, 0o600); err != nil {
		t.Fatal(err)
	}
	putPrograms(t, bin, python)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("OMP_NUM_THREADS", "1")
	startSlurm(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "job/job.sh"), []byte("#!/bin/bash\n"+others[batch]),
		0o700); err != nil {
		t.Fatal(err)
	}
	submit := exec.Command("sbatch", "--parsable", "--nodes=1", "--cpus-per-task=2", "job.sh")
	submit.Dir = filepath.Join(dir, "job")
	id, err := submit.CombinedOutput()
	if err != nil || strings.TrimSpace(string(id)) != "4242" {
		t.Fatalf("sbatch: %v %s", err, id)
	}
	t.Cleanup(func() { endSlurmJob(t, "4242") })
	output := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "job/slurm-4242.out"))
		return string(text)
	}
	await.Until(t, "both ranks train", func() bool {
		out, _ := exec.Command("gmemtop", "view", "slurm:4242", "--json").Output()
		if strings.Contains(output(), "Error") {
			t.Fatal(output())
		}
		return len(regexp.MustCompile(`"step": \d\d`).FindAll(out, -1)) == 2
	})
	port := freePort(t)
	settings, ssh := startSSHD(t, dir, fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nSetEnv PATH=%s "+
		"XDG_CACHE_HOME=%s SLURM_CONF=%s\n", port, os.Getenv("PATH"), os.Getenv("XDG_CACHE_HOME"),
		os.Getenv("SLURM_CONF")), localCommand)
	script(t, filepath.Join(bin, "ssh"), fmt.Sprintf("exec /usr/bin/ssh %s -o HostName=127.0.0.1 -o Port=%s "+
		"\"$@\"\n", settings, port))
	list := toType(t)
	if !ssh {
		list = withoutSSH(t, list)
	}
	showBothRanks(t, list, (*terminal).close)
	out, err := exec.Command("gmemtop", "capture", "slurm:4242", "--ranks", "0,1", "--steps", "2", "-o",
		filepath.Join(dir, "traces")).CombinedOutput()
	if found, _ := filepath.Glob(filepath.Join(dir, "traces/*.gmt")); err != nil || len(found) != 2 {
		t.Errorf("capture: %v %s", err, out)
	}
	// Slurm no longer knows the ranks then, so they end by themselves, also if the test fails.
	t.Cleanup(func() { _ = os.WriteFile(stop, nil, 0o600) })
	takeOverInSlurm(t, filepath.Join(dir, "job/4242.join"))
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the hub has written its recordings", func() bool {
		return strings.Contains(output(), "steps of 2 processes recorded")
	})
	sealed, err := exec.Command("gmemtop", "view", "--text", filepath.Join(dir, "job/4242")).CombinedOutput()
	if err != nil || strings.Count(string(sealed), "ended") != 2 {
		t.Errorf("sealed: %v %s", err, sealed)
	}
}

// takeOverInSlurm kills the gmemtop that Slurm started on the node, whose place another one takes by itself.
// It kills that with the one that stands by, and types what the page says to type then.
func takeOverInSlurm(t *testing.T, join string) {
	t.Helper()
	kill := func(which string) {
		t.Helper()
		line := fmt.Sprintf("kill -9 $(ps -eo pid,comm,args | awk '$2 == \"gmemtop\" && / %s / && "+
			"index($0, \"%s\") {print $1}')", which, join)
		if out, err := exec.Command("bash", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("killing the gmemtop of the node: %v %s", err, out)
		}
	}
	prefix := regexp.MustCompile("put `(srun [^`]*)`").FindStringSubmatch(fleetPage(t))
	host, err := os.Hostname()
	if prefix == nil || err != nil {
		t.Fatalf("the page says no more what to put before the command on a node of Slurm, or %v", err)
	}
	host, _, _ = strings.Cut(host, ".")
	command := strings.ReplaceAll(prefix[1], "node2", host) + " " +
		strings.ReplaceAll(attachBlock(t), "/shared/r1.join", join)
	newest := func() (steps []int) {
		out, _ := exec.Command("gmemtop", "view", "slurm:4242", "--json").Output()
		for _, found := range regexp.MustCompile(`"step": (\d+)`).FindAllSubmatch(out, -1) {
			n, _ := strconv.Atoi(string(found[1]))
			steps = append(steps, n)
		}
		return steps
	}
	goOn := func() {
		t.Helper()
		before := newest()
		await.Until(t, "the steps of both ranks go on", func() bool {
			now := newest()
			return len(before) == 2 && len(now) == 2 && min(now[0], now[1]) > max(before[0], before[1])+5
		})
	}
	kill("run --headless")
	goOn()
	kill(headless.StandByCommand)
	t.Log(command)
	attach := exec.Command("bash", "--norc", "-c", command)
	var said words
	attach.Stdout, attach.Stderr = &said, &said
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = attach.Process.Kill()
		_ = attach.Wait()
		t.Log(said.String())
	})
	goOn()
}
