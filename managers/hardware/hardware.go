// Package hardware names the devices whose figures are built in, finds them by name, and reads and writes
// edited ones.
//
// Its duties:
//   - [Presets] and [ByName]: devices that the papers used and that people train on today;
//   - [Check]: whether a description can be simulated with, and what to change where it cannot;
//   - [Read], [Write], [Load] and [Save]: a description as JSON, to be edited by hand or filled by a
//     calibration.
//
// It asks no device for anything: a calibration does, and puts its figures in place of these.
package hardware

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/near"
)

// Problem: what do copies, launches and arithmetic cost on a device that we do not have?
//
// Approach: a small table in which each figure stands beside its source, and three kinds of origin that are
// never mixed. Data sheets give memory, peak arithmetic, peak bandwidth and the link's generation. Published
// measurements give the rate of pinned copies on such a link. The rest (the share of a peak that training
// sustains, the fixed costs of copies, launches and driver calls) is assumed, the same for every device, and
// each preset's Origin says so in words. The sustained figures are products of the table's columns, so an
// Origin cannot drift from its figures.
//
// Rejected: one sustained figure per device without its peak (nobody could tell a measurement from a guess);
// sparse or half-precision rates (the problems made from layer shapes hold 4-byte elements).

// The shares of a peak that training sustains: our assumptions.
const (
	// vectorShare is that of fp32 arithmetic on CUDA cores, in implicit GEMM.
	vectorShare = 0.65
	// tensorShare is that of dense TF32 on tensor cores, which wait for memory more often.
	tensorShare = 0.45
	// memoryShare is that of the device's memory bandwidth, in element-wise kernels.
	memoryShare = 0.80
)

// The fixed costs, in nanoseconds: our assumptions.
const (
	// of one pinned asynchronous copy; AutoSwap's published fit has 9,700 in and 47,200 out
	copyLatency = 10_000
	launchTime  = 5_000   // of issuing one op from the host
	mallocTime  = 150_000 // of cudaMalloc
	freeTime    = 200_000 // of cudaFree on an idle device
	mapTime     = 30_000  // of mapping a 2 MiB page of virtual memory
)

// link is the rate of pinned copies, and its source.
type link struct {
	name     string
	out, in  float64 // bytes per second, each direction alone
	together float64
	origin   string
}

// The share that each direction keeps on PCIe while both are busy, 0.90, is that of the sample output in the
// documentation of NVIDIA's nvbandwidth, 11.16 of 12.36 GB/s.
var (
	pcie3DNN = link{"PCIe 3 x16", 12.8e9, 12.8e9, 0.90,
		"the most that DMA reaches according to vDNN (MICRO 2016)"}
	pcie3 = link{"PCIe 3 x16", 13.2e9, 12.2e9, 0.90, "AutoSwap's published fit (arXiv 1903.06631)"}
	pcie4 = link{"PCIe 4 x16", 24.8e9, 24.8e9, 0.90,
		"nvbandwidth on an A100-SXM4 (NVIDIA developer forum, thread 352186)"}
	pcie5 = link{"PCIe 5 x16", 55.6e9, 55.6e9, 0.90,
		"nvbandwidth on PCIe 5, host to device; we assume the same for the other direction"}
	// Both directions together cannot pass what the host's memory gives: 486 GB/s by STREAM in the same
	// paper, 0.72 of 375 + 297.
	c2c = link{"NVLink-C2C", 297e9, 375e9, 0.72,
		"Schieffer et al. (ICPP 2024); together bounded by the host memory's 486 GB/s there"}
)

// device is a row of the table. Peaks are those of dense arithmetic in the data sheet or the architecture's
// white paper. The kind is tf32 only where that peak is above fp32's: on GeForce cards and the A10G both are
// the same, and implicit GEMM on CUDA cores sustains the larger share.
type device struct {
	name    string
	family  string   // devices of one family differ in memory alone
	aliases []string // as drivers and people call it
	gib     int64
	peak    float64 // flops per second in kind
	kind    string
	memory  float64 // bytes per second
	link    link
}

