package networks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// profiled is a layer from a published profile of a real network: what it is, the bytes of its output and of
// its weights, its times.
type profiled struct {
	node              int
	kind              string
	output, weights   int64
	forward, backward float64 // milliseconds
}

var profileLine = regexp.MustCompile(`^node(\d+) -- (\w+)\(.* -- forward_compute_time=([\d.]+), ` +
	`backward_compute_time=([\d.]+), activation_size=([\d.]+), parameter_size=([\d.]+)`)

func profile(t *testing.T, network string) []profiled {
	t.Helper()
	dir := os.Getenv("GMEMTOP_TRACES")
	if dir == "" {
		t.Skip("needs GMEMTOP_TRACES: traces recorded by others")
	}
	files, err := filepath.Glob(filepath.Join(dir, "measurements", "*pipedream_"+network+"_graph.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("GMEMTOP_TRACES has %d PipeDream profiles of %s", len(files), network)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var layers []profiled
	for _, line := range strings.Split(string(data), "\n") {
		m := profileLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var f [4]float64
		for i := range f {
			if f[i], err = strconv.ParseFloat(m[3+i], 64); err != nil {
				t.Fatal(err)
			}
		}
		node, _ := strconv.Atoi(m[1])
		layers = append(layers, profiled{node: node, kind: m[2], forward: f[0], backward: f[1],
			output: int64(f[2]), weights: int64(f[3])})
	}
	slices.SortFunc(layers, func(a, b profiled) int { return a.node - b.node })
	return layers
}

// kinds are the profile's words.
var kinds = map[plan.Class]string{plan.ClassConv: "Conv", plan.ClassLinear: "Linear",
	plan.ClassPool: "MaxPool", plan.ClassNorm: "BatchNorm"}

// TestLayersAreThoseOfMeasuredNetworks compares what each convolution, linear layer and pooling writes, and
// how large its weights are, with profiles of the real networks. Layers are compared as a set: a profile
// numbers a branch's layers in another order.
func TestLayersAreThoseOfMeasuredNetworks(t *testing.T) {
	for _, c := range []struct {
		file, network string
		batch         int
	}{{"alexnet", "AlexNet", 256}, {"vgg16", "VGG-16", 128}, {"resnet50", "ResNet-50", 128},
		{"resnet101", "ResNet-101", 64}} {
		t.Run(c.network, func(t *testing.T) {
			var want, got []string
			var measured, model [2]float64
			for _, l := range profile(t, c.file) {
				measured[0] += l.forward
				measured[1] += l.backward
				switch l.kind {
				case "Conv2d", "Linear", "MaxPool2d", "BatchNorm2d":
					want = append(want, fmt.Sprintf("%s writes %d with weights of %d",
						strings.TrimSuffix(l.kind, "2d"), l.output, l.weights))
				}
			}
			p := make1(t, c.network, c.batch, device(t, "v100-sxm"), networks.Options{})
			for i := range p.Ops {
				op := &p.Ops[i]
				switch op.Phase {
				case traces.PhaseForward:
					model[0] += float64(op.Duration) / 1e6
				case traces.PhaseBackward:
					model[1] += float64(op.Duration) / 1e6
					continue
				default:
					continue
				}
				kind := kinds[op.Class]
				if kind == "" || op.Name == "avgpool" || strings.HasSuffix(op.Name, ".track") {
					continue
				}
				var weights, output int64
				for _, a := range p.AccessesOf(plan.OpID(i)) {
					switch b := &p.Buffers[a.Buffer]; {
					case b.Category == timeline.Parameter:
						weights += b.Size
					case a.Mode == plan.Write:
						output = max(output, b.Size)
					}
				}
				got = append(got, fmt.Sprintf("%s writes %d with weights of %d", kind, output, weights))
			}
			slices.Sort(want)
			slices.Sort(got)
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("made\n%s\nmeasured\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			// The profile does not name its device, so times are told and not compared: a model that is off
			// by a factor is to be seen.
			t.Logf("batch %d: the model of a V100 takes %.0f ms forward and %.0f ms backward, "+
				"the profile %.0f and %.0f",
				c.batch, model[0], model[1], measured[0], measured[1])
		})
	}
}
