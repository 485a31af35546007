//go:build !(cuda && linux && cgo)

package driver

// Open opens the CUDA driver's library at a path, "" for the one that the dynamic linker finds. This build
// has none: the error is [ErrNotBuilt].
func Open(string) (Driver, error) { return nil, ErrNotBuilt }
