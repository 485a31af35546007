//go:build !nobus

package bus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/nats-io/nkeys"
)

// serverName is the name in every hub's certificate. A client checks this name and that the certificate is
// the run's own, so it does not matter by which address it reaches the hub.
const serverName = "hub.gmemtop"

// Keys are the secrets of a run: the hub's certificate and a key for each role.
type Keys struct {
	// Expires is when the certificate and with it all keys become invalid.
	Expires time.Time
	// certificate is self-signed: clients accept this one and no other.
	certificate []byte // PEM
	private     *ecdsa.PrivateKey
	seeds       map[Role]string
	public      map[Role]string
}

// NewKeys makes the keys of a run, which are valid for life.
func NewKeys(life time.Duration) (*Keys, error) {
	now := time.Now()
	k := &Keys{Expires: now.Add(life).Truncate(time.Second), seeds: map[Role]string{},
		public: map[Role]string{}}
	var err error
	if k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make the hub's certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make the hub's certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		// Clocks of nodes differ a little.
		NotBefore: now.Add(-10 * time.Minute), NotAfter: k.Expires,
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.private.PublicKey, k.private)
	if err != nil {
		return nil, fmt.Errorf("make the hub's certificate: %w", err)
	}
	k.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for _, r := range roles {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, fmt.Errorf("make the key of role %s: %w", r, err)
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, fmt.Errorf("make the key of role %s: %w", r, err)
		}
		k.seeds[r] = string(seed)
		if k.public[r], err = pair.PublicKey(); err != nil {
			return nil, fmt.Errorf("make the key of role %s: %w", r, err)
		}
	}
	return k, nil
}

// server returns the hub's side of TLS.
func (k *Keys) server() (*tls.Config, error) {
	block, _ := pem.Decode(k.certificate)
	if block == nil {
		return nil, errors.New("the hub's certificate is damaged")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: k.private}},
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// clientTLS returns a client's side: it accepts the certificate in PEM and no other, whatever the system
// trusts.
func clientTLS(certificate string) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(certificate)) {
		return nil, errors.New("the hub's certificate in the join file is damaged: start the hub again")
	}
	return &tls.Config{RootCAs: pool, ServerName: serverName, MinVersion: tls.VersionTLS13}, nil
}

// pairOf returns the key pair of a seed.
func pairOf(seed string) (pair nkeys.KeyPair, public string, err error) {
	if pair, err = nkeys.FromSeed([]byte(seed)); err != nil {
		return nil, "", fmt.Errorf("the key in the join file is damaged, start the hub again: %w", err)
	}
	public, err = pair.PublicKey()
	return pair, public, err
}

// sign signs data with a seed.
func sign(seed string, data []byte) ([]byte, error) {
	pair, _, err := pairOf(seed)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	return pair.Sign(data)
}

// verify checks a signature of the owner of a public key.
func verify(public string, data, signature []byte) error {
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return fmt.Errorf("the operator's public key is damaged: %w", err)
	}
	return pair.Verify(data, signature)
}
