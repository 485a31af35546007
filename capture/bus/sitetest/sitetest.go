//go:build !nobus

// Package sitetest starts a NATS server like a site's own, for tests: with TLS by a certificate of the
// site's, accounts, and credentials in files.
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
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Site is a site's own server.
type Site struct {
	// URL is where it is, and Plain the same without encryption, which it refuses.
	URL, Plain string
	// Roots is the file with the site's root certificate, for SSL_CERT_FILE.
	Roots string
	// Credentials is a file for its users, Others one for another account of the site, and Looking one that
	// may read runs but not send to them.
	Credentials, Others, Looking string
}

// Start starts a site's server, which ends with the test.
func Start(t testing.TB) *Site {
	t.Helper()
	dir := t.TempDir()
	s := &Site{Roots: filepath.Join(dir, "roots.pem")}
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
	credentials := func(account nkeys.KeyPair, name string, deny ...string) string {
		user, public := pair(nkeys.CreateUser)
		claims := jwt.NewUserClaims(public)
		claims.Pub.Deny = deny
		token, err := claims.Encode(account)
		must(err)
		seed, err := user.Seed()
		must(err)
		text, err := jwt.FormatUserConfig(token, seed)
		must(err)
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, text, 0o600))
		return path
	}
	account := func(name string) nkeys.KeyPair {
		p, public := pair(nkeys.CreateAccount)
		claims := jwt.NewAccountClaims(public)
		claims.Name, claims.Limits.JetStreamLimits = name, limits
		token, err := claims.Encode(operator)
		must(err)
		must(resolver.Store(public, token))
		return p
	}
	training := account("training")
	s.Credentials = credentials(training, "me.creds")
	s.Looking = credentials(training, "looking.creds", "gmt.>", "$JS.API.STREAM.CREATE.>",
		"$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>")
	s.Others = credentials(account("others"), "others.creds")
	system, systemKey := pair(nkeys.CreateAccount)
	token, err := jwt.NewAccountClaims(systemKey).Encode(operator)
	must(err)
	must(resolver.Store(systemKey, token))
	system.Wipe()
	config, roots := certificate(t)
	must(os.WriteFile(s.Roots, roots, 0o600))
	site, err := server.NewServer(&server.Options{ServerName: "site", Host: "127.0.0.1",
		Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir:    filepath.Join(dir, "js"),
		TrustedKeys: []string{operatorKey}, AccountResolver: resolver, SystemAccount: systemKey,
		TLS: true, TLSConfig: config, TLSTimeout: 5})
	must(err)
	site.Start()
	t.Cleanup(func() { site.Shutdown(); site.WaitForShutdown() })
	if !site.ReadyForConnections(20 * time.Second) {
		t.Fatal("the site's server does not start")
	}
	address := site.Addr().(*net.TCPAddr)
	s.URL = fmt.Sprintf("tls://127.0.0.1:%d", address.Port)
	s.Plain = fmt.Sprintf("nats://127.0.0.1:%d", address.Port)
	return s
}

// certificate returns a server's side of TLS, and the root by which clients know it.
func certificate(t testing.TB) (config *tls.Config, roots []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS12}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
