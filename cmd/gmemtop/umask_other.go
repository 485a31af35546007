//go:build !unix

package main

import "os"

func umask() os.FileMode { return 0o22 }
