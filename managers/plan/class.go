package plan

import (
	"slices"
	"strings"
)

// classWord is a part of an op's name that shows its class.
type classWord struct {
	word  string
	class Class
}

// classWords are tried in order: the first that is in an op's name counts.
var classWords = []classWord{
	{"conv", ClassConv},
	{"norm", ClassNorm},
	{"dropout", ClassDropout},
	{"softmax", ClassSoftmax},
	{"loss", ClassLoss},
	{"cross_entropy", ClassLoss},
	{"nll", ClassLoss},
	{"pool", ClassPool},
	{"linear", ClassLinear},
	{"addmm", ClassLinear},
	{"matmul", ClassLinear},
	{"bmm", ClassLinear},
	{"relu", ClassActivation},
	{"gelu", ClassActivation},
	{"silu", ClassActivation},
	{"sigmoid", ClassActivation},
	{"tanh", ClassActivation},
	{"adam", ClassOptimizer},
	{"sgd", ClassOptimizer},
	{"optimizer", ClassOptimizer},
}

// classOf returns the class of layer that an op's name shows.
func classOf(name string) Class {
	name = strings.ToLower(name)
	i := slices.IndexFunc(classWords, func(c classWord) bool { return strings.Contains(name, c.word) })
	if i < 0 {
		return ClassOther
	}
	return classWords[i].class
}
