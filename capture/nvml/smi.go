package nvml

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// NVML through nvidia-smi.
//
// A static program, such as the one in a wheel, cannot load the driver's library. nvidia-smi comes with the
// driver and prints what the library says, so its XML (nvidia-smi -q -x) is read instead: one run describes
// all devices with their processes. Sizes in it are whole MiB.
//
// A run takes a tenth of a second to some seconds and keeps a processor busy, so callers share its result,
// and the next run waits five times as long as the last one took.
//
// Rejected: nvidia-smi --query-gpu in CSV, which takes a run for the devices and another for the processes,
// and fails as a whole if a driver does not know one of the columns.

const (
	smiTimeout = 20 * time.Second // without persistence mode the driver first wakes every device
	smiFresh   = 900 * time.Millisecond
	smiRest    = 5        // a run's result serves for at least as many times as long as the run took
	smiLargest = 16 << 20 // bytes of output
)

// smi is NVML as nvidia-smi shows it.
type smi struct {
	run  func(ctx context.Context) ([]byte, error) // returns what nvidia-smi -q -x prints
	proc processes
	now  func() time.Time

	mu   sync.Mutex
	log  *smiLog
	ends time.Time     // when the newest run ended
	took time.Duration // and how long it took
	err  error
}

// openSMI runs the nvidia-smi on PATH once.
func openSMI() (*smi, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, fmt.Errorf("%w: this build reads GPUs through nvidia-smi, which is not on PATH; it "+
			"comes with NVIDIA's driver", ErrUnavailable)
	}
	s := &smi{proc: processes{root: "/proc"}, now: time.Now,
		run: func(ctx context.Context) ([]byte, error) { return runSMI(ctx, path) }}
	if _, err := s.newest(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return s, nil
}

func runSMI(ctx context.Context, path string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, "-q", "-x")
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, err = io.Copy(&said, io.LimitReader(out, smiLargest))
	if err != nil || said.Len() == smiLargest {
		_ = cmd.Process.Kill()
	}
	if ended := cmd.Wait(); ended != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("nvidia-smi -q -x: %w: %s", cmp.Or(ctx.Err(), ended), first)
	}
	return said.Bytes(), err
}

// newest returns the result of the newest run, or of a new one if that is too old.
func (s *smi) newest() (*smiLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ends.IsZero() && s.now().Sub(s.ends) < max(smiFresh, smiRest*s.took) {
		return s.log, s.err
	}
	began := s.now()
	ctx, cancel := context.WithTimeout(context.Background(), smiTimeout)
	defer cancel()
	text, err := s.run(ctx)
	var log *smiLog
	if err == nil {
		log, err = parseSMI(text)
	}
	s.log, s.err, s.ends = log, err, s.now()
	s.took = s.ends.Sub(began)
	return log, err
}

// parseSMI reads what nvidia-smi -q -x prints.
func parseSMI(text []byte) (*smiLog, error) {
	var log smiLog
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	if err := d.Decode(&log); err != nil {
		return nil, fmt.Errorf("nvidia-smi -q -x prints no XML that can be read, byte %d: %w; run it to see "+
			"what it says", d.InputOffset(), err)
	}
	return &log, nil
}

// driver returns the driver's versions.
func (s *smi) driver() Driver {
	log, err := s.newest()
	if err != nil {
		return Driver{}
	}
	return Driver{Version: log.Driver, CUDA: log.CUDA}
}

// devices describes the devices.
func (s *smi) devices() ([]Device, error) {
	log, err := s.newest()
	if err != nil {
		return nil, err
	}
	list := make([]Device, len(log.GPUs))
	for i := range log.GPUs {
		list[i] = log.GPUs[i].device(i)
	}
	return list, nil
}

// read returns the newest state of a device. It is up to some seconds old.
func (s *smi) read(index int) (Reading, error) {
	log, err := s.newest()
	if err != nil {
		return Reading{}, fmt.Errorf("read GPU %d: %w", index, err)
	}
	if index < 0 || index >= len(log.GPUs) {
		return Reading{}, fmt.Errorf("read GPU %d: %w: nvidia-smi lists %d; dmesg may say why", index,
			errLost, len(log.GPUs))
	}
	s.mu.Lock()
	at, took := s.ends, s.took
	s.mu.Unlock()
	r := log.GPUs[index].reading(s.proc)
	r.Index, r.Time, r.Took = index, at, took
	return r, nil
}

