//go:build !nobus

// Package sitetest starts NATS servers like a site's own, for tests: one or a cluster, with TLS by a
// certificate of the site's, accounts, and credentials in files.
package sitetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/gmemtop/gmemtop/capture/await"
)

// Site is a site's own servers.
type Site struct {
	// URL is where they are, with commas between them, and Plain the first one without encryption, which it
	// refuses.
	URL, Plain string
	// Leaf is where the first server takes leaf nodes.
	Leaf string
	// Roots is the file with the site's root certificate, for SSL_CERT_FILE.
	Roots string
	// Credentials is a file for its users, Others one for another account of the site, Looking one that may
	// read runs but not send to them, and NoStreams one for an account that may not use JetStream.
	Credentials, Others, Looking, NoStreams string

	servers  []*server.Server
	training nkeys.KeyPair // of the account that Credentials are for
}

// Start starts a site's only server, which ends with the test.
func Start(t testing.TB) *Site { return StartCluster(t, 1) }

// StartCluster starts a site's servers, which end with the test.
func StartCluster(t testing.TB, servers int) *Site {
	t.Helper()
	dir := t.TempDir()
	s := &Site{Roots: filepath.Join(dir, "roots.pem")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	options := server.Options{Host: "127.0.0.1", NoSigs: true, NoLog: true, JetStream: true, TLS: true,
		TLSTimeout: 5}
	s.accounts(t, dir, &options)
	own, err := certificate()
	must(err)
	must(os.WriteFile(s.Roots, own.roots, 0o600))
	options.TLSConfig, options.LeafNode.TLSConfig = own.config, own.config
	options.LeafNode.Host, options.LeafNode.TLSTimeout = "127.0.0.1", 5
	var routes []*url.URL
	if servers > 1 {
		for range servers {
			routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", freePort(t))})
		}
	}
	urls := make([]string, servers)
	for i := range servers {
		o := options
		o.ServerName, o.StoreDir = fmt.Sprintf("site%d", i), filepath.Join(dir, fmt.Sprint(i))
		o.Port, o.LeafNode.Port = server.RANDOM_PORT, server.RANDOM_PORT
		if routes != nil {
			o.Cluster.Name, o.Cluster.Host, o.Routes = "site", "127.0.0.1", routes
			var err error
			o.Cluster.Port, err = strconv.Atoi(routes[i].Port())
			must(err)
		}
		site, err := server.NewServer(&o)
		must(err)
		site.Start()
		t.Cleanup(func() { site.Shutdown(); site.WaitForShutdown() })
		s.servers = append(s.servers, site)
		if !site.ReadyForConnections(time.Minute) {
			t.Fatalf("the site's server %d of %d does not start", i+1, servers)
		}
		urls[i] = fmt.Sprintf("tls://127.0.0.1:%d", o.Port)
		if i == 0 {
			s.Plain = fmt.Sprintf("nats://127.0.0.1:%d", o.Port)
			s.Leaf = fmt.Sprintf("tls://127.0.0.1:%d", o.LeafNode.Port)
		}
	}
	s.URL = strings.Join(urls, ",")
	training, err := s.training.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the site's servers are ready", func() bool {
		leads := servers == 1
		for _, one := range s.servers {
			if servers > 1 && !one.JetStreamIsCurrent() {
				return false
			}
			// A server takes up an account when it is first asked for it, and only then its streams.
			if a, err := one.LookupAccount(training); err != nil || !a.JetStreamEnabled() {
				return false
			}
			leads = leads || one.JetStreamIsLeader()
		}
		return leads
	})
	return s
}

// Leader returns which of the servers leads the stream of a name.
func (s *Site) Leader(t testing.TB, stream string) int {
	t.Helper()
	for i, one := range s.servers {
		z, err := one.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range z.AccountDetails {
			for _, x := range a.Streams {
				if x.Name == stream && x.Cluster != nil && x.Cluster.Leader == one.Name() {
					return i
				}
			}
		}
	}
	t.Fatalf("no server leads %s", stream)
	return -1
}

// Stop stops one of the servers.
func (s *Site) Stop(i int) {
	s.servers[i].Shutdown()
	s.servers[i].WaitForShutdown()
}

// freePort finds a port that nothing listens on. It stays below the ephemeral ports (32768 and above on
// Linux), so no outgoing connection can take it before the server does.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + mathrand.IntN(12_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("a hundred ports are taken")
	return 0
}

// User makes the credentials of a user of the same account as Credentials, who may publish and subscribe to
// some subjects alone, and returns their file.
func (s *Site) User(t testing.TB, publish, subscribe []string) string {
	t.Helper()
	var permissions jwt.Permissions
	permissions.Pub.Allow, permissions.Sub.Allow = publish, subscribe
	path, err := credentials(s.training, filepath.Join(t.TempDir(), "user.creds"), permissions)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// credentials makes a user of an account and writes a file with the user's credentials.
func credentials(account nkeys.KeyPair, path string, permissions jwt.Permissions) (string, error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	public, err := user.PublicKey()
	if err != nil {
		return "", err
	}
	claims := jwt.NewUserClaims(public)
	claims.Permissions = permissions
	token, err := claims.Encode(account)
	if err != nil {
		return "", err
	}
	seed, err := user.Seed()
	if err != nil {
		return "", err
	}
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, text, 0o600)
}

// accounts makes the site's accounts and credentials of their users.
func (s *Site) accounts(t testing.TB, dir string, options *server.Options) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		p, err := create()
		must(err)
		public, err := p.PublicKey()
		must(err)
		return p, public
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	resolver := &server.MemAccResolver{}
	var limits jwt.JetStreamLimits
	limits.DiskStorage, limits.MemoryStorage, limits.Streams, limits.Consumer = -1, -1, -1, -1
	user := func(account nkeys.KeyPair, name string, deny ...string) string {
		var permissions jwt.Permissions
		permissions.Pub.Deny = deny
		path, err := credentials(account, filepath.Join(dir, name), permissions)
		must(err)
		return path
	}
	account := func(name string, limits jwt.JetStreamLimits) nkeys.KeyPair {
		p, public := pair(nkeys.CreateAccount)
		claims := jwt.NewAccountClaims(public)
		claims.Name, claims.Limits.JetStreamLimits = name, limits
		token, err := claims.Encode(operator)
		must(err)
		must(resolver.Store(public, token))
		return p
	}
	s.training = account("training", limits)
	s.Credentials = user(s.training, "me.creds")
	s.Looking = user(s.training, "looking.creds", "gmt.>", "$JS.API.STREAM.CREATE.>",
		"$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>")
	s.Others = user(account("others", limits), "others.creds")
	s.NoStreams = user(account("without streams", jwt.JetStreamLimits{}), "nostreams.creds")
	system, systemKey := pair(nkeys.CreateAccount)
	token, err := jwt.NewAccountClaims(systemKey).Encode(operator)
	must(err)
	must(resolver.Store(systemKey, token))
	system.Wipe()
	options.TrustedKeys, options.AccountResolver = []string{operatorKey}, resolver
	options.SystemAccount = systemKey
}

// identity is a server's side of TLS, and the root by which clients know it, as PEM.
type identity struct {
	config *tls.Config
	roots  []byte
}

// certificate returns the identity of all sites of a process, which reads SSL_CERT_FILE only once. It is
// valid for this machine, and for one called nats.site.
var certificate = sync.OnceValues(func() (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"nats.site"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return identity{}, err
	}
	return identity{
		config: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			MinVersion: tls.VersionTLS12},
		roots: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
})
