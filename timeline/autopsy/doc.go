// Package autopsy says why a training ran out of memory, or what its peak is made of: the sentence on top, the
// causes, and what would bring it down.
package autopsy
