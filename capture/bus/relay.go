//go:build !nobus

package bus

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Relay connects in and out with a hub until either side ends, logged in as a role. It is the far end of a
// [Tunnel].
func Relay(ctx context.Context, j Join, r Role, in io.Reader, out io.Writer) error {
	seed := j.Seeds[r]
	if seed == "" {
		return fmt.Errorf("the join file has no key of role %s", r)
	}
	c, err := j.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	first := j.only()
	if r == Operator {
		first = j.only(Operator)
	}
	text, err := json.Marshal(first)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s%s\n", relayed, text); err != nil {
		return err
	}
	fromHub, fromUs := bufio.NewReaderSize(c, mostLine), bufio.NewReaderSize(in, mostLine)
	if err := logIn(fromHub, c, fromUs, out, seed); err != nil {
		return err
	}
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(c, fromUs)
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(out, fromHub)
		ended <- struct{}{}
	}()
	<-ended
	return nil
}

// connect connects to the hub: by its socket on its own machine, otherwise encrypted.
func (j *Join) connect(ctx context.Context) (net.Conn, error) {
	if j.URL != "" {
		return nil, fmt.Errorf("the site's own servers carry this run: use --hub %s --creds FILE", j.URL)
	}
	if (&Access{Join: *j}).local() {
		return net.Dial("unix", j.Socket)
	}
	if len(j.Addresses) == 0 {
		return nil, fmt.Errorf("%w: it listens only on %s", ErrNoHub, j.Host)
	}
	config, err := clientTLS(j.Certificate)
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialWait}, Config: config}
	var all error
	for _, a := range j.Addresses {
		if err := checkAddress(a); err != nil {
			return nil, err
		}
		c, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			return c, nil
		}
		all = errors.Join(all, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoHub, all)
}

// logIn passes the first line of either side on. The hub asks for a login, which the other side need not
// know of, and gets one.
func logIn(fromHub *bufio.Reader, toHub io.Writer, fromUs *bufio.Reader, toUs io.Writer, seed string) error {
	info, err := readVerb(fromHub, "INFO")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoHub, err)
	}
	var nonce string
	_ = json.Unmarshal(info["nonce"], &nonce)
	for _, k := range []string{"nonce", "auth_required", "tls_required", "tls_verify", "tls_available"} {
		delete(info, k)
	}
	if err := writeVerb(toUs, "INFO", info); err != nil {
		return err
	}
	connect, err := readVerb(fromUs, "CONNECT")
	if err != nil {
		return err
	}
	pair, public, err := pairOf(seed)
	if err != nil {
		return err
	}
	defer pair.Wipe()
	signature, err := pair.Sign([]byte(nonce))
	if err != nil {
		return err
	}
	connect["nkey"], _ = json.Marshal(public)
	connect["sig"], _ = json.Marshal(base64.RawURLEncoding.EncodeToString(signature))
	return writeVerb(toHub, "CONNECT", connect)
}

// readVerb reads a line of NATS: a verb and its arguments.
func readVerb(r *bufio.Reader, verb string) (map[string]json.RawMessage, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	said := map[string]json.RawMessage{}
	word, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	if !bytes.EqualFold(word, []byte(verb)) || json.Unmarshal(rest, &said) != nil {
		return nil, fmt.Errorf("%.20q is not a line of %s", line, verb)
	}
	return said, nil
}

func writeVerb(w io.Writer, verb string, said map[string]json.RawMessage) error {
	text, err := json.Marshal(said)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s %s\r\n", verb, text)
	}
	return err
}
