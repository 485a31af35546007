// Package frames says what PyTorch's own code on a call stack tells about an allocation. A frame is judged
// once, by its function and file; a stack has what all its frames have. The names are those of PyTorch's own
// files and of its C++ symbols, which have been stable since 1.13: torch/optim/*.py runs the optimizer,
// torch::autograd::Engine the backward, torch/nn/modules/module.py calls every module. They are rules, not
// records: what is built on them is marked inferred.
package frames
