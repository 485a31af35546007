// Command packstandin compiles the stand-in GPU and writes it to the file that programs with the build tag
// packed carry. It needs Linux on amd64 and g++, or the compiler that GMEMTOP_CXX names.
//
//	go run ./scripts/packstandin -glibc 2.28 capture/standin/packed/libstandin.so.gz
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gmemtop/gmemtop/capture/standin"
)

func main() {
	most := flag.String("glibc", "", "fail if it needs a newer C library than this `version`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: packstandin [-glibc VERSION] FILE")
		os.Exit(2)
	}
	if err := pack(flag.Arg(0), *most); err != nil {
		fmt.Fprintln(os.Stderr, "packstandin:", err)
		os.Exit(1)
	}
}

// pack writes the library, unless it needs a C library newer than most; "" allows any.
func pack(path, most string) error {
	data, glibc, err := standin.Pack(context.Background())
	if err != nil {
		return err
	}
	if most != "" && !standin.AtLeast(most, glibc) {
		return fmt.Errorf("the stand-in GPU would need glibc %s, newer than %s: name a compiler for "+
			"an older one in GMEMTOP_CXX, as make dist does", glibc, most)
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
