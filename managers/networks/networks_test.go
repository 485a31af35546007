package networks_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

func device(tb testing.TB, name string) plan.Hardware {
	tb.Helper()
	h, err := hardware.ByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func make1(tb testing.TB, name string, batch int, hw plan.Hardware, o networks.Options) *plan.Problem {
	tb.Helper()
	n, err := networks.ByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := n.Problem(batch, hw, o)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestParametersAndArithmeticAreThePublishedOnes(t *testing.T) {
	for _, c := range []struct {
		name       string
		parameters int64
		gmacs      float64 // 0 where no count is published that counts what this one counts
		source     string
	}{
		{"AlexNet", 61_100_840, 0.714, "torchvision"},
		{"OverFeat", 145_920_872, 0, "sum over the paper's table 1; the paper says 145 million"},
		{"GoogLeNet", 6_998_552, 1.58, "Caffe's bvlc_googlenet without auxiliary classifiers"},
		{"VGG-16", 138_357_544, 15.47, "torchvision"},
		{"ResNet-50", 25_557_032, 4.09, "torchvision"},
		{"ResNet-101", 44_549_160, 7.80, "torchvision"},
		{"MobileNet", 4_231_976, 0.5687, "torch.utils.flop_counter on the same layers in PyTorch"},
		{"U-Net", 31_037_698, 185.912, "torch.utils.flop_counter on the same layers in PyTorch"},
		{"BERT-base", 109_514_298, 0, "Hugging Face's BertForMaskedLM"},
		{"GPT-2 small", 124_439_808, 0, "Hugging Face's GPT2LMHeadModel"},
		{"GPT-2 medium", 354_823_168, 0, "Hugging Face's GPT2LMHeadModel"},
	} {
		n, err := networks.ByName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := n.Facts(networks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Parameters != c.parameters {
			t.Errorf("%s has %d parameters, %s has %d", c.name, f.Parameters, c.source, c.parameters)
		}
		if got := float64(f.MACs) / 1e9; c.gmacs > 0 && math.Abs(got/c.gmacs-1) > 0.01 {
			t.Errorf("%s takes %.3f GMAC an image, %s takes %.3f", c.name, got, c.source, c.gmacs)
		}
	}
}

func TestDeepVGGHasAsManyConvolutionsAsItsNameSays(t *testing.T) {
	for name, want := range map[string]int{"VGG-16": 13, "VGG-116": 113, "VGG-216": 213, "VGG-316": 313,
		"VGG-416": 413} {
		p, got := make1(t, name, 1, device(t, "titan-x"), networks.Options{}), 0
		for i := range p.Ops {
			if p.Ops[i].Class == plan.ClassConv && p.Ops[i].Phase == traces.PhaseForward {
				got++
			}
		}
		if got != want {
			t.Errorf("%s has %d convolutions, want %d", name, got, want)
		}
	}
}

func TestActivationsHaveTheirKnownShapes(t *testing.T) {
	for _, c := range []struct {
		network, buffer string
		elems           int64
	}{
		{"AlexNet", "conv1", 64 * 55 * 55}, {"AlexNet", "pool1", 64 * 27 * 27},
		{"AlexNet", "pool5", 256 * 6 * 6},
		{"OverFeat", "conv1", 96 * 56 * 56}, {"OverFeat", "conv2", 256 * 24 * 24},
		{"OverFeat", "pool5", 1024 * 6 * 6},
		{"GoogLeNet", "conv1/7x7_s2", 64 * 112 * 112}, {"GoogLeNet", "inception_3a/output", 256 * 28 * 28},
		{"GoogLeNet", "inception_5b/output", 1024 * 7 * 7},
		{"VGG-16", "conv1_1", 64 * 224 * 224}, {"VGG-16", "pool5", 512 * 7 * 7},
		{"ResNet-50", "conv1", 64 * 112 * 112},
		{"ResNet-50", "layer3.4.conv2", 256 * 14 * 14}, {"ResNet-50", "layer4.0.downsample.0", 2048 * 7 * 7},
		{"BERT-base", "layer.11.attention.self.scores", 12 * 512 * 512},
		{"GPT-2 small", "h.3.attn.c_attn", 3 * 768 * 1024}, {"GPT-2 small", "lm_head", 50257 * 1024},
	} {
		const batch = 2
		p := make1(t, c.network, batch, device(t, "h200"), networks.Options{})
		found := false
		for i := range p.Buffers {
			if p.Buffers[i].Name == c.buffer {
				found = true
				if p.Buffers[i].Size != batch*c.elems*4 {
					t.Errorf("%s: %s has %d bytes, want %d", c.network, c.buffer, p.Buffers[i].Size,
						batch*c.elems*4)
				}
			}
		}
		if !found {
			t.Errorf("%s has no buffer %s", c.network, c.buffer)
		}
	}
}

// variations are the ways in which every network is tried.
func variations(n networks.Network) []networks.Options {
	o := []networks.Options{{}, {Optimizer: networks.Adam, PersistentGradients: true}}
	if n.Sequence > 0 {
		o = append(o, networks.Options{Sequence: 96, FusedAttention: true, Optimizer: networks.SGDMomentum})
	}
	return o
}

func TestKeepingEverythingIsAValidPlanOfEveryNetwork(t *testing.T) {
	for _, n := range networks.All() {
		for _, o := range variations(n) {
			for _, batch := range []int{1, n.Batches[len(n.Batches)-1]} {
				p, err := n.Problem(batch, device(t, "v100-sxm"), o)
				if err != nil {
					t.Fatal(err)
				}
				pl, err := plan.Assemble(p, plan.Decisions{})
				if err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
				if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
				if err := plan.Validate(p, pl); err != nil {
					t.Errorf("%s, %+v: %v", p.Name, o, err)
				}
				live, _ := p.PeakLive()
				if got, _ := pl.PeakLive(); got != live {
					t.Errorf("%s: the plan's peak is %d, the problem's %d", p.Name, got, live)
				}
			}
		}
	}
}

func TestEveryValueIsWrittenBeforeItIsRead(t *testing.T) {
	for _, n := range networks.All() {
		for _, o := range variations(n) {
			p, err := n.Problem(3, device(t, "p100"), o)
			if err != nil {
				t.Fatal(err)
			}
			for b := range p.Buffers {
				buf, touches := &p.Buffers[b], p.TouchesOf(plan.BufferID(b))
				switch {
				case buf.Category == timeline.Temporary && len(touches) == 0: // a workspace
				case len(touches) == 0:
					t.Errorf("%s: nothing touches %s", p.Name, buf.Name)
				case buf.Life != plan.Persistent && touches[0].Mode != plan.Write:
					t.Errorf("%s: %s is first touched by a %d", p.Name, buf.Name, touches[0].Mode)
				case buf.Life != plan.Persistent && len(touches) == 1 && buf.Name != "loss":
					t.Errorf("%s: nothing reads %s", p.Name, buf.Name)
				}
			}
		}
	}
}

func TestEveryForwardActivationCanBeMadeAgainFromItsProducer(t *testing.T) {
	for _, n := range networks.All() {
		p, err := n.Problem(2, device(t, "p100"), networks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for b := range p.Buffers {
			if p.Buffers[b].Category != timeline.Activation {
				continue
			}
			ops, ok := p.Producer(plan.BufferID(b), plan.OpID(len(p.Ops)))
			if !ok {
				t.Errorf("%s: no producer of %s", p.Name, p.Buffers[b].Name)
			}
			for _, i := range ops {
				if !p.Ops[i].Rerunnable {
					t.Errorf("%s: %s cannot run again", p.Name, p.Ops[i].Name)
				}
			}
		}
	}
}

func TestLoadGrowsLinearlyWithTheBatch(t *testing.T) {
	for _, n := range networks.All() {
		for _, o := range variations(n) {
			var loads [3][]int64
			var peaks [3]int64
			for i, batch := range []int{16, 32, 48} {
				p, err := n.Problem(batch, device(t, "a100"), o)
				if err != nil {
					t.Fatal(err)
				}
				loads[i] = p.Load()
				peaks[i], _ = p.PeakLive()
			}
			for i := range loads[0] {
				// Each live buffer is rounded up to 512 bytes, so a load is off a straight line by less than
				// that for each of them.
				bend := loads[0][i] + loads[2][i] - 2*loads[1][i]
				if slack := int64(len(loads[0])) * 4 * 512; bend > slack || -bend > slack {
					t.Errorf("%s: the load at op %d bends by %d bytes", n.Name, i, bend)
					break
				}
			}
			if peaks[0] >= peaks[1] || peaks[1] >= peaks[2] {
				t.Errorf("%s: peaks %v do not grow", n.Name, peaks)
			}
		}
	}
}

func TestAVariantWithWorkspaceIsFasterAtALargeBatch(t *testing.T) {
	offered := map[string]int{}
	for _, name := range []string{"titan-x", "v100-sxm", "h200"} {
		p := make1(t, "VGG-16", 128, device(t, name), networks.Options{})
		for i := range p.Ops {
			op := &p.Ops[i]
			if op.Variants == nil {
				continue
			}
			offered[name]++
			if v := op.Variants; len(v) != 2 || v[0].Duration >= v[1].Duration ||
				v[0].Workspace <= 0 || v[1].Workspace != 0 || op.Duration != v[0].Duration {
				t.Errorf("%s on %s: variants %+v", op.Name, name, v)
			}
			if p.Buffers[op.Workspace].Size != op.Variants[0].Workspace {
				t.Errorf("%s on %s: its workspace has %d bytes", op.Name, name, p.Buffers[op.Workspace].Size)
			}
		}
	}
	if offered["titan-x"] == 0 || offered["titan-x"] < offered["h200"] {
		t.Errorf("transforms are offered %v times: they should pay where arithmetic is dear", offered)
	}
}

func TestAWorkspaceIsTheTransformedTiles(t *testing.T) {
	p := make1(t, "VGG-16", 1, device(t, "titan-x"), networks.Options{})
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Name == "conv1_2" {
			// 224 outputs a side take 8 tiles of 30; 64 channels in and out; 544 complex values of 8 bytes a
			// tile.
			if want := int64(8 * 544 * (64*(64+64) + 64*64)); len(op.Variants) == 0 || op.Variants[0].Workspace != want {
				t.Errorf("conv1_2 has variants %+v, want a workspace of %d bytes", op.Variants, want)
			}
			return
		}
	}
	t.Error("no conv1_2")
}

func TestWeightGradientsLiveAsTheOptionSays(t *testing.T) {
	freed := make1(t, "AlexNet", 4, device(t, "p100"), networks.Options{})
	kept := make1(t, "AlexNet", 4, device(t, "p100"), networks.Options{PersistentGradients: true})
	count := func(p *plan.Problem, life plan.Life) (n int) {
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Category == timeline.Gradient && b.Life == life {
				if life == plan.Inside && b.End != plan.OpID(len(p.Ops)) {
					t.Errorf("%s is gone before the iteration ends", b.Name)
				}
				n++
			}
		}
		return n
	}
	if a, b := count(freed, plan.Inside), count(kept, plan.Persistent); a != 16 || b != 16 {
		t.Errorf("%d gradients are freed and %d persist, want 16 each", a, b)
	}
}

func TestFusedAttentionKeepsNoSquares(t *testing.T) {
	eager := make1(t, "GPT-2 small", 4, device(t, "h200"), networks.Options{})
	fused := make1(t, "GPT-2 small", 4, device(t, "h200"), networks.Options{FusedAttention: true})
	a, _ := eager.PeakLive()
	b, _ := fused.PeakLive()
	// Each of 12 layers saves probabilities, dropped probabilities (4 bytes) and a mask (1 byte): 12 heads of
	// 1024 x 1024.
	if saved := int64(12) * 4 * 12 * 1024 * 1024 * 9; a-b < saved*9/10 || a-b > saved*12/10 {
		t.Errorf("peaks are %d and %d, %d apart, want about %d", a, b, a-b, saved)
	}
}

func TestWhatCannotBeMadeIsRefusedWithWhatToDo(t *testing.T) {
	good := device(t, "h200")
	link := device(t, "autoswap")
	vgg, _ := networks.ByName("vgg16")
	gpt, _ := networks.ByName("gpt2-small")
	for _, c := range []struct {
		n     networks.Network
		batch int
		hw    plan.Hardware
		o     networks.Options
		say   string
	}{
		{vgg, 0, good, networks.Options{}, "batch 0 is not between 1 and"},
		{vgg, 1 << 30, good, networks.Options{}, "is not between 1 and"},
		{vgg, 8, link, networks.Options{}, "take a device preset"},
		{vgg, 8, good, networks.Options{Sequence: 128}, "leave Sequence 0"},
		{gpt, 8, good, networks.Options{Sequence: -1}, "sequence length -1"},
		{gpt, 8, good, networks.Options{Optimizer: 9}, "unknown optimizer 9"},
		{gpt, 1 << 20, good, networks.Options{Sequence: 1 << 17}, "not 0 to 2^48"},
		{networks.Network{}, 8, good, networks.Options{}, "take one of All"},
	} {
		if _, err := c.n.Problem(c.batch, c.hw, c.o); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("want an error that says %q, got %v", c.say, err)
		}
	}
	for name, say := range map[string]string{
		"resnt50": "did you mean ResNet-50?",
		"":        "take one of AlexNet", "lenet": "take one of AlexNet", "gpt2": "GPT-2 small, GPT-2 medium; say which",
	} {
		if _, err := networks.ByName(name); !errors.Is(err, networks.ErrUnknown) || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: want an error that says %q, got %v", name, say, err)
		}
	}
	for name, want := range map[string]string{
		"vgg16": "VGG-16", "VGG 416": "VGG-416", "resnet50": "ResNet-50", "bert": "BERT-base", "GPT2-Medium": "GPT-2 medium", "over feat": "OverFeat",
	} {
		if n, err := networks.ByName(name); err != nil || n.Name != want {
			t.Errorf("%q is %q, %v, want %s", name, n.Name, err, want)
		}
	}
}

func BenchmarkProblem(b *testing.B) {
	hw := device(b, "h200")
	for _, name := range []string{"VGG-16", "VGG-416", "ResNet-101", "GPT-2 medium"} {
		n, err := networks.ByName(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.Problem(32, hw, networks.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
