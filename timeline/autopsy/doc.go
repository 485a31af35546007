// Package autopsy says why a training ran out of memory, or what its peak is made of: the sentence on top,
// the causes, and what would bring it down.
//
// It looks for no cause that a recording of the allocator cannot show. What NCCL, the context, cuBLAS
// without the allocator and other libraries take lies outside of it, and so does a leak there. Workspaces of
// cuBLAS and cuDNN look like any block unless C++ frames are recorded. That experts of a mixture get unequal
// shares takes several ranks, and the padding in a batch takes its values. Stages of a pipeline are told as
// forwards that wait for one backward. Settings of the allocator that do harm show as fragmentation, and
// package whatif tries others.
package autopsy
