// Package control loads the stand-in GPU into this process and controls it, for tests of Go code that calls
// the driver.
//
// Everything but this comment needs Linux and cgo.
package control
