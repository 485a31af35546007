//go:build !nobus

package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/bus/sitetest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// A site has three servers, and the one that leads a run's steps stops. Nodes and viewers that know only this
// one go on at the others: every message is there once.
func TestARunOutlivesOneOfASitesServers(t *testing.T) {
	s := sitetest.StartCluster(t, 3)
	t.Setenv("SSL_CERT_FILE", s.Roots)
	ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer stop()
	h := openHub(t, HubOptions{Run: "r", URL: s.URL, Credentials: s.Credentials, Keys: makeKeys(t)})
	own, err := h.Dial(Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, k := range kinds {
		if _, x, err := own.stream(ctx, k); err != nil || x.CachedInfo().Config.Replicas != siteReplicas {
			t.Fatalf("the stream of kind %s: %+v %v", k, x, err)
		}
	}
	leader := s.Leader(t, namesOf("r").stream(Step))
	as := func(r Role) *Conn {
		return dial(t, Access{Join: h.Join(), Role: r, URL: strings.Split(s.URL, ",")[leader],
			Credentials: s.Credentials})
	}
	agent, viewer := as(Agent), as(Viewer)
	b, r := read(ctx, t, viewer, Step), NewRing("a", RingLimits{})
	const each = 20
	for i := range 2 * each {
		if i == each {
			b.wait(ctx, t, each)
			s.Stop(leader)
		}
		send(ctx, t, agent, r, strconv.Itoa(i))
	}
	for i, m := range b.wait(ctx, t, 2*each) {
		if string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, m.Data)
		}
	}
	later := read(ctx, t, viewer, Step).wait(ctx, t, 2*each)
	if c := r.Counts(); len(later) != 2*each || c.Sent != 2*each || c.Dropped > 0 {
		t.Errorf("one who comes later reads %d messages; the ring: %+v", len(later), c)
	}
}

// A hub is a leaf node of a site's server. The site's users look at the run, and the operator's orders reach
// the nodes, through the site alone. They can neither add steps nor take them away, and another account of
// the site sees nothing. The site need not let them use JetStream.
func TestAHubIsALeafNodeOfASite(t *testing.T) {
	s := sitetest.Start(t)
	t.Setenv("SSL_CERT_FILE", s.Roots)
	// This user has only the permissions that docs/fleet.md asks for.
	least := s.User(t, []string{"$JS.GMT-r.API.>", "gmt.v1.r.ctl.>"}, []string{"_GMT.>"})
	for name, x := range map[string]struct{ hub, user string }{
		"with JetStream": {s.Credentials, s.Credentials}, "without": {s.NoStreams, s.NoStreams},
		"least permissions": {s.Credentials, least}} {
		t.Run(name, func(t *testing.T) { aLeafNode(t, s, x.hub, x.user) })
	}
}

// aLeafNode tries a hub that is a leaf node with some credentials, and the user of the site who has others.
func aLeafNode(t *testing.T, s *sitetest.Site, hub, credentials string) {
	ctx := within(t)
	h := openHub(t, HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: makeKeys(t), Leaf: s.Leaf,
		Credentials: hub})
	if err := h.Leaf(ctx); err != nil {
		t.Fatal(err)
	}
	agent := dial(t, Access{Join: h.Join(h.Address()), Role: Agent, Name: "a"})
	if err := agent.Serve(Status, func(data json.RawMessage) any { return "heard " + string(data) },
		func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	r := NewRing("a", RingLimits{})
	send(ctx, t, agent, r, "one")
	through := func(credentials string, j Join, r Role) *Conn {
		return dial(t, Access{Join: j, Role: r, URL: s.URL, Credentials: credentials})
	}
	b := read(ctx, t, through(credentials, Join{Run: "r"}, Viewer), Step)
	b.wait(ctx, t, 1)
	send(ctx, t, agent, r, "two")
	b.wait(ctx, t, 2)
	answers := 0
	if err := through(credentials, h.Join(), Operator).Ask(ctx, Status, 7,
		func(_ string, answer json.RawMessage) bool {
			answers++
			return string(answer) == `"heard 7"`
		}); err != nil || answers != 1 {
		t.Errorf("an order has %d answers: %v", answers, err)
	}
	n := namesOf("r")
	user := through(credentials, Join{Run: "r"}, Viewer)
	for _, change := range []string{"DELETE", "PURGE"} {
		m, err := user.nats.Request("$JS."+n.domain()+".API.STREAM."+change+"."+n.stream(Step), nil,
			time.Second)
		if err == nil {
			t.Errorf("a user of the site may %s the run's steps: %s", change, m.Data)
		}
	}
	forging, enough := context.WithTimeout(ctx, time.Second)
	defer enough()
	if _, err := user.publish(forging, "a", Step, "1", []byte("forged")); err == nil {
		t.Error("a user of the site sends steps")
	}
	// Nor may the hub do so for a user, by delivering to a subject that would.
	for _, change := range []string{"DELETE", "PURGE"} {
		to := "$JS.API.STREAM." + change + "." + n.stream(Step)
		if _, err := user.nats.SubscribeSync(to); err != nil { // the hub delivers only to who listens
			t.Error(err)
		}
		body := fmt.Appendf(nil, `{"stream_name":%q,"config":{"name":%q,"deliver_subject":%q,`+
			`"headers_only":true,"ack_policy":"none","deliver_policy":"all"}}`, n.stream(Step), change, to)
		m, err := user.nats.Request("$JS."+n.domain()+".API.CONSUMER.CREATE."+n.stream(Step)+"."+change, body,
			dialWait)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("a consumer is not made: %+v %v", m, err)
		}
	}
	send(ctx, t, agent, r, "three")
	if _, x, err := user.stream(ctx, Step); err != nil || x.CachedInfo().State.Msgs != 3 {
		t.Errorf("the run's steps are changed: %+v %v", x, err)
	}
	if got := b.wait(ctx, t, 3); string(got[2].Data) != "three" {
		t.Errorf("a user of the site has sent %q", got[2].Data)
	}
	if _, _, err := through(s.Others, Join{Run: "r"}, Viewer).stream(ctx, Step); err == nil {
		t.Error("another account of the site sees the run")
	}
}

// A hub that cannot become a leaf node serves its run all the same, and says why.
func TestAHubThatASiteRefusesServesAllTheSame(t *testing.T) {
	s := sitetest.Start(t)
	t.Setenv("SSL_CERT_FILE", s.Roots)
	ctx := within(t)
	h := openHub(t, HubOptions{Run: "r", Keys: makeKeys(t), Leaf: s.Leaf})
	await.Until(t, "the site refuses it", func() bool {
		return strings.Contains(h.log.newest().Error(), "Authorization Violation")
	})
	over, stop := context.WithCancel(ctx)
	stop()
	if err := h.Leaf(over); err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
		t.Errorf("a leaf node without credentials: %v", err)
	}
	as := func(r Role) *Conn {
		t.Helper()
		c, err := h.dial(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	send(ctx, t, as(Agent), NewRing("a", RingLimits{}), "one")
	read(ctx, t, as(Viewer), Step).wait(ctx, t, 1)
}
