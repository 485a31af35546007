//go:build !unix

package load

// noWait is nothing where names of files are never those of pipes.
const noWait = 0
