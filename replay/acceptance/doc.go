// Package acceptance is being written.
package acceptance
