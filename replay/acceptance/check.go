package acceptance

import (
	"context"
	"fmt"
	"time"
)

const (
	needTorch   need = 1 << iota // a Python whose torch uses the GPU
	needLimit                    // a torch that says what share of the GPU a program allows itself
	needTwoGPUs                  // two GPUs
)

// Find returns the check of that name.
func Find(name string) (Check, bool) {
	for _, c := range checks {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// Checks returns all checks, the most informative first.
func Checks() []Check { return append([]Check(nil), checks...) }

// checks is filled by init, since checks refer to it.
var checks []Check

func init() {
	moving := "sqrt,dtr,autoswap,capuchin,joint"
	add := func(name string, least time.Duration, needs need, run func(context.Context, *trial) error,
		about string) {
		checks = append(checks, Check{Name: name, About: about, Least: least, needs: needs, run: run})
	}
	comparing := func(what string, budget int) {
		add(fmt.Sprintf("compare-%s-%d", what, budget), 20*time.Second, 0, comparison(what, budget),
			fmt.Sprintf("Managers' plans of a step of %s in %d %% of its peak, carried out on the device, "+
				"verified byte for byte and timed.", what, budget))
	}
	recording := func(example string) {
		add(example+"-record", 15*time.Second, needTorch, record(example),
			"A training of "+example+" recorded from its first step on.")
		add(example+"-stats", 5*time.Second, needTorch, statsOf(example),
			"The recording's report: steps, events and peak.")
	}
	living := func(example string) {
		add("live-"+example, 60*time.Second, needTorch, carried(example, moving),
			"Plans carried out in a running training of "+example+", measured beside the prediction; "+
				"its results stay bit-identical.")
	}

	add("doctor", 5*time.Second, 0, doctor, "What gmemtop can do on this machine.")
	recording("gpt2")
	add("attach", 30*time.Second, needTorch, attach,
		"gmemtop attaches to a running training and detaches; the training goes on, with bit-identical "+
			"results.")
	living("gpt2")
	add("snapshot", 15*time.Second, needTorch, snapshot,
		"Allocated and reserved bytes of a memory snapshot equal torch.cuda.memory_stats to the byte.")
	add("oom", 15*time.Second, needTorch, outOfMemory,
		"An out-of-memory error explained from torch's snapshot: the request is the one in torch's message.")
	add("estimate", 20*time.Second, needTorch, estimate,
		"The memory of a training predicted without the GPU, beside what torch's allocator counts on it.")
	add("calibrate", 15*time.Second, 0, calibrate, "What copies, launches and allocations of this GPU cost.")
	comparing("ResNet-50", 75)
	add("overhead", 30*time.Second, needTorch, overhead,
		"What watching the totals of each step costs a step.")
	add("history", 40*time.Second, needTorch, history,
		"What recording the allocator's history of one step in 20 costs; losses stay equal.")
	add("pool-gpt2", 60*time.Second, needTorch, carried("gpt2", "smartpool,stalloc"),
		"Addresses planned and served in a running training; its results stay bit-identical.")
	add("gpt2-compare-80", 20*time.Second, needTorch, comparisonOf("gpt2", 80),
		"Managers' plans of the recorded step of gpt2 in 80 % of its peak, carried out on the device.")
	add("probes", 20*time.Second, needTorch, probes,
		"A training seen from the kernel, without anything in its process; needs root.")
	add("checkpoint-gpt2", 60*time.Second, needTorch, beside("gpt2", "checkpoint", "sqrt"),
		"A plan beside torch's checkpointing of every block, in the memory that this takes.")
	add("offload-gpt2", 60*time.Second, needTorch, beside("gpt2", "offload", "autoswap", "vdnn-all"),
		"A plan beside offloading all that autograd saves, in the memory that this takes.")
	add("ranks", 30*time.Second, needTorch|needTwoGPUs, ranks,
		"Two ranks of DDP over NCCL recorded, one file a rank.")
	comparing("GPT-2-small", 75)
	recording("resnet50")
	add("resnet50-compare-80", 20*time.Second, needTorch, comparisonOf("resnet50", 80),
		"Managers' plans of the recorded step of resnet50 in 80 % of its peak, carried out on the device.")
	living("resnet50")
	add("batch-resnet50", 120*time.Second, needTorch|needLimit, largestBatch(2.05, "resnet50"),
		"The largest batch of ResNet-50 in a limited memory, and one more than twice as large under a plan.")
	add("beyond-vgg16", 60*time.Second, needTorch|needLimit, beyond("joint"),
		"VGG-16 at batch 256 in 12 GiB under a plan, beside a run with enough memory.")
	add("beyond-vgg16-swapping", 60*time.Second, needTorch|needLimit, beyond("autoswap"),
		"The same by swapping alone.")
	add("batch-resnet101", 120*time.Second, needTorch|needLimit,
		largestBatch(2.26, "resnet50", "--blocks", "3,4,23,3"),
		"The largest batch of ResNet-101 in a limited memory, and one more than twice as large under a plan.")
	for _, example := range []string{"vgg16", "vit", "mlp"} {
		living(example)
	}
	add("pool-resnet50", 60*time.Second, needTorch, carried("resnet50", "smartpool,stalloc"),
		"Addresses planned and served in a running training of resnet50.")
	add("checkpoint-resnet50", 60*time.Second, needTorch, beside("resnet50", "checkpoint", "sqrt"),
		"What checkpoint-gpt2 compares, for resnet50.")
	add("offload-resnet50", 60*time.Second, needTorch, beside("resnet50", "offload", "autoswap", "vdnn-all"),
		"What offload-gpt2 compares, for resnet50.")
	for _, budget := range []int{90, 60} {
		comparing("ResNet-50", budget)
		comparing("GPT-2-small", budget)
	}
	for _, budget := range []int{75, 90, 60} {
		comparing("resnet18-steps-cpu", budget)
		comparing("gpt-steps-cpu", budget)
	}
}
