package pytorch

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSocketsThatNobodyHoldsAreRemoved leaves a socket behind as a killed viewer does, beside one that
// listens, one that is only bound, and a file of the same ending.
func TestSocketsThatNobodyHoldsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "left.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	held, err := net.Listen("unix", filepath.Join(dir, "held.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	bound, err := net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: filepath.Join(dir, "bound.sock"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	if err := os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	go func() {
		if c, err := held.Accept(); err == nil {
			c.Close()
			close(came)
		}
	}()
	sweepSockets(dir)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{"bound.sock", "file.sock", "held.sock"}; !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
	select {
	case <-came:
		t.Error("the socket's holder saw a connection")
	default:
	}
}