var devices = []device{
	{"TITAN X (Maxwell)", "titanx", []string{"GeForce GTX TITAN X", "titan-x-maxwell", "maxwell"}, 12, 6.1e12,
		"fp32", 336.5e9, pcie3DNN},
	{"P100-PCIE-16GB", "p100", []string{"p100"}, 16, 9.3e12, "fp32", 732e9, pcie3},
	{"V100-PCIE-16GB", "v100pcie", nil, 16, 14e12, "fp32", 900e9, pcie3},
	{"V100-PCIE-32GB", "v100pcie", nil, 32, 14e12, "fp32", 900e9, pcie3},
	{"V100-SXM2-16GB", "v100sxm", nil, 16, 15.7e12, "fp32", 900e9, pcie3},
	{"V100-SXM2-32GB", "v100sxm", nil, 32, 15.7e12, "fp32", 900e9, pcie3},
	{"T4", "t4", nil, 16, 8.1e12, "fp32", 320e9, pcie3},
	{"Quadro RTX 6000", "quadro-rtx-6000", []string{"rtx6000"}, 24, 16.3e12, "fp32", 672e9, pcie3},
	{"A100-SXM4-40GB", "a100", []string{"a100-40", "a100-40gb"}, 40, 156e12, "tf32", 1555e9, pcie4},
	{"A100-SXM4-80GB", "a100", []string{"a100-80", "a100-80gb"}, 80, 156e12, "tf32", 2039e9, pcie4},
	{"A10", "a10", nil, 24, 62.5e12, "tf32", 600e9, pcie4},
	{"A10G", "a10g", nil, 24, 35e12, "fp32", 600e9, pcie4},
	{"A40", "a40", nil, 48, 74.8e12, "tf32", 696e9, pcie4},
	{"RTX A6000", "a6000", []string{"a6000"}, 48, 77.4e12, "tf32", 768e9, pcie4},
	{"RTX 3060", "rtx3060", []string{"3060"}, 12, 12.7e12, "fp32", 360e9, pcie4},
	{"RTX 3090", "rtx3090", []string{"3090"}, 24, 35.6e12, "fp32", 936e9, pcie4},
	{"RTX 4090", "rtx4090", []string{"4090"}, 24, 82.6e12, "fp32", 1008e9, pcie4},
	{"L4", "l4", nil, 24, 60e12, "tf32", 300e9, pcie4},
	{"L40", "l40", nil, 48, 90.5e12, "fp32", 864e9, pcie4},
	{"L40S", "l40s", nil, 48, 183e12, "tf32", 864e9, pcie4},
	{"H100-SXM5-80GB", "h100", []string{"h100 80gb hbm3", "h100-sxm"}, 80, 494.7e12, "tf32", 3350e9, pcie5},
	{"H200-SXM-141GB", "h200", []string{"h200"}, 141, 494.7e12, "tf32", 4800e9, pcie5},
	{"GH200-96GB", "gh200", []string{"gh200", "gh200 480gb", "grace-hopper"}, 96, 494.7e12, "tf32", 4000e9,
		c2c},
	{"RTX 5090", "rtx5090", []string{"5090"}, 32, 104.8e12, "fp32", 1792e9, pcie5},
	{"B200", "b200", nil, 180, 1100e12, "tf32", 7700e9, pcie5},
}

// autoSwap is the link alone: the transfer model that AutoSwap's published code plans with.
var autoSwap = plan.Hardware{
	Name: "AutoSwap's link",
	Origin: "published: the transfer model of AutoSwap (arXiv 1903.06631), 47,200 ns and 0.0756 ns a byte " +
		"out, 9,700 ns and 0.0823 ns a byte in, " +
		"directions independent; the link alone, nothing about the device",
	D2H:      plan.Link{BytesPerSecond: 1e9 / 0.0756, Latency: 47_200},
	H2D:      plan.Link{BytesPerSecond: 1e9 / 0.0823, Latency: 9_700},
	Together: 1,
}

func (d *device) hardware() plan.Hardware {
	share := vectorShare
	if d.kind == "tf32" {
		share = tensorShare
	}
	return plan.Hardware{
		Name:        d.name,
		MemoryBytes: d.gib << 30,
		D2H:         plan.Link{BytesPerSecond: d.link.out, Latency: copyLatency},
		H2D:         plan.Link{BytesPerSecond: d.link.in, Latency: copyLatency},
		Together:    d.link.together,
		LaunchGap:   launchTime,
		MallocTime:  mallocTime, FreeTime: freeTime, MapTime: mapTime,
		FlopsPerSecond: share * d.peak,
		FlopsType:      d.kind,
		BytesPerSecond: memoryShare * d.memory,
		Origin: fmt.Sprintf("data sheet: %d GiB of memory (a driver reports a little less), %.4g "+
			"TB/s, %.4g Tflop/s %s; "+
			"published: pinned copies over %s %.4g GB/s out and %.4g GB/s in, %s; "+
			"assumed: %.0f %% of peak arithmetic and %.0f %% of peak bandwidth sustained, each direction "+
			"keeps %.0f %% while both copy, "+
			"%d us a copy, %d us a launch, %d us an allocation, %d us a free, %d us a mapping",
			d.gib, d.memory/1e12, d.peak/1e12, d.kind, d.link.name, d.link.out/1e9, d.link.in/1e9,
			d.link.origin,
			share*100, memoryShare*100, d.link.together*100,
			copyLatency/1000, launchTime/1000, mallocTime/1000, freeTime/1000, mapTime/1000),
	}
}

