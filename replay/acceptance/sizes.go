package acceptance

import (
	"time"
)

// size is the size of the networks to train.
type size struct {
	name    string
	network string              // batch of ResNet-50 made from its layers
	gpt     []string            // flags of GPT-2 made from its layers
	flags   map[string][]string // of each example
	cap     float64             // GiB that it may take
	first   int                 // the first batch that is tried
	oom     int                 // MiB, the memory of the training that must run out of it
	on      time.Duration       // how long a plan stays on before its effect is read
	live    string              // steps in which a plan in a running training is measured
	pairs   int                 // of windows with and without the agent
}

// gib is a number of bytes.
const gib = 1 << 30

var (
	full = size{name: "full", network: "32", gpt: []string{"--batch", "2"}, live: "20", cap: 8, first: 16,
		oom: 1536, on: 15 * time.Second, pairs: 150}
	// small is for a GPU that is small or mostly used by others.
	small = size{name: "small", network: "8", gpt: []string{"--batch", "1"}, live: "20", cap: 2, first: 8,
		oom: 512, on: 10 * time.Second, pairs: 100, flags: map[string][]string{
			"gpt2": {"--batch", "1", "--sequence", "256", "--layers", "6"}, "resnet50": {"--batch", "4"},
			"vgg16": {"--batch", "4", "--hidden", "1024"}, "vit": {"--batch", "4"},
			"mlp": {"--batch", "2048", "--width", "2048"}}}
	// tiny is for testing the checks themselves, for the stand-in, and for GPUs with hardly any memory left.
	tiny = size{name: "tiny", network: "1", gpt: []string{"--batch", "1"}, live: "5", cap: 0.0625, first: 16,
		oom: 96, on: 2 * time.Second, pairs: 6, flags: map[string][]string{
			"mlp":      {"--batch", "2048", "--inputs", "64", "--width", "64"},
			"resnet50": {"--batch", "16", "--image", "32", "--width", "4", "--classes", "10"},
			"vgg16": {"--batch", "16", "--image", "32", "--width", "4", "--hidden", "32", "--classes",
				"10"},
			"vit": {"--batch", "96", "--image", "32", "--patch", "4", "--layers", "2", "--width", "32",
				"--heads", "2", "--classes", "10"},
			"gpt2": {"--batch", "8", "--sequence", "64", "--layers", "4", "--width", "64", "--heads", "2",
				"--vocabulary", "500"}}}
)
