// Command packstandin compiles the stand-in GPU and writes it to the file that programs with the build tag
// packed carry. It needs g++, on Linux on amd64.
//
//	go run ./scripts/packstandin capture/standin/packed/libstandin.so.gz
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gmemtop/gmemtop/capture/standin"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: packstandin FILE")
		os.Exit(2)
	}
	if err := pack(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "packstandin:", err)
		os.Exit(1)
	}
}

func pack(path string) error {
	data, glibc, err := standin.Pack(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("the stand-in GPU takes %.2f MB, compressed, and runs on glibc %s or newer\n",
		float64(len(data))/1e6, glibc)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}
