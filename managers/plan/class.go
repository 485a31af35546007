package plan

import (
	"slices"
	"strings"
)

// classes are tried in order: the first whose word is in an op's name.
var classes = []struct {
	word  string
	class Class
}{
	{"conv", ClassConv}, {"batch_norm", ClassNorm}, {"batchnorm", ClassNorm}, {"norm", ClassNorm},
	{"dropout", ClassDropout},
	{"softmax", ClassSoftmax}, {"loss", ClassLoss}, {"cross_entropy", ClassLoss}, {"nll", ClassLoss},
	{"pool", ClassPool},
	{"linear", ClassLinear}, {"addmm", ClassLinear}, {"matmul", ClassLinear}, {"bmm", ClassLinear},
	{"relu", ClassActivation},
	{"gelu", ClassActivation}, {"silu", ClassActivation}, {"sigmoid", ClassActivation},
	{"tanh", ClassActivation},
	{"adam", ClassOptimizer}, {"sgd", ClassOptimizer}, {"optimizer", ClassOptimizer},
}

// classOf returns the class of layer that an op's name shows.
func classOf(name string) Class {
	name = strings.ToLower(name)
	i := slices.IndexFunc(classes, func(c struct {
		word  string
		class Class
	}) bool {
		return strings.Contains(name, c.word)
	})
	if i < 0 {
		return ClassOther
	}
	return classes[i].class
}
