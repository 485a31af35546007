//go:build !linux

package pytorch_test

import "os/exec"

func ownMounts(*exec.Cmd) {}
