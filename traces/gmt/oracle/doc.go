// Package oracle checks the native file against arrow-go, a reader and writer of Arrow streams that shares no
// code with ours. It is a module of its own, so that arrow-go is never linked into gmemtop; run its tests
// with go test from this folder.
package oracle