// smiLog is the part of nvidia-smi's XML that is read. Drivers before 525 have power_readings in place of
// gpu_power_readings, with other names in it.
type smiLog struct {
	XMLName xml.Name `xml:"nvidia_smi_log"`
	Driver  string   `xml:"driver_version"`
	CUDA    string   `xml:"cuda_version"`
	GPUs    []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	Bus         string        `xml:"id,attr"`
	Name        string        `xml:"product_name"`
	UUID        string        `xml:"uuid"`
	MIG         string        `xml:"mig_mode>current_mig"`
	MaxGen      string        `xml:"pci>pci_gpu_link_info>pcie_gen>max_link_gen"`
	Gen         string        `xml:"pci>pci_gpu_link_info>pcie_gen>current_link_gen"`
	MaxWidth    string        `xml:"pci>pci_gpu_link_info>link_widths>max_link_width"`
	Width       string        `xml:"pci>pci_gpu_link_info>link_widths>current_link_width"`
	Sent        string        `xml:"pci>tx_util"`
	Received    string        `xml:"pci>rx_util"`
	Memory      smiMemory     `xml:"fb_memory_usage"`
	BAR1        smiMemory     `xml:"bar1_memory_usage"`
	Busy        string        `xml:"utilization>gpu_util"`
	MemoryBusy  string        `xml:"utilization>memory_util"`
	ECC         string        `xml:"ecc_mode>current_ecc"`
	Temperature string        `xml:"temperature>gpu_temp"`
	Power       smiPower      `xml:"gpu_power_readings"`
	OldPower    smiPower      `xml:"power_readings"`
	SMClock     string        `xml:"clocks>sm_clock"`
	MemoryClock string        `xml:"clocks>mem_clock"`
	MaxSMClock  string        `xml:"max_clocks>sm_clock"`
	MaxMemClock string        `xml:"max_clocks>mem_clock"`
	Processes   smiProcesses  `xml:"processes"`
	Instances   []smiInstance `xml:"mig_devices>mig_device"`
}

type smiMemory struct {
	Total    string `xml:"total"`
	Reserved string `xml:"reserved"`
	Used     string `xml:"used"`
	Free     string `xml:"free"`
}

type smiPower struct {
	Draw     string `xml:"power_draw"`
	Instant  string `xml:"instant_power_draw"`
	Enforced string `xml:"enforced_power_limit"`
	Current  string `xml:"current_power_limit"`
}

type smiProcesses struct {
	Refusal string       `xml:",chardata"` // such as N/A
	List    []smiProcess `xml:"process_info"`
}

type smiProcess struct {
	GPUInstance     string `xml:"gpu_instance_id"`
	ComputeInstance string `xml:"compute_instance_id"`
	PID             string `xml:"pid"`
	Type            string `xml:"type"`
	Name            string `xml:"process_name"`
	Used            string `xml:"used_memory"`
}

type smiInstance struct {
	Index           string    `xml:"index"`
	GPUInstance     string    `xml:"gpu_instance_id"`
	ComputeInstance string    `xml:"compute_instance_id"`
	Memory          smiMemory `xml:"fb_memory_usage"`
}

// figure reads an amount such as "528 MiB", "54.06 W" or "16x" in the smallest unit that is used here: bytes,
// milliwatts, MHz. It is unknown if nvidia-smi has words in its place, such as N/A.
func figure(text string) maybe.Int {
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseFloat(strings.TrimSuffix(number, "x"), 64)
	scale := map[string]float64{"": 1, "%": 1, "C": 1, "MHz": 1, "W": 1000, "KiB": 1 << 10, "MiB": 1 << 20,
		"GiB": 1 << 30, "KB/s": 1000, "MB/s": 1e6}[unit]
	if n *= scale; err != nil || scale == 0 || !(n >= 0 && n < 1<<60) {
		return maybe.Int{}
	}
	return maybe.Known(int64(n))
}

