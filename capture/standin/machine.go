package standin

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Orders in which streams do their work (see Machine.Order). Any other whole number above 1 is a seed of a
// random order.
const (
	Late = "late" // as late as events and synchronisation allow
	Once = "once" // immediately
)

// Program is the Clock of a machine on which everything that a program times is virtual.
const Program = "program"

// Machine describes what a process on the stand-in finds. The zero value is one H100 that does its work at
// once.
type Machine struct {
	Model   string   // a card, such as "h100", "a100", "t4"; "" for an H100
	Devices int      // how many; 0 for one, below 0 for none
	Memory  string   // of each device, such as "2GiB"; "" for the card's
	Context string   // what a context costs; "" for 500 MiB
	Others  []string // memory that imaginary other processes hold on each device, such as "10GiB"
	Order   string   // Late, Once or a seed
	// late: failed polls of an event before its work runs; 0 for 64, below 0: polls never run it
	Polls int
	// Clock is what events report: "real" or "virtual" time; "" for real. With Program ops take virtual
	// time too, and queries of events, time.perf_counter and time.perf_counter_ns use it.
	Clock string
	Rates string // of the virtual clock, such as "launch=5000,out=25" (src/clock.cpp); "" for the card's
	Times string // a file of measured times of ops: NANOSECONDS OP SHAPES; "" for none
	// the file through which processes share the devices; "" for the user's, "private" for none
	Board   string
	Fail    []string // FUNCTION:N=ANSWER: the N-th call of FUNCTION answers that error
	ECC     bool     // NVML reports uncorrected memory errors
	Compute bool     // ops compute true numbers
	Report  string   // a folder for reports; "" for none
	// the driver's version, such as 12040; 0 for the CUDA version that the library was built for
	Driver  int
	Mode    int    // compute mode: 0 any number of processes, 2 none, 3 one
	Granule string // what device memory is handed out in; "" for 2 MiB, as real devices do
	// the workspace of convolutions: "precomp", "gemm", "none" or a size (src/cudnn.cpp); "" for precomp
	CuDNN string
	NCCL  string // what a communicator takes of its device; "" for nothing
	// Hollow is a size, such as "1MiB": larger copies, fills and collectives move no bytes, so that device
	// memory stays untouched and takes nothing from the host. "" to move all.
	Hollow string
	// RefusePageable makes an asynchronous copy through the driver of host memory that is not pinned a
	// violation.
	RefusePageable bool
}

// settings returns the machine's environment variables, without those at their defaults.
func (m Machine) settings() [][2]string {
	var all [][2]string
	set := func(name, value string) {
		if value != "" {
			all = append(all, [2]string{"STANDIN_" + name, value})
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			set(name, strconv.Itoa(n))
		}
	}
	flag := func(name string, on bool) {
		if on {
			set(name, "1")
		}
	}
	set("MODEL", m.Model)
	switch {
	case m.Devices < 0:
		set("DEVICES", "0")
	default:
		number("DEVICES", m.Devices)
	}
	set("MEMORY", m.Memory)
	set("CONTEXT", m.Context)
	var others []string
	for i, o := range m.Others {
		if o != "" {
			others = append(others, fmt.Sprintf("%d:%s", i, o))
		}
	}
	set("OTHERS", strings.Join(others, ","))
	set("ORDER", m.Order)
	switch {
	case m.Polls < 0:
		set("POLLS", "0")
	default:
		number("POLLS", m.Polls)
	}
	set("CLOCK", m.Clock)
	set("RATES", m.Rates)
	set("TIMES", m.Times)
	set("BOARD", m.Board)
	set("FAIL", strings.Join(m.Fail, ","))
	flag("ECC", m.ECC)
	flag("COMPUTE", m.Compute)
	set("REPORT", m.Report)
	number("DRIVER", m.Driver)
	number("COMPUTE_MODE", m.Mode)
	set("GRANULE", m.Granule)
	set("CUDNN", m.CuDNN)
	set("NCCL", m.NCCL)
	set("HOLLOW", m.Hollow)
	if m.RefusePageable {
		set("PAGEABLE", "refuse")
	}
	return all
}

// Settings returns the settings by name, such as STANDIN_MEMORY. All names are there; what the machine leaves
// open is "".
func (m Machine) Settings() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"MODEL", "DEVICES", "MEMORY", "CONTEXT", "OTHERS", "ORDER", "POLLS",
		"CLOCK",
		"RATES", "TIMES", "BOARD", "FAIL", "ECC", "COMPUTE", "REPORT", "DRIVER", "COMPUTE_MODE", "GRANULE",
		"CUDNN", "NCCL", "HOLLOW", "PAGEABLE"} {
		all["STANDIN_"+name] = ""
	}
	for _, s := range m.settings() {
		all[s[0]] = s[1]
	}
	return all
}

// Environ returns the variables that put a process on a machine: the environment of this process, with the
// library preloaded, found under the names of NVIDIA's libraries, and with the machine's settings. Settings
// of a stand-in that this process has are left out.
func (l *Library) Environ(m Machine) []string { return l.EnvironOf(os.Environ(), m) }

// EnvironOf is Environ for another environment than this process's.
func (l *Library) EnvironOf(env []string, m Machine) []string {
	lists := map[string]string{"LD_PRELOAD": l.Path(), "LD_LIBRARY_PATH": l.dir}
	if m.Compute || m.Clock == Program {
		lists["PYTHONPATH"] = l.python
	}
	var all []string
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if first, ok := lists[name]; ok {
			if value != "" {
				lists[name] = first + string(filepath.ListSeparator) + value
			}
		} else if !strings.HasPrefix(name, "STANDIN_") {
			all = append(all, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		all = append(all, name+"="+lists[name])
	}
	for _, s := range m.settings() {
		all = append(all, s[0]+"="+s[1])
	}
	return all
}
