//go:build standin

package standin_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

func testdata(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A small ResNet-18 takes cuDNN's path in ATen, with the workspace of the documented rule, and trains as on
// the CPU. The report says that figures of such a program are inferred.
func TestConvolutionsTakeCuDNNsPath(t *testing.T) {
	r := standintest.TryPython(t, standin.Machine{Compute: true, Order: standin.Late},
		testdata(t, "convolutions.py"))
	r.Check(t)
	for _, want := range []string{
		"cudnn_convolution 40 cudnn_batch_norm 40 native None None\n", // two steps of 20 convolutions
		"workspace by rule '': [576]\n",
		"workspace by rule 'gemm': [836352]\n", // 16·3·3 × 3·22·22 × 4 bytes
		"workspace by rule 'none': []\n",
		"workspace by rule '1MiB': [1048576]\n",
	} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in\n%s", want, r.Stdout)
		}
	}
	p := r.Reports[0]
	if p.Counts["cudnn_convolutions"] < 3*20 || p.Counts["cudnn_batch_norms"] != 2*2*20 {
		t.Errorf("counts %v: fewer convolutions or batch norms than two steps of ResNet-18 have", p.Counts)
	}
	for _, want := range []string{"cuDNN convolution workspace", "cuDNN batch norm workspace",
		"cuDNN batch norm reserve space"} {
		if !slices.Contains(p.Inferred, want) {
			t.Errorf("inferred are %q, which lack %q", p.Inferred, want)
		}
	}
}

// Programs without cuDNN have no inferred figures: what is known and what is guessed are kept apart.
func TestPlainProgramsHaveNoInferredFigures(t *testing.T) {
	r := standintest.TryPython(t, standin.Machine{Compute: true}, `
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
net(torch.randn(4, 8, device="cuda")).sum().backward()
torch.cuda.synchronize()
`)
	r.Check(t)
	if p := r.Reports[0]; len(p.Inferred) > 0 || p.Counts["cublas_calls"] == 0 {
		t.Errorf("inferred %q after %d calls of cuBLAS", p.Inferred, p.Counts["cublas_calls"])
	}
}

// Recurrent networks keep their weights in one buffer of cuDNN's layout, whose parts are the parameters, and
// go through forward and backward. Their numbers are not computed.
func TestRecurrentNetworksShareOneBuffer(t *testing.T) {
	out := standintest.TryPython(t, standin.Machine{}, `
import torch
for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    net = kind(10, 20, 2, bidirectional=True, dropout=0.1).cuda()
    net(torch.randn(7, 3, 10, device="cuda"))[0].sum().backward()
    one = {p.untyped_storage().data_ptr() for p in net.parameters()}
    print(kind.__name__, len(one), net.weight_ih_l0.untyped_storage().nbytes() == 4 * sum(p.numel() for p in net.parameters()))
net = torch.nn.LSTM(10, 20, 2, proj_size=5).cuda()
print(tuple(net(torch.randn(7, 3, 10, device="cuda"))[0].shape))
torch.cuda.synchronize()
`)
	out.Check(t)
	if want := "LSTM 1 True\nGRU 1 True\nRNN 1 True\n(7, 3, 5)\n"; out.Stdout != want {
		t.Errorf("printed %q, not %q", out.Stdout, want)
	}
	if p := out.Reports[0]; p.Counts["cudnn_rnns"] == 0 ||
		!slices.Contains(p.Inferred, "cuDNN RNN work and reserve space") {
		t.Errorf("counts %v, inferred %q", p.Counts, p.Inferred)
	}
}

// The workspaces that PyTorch brings to cuBLAS are those of its own rules, by card and variable.
func TestWorkspacesFollowPyTorchsRules(t *testing.T) {
	const script = `
import torch
x = torch.zeros(64, 64, device="cuda")
torch.cuda.memory._record_memory_history()
x @ x
torch.cuda.synchronize()
print(max(e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"))
`
	for _, test := range []struct{ model, config, want string }{
		{"h100", "", "33554432\n"}, {"a100", "", "8519680\n"}, {"h100", ":16:8", "131072\n"},
	} {
		t.Setenv("CUBLAS_WORKSPACE_CONFIG", test.config)
		if test.config == "" {
			os.Unsetenv("CUBLAS_WORKSPACE_CONFIG")
		}
		if out := standintest.Python(t, standin.Machine{Model: test.model}, script); out != test.want {
			t.Errorf("%s with %q: the largest allocation of a product is %q, not %q", test.model, test.config,
				out, test.want)
		}
	}
}