func (m *smiMemory) memory() Memory {
	return Memory{Total: figure(m.Total), Reserved: figure(m.Reserved), Used: figure(m.Used),
		Free: figure(m.Free)}
}

// power returns the power readings, wherever this driver has them.
func (g *smiGPU) power() (draw, limit string) {
	p := &g.Power
	if *p == (smiPower{}) {
		p = &g.OldPower
	}
	return cmp.Or(p.Draw, p.Instant), cmp.Or(p.Current, p.Enforced)
}

func (g *smiGPU) device(index int) Device {
	_, limit := g.power()
	return Device{Index: index, Name: g.Name, UUID: g.UUID, Bus: g.Bus, Total: figure(g.Memory.Total),
		PowerLimit: figure(limit), MaxSMClock: figure(g.MaxSMClock), MaxMemoryClock: figure(g.MaxMemClock),
		PCIeGeneration: figure(g.MaxGen), PCIeWidth: figure(g.MaxWidth), MIG: g.MIG == "Enabled"}
}

func (g *smiGPU) reading(proc processes) Reading {
	draw, _ := g.power()
	r := Reading{Memory: g.Memory.memory()}
	r.Memory.BAR1Total, r.Memory.BAR1Used = figure(g.BAR1.Total), figure(g.BAR1.Used)
	for _, f := range []struct {
		name, text string
		into       *maybe.Int
	}{
		{"utilisation", g.Busy, &r.Busy}, {"memory utilisation", g.MemoryBusy, &r.MemoryBusy},
		{"SM clock", g.SMClock, &r.SMClock}, {"memory clock", g.MemoryClock, &r.MemoryClock},
		{"power", draw, &r.Power}, {"temperature", g.Temperature, &r.Temperature},
		{"PCIe generation", g.Gen, &r.PCIeGeneration}, {"PCIe width", g.Width, &r.PCIeWidth},
		{"PCIe sent", g.Sent, &r.PCIeSent}, {"PCIe received", g.Received, &r.PCIeReceived},
	} {
		if *f.into = figure(f.text); !f.into.IsKnown() {
			r.Absent = append(r.Absent, Absence{f.name, "nvidia-smi says " + cmp.Or(f.text, "nothing")})
		}
	}
	switch g.ECC {
	case "Enabled":
		r.ECC = maybe.Known(1)
	case "Disabled":
		r.ECC = maybe.Known(0)
	}
	r.ProcessesKnown = len(g.Processes.List) > 0 || strings.TrimSpace(g.Processes.Refusal) == ""
	for i := range g.Processes.List {
		if p, ok := g.Processes.List[i].process(proc); ok {
			r.Processes = append(r.Processes, p)
		}
	}
	slices.SortStableFunc(r.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Used.Or(-1), a.Used.Or(-1)), cmp.Compare(a.PID, b.PID))
	})
	for i := range g.Instances {
		x := &g.Instances[i]
		r.Instances = append(r.Instances, Instance{Name: "MIG " + x.Index, GPUInstance: figure(x.GPUInstance),
			ComputeInstance: figure(x.ComputeInstance), Memory: x.Memory.memory()})
	}
	return r
}

// process returns an entry of the list of processes; ok is false if it has no number.
func (x *smiProcess) process(proc processes) (p Process, ok bool) {
	pid, err := strconv.ParseInt(strings.TrimSpace(x.PID), 10, 32)
	if err != nil || pid <= 0 {
		return p, false
	}
	p = Process{PID: int(pid), Name: x.Name, Start: proc.start(int(pid)), Used: figure(x.Used),
		GPUInstance: figure(x.GPUInstance), ComputeInstance: figure(x.ComputeInstance)}
	if name := proc.name(p.PID); name != "" {
		p.Name = name
	}
	for letter, kind := range map[string]ProcessKind{"C": runsCompute, "G": runsGraphics, "M": runsMPS} {
		if strings.Contains(x.Type, letter) {
			p.Kind |= kind
		}
	}
	return p, true
}
