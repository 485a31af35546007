package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
)

// checkRun tries the folder through which the agent of a started command connects.
func checkRun() Finding {
	f := Finding{Name: "run"}
	dir, err := pytorch.Folder()
	if err != nil {
		f.Detail = "a started training cannot be watched"
		return f.missing(err.Error(), "export XDG_RUNTIME_DIR=$(mktemp -d)",
			"or any other folder that only you can enter")
	}
	f.Available, f.Detail = true, "gmemtop run -- python train.py; its agent connects through "+dir
	return f
}

// capSysPtrace is the number of CAP_SYS_PTRACE (linux/capability.h).
const capSysPtrace = 19

// checkAttach reports whose processes gmemtop can attach to under the kernel's settings; `gmemtop attach
// --dry-run PID` reports it for one process.
func checkAttach() Finding {
	_, err := exec.LookPath("gdb")
	return attachFinding(runtime.GOOS, runtime.GOARCH, yamaScope(), capable(capSysPtrace), err == nil)
}

// What works where attaching does not.
const (
	runInstead = "gmemtop run -- python train.py"
	fromStart  = "watches a training from its start"
)

// attachFinding reports whose processes gmemtop can attach to, and how, under a setting of
// kernel.yama.ptrace_scope, with or without the capability to trace.
func attachFinding(system, architecture string, scope int, capable, gdb bool) Finding {
	f := Finding{Name: "attach", Detail: "running processes cannot be attached to"}
	whose := "your own processes"
	if capable {
		whose = "any process of this machine that is visible from here"
	}
	switch {
	case system != "linux" || architecture != "amd64":
		f.missing("attaching needs Linux on x86-64; this is "+system+" on "+architecture, runInstead,
			fromStart)
	case scope >= 3: // no capability overrides it
		f.missing(fmt.Sprintf("kernel.yama.ptrace_scope is %d: nobody may trace until this machine is "+
			"booted with another setting", scope), runInstead, fromStart)
	case scope == 2 && !capable:
		f.missing("kernel.yama.ptrace_scope is 2: only an administrator may trace",
			"sudo gmemtop attach PID", "")
	case scope == 1 && !capable:
		f.Detail = "only what was started from here with gmemtop run"
		f.missing("kernel.yama.ptrace_scope is 1: only a parent may trace a process",
			"sudo sysctl kernel.yama.ptrace_scope=0", "or once: sudo gmemtop attach PID")
	default:
		f.Available, f.Detail = true, whose+": by ptrace, from Python 3.14 on by its own remote debugging "+
			"as well"
		if gdb {
			f.Detail += ", and by gdb as the last resort"
		} else {
			f.Detail += "; there is no gdb, which is the last resort"
		}
	}
	return f
}

// checkProbes tries to load the eBPF program that probes need; `gmemtop attach --probes --dry-run PID` prints
// where the probes would be placed.
func checkProbes() Finding { return probesFinding(usdt.Try()) }

// probesFinding turns the kernel's answer into a finding. Its errors give the reason before the first
// semicolon and the fix after it.
func probesFinding(kernel string, err error) Finding {
	f := Finding{Name: "probes", Detail: "programs without PyTorch cannot be watched"}
	if err != nil {
		why, fix, _ := strings.Cut(err.Error(), "; ")
		command := "sudo gmemtop attach --probes PID"
		if !errors.Is(err, usdt.ErrPermission) || os.Geteuid() == 0 {
			command = runInstead
		}
		return f.missing(why, command, fix)
	}
	f.Available, f.Detail = true, "any CUDA program, by eBPF on Linux "+kernel+": gmemtop attach --probes PID"
	return f
}

// yamaScope returns the kernel's setting of who may trace whom, 0 if it has none.
func yamaScope() int {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// capable reports whether this process has an effective capability.
func capable(bit uint) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if word, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(word), 16, 64)
			return err == nil && n>>bit&1 == 1
		}
	}
	return false
}

// checkTrainings lists the processes that could be watched now.
func checkTrainings(ctx context.Context) Finding {
	f := Finding{Name: "trainings", Detail: "no process here has torch loaded"}
	var l procs.Lister
	list, err := l.Torch(ctx)
	switch {
	case errors.Is(err, procs.ErrNotLinux):
		return f.missing(err.Error(), "ssh -t HOST gmemtop", "with the machine that trains as HOST")
	case err != nil:
		return f.missing(err.Error(), "sudo mount -t proc proc /proc", "")
	}
	f.Available = true
	var names []string
	for i := range list {
		if list[i].Torch {
			names = append(names, fmt.Sprintf("%d (%s)", list[i].PID, feed.Script(list[i].Argv)))
		}
	}
	if len(names) > 0 {
		f.Detail = "torch is loaded in " + strings.Join(names, ", ")
	}
	return f
}
