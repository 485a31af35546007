//go:build !nobus

package bus

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheStoreIsOnALocalDisk(t *testing.T) {
	for n, name := range map[int64]string{0x6969: "NFS", 0x0BD00BD3: "Lustre", 0xFF534D42: "CIFS",
		-0xacb2be: "CIFS"} { // the last as a signed 32-bit number
		_, err := OpenHub(HubOptions{Run: "r", fileSystem: func(string) (int64, error) { return n, nil }})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("on %s: %v", name, err)
		}
	}
	if _, err := fileSystem(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestSecretsStayOutOfURLs(t *testing.T) {
	for text, want := range map[string]string{
		"tls://me:secret@nats.site:4222": "secret that others",
		"tls://token@nats.site:4222":     "secret that others",
		"nats://nats.site:4222":          "not encrypted",
		"me:secret@nats.site":            "URL",
		"":                               "address",
	} {
		a := Access{Join: Join{Run: "r"}, URL: text, Role: Viewer}
		if text == "" {
			a.Join.Addresses, a.Seeds = []string{"me:secret@host:1"}, makeKeys(t).seeds
			a.Certificate = string(makeKeys(t).certificate)
		}
		_, err := Dial(within(t), a)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		} else if text != "" && strings.Contains(err.Error(), "secret@") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	creds := filepath.Join(t.TempDir(), "me.creds")
	if err := os.WriteFile(creds, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Dial(within(t), Access{Join: Join{Run: "r"}, URL: "tls://127.0.0.1:1", Credentials: creds})
	if err == nil || !strings.Contains(err.Error(), "can be read by others (mode 0644): chmod 600 it, and "+
		"ask the site for new credentials") {
		t.Errorf("credentials that others can read: %v", err)
	}
}

// A stream keeps at most half of what the disk has room for, so that the oldest messages go before the disk
// is full and none can be stored.
func TestTheStoreLeavesRoomOnTheDisk(t *testing.T) {
	for free, want := range map[int64]int64{64 << 20: 32 << 20, 1 << 40: streamLimits[Step].bytes} {
		h := openHub(t, HubOptions{Run: "r", free: func(string) (int64, error) { return free, nil }})
		c, err := h.Dial(Viewer)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.js.Stream(within(t), c.names.stream(Step))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().Config.MaxBytes; got != want {
			t.Errorf("with %d bytes free it keeps %d, not %d", free, got, want)
		}
		c.Close()
	}
	if h, err := OpenHub(HubOptions{Run: "r", free: func(string) (int64, error) {
		return 1 << 20,
			nil
	}}); err == nil {
		h.Close()
		t.Error("a hub opens on a full disk")
	}
}

// What another user made may be a trap, whatever its mode: a join file, a file of credentials, a hub's store.
func TestFilesOfAnotherUserAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
	const nobody = 65534
	dir := t.TempDir()
	join, store := filepath.Join(dir, "r.join"), filepath.Join(dir, "store")
	if err := errors.Join(aJoin().Write(join), os.Mkdir(store, 0o700), os.Chown(join, nobody, nobody),
		os.Chown(store, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	_, asJoin := ReadJoin(join)
	_, asKey := Dial(within(t), Access{Join: Join{Run: "r"}, URL: "tls://127.0.0.1:1", Credentials: join})
	_, asStore := OpenHub(HubOptions{Run: "r", Store: store})
	for what, err := range map[string]error{"join file": asJoin, "credentials": asKey, "store": asStore} {
		if err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
