package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// checkDriver looks for NVIDIA's kernel driver by the files that it creates.
func checkDriver() Finding {
	f := Finding{Name: "nvidia driver", Detail: "none"}
	if runtime.GOOS != "linux" {
		return f.missing("gmemtop looks for GPUs on Linux only", "ssh -t HOST gmemtop",
			"with the machine that trains as HOST; saved traces open here")
	}
	b, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		command, fix := machine("/").driver()
		return f.missing("/proc/driver/nvidia/version: "+output.Reason(err).Error(), command, fix)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f.Detail = strings.TrimSpace(strings.TrimPrefix(line, "NVRM version:"))
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
	if len(devices) == 0 {
		return f.missing("the driver is loaded and there is no /dev/nvidia0", "sudo nvidia-modprobe -c 0",
			"or in a container: "+inContainer)
	}
	for _, d := range devices {
		file, err := os.OpenFile(d, os.O_RDWR, 0)
		if err != nil {
			return f.missing(d+": "+output.Reason(err).Error(), "sudo usermod -aG $(stat -c %G "+d+") $USER",
				"and log in again")
		}
		file.Close()
	}
	f.Available = true
	f.Detail += fmt.Sprintf(", %d devices", len(devices))
	return f
}

// inContainer starts a container that sees the GPUs.
const inContainer = "docker run --gpus all IMAGE"

// machine is the root of a machine's files.
type machine string

// driver returns the command that installs NVIDIA's driver.
func (m machine) driver() (command, fix string) {
	for _, mark := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := os.Stat(filepath.Join(string(m), mark)); err == nil {
			return inContainer, "on the host, which needs the driver; saved traces open without it"
		}
	}
	if !m.hasGPU() {
		return "gmemtop estimate -- python train.py", "tells whether a training fits a GPU; this machine " +
			"has no NVIDIA GPU, and saved traces open without one"
	}
	modules, _ := filepath.Glob(filepath.Join(string(m), "lib/modules/*/*/*/nvidia.ko*"))
	if len(modules) > 0 {
		return "sudo modprobe nvidia", "saved traces open without it"
	}
	fix = "and reboot; saved traces open without it"
	release, _ := os.ReadFile(filepath.Join(string(m), "etc/os-release"))
	for line := range bytes.Lines(release) {
		id, found := strings.CutPrefix(strings.TrimSpace(string(line)), "ID=")
		if !found {
			continue
		}
		switch strings.Trim(id, `"`) {
		case "ubuntu":
			return "sudo ubuntu-drivers install", fix
		case "debian":
			return "sudo apt install nvidia-driver", fix
		case "fedora":
			return "sudo dnf install akmod-nvidia", "from RPM Fusion, " + fix
		case "arch":
			return "sudo pacman -S nvidia-open", fix
		}
	}
	return "sudo modprobe nvidia", "where the driver is installed; saved traces open without it"
}

// hasGPU reports whether a device of NVIDIA's is on the PCI bus.
func (m machine) hasGPU() bool {
	vendors, _ := filepath.Glob(filepath.Join(string(m), "sys/bus/pci/devices/*/vendor"))
	for _, v := range vendors {
		if b, err := os.ReadFile(v); err == nil && strings.TrimSpace(string(b)) == "0x10de" {
			return true
		}
	}
	return false
}

// missingGPU says why a library shows no GPU. If the driver is missing, that is the reason.
func (f *Finding) missingGPU(nvidia *Finding, why, command, fix string) Finding {
	if !nvidia.Available {
		command, fix = nvidia.Command, nvidia.Fix
	}
	return f.missing(why, command, fix)
}

// checkNVML opens NVML, the library for GPU counters, and asks it for its devices.
func checkNVML(nvidia *Finding) Finding {
	f := Finding{Name: "nvml", Detail: "none"}
	lib, err := nvml.Open(nvml.Options{})
	if err != nil {
		why, fix, _ := strings.Cut(strings.TrimPrefix(err.Error(), nvml.ErrUnavailable.Error()+": "), "; ")
		return f.missingGPU(nvidia, why, "nvidia-smi", "says more; "+fix)
	}
	defer lib.Close()
	d := lib.Driver()
	f.Detail = "driver " + d.Version + ", CUDA up to " + d.CUDA
	devices, err := lib.Devices()
	if err != nil {
		why, fix, _ := strings.Cut(err.Error(), ": ")
		return f.missingGPU(nvidia, why, "nvidia-smi", "says more; "+fix)
	}
	if f.Available = len(devices) > 0; !f.Available {
		f.missingGPU(nvidia, "the driver reports no GPU", "nvidia-smi -L",
			"should list none either; in a container: "+inContainer)
	}
	for _, x := range devices {
		f.Detail += "; " + x.String()
		if x.Err != nil {
			why, fix, _ := strings.Cut(x.Err.Error(), "; ")
			f.missing(why, "nvidia-smi", "says more; "+fix)
		}
	}
	return f
}

// checkDevice asks the CUDA driver for GPUs that can carry plans out.
func checkDevice(nvidia *Finding) Finding {
	f := Finding{Name: "replay on a GPU", Detail: "compare --target cuda, and C in Managers"}
	devices, err := cuda.Devices("")
	if err != nil {
		why, fix, _ := strings.Cut(err.Error(), ": ")
		if errors.Is(err, driver.ErrNotBuilt) {
			return f.missing(why, "make build",
				"in gmemtop's sources; it needs a C compiler and no CUDA toolkit")
		}
		return f.missingGPU(nvidia, why, "nvidia-smi -L", "lists the GPUs; "+fix)
	}
	f.Available = true
	for _, d := range devices {
		f.Detail += fmt.Sprintf("; cuda:%d %s", d.Ordinal, planner.About(d))
	}
	return f
}
