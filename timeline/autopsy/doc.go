// Package autopsy says why a training ran out of memory, or what its peak consists of: the sentence on top,
// the causes, and what would bring it down.
//
// It looks for no cause that a recording of the allocator cannot show. The memory of NCCL, the context,
// cuBLAS without the allocator and other libraries is outside of it, and so is a leak there. Workspaces of
// cuBLAS and cuDNN look like any block unless C++ frames are recorded. Unequal shares of a mixture's experts
// are visible only across several ranks, and the padding in a batch only in its values. Stages of a pipeline
// are reported as forwards that wait for one backward. Harmful allocator settings appear as fragmentation,
// and package whatif tries others.
package autopsy
