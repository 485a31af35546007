//go:build !unix

package output

import "os"

func umask() os.FileMode { return 0o22 }
