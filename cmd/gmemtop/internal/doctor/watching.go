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

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
)

// checkNVML opens the library that GPU counters come from, and asks it for its devices.
func checkNVML() Finding {
	f := Finding{Name: "nvml", Detail: "none"}
	lib, err := nvml.Open(nvml.Options{})
	if err != nil {
		f.Why, f.Fix, _ = strings.Cut(strings.TrimPrefix(err.Error(), nvml.ErrUnavailable.Error()+": "), "; ")
		return f
	}
	defer lib.Close()
	d := lib.Driver()
	f.Detail = "driver " + d.Version + ", CUDA up to " + d.CUDA
	devices, err := lib.Devices()
	if err != nil {
		f.Why, f.Fix, _ = strings.Cut(err.Error(), ": ")
		return f
	}
	if f.Available = len(devices) > 0; !f.Available {
		f.Why, f.Fix = "the driver counts no GPU",
			"run nvidia-smi -L, which should count none either; start the container with --gpus all"
	}
	for _, x := range devices {
		f.Detail += "; " + x.String()
		if x.Err != nil {
			f.Available = false
			f.Why, f.Fix, _ = strings.Cut(x.Err.Error(), "; ")
		}
	}
	return f
}

// checkRun tries the folder that the agent of a started command connects through.
func checkRun() Finding {
	f := Finding{Name: "run"}
	dir, err := pytorch.Folder()
	if err != nil {
		f.Detail, f.Why, f.Fix = "a started training cannot be watched", err.Error(),
			"set XDG_RUNTIME_DIR to a folder that only you can enter"
		return f
	}
	f.Available, f.Detail = true, "gmemtop run -- python train.py; its agent connects through "+dir
	return f
}

// capSysPtrace is the number of CAP_SYS_PTRACE (linux/capability.h).
const capSysPtrace = 19

// checkAttach says whose processes can be attached to, as the kernel's settings go; `gmemtop attach --dry-run
// PID` says it of one.
func checkAttach() Finding {
	_, err := exec.LookPath("gdb")
	return attachFinding(runtime.GOOS, runtime.GOARCH, yamaScope(), capable(capSysPtrace), err == nil)
}

// attachFinding says whose processes can be attached to, and by what, under a setting of
// kernel.yama.ptrace_scope, with or without the capability to trace.
func attachFinding(system, architecture string, scope int, capable, gdb bool) Finding {
	f := Finding{Name: "attach", Detail: "running processes cannot be attached to"}
	whose := "your own processes"
	if capable {
		whose = "any process of this machine that is visible from here"
	}
	switch {
	case system != "linux" || architecture != "amd64":
		f.Why = "attaching needs Linux on x86-64; this is " + system + " on " + architecture
		f.Fix = "gmemtop run -- python train.py watches a training from its start"
	case scope >= 3: // no capability lifts it
		f.Why = fmt.Sprintf("kernel.yama.ptrace_scope is %d: nobody may trace, until this machine is "+
			"booted with another setting", scope)
		f.Fix = "gmemtop run -- python train.py watches a training from its start"
	case scope == 2 && !capable:
		f.Why = "kernel.yama.ptrace_scope is 2: only an administrator may trace"
		f.Fix = "sudo gmemtop attach PID"
	case scope == 1 && !capable:
		f.Detail = "only what was started from here with gmemtop run"
		f.Why = "kernel.yama.ptrace_scope is 1: only a parent may trace a process"
		f.Fix = "sudo gmemtop attach PID, or sudo sysctl kernel.yama.ptrace_scope=0"
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

// checkProbes tries whether the kernel takes the program that probes are made of; `gmemtop attach --probes
// --dry-run PID` says where they would be put.
func checkProbes() Finding { return probesFinding(usdt.Try()) }

// probesFinding makes a finding of the kernel's answer, whose errors say why before the first semicolon and
// what to do after it.
func probesFinding(kernel string, err error) Finding {
	f := Finding{Name: "probes", Detail: "programs without PyTorch cannot be watched"}
	if err != nil {
		f.Why, f.Fix, _ = strings.Cut(err.Error(), "; ")
		return f
	}
	f.Available, f.Detail = true, "any CUDA program, by eBPF on Linux "+kernel+": gmemtop attach --probes PID"
	return f
}

// yamaScope returns the kernel's setting of who may trace whom, 0 where it has none.
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

// capable reports whether this process has a capability in effect.
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

// checkTrainings lists what could be watched now.
func checkTrainings(ctx context.Context) Finding {
	f := Finding{Name: "trainings", Detail: "no process here has torch loaded"}
	var l procs.Lister
	list, err := l.Torch(ctx)
	switch {
	case errors.Is(err, procs.ErrNotLinux):
		f.Why, f.Fix = err.Error(), "run gmemtop on the machine that trains"
		return f
	case err != nil:
		f.Why, f.Fix = err.Error(), "mount /proc"
		return f
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
