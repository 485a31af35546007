package usdt

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The reasons why a process cannot be watched. Each error is one sentence that ends with what to do, and
// wraps one of these.
var (
	// ErrPermission means that the kernel refuses this user.
	ErrPermission = errors.New("probes are not permitted")
	// ErrUnsupported means that this system cannot do it for any user.
	ErrUnsupported = errors.New("probes are not supported")
	// ErrNoProcess means that the process does not exist, or has ended.
	ErrNoProcess = errors.New("there is no such process")
	// ErrNotLoaded means that the process has not loaded the library (yet).
	ErrNotLoaded = errors.New("the library is not loaded")
	// ErrNoProbes means that the library is loaded but has no place for probes.
	ErrNoProbes = errors.New("the library has no probes")
)

const instead = "gmemtop attach PID watches from inside the process and needs none of this"

// capabilities of Linux, as bits of CapEff.
const (
	capSysAdmin  = 1 << 21
	capSysPtrace = 1 << 19
	capPerfmon   = 1 << 38
	capBPF       = 1 << 39
)

// host is what decides whether probes can work here.
type host struct {
	root         string // of the proc file system
	release      string // of the kernel, such as 6.1.0-18-amd64
	capabilities uint64
	unprivileged string // kernel.unprivileged_bpf_disabled
	lockdown     string // the kernel's lockdown mode in brackets, "" if there is none
}

// thisHost reads the host; what it cannot read stays empty.
func thisHost(root string) host {
	h := host{root: root}
	read := func(path string) string {
		p, _ := os.ReadFile(path)
		return strings.TrimSpace(string(p))
	}
	h.release = read(root + "/sys/kernel/osrelease")
	h.unprivileged = read(root + "/sys/kernel/unprivileged_bpf_disabled")
	h.lockdown = read("/sys/kernel/security/lockdown")
	for line := range strings.Lines(read(root + "/self/status")) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			h.capabilities, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return h
}

// grant is how to get the rights.
const grant = "run it with sudo, or grant them once: sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep " +
	"$(command -v gmemtop)"

// check says why probes cannot work here, nil if they can.
func (h host) check() error {
	if !h.atLeast(5, 8) {
		return fmt.Errorf("%w by Linux %s: the ring buffer that they write to came with 5.8; %s",
			ErrUnsupported, h.release, instead)
	}
	if h.capabilities&capSysAdmin != 0 {
		return nil
	}
	var missing []string
	for _, c := range [...]struct {
		bit  uint64
		name string
	}{{capBPF, "CAP_BPF"}, {capPerfmon, "CAP_PERFMON"}} {
		if h.capabilities&c.bit == 0 {
			missing = append(missing, c.name)
		}
	}
	if !h.hasLinks() {
		return fmt.Errorf("%w: this needs root or CAP_SYS_ADMIN on Linux %s (CAP_BPF and CAP_PERFMON are "+
			"enough from 6.10); run it with sudo",
			ErrPermission, h.release)
	}
	if len(missing) == 0 {
		return nil
	}
	note := ""
	if h.unprivileged != "" && h.unprivileged != "0" && h.capabilities&capBPF == 0 {
		note = " (kernel.unprivileged_bpf_disabled is " + h.unprivileged + ")"
	}
	return fmt.Errorf("%w: this needs root or %s%s; %s", ErrPermission, strings.Join(missing, " and "),
		note, grant)
}

// hasLinks reports whether the kernel has BPF links for probes that cover whole processes. Links came with
// 6.6, and until 6.10 they saw only one thread of the process; some earlier stable kernels have the fix, but
// the version does not show it.
func (h host) hasLinks() bool { return h.atLeast(6, 10) }

// atLeast compares the kernel's version. An unreadable one counts as new, and the kernel's answers then
// decide.
func (h host) atLeast(major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(h.release, "%d.%d", &a, &b); n != 2 {
		return true
	}
	return a > major || a == major && b >= minor
}

// refused explains a refusal by the kernel for which check found no reason.
func (h host) refused(what string, err error) error {
	if !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if strings.Contains(h.lockdown, "[confidentiality]") {
		return fmt.Errorf("%w: %s: the kernel is locked down in confidentiality mode, which forbids "+
			"reading user memory; %s", ErrPermission, what, instead)
	}
	return fmt.Errorf("%w: %s: %w; inside a container add --cap-add BPF --cap-add PERFMON --cap-add "+
		"SYS_PTRACE and a seccomp profile that "+
		"allows bpf and perf_event_open, or run gmemtop on the host", ErrPermission, what, err)
}