// Presets returns the built-in descriptions, oldest device first and AutoSwap's link last. Each one's Origin
// says which figures come from a data sheet, which were published by somebody who measured them, and which we
// assume. The caller may keep the slice.
func Presets() []plan.Hardware {
	all := make([]plan.Hardware, 0, len(devices)+1)
	for i := range devices {
		all = append(all, devices[i].hardware())
	}
	return append(all, autoSwap)
}

// errUnknown is wrapped by the error of [ByName] for a name that no preset has.
var errUnknown = errors.New("unknown device")

// ByName returns the preset for a name, in any case, with or without vendor, spaces and hyphens: "h200",
// "titan-x", "v100-sxm" and what a driver reports, "NVIDIA A100-SXM4-80GB". If a name leaves only the size of
// the memory open it means the smallest, so that a plan fits the others too. A name that could mean different
// devices is an error that lists them; one that means none says where to look. Both wrap [errUnknown].
func ByName(name string) (plan.Hardware, error) {
	if normal(name) == "" {
		return plan.Hardware{}, fmt.Errorf("%w: no name given; gmemtop help hardware lists them", errUnknown)
	}
	if isAutoSwap(name) {
		return autoSwap, nil
	}
	found := meant(name)
	switch {
	case len(found) == 0 && Near(name) != "":
		return plan.Hardware{}, fmt.Errorf("%w %q: did you mean %s? gmemtop help hardware lists them",
			errUnknown, name, Near(name))
	case len(found) == 0:
		return plan.Hardware{}, fmt.Errorf("%w %q; gmemtop help hardware lists the known ones, and a file "+
			"saved by calibration describes any other", errUnknown, name)
	case slices.ContainsFunc(found, func(d *device) bool { return d.family != found[0].family }):
		could := make([]string, len(found))
		for i, d := range found {
			could[i] = d.name
		}
		return plan.Hardware{}, fmt.Errorf("%w: %q could be %s; say which", errUnknown, name,
			strings.Join(could, ", "))
	}
	return slices.MinFunc(found, func(a, b *device) int { return int(a.gib - b.gib) }).hardware(), nil
}

// Near returns the name of a preset, or the beginning of some, that is spelled like a name, "" if none is.
func Near(name string) string {
	shown := map[string]string{} // by what is compared: without case, vendor's words, spaces and hyphens
	var words []string
	for _, full := range names() {
		beginning, _, _ := strings.Cut(full, "-")
		for _, n := range []string{full, beginning} {
			if key := normal(n); shown[key] == "" {
				shown[key], words = n, append(words, key)
			}
		}
	}
	return shown[near.Word(normal(name), words)]
}

// Meant returns the names of all presets of devices that a name could mean, none for an unknown one.
func Meant(name string) []string {
	var all []string
	for _, d := range meant(name) {
		all = append(all, d.name)
	}
	return all
}

// meant finds the one device with a name, or else all whose names begin with it.
func meant(name string) []*device {
	key := normal(name)
	if key == "" || isAutoSwap(name) {
		return nil
	}
	var found []*device
	for i := range devices {
		d := &devices[i]
		keys := append([]string{d.name}, d.aliases...)
		if slices.ContainsFunc(keys, func(k string) bool { return normal(k) == key }) {
			return []*device{d}
		}
		if slices.ContainsFunc(keys, func(k string) bool { return begins(normal(k), key) }) {
			found = append(found, d)
		}
	}
	return found
}

// begins reports whether a name begins with a key that ends in no number's middle: a10 is another card than
// a100.
func begins(name, key string) bool {
	rest, ok := strings.CutPrefix(name, key)
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	return ok && (rest == "" || !digit(rest[0]) || !digit(key[len(key)-1]))
}

func isAutoSwap(name string) bool {
	key := normal(name)
	return strings.HasPrefix("autoswapslink", key) && strings.HasPrefix(key, "auto")
}

func names() []string {
	all := make([]string, 0, len(devices)+1)
	for i := range devices {
		all = append(all, devices[i].name)
	}
	return append(all, autoSwap.Name)
}

// normal takes case, vendor's words and everything but letters and digits out of a name.
func normal(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	words = slices.DeleteFunc(words, func(w string) bool {
		return w == "nvidia" || w == "tesla" || w == "geforce" || w == "gtx"
	})
	return strings.Join(words, "")
}
