// Package frames says what PyTorch's own code on a call stack reveals about an allocation. A frame is
// classified once, by its function and file; a stack has the kinds of all its frames. The names are those of
// PyTorch's own files and C++ symbols, stable since 1.13: torch/optim/*.py runs the optimizer,
// torch::autograd::Engine the backward, torch/nn/modules/module.py calls every module. They are rules, not
// records: everything based on them is marked inferred.
package frames
