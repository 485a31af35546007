package bus

import (
	"fmt"
	"os"
)

// networkFiles are the file systems that a hub's store must not be on, by the kernel's number. JetStream's
// authors do not support them: a file that another machine locks or replaces makes it lose messages.
var networkFiles = map[int64]string{
	0x6969: "NFS", 0x0BD00BD3: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x00C36400: "Ceph",
	0xFF534D42: "CIFS", 0xFE534D42: "SMB", 0x517B: "SMB", 0x5346414F: "AFS", 0x7461636F: "OCFS2",
	0x01161970: "GFS2", 0xAAD7AAEA: "PanFS",
}

// checkStore reports an error if a hub must not keep its messages in a folder. kind returns the number of a
// folder's file system.
func checkStore(dir string, kind func(dir string) (int64, error)) error {
	n, err := kind(dir)
	if err != nil {
		return fmt.Errorf("look at the store %s: %w", dir, err)
	}
	if name := networkFiles[n&0xFFFFFFFF]; name != "" {
		return fmt.Errorf("the store %s is on %s, where a hub would lose messages: name a folder on a "+
			"local disk "+
			"or in /dev/shm", dir, name)
	}
	return nil
}

// privateFolder makes a folder that only its owner can enter, and refuses an existing one that others can.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others can enter %s (mode %04o): chmod 700 it", dir, info.Mode().Perm())
	case !ownedByUs(info):
		return fmt.Errorf("%s belongs to another user: name a folder of your own", dir)
	}
	return nil
}
