//go:build !nobus

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// standInRay starts two workers as Ray does: bash executes py_executable, followed by the worker's own words.
const standInRay = `import subprocess

workers = []

def init(runtime_env):
    command = " ".join(["exec", runtime_env["py_executable"], "worker.py"])
    workers.extend(subprocess.Popen(["bash", "-c", command]) for _ in range(2))

def shutdown():
    for w in workers:
        w.kill()
        w.wait()
`

// rayWorker trains until /shared/stop exists.
const rayWorker = `import os, time, torch
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(net.parameters())
while not os.path.exists("/shared/stop"):
    time.sleep(0.05)
    optimizer.zero_grad()
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
`

// The call to Ray of docs/fleet.md is typed beside the hub that the page starts, with a stand-in for Ray.
// Both workers send their steps, and what they sent is recorded although Ray kills them.
func TestThePageAboutRayIsTyped(t *testing.T) {
	python := torchtest.Python(t)
	s := sites(t, python)
	commands, others := typedOn(fleetPage(t))
	call := slices.IndexFunc(others, func(text string) bool { return strings.HasPrefix(text, "ray.init(") })
	if call < 0 {
		t.Fatal("the page no longer says how to use Ray")
	}
	for name, text := range map[string]string{"ray.py": standInRay, "worker.py": rayWorker,
		"job.py": "import os, time, ray\n" + others[call] +
			"while not os.path.exists('/shared/stop'):\n    time.sleep(0.1)\nray.shutdown()\n"} {
		if err := os.WriteFile(filepath.Join(s.dir, "shared", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script(t, filepath.Join(s.bin, "python"), fmt.Sprintf("exec '%s' \"$@\"\n", python))
	node := typedIn(t, s.on("node0", "bash", "--norc"), s.stop)
	trains := typedIn(t, s.on("node0", "bash", "--norc"), s.stop)
	if out, code := node.finish(node.enter(commands[0].command)); code != exitOK {
		t.Fatalf("%s: %s", commands[0].command, out)
	}
	ray := trains.enter("python job.py")
	await.Until(t, "both workers send steps", func() bool {
		seen, _ := node.finish(node.enter("gmemtop view --json --join-file /shared/r1.join"))
		return len(regexp.MustCompile(`"step": \d\d`).FindAllString(seen, -1)) == 2
	})
	s.stop()
	if out, code := trains.finish(ray); code != exitOK {
		t.Errorf("%s", out)
	}
	out, code := node.finish(node.enter("kill %1; wait %1"))
	if code != exitOK || !strings.Contains(out, "steps of 2 processes recorded") {
		t.Errorf("the hub: %s", out)
	}
}
